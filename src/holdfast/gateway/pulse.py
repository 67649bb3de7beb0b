"""Service: checks on request whether the ledger can be read and written now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.core.clock import Clock, to_micros
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.engine.aio.service import Service
from holdfast.store import Store, Tx

# A caller gets an answer within this time: a ledger that has not answered by then counts as away.
ANSWER_S = 3.0
# The fact that the check writes; it is never read.
FACT = "looked_at"


class HealthProbe(Service):
    """Checks with a small write, because reads also work on a full disk and on a read-only standby.

    It writes only when a door asks, so an idle gateway does not touch its disk.
    """

    def __init__(
        self, store: Store, clock: Clock, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(every_s=1.0)
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._asked = asyncio.Event()
        self._answered = asyncio.Event()
        self._is_running = False
        self._looked_at = float("-inf")
        # Why the ledger cannot be used; None when the last check succeeded.
        self.problem: str | None = None
        # Why the ledger itself holds resumes; see Store.held_why.
        self.held: str | None = None

    async def look(self, *, at_most_old_s: float = 0.0) -> None:
        """Check now, unless the last check is recent enough. Returns within three seconds in any case."""
        if not self._is_running or self._monotonic() - self._looked_at < at_most_old_s:
            return
        self._answered.clear()
        self._asked.set()
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._answered.wait()
        except TimeoutError:
            away = StoreUnavailable(f"the ledger has not answered for {ANSWER_S:g} s")
            self.problem = str(away)
            self.troubles.met(type(self).__name__, away)

    async def run(self) -> None:
        self._is_running = True
        try:
            while not self._stop.is_set():
                await self._asked.wait()
                # Clear before the check: a door that asks during it triggers another one.
                self._asked.clear()
                if not self._stop.is_set():
                    await self.run_once()
        finally:
            self._is_running = False
            self._answered.set()

    def stop(self) -> None:
        super().stop()
        self._asked.set()

    async def run_once(self) -> str | None:
        """Why the ledger cannot be used now, or None."""
        now = str(to_micros(self._clock.now()))

        def note(tx: Tx) -> None:
            tx.boots.set_fact(FACT, now)

        try:
            await self._store.write(note)
            self.held = await asyncio.to_thread(self._store.held_why)
        except HoldfastError as error:
            self.problem = str(error)
            self.troubles.met(type(self).__name__, error)
        except Exception as error:  # noqa: BLE001 - a service's outermost loop: it is not usable, whatever it is
            self.problem = repr(error)
            self.troubles.met(type(self).__name__, error)
        else:
            self.problem = None
            self.troubles.worked(type(self).__name__)
        self._looked_at = self._monotonic()
        self._answered.set()
        return self.problem
