"""Base of every background service: start, stop, run_once, jitter."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod

from holdfast.engine.aio.trouble_log import TroubleLog


class Service(ABC):
    """`run_once` again and again until stopped. Tests call `run_once` and never wait.

    `stop` is safe before `run`, safe twice, and complete when `run` returns.
    """

    def __init__(self, *, every_s: float) -> None:
        if every_s <= 0:
            raise ValueError("every_s must be positive")
        self.every_s = every_s
        self._stop = asyncio.Event()
        # Replaced by the process's own log, if several services share one.
        self.troubles = TroubleLog()

    @abstractmethod
    async def run_once(self) -> object:
        """One pass; what it did, for tests and logs."""

    async def run(self) -> None:
        """Until `stop`. Errors are logged, and the next pass tries again."""
        name = type(self).__name__
        while not self._stop.is_set():
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001 - a service's outermost loop: nothing ends it for good
                self.troubles.met(name, error, again_in_s=self.every_s)
            else:
                self.troubles.worked(name)
            await self._pause()

    def stop(self) -> None:
        self._stop.set()

    def _next_in_s(self) -> float:
        # A fleet that started together must not ask the database together.
        return self.every_s * random.uniform(0.8, 1.2)  # noqa: S311 - jitter, not a secret

    async def _pause(self) -> None:
        await self._wait(self._next_in_s())

    async def _wait(self, seconds: float) -> None:
        """For so long, or until `stop`."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return
