"""Timeouts of steps, turns and tasks."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.core.transitions import TaskStatus
from tests.engine.program.sample_program import add, failure_of
from tests.engine.stage import Stage


async def test_a_step_that_takes_too_long_fails(quick: Stage) -> None:
    @hf.step(timeout="10ms")
    async def hang() -> None:
        await asyncio.Event().wait()

    @hf.task
    async def waits(run: hf.Run) -> str:
        try:
            await run.step(hang)
        except TimeoutError as error:
            return type(error).__name__
        return "nothing"

    await quick.open(waits)

    assert await quick.run(waits()) == "StepFailed[TimeoutError]"


async def test_a_turn_that_takes_too_long_begins_no_more_steps(quick: Stage) -> None:
    async def takes(minutes: int) -> None:
        quick.clock.advance(minutes=minutes)

    @hf.task(attempts=1)
    async def slow(run: hf.Run) -> str:
        try:
            async for turn in run.turns(timeout="10m"):
                await turn.step(takes, 4)
                await turn.step(takes, 4 * turn.number)
                await turn.step(add, 1)
        except TimeoutError as error:
            return str(error)
        return "never"

    await quick.open(slow)

    assert await quick.run(slow()) == "turn turns:2 took longer than it may; step add was not begun"


async def test_a_step_has_no_more_time_than_its_turn(quick: Stage) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    @hf.task(attempts=1)
    async def slow(run: hf.Run) -> None:
        async for turn in run.turns(timeout="10ms"):
            await turn.step(hang)

    await quick.open(slow)
    handle = await quick.start(slow())
    await quick.settle()

    task = await handle.task()
    assert task.failure is not None
    assert task.failure.kind == "TimeoutError"


async def test_a_task_that_takes_too_long_is_timed_out(quick: Stage) -> None:
    @hf.task(timeout="10ms")
    async def hangs(run: hf.Run) -> None:
        await asyncio.Event().wait()

    await quick.open(hangs)
    handle = await quick.start(hangs())
    await quick.settle()

    assert await handle.status() is TaskStatus.TIMED_OUT


@pytest.mark.parametrize("wait", ["sleep", "ask", "receive", "child"])
async def test_a_task_that_waits_too_long_is_timed_out(stage: Stage, wait: str) -> None:
    @hf.task
    async def child(run: hf.Run) -> None:
        await run.sleep("30d")

    @hf.task(timeout="1h")
    async def waits(run: hf.Run) -> None:
        match wait:
            case "sleep":
                await run.sleep("2h")
            case "ask":
                await run.ask("why?")
            case "receive":
                await run.receive("news")
            case "child":
                await (await run.spawn(child()))

    await stage.open(waits, child)
    handle = await stage.start(waits())
    await stage.settle()
    before = await handle.status()
    await stage.pass_time(hours=1)
    await stage.settle()

    assert before is TaskStatus.WAITING
    assert await handle.status() is TaskStatus.TIMED_OUT
    assert await failure_of(handle) == "it took longer than 1:00:00"


async def test_a_short_sleep_beyond_the_limit_of_a_task_ends_it(quick: Stage) -> None:
    @hf.task(timeout="10s")
    async def sleeps(run: hf.Run) -> None:
        await run.sleep("20s")

    await quick.open(sleeps)
    handle = await quick.start(sleeps())
    await quick.settle()

    assert await handle.status() is TaskStatus.TIMED_OUT
