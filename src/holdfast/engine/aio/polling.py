"""Base of services that look for work after each notification, and now and then without one."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.core.errors import HoldfastError
from holdfast.engine.aio.service import Service
from holdfast.store import Store

_LISTEN_S = 30.0
_AFTER_ERROR_S = 1.0


class PollingService(Service):
    """`run_once` soon after each notification of a topic, and after `every_s` without one: it may be lost."""

    def __init__(self, store: Store, topic: str, *, every_s: float) -> None:
        super().__init__(every_s=every_s)
        self._store = store
        self._topic = topic
        self._news = asyncio.Event()

    async def run(self) -> None:
        listening = asyncio.get_running_loop().create_task(self._listen(), name=f"holdfast {self._topic}")
        await asyncio.sleep(0)  # so that it listens before the first look
        try:
            await super().run()
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    def stop(self) -> None:
        super().stop()
        self._news.set()

    def look(self) -> None:
        """There is something to do: do not wait for the next notification."""
        self._news.set()

    async def _listen(self) -> None:
        """Listen all the time, so that a notification between two waits is not lost."""
        while True:
            try:
                if await self._store.wait_for(self._topic, _LISTEN_S):
                    self._news.set()
            except HoldfastError:
                await asyncio.sleep(_AFTER_ERROR_S)

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.every_s):
                await self._news.wait()
        # Cleared before the look: what comes during it is found in the next round.
        self._news.clear()
