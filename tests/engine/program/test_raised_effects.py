"""Opaque effects whose function raises: an exception does not say that nothing happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.events import EventKind
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.testing import Crashed, crash_everywhere
from tests.engine.program.bank import Bank, effects_of, paying, started, statuses, task_of
from tests.engine.stage import Stage

# --- opaque


@pytest.mark.parametrize(
    "error",
    [ValueError("not json"), RuntimeError("500"), FileNotFoundError("no file")],
    ids=lambda one: str(one),
)
async def test_an_opaque_effect_that_raised_is_never_called_again_by_itself(
    stage: Stage, error: Exception
) -> None:
    bank = Bank(error)
    handle = await started(stage, task_of(paying(bank, hf.opaque)))

    assert bank.paid["ann"] == 1
    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.UNKNOWN]


async def test_the_review_of_an_effect_that_raised_has_the_evidence(stage: Stage) -> None:
    handle = await started(stage, task_of(paying(Bank(ValueError("not json")), hf.opaque)))

    (effect,) = effects_of(stage, handle)
    assert effect.outcome is not None
    assert b"ValueError" in effect.outcome
    assert b"not json" in effect.outcome
    assert (await handle.task()).waits_on == f"review:{effect.id}"
    told = await stage.events(handle, EventKind.EFFECT_IN_DOUBT)
    assert [event.subject_id for event in told] == [effect.id]


@pytest.mark.parametrize(
    ("decision", "result", "paid", "answer"),
    [
        ("done", "paid by hand", 1, "paid by hand!"),
        ("retry", None, 2, "paid ann!"),
        ("skip", None, 1, "None!"),
    ],
)
async def test_a_task_that_an_effect_ended_goes_on_as_a_person_decides(
    stage: Stage, decision: str, result: object, paid: int, answer: str
) -> None:
    bank = Bank(ValueError("not json"))
    handle = await started(stage, task_of(paying(bank, hf.opaque), attempts=1))

    (effect,) = effects_of(stage, handle)
    await stage.holdfast.resolve(effect.id, decision, result=result)
    await stage.to_the_end(handle)

    assert await stage.result(handle) == answer
    assert bank.paid["ann"] == paid
    assert len(set(bank.keys)) == paid
    assert len(await stage.runs(handle)) == 1


async def test_a_person_may_have_it_undone_and_then_the_task_fails(stage: Stage) -> None:
    undone: list[str] = []
    pay = paying(Bank(ValueError("not json")), hf.opaque, compensate=undone.append)
    handle = await started(stage, task_of(pay))

    (effect,) = effects_of(stage, handle)
    await stage.holdfast.resolve(effect.id, "compensate")

    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    assert undone == ["ann"]
    assert statuses(stage, handle) == [EffectStatus.FAILED]


async def test_one_that_raises_again_after_a_retry_is_put_before_a_person_again(stage: Stage) -> None:
    bank = Bank(ValueError("not json"), ValueError("still not"))
    handle = await started(stage, task_of(paying(bank, hf.opaque)))
    (first,) = effects_of(stage, handle)
    await stage.holdfast.resolve(first.id, "retry")
    await stage.to_the_end(handle)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert statuses(stage, handle) == [EffectStatus.FAILED, EffectStatus.UNKNOWN]
    assert bank.paid["ann"] == 2


async def test_a_program_that_catches_the_failure_goes_on_and_no_person_is_asked(stage: Stage) -> None:
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> str:
        async for turn in run.turns(max=2):
            try:
                await turn.tool(pay, {"to": "ann"}, id="call-1")
            except hf.StepFailed as error:
                return f"the model hears: {error.message}"
        return "?"

    await stage.open(agent)

    assert await stage.run(agent()) == "the model hears: not json"
    assert bank.paid["ann"] == 1


@pytest.mark.parametrize("dies", [False, True], ids=["retried", "killed, then retried"])
async def test_a_retried_task_hears_of_the_same_failure_and_does_not_call_it_again(
    stage: Stage, dies: bool
) -> None:
    bank, heard, lives = Bank(ValueError("not json")), list[str](), Counter[str]()
    pay = paying(bank, hf.opaque)

    @hf.task(attempts=3, backoff="1s")
    async def stubborn(run: hf.Run) -> str:
        try:
            await run.step(pay, "ann")
        except hf.StepFailed as error:
            heard.append(f"{error.kind}: {error.message}")
        lives["all"] += 1
        if dies and lives["all"] == 1:
            raise Crashed
        if lives["all"] < 3:
            raise RuntimeError("something else")
        return "done"

    await stage.open(stubborn)
    handle = await stage.start(stubborn())
    await stage.settle()
    if dies:
        await stage.open(stubborn)
    await stage.to_the_end(handle)

    assert await stage.result(handle) == "done"
    assert heard == ["ValueError: not json"] * 3
    assert bank.paid["ann"] == 1
    assert statuses(stage, handle) == [EffectStatus.FAILED]


async def catch_and_raise(run: hf.Run, pay: Any) -> None:
    try:
        await run.step(pay, "ann")
    except hf.StepFailed as error:
        raise KeyError("lost") from error


async def raise_in_a_handler(run: hf.Run, pay: Any) -> None:
    try:
        await run.step(pay, "ann")
    except hf.StepFailed:
        raise KeyError("lost")  # noqa: B904 - the context is what is tested


async def raise_in_a_group(run: hf.Run, pay: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(run.tool(pay, {"to": "ann"}, id="a"))
        group.create_task(run.tool(pay, {"to": "bob"}, id="b"))


@pytest.mark.parametrize("ends", [catch_and_raise, raise_in_a_handler, raise_in_a_group])
async def test_a_failure_that_ends_the_run_by_way_of_others_is_in_doubt_too(
    stage: Stage, ends: Callable[..., Any]
) -> None:
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> None:
        await ends(run, pay)

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert set(bank.paid.values()) == {1}  # in a group, on a server, either may be called first
    assert EffectStatus.UNKNOWN in statuses(stage, handle)


async def test_two_that_raised_together_are_decided_one_after_the_other(stage: Stage) -> None:
    bank = Bank(ValueError("one"), ValueError("two"))
    pay = paying(bank, hf.opaque)

    @hf.task(attempts=1)
    async def agent(run: hf.Run) -> list[str]:
        calls = [run.tool(pay, {"to": name}, id=name) for name in ("ann", "bob")]
        given = await asyncio.gather(*calls, return_exceptions=True)
        errors = [one for one in given if isinstance(one, Exception)]
        if errors:
            raise ExceptionGroup("payments", errors)
        return [str(one) for one in given]

    handle = await started(stage, agent)
    for effect in effects_of(stage, handle):
        assert effect.status is EffectStatus.UNKNOWN
        await stage.holdfast.resolve(effect.id, "done", result=f"seen {effect.occurrence}")
        await stage.to_the_end(handle)

    assert await stage.result(handle) == ["seen id:ann", "seen id:bob"]
    assert bank.paid == {"ann": 1, "bob": 1}


async def test_a_failure_of_a_finished_turn_that_ends_the_run_later_is_not_in_doubt(stage: Stage) -> None:
    """The program has gone on from it: its turn is data, and nothing of it is called again."""
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task(attempts=2, backoff="1s")
    async def agent(run: hf.Run) -> None:
        kept: list[Exception] = []
        async for turn in run.turns(max=2):
            try:
                await turn.tool(pay, {"to": f"turn {turn.number}"})
            except hf.StepFailed as error:
                kept.append(error)
        if kept:
            raise kept[0]

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.SUCCEEDED
    assert bank.paid == {"turn 1": 1, "turn 2": 1}


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("slow")], ids=str)
async def test_a_transport_error_is_in_doubt_at_once_and_the_program_is_not_told(
    stage: Stage, error: Exception
) -> None:
    told: list[Exception] = []
    bank = Bank(error)
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> None:
        try:
            await run.step(pay, "ann")
        except Exception as problem:
            told.append(problem)
            raise

    handle = await started(stage, agent)

    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert (told, bank.paid["ann"]) == ([], 1)


async def test_an_error_that_the_program_was_handling_says_nothing_about_the_effect(stage: Stage) -> None:
    """Python makes it the context of what the effect raises."""
    bank = Bank(ValueError("not json"))
    pay = paying(bank, hf.opaque)

    @hf.task
    async def agent(run: hf.Run) -> str:
        try:
            raise TimeoutError("of something else")  # noqa: TRY301 - so that it is being handled
        except TimeoutError:
            try:
                await run.step(pay, "ann")
            except hf.StepFailed as error:
                return error.message
        return "?"

    await stage.open(agent)

    assert await stage.run(agent()) == "not json"


# --- kills


async def test_a_run_that_waits_for_a_decision_is_still_its_first(stage: Stage) -> None:
    handle = await started(stage, task_of(paying(Bank(ValueError("no")), hf.opaque), attempts=5))

    assert [run.status for run in await stage.runs(handle)] == [RunStatus.WAITING]


@pytest.mark.parametrize(
    "pairs", [pytest.param(False, id="once"), pytest.param(True, id="twice", marks=pytest.mark.slow)]
)
async def test_killed_anywhere_around_an_effect_that_raises_it_is_called_once(pairs: bool) -> None:
    @hf.opaque
    async def pay(to: str) -> str:
        raise ValueError(f"{to}: not json")

    @hf.task(attempts=3)
    async def pays(run: hf.Run) -> str:
        return f"{await run.tool(pay, {'to': 'ann'}, id='call-1')}!"

    report = await crash_everywhere(pays, pairs=pairs, twice=True)

    assert report.result == "None!"  # the person leaves it out
    assert report.reviews
    assert report.repeated == 0
