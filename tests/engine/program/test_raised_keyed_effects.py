"""Keyed effects whose function raises: tried again with the same key, within its window."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

import holdfast as hf
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.testing import Crashed
from tests.engine.program.bank import Bank, QuotaExceeded, paying, started, statuses, task_of
from tests.engine.stage import Stage


@pytest.fixture
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pause is as long as it may be."""
    monkeypatch.setattr(random, "random", lambda: 1.0)


async def test_a_keyed_effect_that_raised_is_tried_again_with_the_same_key(stage: Stage) -> None:
    bank = Bank(RuntimeError("500"), ValueError("not json"))
    pay = paying(bank, hf.keyed("24h"), retry=hf.retry(1, backoff="1m"))
    handle = await started(stage, task_of(pay, attempts=2, backoff="1m"))

    assert await stage.result(handle) == "paid ann!"
    assert len(bank.keys) == 3
    assert len(set(bank.keys)) == 1
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.FAILED, EffectStatus.DONE]


@pytest.mark.usefixtures("no_jitter")
async def test_attempts_that_share_a_key_share_its_window(stage: Stage) -> None:
    bank = Bank(*(RuntimeError("500") for _ in range(5)))
    pay = paying(bank, hf.keyed("20h"), retry=hf.retry(5, backoff="18h", most="18h"))
    handle = await started(stage, task_of(pay, attempts=1))

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert (len(bank.keys), len(set(bank.keys))) == (2, 1)
    assert statuses(stage, handle)[-1] is EffectStatus.UNKNOWN


@pytest.mark.usefixtures("no_jitter")
async def test_the_window_of_a_shared_key_is_counted_from_its_first_use_after_a_restart_too(
    stage: Stage,
) -> None:
    bank = Bank(RuntimeError("500"), Crashed())
    pay = paying(bank, hf.keyed("20h"), retry=hf.retry(5, backoff="18h", most="18h"))
    task = task_of(pay, attempts=1)
    await started(stage, task)  # killed in the second attempt, 18 hours after the first
    stage.clock.advance(hours=12)
    await stage.open(task)
    await stage.settle()

    effect = await stage.review()
    assert "window" in str(effect.outcome)
    assert len(bank.keys) == 2


class Keyed(Bank):
    """A provider that knows keys. What is said instead of an answer is said before or after it looks."""

    def __init__(self, *says: BaseException | None, performs: int = 1) -> None:
        super().__init__()
        self.says = list(says)
        # So many calls get as far as to be performed, before any is refused.
        self._performs = performs

    def pay(self, to: str) -> str:
        key = hf.idempotency_key()
        says = self.says.pop(0) if self.says else None
        if (says is None or len(self.keys) < self._performs) and key not in self.keys:
            self.paid[to] += 1
        self.keys.append(key)
        if says is not None:
            raise says
        return f"paid {to}"


CERTAIN = [hf.RetryAfter(1), hf.NotDone("refused"), QuotaExceeded("tomorrow")]


@pytest.mark.parametrize("lost", [ConnectionResetError("reset"), RuntimeError("500")])
@pytest.mark.parametrize("certain", CERTAIN, ids=lambda one: type(one).__name__)
async def test_what_is_certain_of_one_call_says_nothing_of_an_earlier_one_with_the_same_key(
    stage: Stage, lost: Exception, certain: Exception
) -> None:
    bank = Keyed(lost, certain)
    pay = paying(bank, hf.keyed("24h", did_not_happen=QuotaExceeded), retry=hf.retry(5, backoff="1s"))
    handle = await started(stage, task_of(pay))

    assert await stage.result(handle) == "paid ann!"
    assert bank.paid == {"ann": 1}
    assert (len(bank.keys), len(set(bank.keys))) == (3, 1)


@pytest.mark.parametrize("certain", CERTAIN, ids=lambda one: type(one).__name__)
async def test_neither_does_it_after_the_worker_was_killed_in_the_first_call(
    stage: Stage, certain: Exception
) -> None:
    bank = Keyed(Crashed(), certain)
    pay = paying(bank, hf.keyed("24h", did_not_happen=QuotaExceeded), retry=hf.retry(5, backoff="1s"))
    task = task_of(pay)
    handle = await started(stage, task)
    await stage.open(task)
    await stage.to_the_end(handle)

    assert await stage.result(handle) == "paid ann!"
    assert bank.paid == {"ann": 1}
    assert (len(bank.keys), len(set(bank.keys))) == (3, 1)


async def test_nor_when_the_clock_was_put_back_between_the_two(stage: Stage) -> None:
    bank = Keyed(RuntimeError("500"), hf.NotDone("refused"))

    @hf.tool(effect=hf.keyed("24h"), retry=hf.retry(5, backoff="1s"))
    async def pay(to: str) -> str:
        stage.clock.set(stage.clock.now() - timedelta(minutes=5))
        return bank.pay(to)

    handle = await started(stage, task_of(pay))

    assert await stage.result(handle) == "paid ann!"
    assert bank.paid == {"ann": 1}


async def test_a_clock_that_was_set_back_does_not_open_the_window_of_a_key_again(stage: Stage) -> None:
    bank = Bank(Crashed())
    task = task_of(paying(bank, hf.keyed("24h")))
    await started(stage, task)
    stage.clock.jump(days=-2)
    await stage.open(task)
    await stage.settle()

    assert "window" in str((await stage.review()).outcome)
    assert len(bank.keys) == 1


async def test_what_a_keyed_effect_says_did_not_happen_gets_a_new_key(stage: Stage) -> None:
    bank = Bank(QuotaExceeded("tomorrow"))
    pay = paying(bank, hf.keyed("24h", did_not_happen=QuotaExceeded))
    handle = await started(stage, task_of(pay, attempts=2, backoff="1s"))

    assert await stage.result(handle) == "paid ann!"
    assert len(set(bank.keys)) == 2
