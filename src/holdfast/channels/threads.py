"""Threads of one channel, for calls that wait for the other end: a slow channel takes nobody else's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# As many as one channel sends at once; they are started when they are needed.
THREADS = 8


class NotBegun(Exception):
    """All threads of the channel were busy for as long as the call might take: nothing was done."""


class ChannelThreads:
    """At most so many calls at once; what others keep in threads (the ledger, files, tools) does not wait."""

    def __init__(
        self, name: str, most: int = THREADS, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._monotonic = monotonic
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"holdfast-channel-{name}")

    async def call(
        self, act: Callable[[], T], *, timeout_s: float, give_up: Callable[[], object] | None = None
    ) -> T:
        """What `act` returns or raises. Raises TimeoutError when it takes longer; it may go on unseen then.

        `give_up` tells it so, also when whoever waits is cancelled. Raises NotBegun when it never began.
        """
        begin_by_s = self._monotonic() + timeout_s

        def begin() -> T:
            if self._monotonic() > begin_by_s:
                # We stood still meanwhile: whoever waited has been told, or somebody else does it.
                raise NotBegun(f"channel {self._name} began too late")
            return act()

        future = self._pool.submit(begin)
        waiting = asyncio.wrap_future(future)
        try:
            await asyncio.wait([waiting], timeout=timeout_s)
            if waiting.done():
                return waiting.result()
            if future.cancel():
                raise NotBegun(f"channel {self._name} was busy for {timeout_s:g} s")
            raise TimeoutError(f"channel {self._name} took longer than {timeout_s:g} s")
        finally:
            if not waiting.done():
                # Nobody asks for its end any more, and the loop may be gone by then.
                waiting.cancel()
                if give_up is not None:
                    give_up()

    def close(self) -> None:
        """No more calls; those that have begun go on for as long as they may. Safe twice."""
        self._pool.shutdown(wait=False, cancel_futures=True)
