"""A child that starts at once, instead of in the next pass of the loop: many are over before that."""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task  # documented for task classes of other libraries
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, TypeVar

from holdfast.store.inline_write import write_on_behalf

T = TypeVar("T")

_NAME = "holdfast child"
_NOTHING: Any = object()


def begin(act: Coroutine[Any, Any, T]) -> tuple[asyncio.Task[T] | None, Any]:
    """Run a coroutine to its first wait, as an asyncio task of its own that the caller waits for.

    Returns None and its value if it was over by then; what it raised is raised. Otherwise returns the task
    that goes on from there. To the coroutine it is one task from its first line on: timeouts and task groups
    that it enters belong to that task.

    Why: an effect, as a rule, is over without a wait, and a task that starts in the next pass of the loop
    would cost it two passes and the inline writes (store/inline_write.py). Python 3.12 has `eager_start`
    for this; 3.11 has not.
    """
    loop = asyncio.get_running_loop()
    parent = asyncio.current_task(loop)
    assert parent is not None
    started, context = _Started(act), copy_context()
    child: asyncio.Task[T] = asyncio.Task(started, loop=loop, name=_NAME, context=context)
    write_on_behalf(context, child, parent)
    _leave_task(loop, parent)
    _enter_task(loop, child)
    try:
        started.waits_for = context.run(act.send, None)
    except StopIteration as over:
        return None, over.value
    finally:
        _leave_task(loop, child)
        _enter_task(loop, parent)
    return child, None


class _Started(Coroutine[Any, Any, T]):
    """What the child runs: the rest of a coroutine that has been started already."""

    __slots__ = ("_act", "waits_for")

    def __init__(self, act: Coroutine[Any, Any, T]) -> None:
        self._act = act
        # What the act waited for first. Nothing, in the first step of the child: the act was over by then.
        self.waits_for: Any = _NOTHING

    def send(self, value: Any) -> Any:
        if self.waits_for is _OVER_TO_ACT:
            return self._act.send(value)
        if self.waits_for is _NOTHING:
            raise StopIteration
        waits_for, self.waits_for = self.waits_for, _OVER_TO_ACT
        return waits_for

    def throw(self, *error: Any) -> Any:
        if self.waits_for is _NOTHING:
            raise error[0]
        waits_for, self.waits_for = self.waits_for, _OVER_TO_ACT
        # Cancelled before its first step: cancel what the act waits for, as every task does.
        if asyncio.isfuture(waits_for) and waits_for.cancel(*error[0].args):
            return waits_for
        return self._act.throw(*error)

    def close(self) -> None:
        self._act.close()

    def __await__(self) -> Generator[Any, None, T]:
        raise RuntimeError("its child goes on with it; wait for that")


# The child has waited for what the act waited for first: from now on it steps the act itself.
_OVER_TO_ACT: Any = object()
