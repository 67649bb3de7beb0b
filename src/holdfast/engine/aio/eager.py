"""A child that begins at once, instead of in the next pass of the loop: many are over before that."""

from __future__ import annotations

import asyncio
import threading
from asyncio.tasks import _enter_task, _leave_task  # for who writes tasks of his own, says the manual
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any, TypeVar
from weakref import getweakrefcount

from holdfast.store.running_loop import current_task

T = TypeVar("T")

_NAME = "holdfast child"
_NOTHING: Any = object()


def begin(act: Coroutine[Any, Any, T]) -> tuple[asyncio.Task[T] | None, Any]:
    """As `begin_silent`; when it is over at once: None, and what it returned."""
    kept: list[T] = []
    child = begin_silent(_keeping(act, kept), nest_here())
    return child, None if child is not None else kept[0]


async def _keeping(act: Coroutine[Any, Any, T], kept: list[T]) -> T:
    kept.append(await act)
    return kept[0]


def begin_silent(act: Coroutine[Any, Any, T], nest: Nest) -> asyncio.Task[T] | None:
    """Run it to its first wait, in the name of an asyncio task of its own. None when it is over by then; what
    it raised is raised, what it returned is lost. Else the child that goes on with it from there.

    To the act it is that one task from the first line on: timeouts and task groups that it enters belong to
    it. A child whose act was over at once is lent to the next one, for to make it is most of what an act
    costs; unless somebody still knows it: what he does to it is not meant for the next one.
    """
    if nest.thread != threading.get_ident():  # called in the loop of another thread
        nest = nest_here()
    loop, spares = nest.loop, nest.spares
    parent = current_task(loop)
    assert parent is not None
    spare = spares.pop() if spares else _make_spare(loop)
    child, begun = spare
    if begun.rest.done() or child._must_cancel:  # type: ignore[attr-defined]  # noqa: SLF001 - no other way to know
        # Somebody has cancelled it: it ends without us.
        spare = _make_spare(loop)
        child, begun = spare
    known, weakly = getrefcount(child), getweakrefcount(child)
    begun.parent = parent
    waits_for = _NOTHING
    context = copy_context()
    _leave_task(loop, parent)
    _enter_task(loop, child)
    try:
        # Not `send`: it hands over by an exception what is returned, and every effect would pay for it.
        waits_for = context.run(next, act.__await__(), _NOTHING)
    finally:
        _leave_task(loop, child)
        _enter_task(loop, parent)
        if waits_for is _NOTHING:
            begun.parent = None
            is_unknown = getrefcount(child) == known and getweakrefcount(child) == weakly
            # Nobody waits for its end, and nothing was written on it.
            if is_unknown and not child._callbacks and child.get_name() == _NAME:  # noqa: SLF001
                spares.append(spare)
            else:
                begun.let_go()
    if waits_for is _NOTHING:
        return None
    begun.go_on(act, context, waits_for)
    child._log_destroy_pending = True  # type: ignore[attr-defined]  # noqa: SLF001 - as of every task
    return child


class Nest:
    """The spare children of one loop; more than one when acts begin others."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        self.spares: list[_Spare] = []

    def let_go(self) -> None:
        """They end in the next pass; whoever needs one later makes it."""
        while self.spares:
            self.spares.pop()[1].let_go()


def nest_here() -> Nest:
    """That of the loop which runs in this thread."""
    loop = asyncio.get_running_loop()
    if _here.nest is None or _here.nest.loop is not loop:
        _here.nest = Nest(loop)
    return _here.nest


class Begun(Coroutine[Any, Any, T]):
    """What a child carries out: it rests until an act is left to it that waits for something, goes on with
    that one, and ends with it."""

    __slots__ = ("_act", "_context", "_waits_for", "parent", "rest")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Who waits for it, and does nothing else meanwhile; None while it is spare.
        self.parent: asyncio.Task[Any] | None = None
        # Done when it must go on, or end.
        self.rest: asyncio.Future[None] = loop.create_future()
        self._act: Coroutine[Any, Any, T] | None = None
        # Not that of the child, which was there before.
        self._context: Context = _NOTHING
        # Until the child has been told.
        self._waits_for: Any = _NOTHING

    def go_on(self, act: Coroutine[Any, Any, T], context: Context, waits_for: Any) -> None:
        """It is spare no longer: from now on the child has this act, which waits for something."""
        self._act, self._context, self._waits_for = act, context, waits_for
        self.let_go()

    def let_go(self) -> None:
        if not self.rest.done():
            self.rest.set_result(None)

    # --- what the child is told by its loop

    def send(self, value: Any) -> Any:
        if self._act is None:
            if self.rest.done():
                raise StopIteration
            self.rest._asyncio_future_blocking = True  # noqa: SLF001 - so does `await`
            return self.rest
        if self._waits_for is not _NOTHING:
            waits_for, self._waits_for = self._waits_for, _NOTHING
            return waits_for
        return self._context.run(self._act.send, value)

    def throw(self, *error: Any) -> Any:
        if self._act is None:
            self.rest.cancel()  # so that nobody is lent it any more
            raise error[0]
        waits_for, self._waits_for = self._waits_for, _NOTHING
        # Cancelled before the child was told: then it cancels what it waits for, as every task does.
        if asyncio.isfuture(waits_for) and waits_for.cancel(*error[0].args):
            return waits_for
        return self._context.run(self._act.throw, *error)

    def close(self) -> None:
        if self._act is not None:
            self._act.close()

    def __await__(self) -> Generator[Any, None, T]:
        raise RuntimeError("its child goes on with it; wait for that")


_Spare = tuple[asyncio.Task[Any], Begun[Any]]


class _Here(threading.local):
    """Of each thread, because it runs one loop at a time."""

    nest: Nest | None = None


_here = _Here()


def _make_spare(loop: asyncio.AbstractEventLoop) -> _Spare:
    begun: Begun[Any] = Begun(loop)
    # In a context of its own, which keeps nothing alive of whoever needed it first.
    child = asyncio.Task(begun, loop=loop, name=_NAME, context=Context())
    # Nothing is lost when a loop is closed under one that has nothing to do.
    child._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as the loop itself does
    return child, begun
