"""A program that waits for a result is told what the task waits for, and what helps."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import TaskStatus
from holdfast.engine.client import waiting_notes
from holdfast.engine.client.waiting_notes import WaitingNotes
from tests.engine.workers import carrying, soon, until
from tests.shared_ledgers import SharedLedger


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is looked at as soon as it may be."""
    for name in ("FIRST_S", "QUEUED_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(waiting_notes, name, 0.0)


@hf.task(name="asks")
async def asks(run: hf.Run) -> Any:
    return await run.ask("which colour?", ["red", "blue"])


@hf.task(name="parent")
async def parent(run: hf.Run) -> Any:
    return await (await run.spawn(asks()))


async def test_a_question_is_told_with_the_command_that_answers_it_once(
    shared_ledger: SharedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    async with carrying(shared_ledger.open(), shared_ledger.clock, asks, parent) as process:
        handle = await process.holdfast.start(parent())
        waiting = asyncio.ensure_future(handle.result())
        await until(lambda: "waits for an answer" in caplog.text)
        (question,) = await process.holdfast.questions()
        await process.holdfast.answer(question.id, "red")

        assert await soon(waiting) == "red"

    said = [one.getMessage() for one in caplog.records if one.name == "holdfast.tasks"]
    assert len(said) == 1
    assert f"`holdfast questions answer {question.id} ANSWER`" in said[0]
    assert "(asks) waits for an answer to 'which colour?'" in said[0]


async def test_a_review_is_told_with_the_commands_that_decide_it(
    shared_ledger: SharedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.opaque
    async def charge() -> str:
        raise ConnectionError("reset by peer")

    @hf.task(name="charges")
    async def charges(run: hf.Run) -> Any:
        return await run.step(charge)

    async with carrying(shared_ledger.open(), shared_ledger.clock, charges) as process:
        handle = await process.holdfast.start(charges())
        waiting = asyncio.ensure_future(handle.result())
        await until(lambda: "waits for a review of charge" in caplog.text)
        (effect,) = await process.holdfast.reviews()
        await process.holdfast.resolve(effect.id, "done", result="paid")

        assert await soon(waiting) == "paid"

    assert f"`holdfast reviews resolve {effect.id} done|retry|skip|compensate`" in caplog.text


async def test_a_task_that_no_process_knows_is_told(
    shared_ledger: SharedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    async with carrying(shared_ledger.open(), shared_ledger.clock, parent) as process:
        handle = await process.holdfast.start(asks())

        with pytest.raises(TimeoutError, match=rf"{handle.id} has not ended after 0.5s; it goes on"):
            await handle.result(timeout="0.5s")

        assert await handle.status() is TaskStatus.QUEUED
    assert f"`holdfast run --resume {handle.id} MODULE:asks`" in caplog.text


def test_the_same_remark_is_made_again_after_a_while_and_another_one_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    some = WaitingNotes(())
    some.begin("task_1", 0.0)
    with caplog.at_level(logging.WARNING, logger="holdfast.tasks"):
        for now, remark in [(1.0, "a"), (2.0, "a"), (3.0, None), (4.0, "b"), (5.0, "b"), (400.0, "b")]:
            assert some.due(now) == ["task_1"]
            some.say({"task_1": remark, "task_gone": "c"}, now)
    some.end("task_1")

    assert [one.getMessage() for one in caplog.records] == ["a", "b", "b"]
    assert some.due(500.0) == []


def test_a_task_that_goes_on_is_looked_at_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_notes, "FIRST_S", 2.0)
    monkeypatch.setattr(waiting_notes, "LONGEST_PAUSE_S", 60.0)
    some, looks = WaitingNotes(()), []
    some.begin("task_1", 0.0)
    for now in range(300):
        if some.due(float(now)):
            looks.append(now)
            some.say({"task_1": None}, float(now))

    assert looks == [2, 6, 14, 30, 62, 122, 182, 242]


@pytest.mark.parametrize("shared_ledger", ["sqlite"], indirect=True)
async def test_a_timeout_that_is_none_is_refused(shared_ledger: SharedLedger) -> None:
    async with carrying(shared_ledger.open(), shared_ledger.clock, asks) as process:
        handle = await process.holdfast.start(asks())

        for given in (0, -1, "soon", True):
            with pytest.raises(hf.BadInput, match="timeout"):
                await handle.result(timeout=given)
