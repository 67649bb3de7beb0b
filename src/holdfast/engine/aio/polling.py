"""Base of services that look when somebody hints that there is something, and now and then without a hint."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.core.errors import HoldfastError
from holdfast.engine.aio.service import Service
from holdfast.store import Store

_LISTEN_S = 30.0
_AFTER_ERROR_S = 1.0


class PollingService(Service):
    """`run_once` soon after each hint at a topic, and after `every_s` without one: hints may be lost."""

    def __init__(self, store: Store, topic: str, *, every_s: float) -> None:
        super().__init__(every_s=every_s)
        self._store = store
        self._topic = topic
        self._news = asyncio.Event()

    async def run(self) -> None:
        listening = asyncio.get_running_loop().create_task(self._listen(), name=f"holdfast {self._topic}")
        await asyncio.sleep(0)  # it listens before anybody looks
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
        """There is something to do: do not wait for the next hint."""
        self._news.set()

    async def _listen(self) -> None:
        """All the time, so that a hint which comes while nobody waits for it is not lost."""
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
        # Cleared before we look: what comes while we do is looked for in the next round.
        self._news.clear()
