"""A child that begins at once: to itself it is one asyncio task, from its first line to its last."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.engine.aio.eager import begin, begin_silent, nest_here
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


@pytest.mark.parametrize("is_rested", [False, True])
async def test_it_is_one_asyncio_task_from_the_first_line_on(is_rested: bool) -> None:
    async def act() -> list[asyncio.Task[Any]]:
        first = me()
        await asyncio.sleep(0)
        return [first, me()]

    await prepare_spare(is_rested)
    parent = me()
    child = begin_waiting(act())

    assert me() is parent
    assert await child == [child, child]


async def test_it_says_on_whose_behalf_it_acts() -> None:
    async def act() -> list[object]:
        first = me().get_coro().parent  # type: ignore[union-attr]
        if is_long:
            await asyncio.sleep(0)
        return [first, me().get_coro().parent]  # type: ignore[union-attr]

    is_long = False
    assert await sheltered(act()) == [me(), me()]
    is_long = True
    assert await sheltered(act()) == [me(), me()]


async def prepare_spare(is_rested: bool) -> None:
    """There is one from now on; the loop has seen it already, or not yet."""
    begin(who())
    if is_rested:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


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
    async def act() -> int:
        async with asyncio.timeout(0):  # noqa: ASYNC100 - that is the point
            return number_of(me())

    first, second = await sheltered(act()), await sheltered(who())
    third = await sheltered(who_waits())

    assert first == second == third


async def test_a_group_that_never_waits_is_its_own() -> None:
    async def act() -> int:
        async with asyncio.TaskGroup():
            return number_of(me())

    assert await sheltered(act()) == await sheltered(who())


@pytest.mark.parametrize("is_rested", [False, True])
async def test_a_group_whose_member_fails_cancels_it_and_not_whoever_waits(is_rested: bool) -> None:
    async def fail() -> None:
        raise ValueError("rough sea")

    async def act() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.Event().wait()

    await prepare_spare(is_rested)
    with pytest.raises(ExceptionGroup) as raised:
        await sheltered(act())

    assert [str(one) for one in raised.value.exceptions] == ["rough sea"]
    assert me().cancelling() == 0


# --- lent again


async def test_a_child_that_never_waited_is_lent_to_the_next_one() -> None:
    async def fail() -> None:
        seen.append(number_of(me()))
        raise KeyError("gone")

    seen: list[int] = []
    for _ in range(3):
        seen.append(await sheltered(who()))
        with pytest.raises(KeyError):
            await sheltered(fail())
        await asyncio.sleep(0)

    assert len(set(seen)) == 1


async def test_a_child_that_waited_is_not_lent_again() -> None:
    news = asyncio.Event()
    spare = await sheltered(who())
    child = begin_waiting(news.wait())
    others = {await sheltered(who()) for _ in range(3)}
    news.set()
    await child
    others |= {await sheltered(who()) for _ in range(3)}

    assert number_of(child) == spare
    assert len(others) == 1
    assert spare not in others


async def test_an_act_inside_of_another_one_has_a_child_of_its_own() -> None:
    async def act() -> list[int]:
        return [number_of(me()), await shielded(who()), await shielded(who()), number_of(me())]

    outer, inner, again, same = await sheltered(act())

    assert outer == same
    assert inner == again
    assert inner != outer
    assert await sheltered(act()) == [outer, inner, inner, outer]


async def test_one_that_waits_inside_of_another_one_keeps_its_own_child() -> None:
    async def act() -> list[int]:
        return [number_of(me()), await shielded(who_waits()), number_of(me())]

    spare = await sheltered(who())
    outer, inner, same = await sheltered(act())

    assert spare == outer == same
    assert inner != outer


@pytest.mark.parametrize("is_rested", [False, True])
@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_a_child_that_cancelled_itself_and_never_waited_is_let_go(
    is_rested: bool, is_taken_back: bool
) -> None:
    async def act() -> weakref.ref[asyncio.Task[Any]]:
        me().cancel()
        if is_taken_back:
            me().uncancel()
        return weakref.ref(me())

    async def next_one() -> str:
        assert child() is not me()
        assert me().cancelling() == 0
        await asyncio.sleep(0)
        return "unharmed"

    await prepare_spare(is_rested)
    child = await sheltered(act())

    assert await sheltered(next_one()) == "unharmed"
    assert is_over(child)


def is_over(child: weakref.ref[asyncio.Task[Any]]) -> bool:
    known = child()
    return known is None or known.done()


async def test_a_spare_that_somebody_cancels_is_not_lent_again() -> None:
    async def act() -> int:
        await asyncio.sleep(0)
        return me().cancelling()

    for is_rested in (False, True):
        await prepare_spare(is_rested)
        for one in asyncio.all_tasks() - {me()}:
            one.cancel()
        assert await sheltered(act()) == 0


async def test_a_child_that_somebody_still_knows_is_not_lent_again() -> None:
    async def act() -> None:
        known.append(me())

    known: list[asyncio.Task[Any]] = []
    await sheltered(act())
    assert await sheltered(who()) != number_of(known[0])

    known[0].cancel()  # of what is over by then
    assert await sheltered(who_waits())
    assert known[0].done()


async def test_who_waits_for_the_end_of_a_child_sees_it() -> None:
    async def act() -> None:
        me().add_done_callback(lambda _child: is_seen.set())

    is_seen = asyncio.Event()
    await sheltered(act())

    await is_seen.wait()


# --- cancelled


@pytest.mark.parametrize("is_rested", [False, True])
async def test_one_that_cancels_itself_before_it_waits_hears_of_it(is_rested: bool) -> None:
    async def act() -> None:
        me().cancel("enough")
        await hear(heard)

    heard: list[object] = []
    await prepare_spare(is_rested)
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


@pytest.mark.parametrize("is_rested", [False, True])
@pytest.mark.parametrize("passes", [0, 1, 2])
async def test_one_that_is_cancelled_while_it_waits_hears_of_it_once(is_rested: bool, passes: int) -> None:
    async def act() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            heard.append(error.args)
        await asyncio.sleep(0)
        return "swallowed"

    heard: list[object] = []
    await prepare_spare(is_rested)
    child = begin_waiting(act())
    for _ in range(passes):
        await asyncio.sleep(0)
    child.cancel(CUT_SHORT)

    assert await child == "swallowed"
    assert heard == [(CUT_SHORT,)]


@pytest.mark.parametrize("is_rested", [False, True])
@pytest.mark.parametrize("passes", [0, 1])
async def test_what_it_waits_for_is_cancelled_with_it(is_rested: bool, passes: int) -> None:
    async def act() -> None:
        await inner

    await prepare_spare(is_rested)
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


@pytest.mark.parametrize("is_rested", [False, True])
async def test_it_sees_the_context_and_keeps_its_own_changes(is_rested: bool) -> None:
    async def act() -> tuple[str, str, str]:
        before = where.get()
        where.set("inside")
        await asyncio.sleep(0)
        between = where.get()
        where.set("deeper")
        await asyncio.sleep(0)
        return before, between, where.get()

    await prepare_spare(is_rested)
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


async def test_a_spare_keeps_nothing_alive() -> None:
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
    assert len(asyncio.all_tasks() - {me()}) == 1


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


async def test_in_the_loop_of_another_thread_it_is_a_child_of_that_one() -> None:
    nest, found = nest_here(), []

    async def act() -> None:
        found.append((threading.get_ident(), asyncio.get_running_loop(), me().get_loop()))

    async def elsewhere() -> None:
        assert begin_silent(act(), nest) is None

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    assert begin_silent(act(), nest) is None

    (there, running, loop), (here, *mine) = found
    assert (running is loop, there != here) == (True, True)
    assert mine == [asyncio.get_running_loop()] * 2


def test_one_loop_after_the_other_in_one_thread() -> None:
    assert asyncio.run(sheltered(who_waits()))
    assert asyncio.run(sheltered(who()))
    assert asyncio.run(sheltered(who_waits()))


async def nothing() -> None: ...


async def tidy() -> None:
    nest_here().let_go()
    nest_here().let_go()


async def untidy() -> None:
    async def poison() -> None:
        me().cancel()

    await sheltered(poison())


@pytest.mark.parametrize("rest", [nothing, tidy, untidy])
@pytest.mark.parametrize("is_rested", [False, True])
def test_a_loop_that_is_just_closed_hears_no_complaint(
    rest: Callable[[], Coroutine[Any, Any, None]], is_rested: bool
) -> None:
    async def work() -> None:
        await prepare_spare(is_rested)
        await rest()

    complaints: list[object] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, problem: complaints.append(problem))
    loop.run_until_complete(work())
    loop.close()
    del loop
    asyncio.run(sheltered(who()))  # the next one: nobody keeps those of the first one any more
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


async def test_spares_that_are_let_go_end() -> None:
    async def act() -> None:
        await sheltered(who())

    for is_rested in (False, True):
        await prepare_spare(is_rested)
        await sheltered(act())
        spares = asyncio.all_tasks() - {me()}
        nest_here().let_go()
        await asyncio.wait(spares)

        assert len(spares) == 2
        assert asyncio.all_tasks() == {me()}
        assert not any(one.cancelled() for one in spares)


async def test_a_child_that_something_was_written_on_is_not_lent_again() -> None:
    state: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()

    async def act(is_named: bool) -> tuple[str | None, str]:
        me = asyncio.current_task()
        assert me is not None
        found = state.get(me), me.get_name()
        if is_named:
            me.set_name("mine")
        else:
            state[me] = "of the one before"
        return found

    for is_named in (False, True, False, True):
        assert await sheltered(act(is_named)) == (None, "holdfast child")
