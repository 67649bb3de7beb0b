"""Service: finds out whether the ledger can be written and read now, when a door asks for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.core.clock import Clock, to_micros
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.engine.aio.service import Service
from holdfast.store import Store, Tx

# Who asks gets an answer within this time: a ledger that has not answered by then is away.
ANSWER_S = 3.0
# In the facts of the ledger; it is never read.
FACT = "looked_at"


class Pulse(Service):
    """A small write, which is the only proof: a full disk can be read, and so can a frozen standby.

    Nothing is written while no door asks: an idle gateway leaves its disk alone.
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
        # Why the ledger cannot be used; None when it could at the last look.
        self.problem: str | None = None
        # Why the ledger itself holds resumes; see Store.held_why.
        self.held: str | None = None

    async def look(self, *, at_most_old_s: float = 0.0) -> None:
        """Find out, unless that was done so short a while ago. Answers within three seconds in any case."""
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
                # Before the look, so that a door that asks meanwhile does not wait in vain.
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
