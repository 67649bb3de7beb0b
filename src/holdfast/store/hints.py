"""Notifications inside one process: a waiter may look now. Never needed for correctness."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Hints:
    """Waiters by topic. A hint wakes those that wait at that moment; later waiters do not see it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def give(self, topics: set[str]) -> None:
        """Wake the waiters of these topics. It is thread-safe."""
        if not topics or not self._waiting:
            return
        with self._lock:
            told = [waiter for topic in topics for waiter in self._waiting.get(topic, ())]
        for loop, event in told:
            # The waiter's loop may have closed meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    async def wait_for(self, topic: str, timeout_s: float) -> bool:
        """True when a hint came, False after the timeout."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(topic, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter[1].wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting[topic].discard(waiter)
                if not self._waiting[topic]:
                    del self._waiting[topic]
        return True
