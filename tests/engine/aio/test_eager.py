"""A child that begins at once: to itself it is one asyncio task, from its first line to its last."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.engine.aio.eager import begin
from holdfast.engine.program.live_run import CUT_SHORT, sheltered, shielded

where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="outside")


def me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def number_of(task: asyncio.Task[Any]) -> int:
    """Which one it is, without knowing it any longer."""
    return id(task)


async def who() -> int:
    return number_of(me())


async def who_waits() -> int:
    await asyncio.sleep(0)
    return number_of(me())


def begin_waiting(act: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    child, _ = begin(act)
    assert child is not None
    return child


# --- one act


async def test_what_never_waits_is_over_at_once() -> None:
    async def act() -> str:
        return "done"

    assert begin(act()) == (None, "done")


async def test_what_it_raises_at_once_is_raised_at_once() -> None:
    async def act() -> None:
        raise KeyError("gone")

    parent = me()

    with pytest.raises(KeyError, match="gone"):
        begin(act())
    assert me() is parent


async def test_what_waits_goes_on_in_its_child() -> None:
    news = asyncio.Event()

    async def act() -> str:
        await asyncio.sleep(0)
        await news.wait()
        return "done"

    child = begin_waiting(act())
    news.set()

    assert await child == "done"


async def test_what_it_raises_later_its_child_raises() -> None:
    async def act() -> None:
        await asyncio.sleep(0)
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        await begin_waiting(act())


async def test_it_is_one_asyncio_task_from_the_first_line_on() -> None:
    async def act() -> list[asyncio.Task[Any]]:
        first = me()
        await asyncio.sleep(0)
        return [first, me()]

    parent = me()
    child = begin_waiting(act())

    assert me() is parent
    assert await child == [child, child]


# --- timeouts and task groups


async def test_a_timeout_that_it_enters_before_it_waits_is_its_own() -> None:
    async def act() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return "never"

    assert await sheltered(act()) == "late"
    assert me().cancelling() == 0


async def test_a_timeout_that_was_left_in_time_leaves_nothing_to_the_next_one() -> None:
    async def act() -> str:
        async with asyncio.timeout(0):  # noqa: ASYNC100 - that is the point
            return "in time"

    assert await sheltered(act()) == "in time"
    assert await sheltered(who_waits())
    assert me().cancelling() == 0


async def test_a_group_that_never_waits_is_its_own() -> None:
    async def act() -> asyncio.Task[Any]:
        async with asyncio.TaskGroup():
            return me()

    assert await sheltered(act()) is not me()


async def test_a_group_whose_member_fails_cancels_it_and_not_the_caller_that_waits() -> None:
    async def fail() -> None:
        raise ValueError("rough sea")

    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        await sheltered(act())

    assert [str(one) for one in raised.value.exceptions] == ["rough sea"]
    assert me().cancelling() == 0


# --- one inside of another, one after another


async def test_an_act_inside_of_another_one_has_a_child_of_its_own() -> None:
    async def act() -> list[asyncio.Task[Any]]:
        return [me(), await shielded(myself()), await shielded(myself_later()), me()]

    async def myself() -> asyncio.Task[Any]:
        return me()

    async def myself_later() -> asyncio.Task[Any]:
        await asyncio.sleep(0)
        return me()

    outer, inner, waiting, same = await sheltered(act())

    assert outer is same
    assert len({me(), outer, inner, waiting}) == 4


@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_a_child_that_cancelled_itself_and_never_waited_harms_no_other(is_taken_back: bool) -> None:
    async def act() -> asyncio.Task[Any]:
        me().cancel()
        if is_taken_back:
            me().uncancel()
        return me()

    async def next_one() -> str:
        assert me().cancelling() == 0
        await asyncio.sleep(0)
        return "unharmed"

    child = await sheltered(act())

    assert await sheltered(next_one()) == "unharmed"
    assert child.done()
    assert me().cancelling() == 0


async def test_a_child_that_never_waited_ends_in_the_next_pass() -> None:
    async def act() -> None:
        me().add_done_callback(lambda child: ended.append(child.cancelled()))

    ended: list[bool] = []
    await sheltered(act())
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert ended == [False]
    assert asyncio.all_tasks() == {me()}


# --- cancelled


async def test_one_that_cancels_itself_before_it_waits_hears_of_it() -> None:
    async def act() -> None:
        me().cancel("enough")
        await hear(heard)

    heard: list[object] = []
    with pytest.raises(asyncio.CancelledError):
        await begin_waiting(act())

    assert heard == [("enough",)]


async def hear(heard: list[object]) -> None:
    for _ in range(2):
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            heard.append(error.args)
    raise asyncio.CancelledError


@pytest.mark.parametrize("passes", [0, 1, 2])
async def test_one_that_is_cancelled_while_it_waits_hears_of_it_once(passes: int) -> None:
    async def act() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            heard.append(error.args)
        await asyncio.sleep(0)
        return "swallowed"

    heard: list[object] = []
    child = begin_waiting(act())
    for _ in range(passes):
        await asyncio.sleep(0)
    child.cancel(CUT_SHORT)

    assert await child == "swallowed"
    assert heard == [(CUT_SHORT,)]


@pytest.mark.parametrize("passes", [0, 1])
async def test_what_it_waits_for_is_cancelled_with_it(passes: int) -> None:
    async def act() -> None:
        await inner

    inner = asyncio.get_running_loop().create_future()
    child = begin_waiting(act())
    for _ in range(passes):
        await asyncio.sleep(0)
    child.cancel()
    await asyncio.wait([child])

    assert child.cancelled()
    assert inner.cancelled()


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


# --- what it sees, and what it keeps


async def test_it_sees_the_context_and_keeps_its_own_changes() -> None:
    async def act() -> tuple[str, str, str]:
        before = where.get()
        where.set("inside")
        await asyncio.sleep(0)
        between = where.get()
        where.set("deeper")
        await asyncio.sleep(0)
        return before, between, where.get()

    where.set("here")
    child = begin_waiting(act())

    assert await child == ("here", "inside", "deeper")
    assert where.get() == "here"


async def test_two_in_a_row_do_not_see_what_the_other_one_set() -> None:
    async def act(text: str) -> str:
        before = where.get()
        where.set(text)
        return before

    where.set("here")
    assert [await sheltered(act("first")), await sheltered(act("second"))] == ["here", "here"]
    where.set("there")
    assert await sheltered(act("third")) == "there"
    assert where.get() == "there"


class Thing(Exception):
    """Something that can be looked for."""


async def test_a_child_that_is_over_keeps_nothing_alive() -> None:
    async def act() -> Thing:
        what = Thing()
        known.append(weakref.ref(what))
        carried.set(what)
        return what

    async def fail() -> None:
        error = Thing()
        known.append(weakref.ref(error))
        raise error

    async def parent() -> None:
        carried.set(what := Thing())
        known.extend((weakref.ref(what), weakref.ref(me())))
        await sheltered(act())
        with pytest.raises(Thing):
            await sheltered(fail())

    carried: contextvars.ContextVar[Thing] = contextvars.ContextVar("carried")
    known: list[weakref.ref[Any]] = []
    await asyncio.get_running_loop().create_task(parent())
    await asyncio.sleep(0)
    gc.collect()

    assert [one() for one in known] == [None] * 4


# --- loops


async def test_each_loop_has_children_of_its_own() -> None:
    def in_a_thread() -> None:
        children.append(asyncio.run(elsewhere()))

    async def elsewhere() -> list[bool]:
        here = asyncio.get_running_loop()
        seen = []
        for _ in range(20):
            is_met.wait(30)
            seen.append(await sheltered(is_of(here)))
            seen.append(await sheltered(is_of(here, waits=True)))
        return seen

    async def is_of(loop: asyncio.AbstractEventLoop, *, waits: bool = False) -> bool:
        if waits:
            await asyncio.sleep(0)
        return me().get_loop() is loop

    children: list[list[bool]] = []
    is_met = threading.Barrier(2)
    threads = [threading.Thread(target=in_a_thread) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)

    assert children == [[True] * 40] * 2


def test_one_loop_after_the_other_in_one_thread() -> None:
    assert asyncio.run(sheltered(who_waits()))
    assert asyncio.run(sheltered(who()))
    assert asyncio.run(sheltered(who_waits()))


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_loop_that_is_just_closed_hears_no_complaint(is_cancelled: bool) -> None:
    async def act() -> None:
        if is_cancelled:
            me().cancel()

    complaints: list[object] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, problem: complaints.append(problem))
    loop.run_until_complete(sheltered(act()))
    loop.close()
    del loop
    gc.collect()

    assert complaints == []


def test_a_loop_that_is_closed_under_an_act_that_waits_says_so() -> None:
    complaints: list[str] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, problem: complaints.append(problem["message"]))

    async def work() -> None:
        begin(who())
        begin(asyncio.Event().wait())

    loop.run_until_complete(work())
    loop.close()
    del loop
    gc.collect()

    assert complaints == ["Task was destroyed but it is pending!"]
