"""Verifiable effects whose function raises: verified before they are tried again."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.core.effect import Effect
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.testing import Crashed
from tests.engine.program.bank import (
    Bank,
    QuotaExceeded,
    effects_of,
    paying,
    started,
    statuses,
    task_of,
)
from tests.engine.stage import Stage


@pytest.mark.parametrize(
    ("verdict", "status", "paid"),
    [
        (hf.Happened("seen"), TaskStatus.SUCCEEDED, 1),
        (hf.DidNotHappen(), TaskStatus.SUCCEEDED, 2),
        (hf.Unknown("the bank is shut"), TaskStatus.NEEDS_REVIEW, 1),
    ],
)
async def test_a_verifiable_effect_that_raised_is_verified_first(
    stage: Stage, verdict: object, status: TaskStatus, paid: int
) -> None:
    bank = Bank(ValueError("not json"))
    asked: list[str] = []

    def verify(to: str) -> object:
        asked.append(to)
        return verdict

    handle = await started(stage, task_of(paying(bank, hf.verifiable(verify)), attempts=2, backoff="1s"))

    assert await handle.status() is status
    assert (asked, bank.paid["ann"]) == (["ann"], paid)


async def test_what_a_verifiable_effect_says_did_not_happen_needs_no_look_at_the_world(stage: Stage) -> None:
    bank = Bank(QuotaExceeded("tomorrow"))

    def verify(to: str) -> object:
        raise AssertionError(to)

    pay = paying(bank, hf.verifiable(verify, did_not_happen=QuotaExceeded))
    handle = await started(stage, task_of(pay, attempts=2, backoff="1s"))

    assert await stage.result(handle) == "paid ann!"


async def test_an_effect_that_raised_while_it_was_opaque_is_verified_once_it_can_be(stage: Stage) -> None:
    """The program was changed between the two lives."""
    bank = Bank(ValueError("not json"))

    def verify(to: str) -> object:
        return hf.Happened(f"seen {to}")

    def program(pay: Any) -> Any:
        @hf.task(name="pays", attempts=2, backoff="1s")
        async def pays(run: hf.Run) -> str:
            try:
                return str(await run.step(pay, "ann"))
            except hf.StepFailed:
                raise Crashed from None

        return pays

    await stage.open(old := program(paying(bank, hf.opaque, name="pay")))
    handle = await stage.start(old())
    await stage.settle()
    # What an older version left: the effect has failed, and nothing is remembered of its step.
    stage.store.write_now(lambda tx: tx.statements.run("delete_step", step_of(effects_of(stage, handle)[0])))
    await stage.open(program(paying(bank, hf.verifiable(verify), name="pay")))
    await stage.to_the_end(handle)

    assert await stage.result(handle) == "seen ann"
    assert statuses(stage, handle) == [EffectStatus.CONFIRMED]
    assert bank.paid["ann"] == 1


def step_of(effect: Effect) -> dict[str, Any]:
    scope, name, occurrence = effect.key
    return {"task_id": effect.task_id, "scope": scope, "name": name, "occurrence": occurrence}


async def test_an_opaque_effect_without_its_step_is_still_not_called_again(stage: Stage) -> None:
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)
    heard: list[str] = []

    @hf.task
    async def pays(run: hf.Run) -> str:
        try:
            return str(await run.step(pay, "ann"))
        except hf.StepFailed as error:
            heard.append(error.message)
            if len(heard) == 1:
                raise Crashed from None
            return "heard"

    await stage.open(pays)
    handle = await stage.start(pays())
    await stage.settle()
    stage.store.write_now(lambda tx: tx.statements.run("delete_step", step_of(effects_of(stage, handle)[0])))
    await stage.open(pays)
    await stage.to_the_end(handle)

    assert heard == ["not json"] * 2
    assert bank.paid["ann"] == 1
