"""Threads for steps that are plain functions; none of them keeps a process from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["Future[Any]", Callable[[], Any]]


class StepThreads(Executor):
    """At most so many threads. They are daemons: the standard executor joins its threads when Python ends,
    so that a function that takes an hour would hold up the restart which the drain has just made safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._busy = 0
        self._is_closed = False

    @property
    def busy(self) -> int:
        """How many functions are at it, or will be."""
        return self._busy

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("no step is begun any more: the process stops")
            self._busy += 1
            self._calls.put((future, partial(fn, *args, **kwargs)))
            if self._started < min(self._busy, self._most):
                self._started += 1
                name = f"holdfast-step-{self._started}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as the standard one
        """No more calls. Those that have begun go on for as long as the process lives. Safe twice."""
        with self._lock:
            self._is_closed = True
            started = self._started
        for _ in range(started):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, act = call
            try:
                if future.set_running_or_notify_cancel():
                    _answer(future, act)
            finally:
                with self._lock:
                    self._busy -= 1


def _answer(future: Future[Any], act: Callable[[], Any]) -> None:
    try:
        result = act()
    except BaseException as error:  # noqa: BLE001 - whatever a step raises goes to whoever awaits it
        future.set_exception(error)
    else:
        future.set_result(result)
