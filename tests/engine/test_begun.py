"""A child that begins at once: to itself it is one asyncio task, from its first line to its last."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from holdfast.engine.begun import Begun
from holdfast.engine.live import sheltered

where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="outside")


async def test_what_never_waits_is_over_at_once() -> None:
    async def act() -> str:
        return "done"

    begun = Begun(act())

    assert begun.is_over
    assert begun.result() == "done"
    await begun.child  # it has nothing left to do


async def test_what_it_raises_at_once_is_raised_to_whoever_asks() -> None:
    async def act() -> None:
        raise KeyError("gone")

    begun = Begun(act())

    with pytest.raises(KeyError, match="gone"):
        begun.result()
    await begun.child


async def test_what_waits_goes_on_in_its_child() -> None:
    news = asyncio.Event()

    async def act() -> str:
        await asyncio.sleep(0)
        await news.wait()
        return "done"

    begun = Begun(act())
    assert not begun.is_over
    news.set()

    assert await begun.child == "done"


async def test_it_is_one_asyncio_task_from_the_first_line_on() -> None:
    async def act() -> list[asyncio.Task[object] | None]:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return [first, asyncio.current_task()]

    parent = asyncio.current_task()
    begun = Begun(act())

    assert asyncio.current_task() is parent
    assert await begun.child == [begun.child, begun.child]


async def test_a_timeout_that_it_enters_before_it_waits_is_its_own() -> None:
    async def act() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "never"

    assert await sheltered(act()) == "late"


async def test_it_sees_the_context_and_keeps_its_own_changes() -> None:
    async def act() -> tuple[str, str]:
        before = where.get()
        where.set("inside")
        await asyncio.sleep(0)
        return before, where.get()

    where.set("here")
    begun = Begun(act())

    assert await begun.child == ("here", "inside")
    assert where.get() == "here"


async def test_one_that_cancels_itself_before_it_waits_hears_of_it() -> None:
    heard = []

    async def act() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    begun = Begun(act())
    with pytest.raises(asyncio.CancelledError):
        await begun.child

    assert heard == ["cancelled"]


async def test_who_is_cancelled_waits_for_it_and_then_is() -> None:
    news, done = asyncio.Event(), []

    async def act() -> None:
        await news.wait()
        done.append("done")

    waiting = asyncio.get_running_loop().create_task(sheltered(act()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    news.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["done"]
