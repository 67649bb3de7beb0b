"""When a caller may write on the thread of its event loop: one in each pass of the loop, with its child."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import Any

import pytest

from holdfast.store import inline_write
from holdfast.store.inline_write import InlineWrites, write_on_behalf


def me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def quiet() -> InlineWrites:
    """Its callers have not crowded for a while."""
    inline = InlineWrites(is_allowed=True)
    inline.note_group(1)
    inline.note_group(1)
    return inline


def admits(inline: InlineWrites) -> bool:
    return inline.admits(asyncio.get_running_loop(), me())


async def in_a_task(inline: InlineWrites, *, for_parent: bool) -> list[bool]:
    """Whether a new task may write inline, and one that it starts itself."""

    async def ask() -> list[bool]:
        started = asyncio.get_running_loop().create_task(ask_alone())
        return [admits(inline), await started]

    async def ask_alone() -> bool:
        inline._served = parent  # as if it were still the same pass of the loop
        return admits(inline)

    parent, context = me(), copy_context()
    child = asyncio.get_running_loop().create_task(ask(), context=context)
    if for_parent:
        write_on_behalf(context, child, parent)
    inline._end_pass = lambda: None  # type: ignore[method-assign]
    assert admits(inline)
    return await child


async def ask(inline: InlineWrites) -> bool:
    return admits(inline)


def test_one_caller_writes_inline_in_each_pass_of_the_loop() -> None:
    async def ask_together() -> list[bool]:
        inline = quiet()
        return await asyncio.gather(*(ask(inline) for _ in range(3)))

    assert asyncio.run(ask_together()) == [True, False, False]


def test_a_child_writes_as_the_parent_that_waits_for_it_and_what_it_starts_does_not() -> None:
    assert asyncio.run(in_a_task(quiet(), for_parent=True)) == [True, False]


def test_any_other_task_writes_for_itself() -> None:
    assert asyncio.run(in_a_task(quiet(), for_parent=False)) == [False, False]


def test_callers_that_crowd_do_not_write_inline() -> None:
    inline = quiet()
    inline.note_group(2)

    assert not asyncio.run(ask(inline))


def test_a_slow_disk_does_not_block_the_loop() -> None:
    inline = quiet()
    for _ in range(20):
        inline.note_commit(2 * inline_write.INLINE_COMMIT_S)

    assert not asyncio.run(ask(inline))


def test_a_caller_that_has_written_for_long_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write() -> bool:
        inline = quiet()
        assert admits(inline)
        return inline.must_yield(me())

    assert not asyncio.run(write())
    monkeypatch.setattr(inline_write, "INLINE_PASS_S", -1)
    assert asyncio.run(write())
