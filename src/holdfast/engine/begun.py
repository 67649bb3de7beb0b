"""A child that begins at once, instead of in the next pass of the loop: many are over before that."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio.tasks import _enter_task, _leave_task  # for who writes tasks of his own, says the manual
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Begun(Coroutine[Any, Any, T]):
    """A coroutine that has run to its first wait, in the name of an asyncio task of its own, which goes on
    with it from there. To the coroutine it is that task from the first line on: timeouts and task groups that
    it enters belong to it.
    """

    def __init__(self, act: Coroutine[Any, Any, T]) -> None:
        loop = asyncio.get_running_loop()
        parent = asyncio.current_task(loop)
        assert parent is not None
        # Who waits for it, and does nothing else meanwhile.
        self.parent = parent
        self.is_over = False
        self._act = act
        self._has_told = False
        self._value: T | None = None
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        self.child: asyncio.Task[T] = asyncio.Task(self, loop=loop, context=context)
        _leave_task(loop, parent)
        _enter_task(loop, self.child)
        try:
            self._waits_for = context.run(act.send, None)
        except StopIteration as stop:
            self.is_over, self._value = True, stop.value
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks for the result
            self.is_over, self._error = True, error
        finally:
            _leave_task(loop, self.child)
            _enter_task(loop, parent)

    def result(self) -> T:
        """What came of it at once; what came of it later, its child knows."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    # --- what the child is told by its loop

    def send(self, value: Any) -> Any:
        if self.is_over:
            raise StopIteration
        if self._has_told:
            return self._act.send(value)
        self._has_told = True
        return self._waits_for

    def throw(self, *error: Any) -> Any:
        if self.is_over:
            raise StopIteration
        self._has_told = True
        return self._act.throw(*error)

    def close(self) -> None:
        self._act.close()

    def __await__(self) -> Generator[Any, None, T]:
        raise RuntimeError("its child goes on with it; wait for that")
