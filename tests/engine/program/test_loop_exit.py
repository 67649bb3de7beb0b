"""How a loop was left is told right on this Python, and safely where the self-check finds that it is not."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.engine.program import loop_exit
from holdfast.engine.program.loop_exit import was_left_on_purpose


class Watched:
    """An iterator that notes how its loop was left, as the one of turns does."""

    def __init__(self, answers: list[bool]) -> None:
        self._answers = answers

    def __del__(self) -> None:
        self._answers.append(was_left_on_purpose())

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> int:
        await asyncio.sleep(0)
        return 1


Loop = Callable[[list[bool]], Coroutine[Any, Any, object]]


async def breaks(answers: list[bool]) -> None:
    async for _ in Watched(answers):
        break


async def breaks_in_async_with(answers: list[bool]) -> None:
    async for _ in Watched(answers):
        async with asyncio.timeout(None):  # noqa: ASYNC100 - that is the point
            break


async def breaks_from_an_inner_loop_else(answers: list[bool]) -> None:
    async for number in Watched(answers):
        for _ in range(number):
            continue
        else:
            break


async def returns_from_a_nested_loop(answers: list[bool]) -> int:
    async for outer in Watched(answers):
        async for inner in Watched(answers):
            return outer + inner
    return 0


async def returns_through_finally(answers: list[bool]) -> int:
    async for number in Watched(answers):
        try:
            return number
        finally:
            await asyncio.sleep(0)
    return 0


async def raises(answers: list[bool]) -> None:
    async for number in Watched(answers):
        raise LookupError(number)


async def is_raised_in_a_call(answers: list[bool]) -> None:
    async for _ in Watched(answers):
        await fails()


async def is_raised_through_with(answers: list[bool]) -> None:
    async for _ in Watched(answers):
        async with asyncio.timeout(None):
            await fails()


async def is_cancelled(answers: list[bool]) -> None:
    async for _ in Watched(answers):
        raise asyncio.CancelledError


async def is_caught_outside(answers: list[bool]) -> None:
    with contextlib.suppress(LookupError):
        async for number in Watched(answers):
            raise LookupError(number)


async def fails() -> None:
    await asyncio.sleep(0)
    raise LookupError


ON_PURPOSE: list[Loop] = [
    breaks,
    breaks_in_async_with,
    breaks_from_an_inner_loop_else,
    returns_from_a_nested_loop,
    returns_through_finally,
]
BY_EXCEPTION: list[Loop] = [
    raises,
    is_raised_in_a_call,
    is_raised_through_with,
    is_cancelled,
    is_caught_outside,
]


async def answers_of(loop: Loop) -> set[bool]:
    answers: list[bool] = []
    with contextlib.suppress(LookupError, asyncio.CancelledError):
        await loop(answers)
    assert answers
    return set(answers)


def test_this_python_is_one_that_tells_how_a_loop_was_left() -> None:
    assert loop_exit.IS_RELIABLE, f"on Python {sys.version} the item of a plan is not done by `break`"


@pytest.mark.parametrize("loop", ON_PURPOSE)
async def test_a_loop_that_breaks_or_returns_was_left_on_purpose(loop: Loop) -> None:
    assert await answers_of(loop) == {True}


@pytest.mark.parametrize("loop", BY_EXCEPTION)
async def test_a_loop_that_an_exception_leaves_was_not(loop: Loop) -> None:
    assert await answers_of(loop) == {False}


@pytest.mark.parametrize("loop", [*ON_PURPOSE, *BY_EXCEPTION])
async def test_where_the_self_check_fails_no_loop_counts_as_left_on_purpose(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_exit, "IS_RELIABLE", False)

    assert await answers_of(loop) == {False}


def test_the_self_check_finds_an_interpreter_whose_instructions_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert loop_exit.check()

    monkeypatch.setattr(loop_exit, "_POPS", frozenset())
    assert not loop_exit.check()
    monkeypatch.setattr(loop_exit, "_POPS", frozenset(range(256)))
    assert not loop_exit.check()


def test_the_self_check_finds_an_interpreter_that_destroys_iterators_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[object] = []

    def keep(probe: object) -> object:
        kept.append(probe)
        return probe

    monkeypatch.setattr(loop_exit._Probe, "__aiter__", keep)

    assert not loop_exit.check()


def test_an_iterator_that_is_destroyed_below_every_frame_was_not_left_on_purpose() -> None:
    # In a process without pytest, whose frames are below those of each test.
    program = textwrap.dedent("""\
        import builtins
        from holdfast.engine.program.loop_exit import was_left_on_purpose

        class Watched:
            def __del__(self):
                write(1, f"{was_left_on_purpose()}\\n".encode())

        # Destroyed at the interpreter's own end, when no frame is left.
        from os import write
        builtins.kept = Watched()
        """)

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert (ended.stdout, ended.stderr) == ("False\n", "")


@pytest.mark.slow
def test_a_plain_script_that_crashes_a_task_everywhere_prints_nothing() -> None:
    program = textwrap.dedent("""\
        import asyncio
        import holdfast as hf
        from holdfast.testing import crash_everywhere

        async def work(number):
            return number

        @hf.task
        async def count(run: hf.Run) -> None:
            async for turn in run.turns(max=2):
                await turn.step(work, turn.number)

        asyncio.run(crash_everywhere(count))
        """)

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stderr == ""
