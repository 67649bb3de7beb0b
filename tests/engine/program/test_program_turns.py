"""Loops of a program: turns and plans, how a loop is left, and what a program must not do with one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.transitions import TaskStatus
from holdfast.testing import Crashed
from tests.engine.program.sample_program import Kept, add, failure_of, failure_of_all
from tests.engine.stage import Stage


async def fail(what: str) -> str:
    raise ValueError(what)


# --- loops


async def test_a_loop_ends_after_its_most_turns_and_stays_over_when_the_program_allows_more(
    stage: Stage, kept: Kept
) -> None:
    def loops(most: int, dies: bool) -> Any:
        @hf.task
        async def loop(run: hf.Run) -> None:
            async for turn in run.turns(max=most):
                kept(turn.number)
            if dies:
                await run.step(die)

        return loop

    async def die() -> None:
        raise Crashed

    loop = loops(2, dies=True)
    await stage.open(loop)
    handle = await stage.start(loop())
    await stage.settle()
    await stage.open(loops(5, dies=False))
    await stage.settle()

    assert await handle.status() is TaskStatus.SUCCEEDED
    assert kept.seen == [1, 2]


async def yielding() -> None:
    await asyncio.sleep(0)


async def test_two_loops_in_two_asyncio_tasks_are_refused(quick: Stage) -> None:
    @hf.task
    async def both(run: hf.Run) -> None:
        async def loop(name: str) -> None:
            async for turn in run.turns(name, max=2):
                await turn.step(yielding)

        async with asyncio.TaskGroup() as group:
            group.create_task(loop("a"))
            group.create_task(loop("b"))

    await quick.open(both)
    handle = await quick.start(both())
    message = await failure_of_all(quick, handle)

    assert "loop: a runs in another asyncio task; a run has one loop at a time" in message + str(
        (await handle.task()).failure
    )


async def test_a_loop_over_the_plan_inside_a_loop_over_the_plan_is_refused(quick: Stage) -> None:
    @hf.task
    async def both(run: hf.Run) -> None:
        plan = run.plan(["a", "b"])
        async for _ in plan:
            async for _ in plan:
                pass

    await quick.open(both)
    handle = await quick.start(both())
    await quick.settle()

    assert await failure_of(handle) == "plan: this loop is inside a loop over the same plan"


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda run: run.turns("a:b"), "loop: 'a:b' contains ':' or '/', which separate parts of a path"),
        (
            lambda run: run.plan([hf.PlanItem(id="https://ada:swordfish@example.org/", title="go")]),
            "plan item: a name that holds a secret (shown as [redacted:name]~",
        ),
        (lambda run: run.turns(max=0), "max: a whole number of turns is needed, at least 1"),
        (lambda run: run.plan("abc"), "plan: a list of items is needed"),
        (lambda run: run.plan(["a", "a"]), "plan: two items are called 'a'; give each its own id"),
        (lambda run: run.plan([7]), "plan item: a text or a PlanItem is needed, not int"),
        (lambda run: run.turns(timeout="never"), "timeout"),
        (lambda run: run.tool(add, [1]), "arguments: a tool's arguments have names; list has none"),
        (lambda run: run.tool(add, {}, id="a\0b"), "id: control character U+0000 at 1; remove it"),
        (lambda run: run.tool(add, {}, id="a\ud800"), "id: half of a surrogate pair at 1"),
        (lambda run: run.tool(add, {}, id="a\nb"), "id: a name is one line of at most 200 characters"),
        (lambda run: run.tool(add, {}, id="x" * 201), "id: a name is one line of at most 200 characters"),
        (lambda run: run.tool(add, {}, id="  "), "id: is empty"),
        (lambda run: run.tool(add, {}, id=7), "id: "),
        (lambda run: run.step(lambda: 1), "a lambda has no name for the journal"),
        (lambda run: run.step(7), "step: a function is needed, not int"),
    ],
)
async def test_what_a_program_cannot_mean_is_said(quick: Stage, call: Any, problem: str) -> None:
    @hf.task
    async def misuse(run: hf.Run) -> None:
        call(run)

    await quick.open(misuse)
    handle = await quick.start(misuse())
    await quick.settle()

    assert problem in await failure_of(handle)


async def test_many_steps_outside_turns_are_warned_of_once(
    quick: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.task
    async def many(run: hf.Run) -> None:
        for number in range(1001):
            await run.step(hf.step(add, pure=True), number)

    await quick.open(many)
    with caplog.at_level(logging.WARNING):
        await quick.run(many())

    (warning,) = [record for record in caplog.records if "outside turns" in record.message]
    assert "put them into a loop: async for turn in run.turns()" in warning.message


async def test_steps_of_finished_turns_and_of_turns_inside_them_are_counted(stage: Stage) -> None:
    @hf.task
    async def nested(run: hf.Run) -> None:
        await run.step(add, 1)
        async for outer in run.turns("outer", max=2):
            await outer.step(add, 1)
            async for inner in run.turns("inner", max=3):
                await inner.step(add, 1)

    await stage.open(nested)
    handle = await stage.start(nested())
    await stage.settle()

    heads = stage.store.read_now(lambda tx: tx.journal.heads([handle.id]))
    assert heads[handle.id].steps_saved == 1 + 2 * (1 + 3)


# --- how a loop is left


@types.coroutine
def pauses() -> Generator[str, None, None]:
    yield "paused"


@types.coroutine
def paused(body: Coroutine[Any, Any, int]) -> Generator[Any, Any, Any]:
    """That coroutine, gone on until it pauses itself. Nothing here holds it afterwards."""
    heard = None
    while (asked := body.send(heard)) != "paused":
        heard = yield asked
    return body


@pytest.mark.parametrize(
    ("way", "is_done"),
    [
        ("break", True),
        ("break in with", True),
        ("break in finally", True),
        ("break in a nested loop's else", True),
        ("return", True),
        ("return a value in finally", True),
        ("continue", True),
        ("raise", False),
        ("raise in with", False),
        ("raise in finally", False),
        ("a step that fails", False),
        ("a step that fails in with", False),
        ("another asyncio task", False),
        ("the coroutine is closed", False),
        ("the coroutine is dropped", False),
    ],
)
async def test_an_item_is_done_when_its_loop_is_left_unless_an_exception_left_it(
    quick: Stage, way: str, is_done: bool
) -> None:
    @hf.task(attempts=1)
    async def leaves(run: hf.Run) -> list[bool]:
        plan = run.plan(["a"])

        async def loop() -> int:
            async for item in plan:
                await item.step(add, 1)
                match way:
                    case "break":
                        break
                    case "break in with":
                        with contextlib.suppress(KeyError):
                            async with run.cleanup():
                                break
                    case "break in finally":
                        try:
                            await item.step(add, 2)
                        finally:
                            break  # noqa: B012 - what is tried here
                    case "break in a nested loop's else":
                        for _ in range(2):
                            pass
                        else:
                            break
                    case "return":
                        return 1
                    case "return a value in finally":
                        try:
                            return await item.step(add, 2)
                        finally:
                            await item.step(add, 3)
                    case "continue":
                        continue
                    case "raise":
                        raise KeyError(way)
                    case "raise in with":
                        with contextlib.suppress(TypeError):
                            raise KeyError(way)
                    case "raise in finally":
                        try:
                            await item.step(add, 2)
                        finally:
                            raise KeyError(way)
                    case "a step that fails":
                        await item.step(fail, way)
                    case "a step that fails in with":
                        async with run.cleanup():
                            await item.step(fail, way)
                    case "another asyncio task":
                        await asyncio.wait_for(asyncio.Event().wait(), 0.001)
                    case "the coroutine is closed" | "the coroutine is dropped":
                        await pauses()
            return 0

        with contextlib.suppress(KeyError, ValueError, TimeoutError):
            if way == "the coroutine is closed":
                (await paused(loop())).close()
            elif way == "the coroutine is dropped":
                # An expression statement: the instruction that drops it is the one that `break` has, too.
                await paused(loop())
            else:
                await loop()
        await run.step(add, 9)
        return [item.is_done for item in plan.items]

    await quick.open(leaves)

    assert await quick.run(leaves()) == [is_done]
