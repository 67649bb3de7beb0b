"""A thread pool for each channel, so that a slow channel does not block others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.core.errors import NotDone

T = TypeVar("T")

# How many messages one channel sends at once; threads start when they are needed.
THREADS = 8


class ThreadsBusy(NotDone):
    """All threads of the channel were busy until the call's timeout: nothing was done."""


class ChannelThreads:
    """Runs at most `most` calls at once, in threads that the ledger, files and tools do not share."""

    def __init__(
        self, name: str, most: int = THREADS, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._monotonic = monotonic
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=f"holdfast-channel-{name}")

    async def call(
        self, act: Callable[[], T], *, timeout_s: float, give_up: Callable[[], object] | None = None
    ) -> T:
        """Call `act` in a thread. Raises TimeoutError when it takes longer; the thread may go on.

        Then, and when the caller is cancelled, `give_up` is called to end it. Raises ThreadsBusy when `act`
        was never called.
        """
        begin_by_s = self._monotonic() + timeout_s

        def begin() -> T:
            if self._monotonic() > begin_by_s:
                # The machine was suspended: the caller has timed out, and another worker may send it.
                raise ThreadsBusy(f"channel {self._name} began too late")
            return act()

        future = self._pool.submit(begin)
        waiting = asyncio.wrap_future(future)
        try:
            await asyncio.wait([waiting], timeout=timeout_s)
            if waiting.done():
                return waiting.result()
            if future.cancel():
                raise ThreadsBusy(f"channel {self._name} was busy for {timeout_s:g} s")
            raise TimeoutError(f"channel {self._name} took longer than {timeout_s:g} s")
        finally:
            if not waiting.done():
                # The result is not needed any more, and the loop may be closed when it comes.
                waiting.cancel()
                if give_up is not None:
                    give_up()

    def close(self) -> None:
        """Accept no more calls; those that have begun go on until their timeout. Safe to call twice."""
        self._pool.shutdown(wait=False, cancel_futures=True)
