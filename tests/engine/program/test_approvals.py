"""Effects of the classes that a policy names wait for a person before they are performed."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.core.effect import EffectClass
from holdfast.core.events import EventKind
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.engine.program.effect_reviews import COMPENSATED
from tests.engine.program.bank import Bank, paying, started, statuses, task_of
from tests.engine.stage import Stage

OPAQUE = frozenset({EffectClass.OPAQUE})


def _was_not_paid(to: str) -> hf.DidNotHappen:
    del to
    return hf.DidNotHappen()


def spec_of(name: str) -> Any:
    return {
        "keyed": hf.keyed("1d"),
        "opaque": hf.opaque,
        "verifiable": hf.verifiable(_was_not_paid),
    }[name]


async def finished(stage: Stage, handle: Handle[Any]) -> Any:
    """Its result, once all that can go on has gone on."""
    await stage.to_the_end(handle)
    return await stage.result(handle)


@pytest.mark.parametrize("name", ["keyed", "opaque", "verifiable"])
async def test_an_effect_of_the_class_is_performed_once_it_is_approved(stage: Stage, name: str) -> None:
    stage.approval = frozenset({EffectClass(name)})
    bank = Bank()
    handle = await started(stage, task_of(paying(bank, spec_of(name))))

    assert bank.keys == []
    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    effect = await stage.review()
    assert effect.is_unapproved
    assert "policies.approval asks a person" in str(effect.outcome)
    assert len(await stage.events(handle, EventKind.EFFECT_IN_DOUBT)) == 1

    await stage.holdfast.resolve(effect.id, "retry")

    assert await finished(stage, handle) == "paid ann!"
    assert bank.paid == {"ann": 1}


@pytest.mark.parametrize(
    "effect", [hf.keyed("1d"), hf.idempotent, hf.read], ids=["keyed", "idempotent", "read"]
)
async def test_effects_of_other_classes_are_performed_at_once(stage: Stage, effect: Any) -> None:
    stage.approval = OPAQUE

    @hf.tool(effect=effect)
    async def pay(to: str) -> str:
        return f"paid {to}"

    pays = task_of(pay)
    await stage.open(pays)

    assert await stage.run(pays()) == "paid ann!"


@pytest.mark.parametrize(
    ("decision", "result", "answer"), [("skip", None, "None!"), ("done", "paid by hand", "paid by hand!")]
)
async def test_what_a_person_does_not_approve_is_not_performed(
    stage: Stage, decision: str, result: object, answer: str
) -> None:
    stage.approval = OPAQUE
    bank = Bank()
    handle = await started(stage, task_of(paying(bank, hf.opaque)))

    await stage.holdfast.resolve((await stage.review()).id, decision, result=result)

    assert await finished(stage, handle) == answer
    assert bank.keys == []


async def test_compensate_fails_the_step_and_undoes_nothing(stage: Stage) -> None:
    stage.approval = OPAQUE
    bank, undone = Bank(), list[str]()
    pay = paying(bank, hf.opaque, compensate=undone.append)
    handle = await started(stage, task_of(pay, attempts=3))

    await stage.holdfast.resolve((await stage.review()).id, "compensate")
    await stage.to_the_end(handle)

    assert await handle.status() is TaskStatus.FAILED
    failure = (await handle.task()).failure
    assert failure is not None
    assert (failure.kind, failure.message) == (
        COMPENSATED,
        "a person did not approve it; it was not performed",
    )
    assert (bank.keys, undone) == ([], [])


async def test_a_decision_counts_once_also_across_restarts_and_further_attempts(stage: Stage) -> None:
    stage.approval = OPAQUE
    bank = Bank(hf.RetryAfter(1))
    pays = task_of(paying(bank, hf.opaque))
    handle = await started(stage, pays)
    effect = await stage.review()
    await stage.open(pays)
    await stage.settle()
    assert (await stage.review()).id == effect.id

    await stage.holdfast.resolve(effect.id, "retry")
    await stage.open(pays)

    assert await finished(stage, handle) == "paid ann!"
    assert len(bank.keys) == 2
    assert len(await stage.events(handle, EventKind.EFFECT_IN_DOUBT)) == 1


async def test_another_call_than_the_approved_one_needs_an_approval_of_its_own(stage: Stage) -> None:
    stage.approval = OPAQUE
    bank, to = Bank(), ["ann"]
    pay = paying(bank, hf.opaque)

    @hf.task
    async def pays(run: hf.Run) -> str:
        return f"{await run.step(pay, to[0])}!"

    handle = await started(stage, pays)
    first = await stage.review()
    to[0] = "eve"
    await stage.holdfast.resolve(first.id, "retry")
    await stage.open(pays)
    await stage.settle()

    assert bank.keys == []
    second = await stage.review()
    assert second.id != first.id
    await stage.holdfast.resolve(second.id, "retry")
    assert await finished(stage, handle) == "paid eve!"
    assert bank.paid == {"eve": 1}


async def test_a_process_that_dies_at_any_write_asks_once_and_performs_once(stage: Stage) -> None:
    stage.approval = OPAQUE
    for number in range(1, 12):
        bank = Bank()
        pays = task_of(paying(bank, hf.opaque), name=f"pays_{number}")
        await stage.open(pays)
        stage.die_at_write(number)
        handle = await stage.holdfast.start(pays())
        await stage.settle()
        await stage.open(pays)
        await stage.settle()
        assert bank.keys == []

        await stage.holdfast.resolve((await stage.review()).id, "retry")
        assert await finished(stage, handle) == "paid ann!"
        assert bank.paid == {"ann": 1}
        assert len(await stage.events(handle, EventKind.EFFECT_IN_DOUBT)) == 1


async def test_no_person_is_asked_any_more_when_the_task_has_ended(stage: Stage) -> None:
    stage.approval = OPAQUE
    handle = await started(stage, task_of(paying(Bank(), hf.opaque)))

    await handle.cancel()
    await stage.to_the_end(handle)

    assert await handle.status() is TaskStatus.CANCELLED
    assert statuses(stage, handle) == [EffectStatus.FAILED]
    assert await stage.holdfast.reviews() == []


@pytest.mark.parametrize("name", ["keyed", "opaque", "verifiable"])
async def test_a_retry_of_a_cancelled_task_asks_for_the_approval_again(stage: Stage, name: str) -> None:
    stage.approval = frozenset({EffectClass(name)})
    bank = Bank()
    handle = await started(stage, task_of(paying(bank, spec_of(name))))
    first = await stage.review()
    await handle.cancel()
    await stage.to_the_end(handle)

    await stage.holdfast.retry(handle.id, cancelled=True)
    await stage.settle()

    assert bank.keys == []
    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    second = await stage.review()
    assert second.id != first.id
    await stage.holdfast.resolve(second.id, "retry")
    assert await finished(stage, handle) == "paid ann!"
    assert bank.paid == {"ann": 1}


async def test_a_retry_of_a_task_that_timed_out_before_the_decision_asks_again(stage: Stage) -> None:
    stage.approval = OPAQUE
    bank = Bank()
    handle = await started(stage, task_of(paying(bank, hf.opaque), timeout="1m"))
    await stage.pass_time(minutes=2)
    await stage.to_the_end(handle)
    assert await handle.status() is TaskStatus.TIMED_OUT

    await stage.holdfast.retry(handle.id)
    await stage.settle()

    assert bank.keys == []
    assert (await stage.review()).is_unapproved


async def test_a_retry_without_the_policy_performs_what_no_person_had_decided(stage: Stage) -> None:
    stage.approval = OPAQUE
    bank = Bank()
    pays = task_of(paying(bank, hf.opaque))
    handle = await started(stage, pays)
    await handle.cancel()
    await stage.to_the_end(handle)

    stage.approval = frozenset()
    await stage.open(pays)
    await stage.holdfast.retry(handle.id, cancelled=True)

    assert await finished(stage, handle) == "paid ann!"
    assert bank.paid == {"ann": 1}


async def test_other_arguments_after_a_rate_limit_need_an_approval_of_their_own(stage: Stage) -> None:
    stage.approval = OPAQUE
    bank, to = Bank(hf.RetryAfter(60)), ["ann"]
    pay = paying(bank, hf.opaque)

    @hf.task
    async def pays(run: hf.Run) -> str:
        return f"{await run.step(pay, to[0])}!"

    handle = await started(stage, pays)
    await stage.holdfast.resolve((await stage.review()).id, "retry")
    await stage.settle()
    assert bank.paid == {"ann": 1}

    to[0] = "eve"
    await stage.open(pays)
    await stage.pass_time(minutes=2)
    await stage.settle()

    assert bank.paid == {"ann": 1}
    await stage.holdfast.resolve((await stage.review()).id, "retry")
    assert await finished(stage, handle) == "paid eve!"


async def test_what_was_begun_before_the_policy_goes_on_without_an_approval(stage: Stage) -> None:
    bank = Bank(hf.RetryAfter(60))
    pays = task_of(paying(bank, hf.opaque))
    await stage.open(pays)
    handle = await stage.start(pays())
    await stage.settle()
    assert len(bank.keys) == 1

    stage.approval = OPAQUE
    await stage.open(pays)

    assert await finished(stage, handle) == "paid ann!"
    assert len(bank.keys) == 2
    assert await stage.events(handle, EventKind.EFFECT_IN_DOUBT) == []
