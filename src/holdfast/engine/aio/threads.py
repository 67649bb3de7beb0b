"""Threads for steps that are plain functions; none of them keeps a process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["Future[Any]", Callable[[], Any]]


class EffectsInThreads:
    """Effects that threads of this process are doing, by their keys; thread-safe.

    A thread cannot be interrupted: it goes on when its run has lost its claim.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __contains__(self, key: str) -> bool:
        return key in self._calls

    @contextlib.contextmanager
    def doing(self, key: str | None) -> Iterator[None]:
        """Entered in the thread that does the effect; None is no effect."""
        if key is None:
            yield
            return
        with self._lock:
            self._calls[key] += 1
        try:
            yield
        finally:
            self._end(key)

    def _end(self, key: str) -> None:
        with self._lock:
            self._calls[key] -= 1
            if self._calls[key]:
                return
            del self._calls[key]
            waiting = self._waiting.pop(key, [])
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(event.set)

    async def until_over(self, key: str) -> None:
        """Until no thread is doing it."""
        event = asyncio.Event()
        with self._lock:
            if key not in self._calls:
                return
            self._waiting.setdefault(key, []).append((asyncio.get_running_loop(), event))
        await event.wait()


class StepThreads(Executor):
    """At most so many daemon threads. The standard executor joins its threads when Python ends, so a function
    that takes an hour would block the restart for which the drain has just paused everything."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        self._busy = 0
        self._is_closed = False

    @property
    def busy(self) -> int:
        """How many functions run in a thread, or wait for one."""
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
        """Accept no more calls. Those that have begun go on until the process ends. Safe twice."""
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
    except BaseException as error:  # noqa: BLE001 - whatever a step raises goes to its caller
        future.set_exception(error)
    else:
        future.set_result(result)
