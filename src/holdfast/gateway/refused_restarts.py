"""Service: keeps refused restarts in memory until they can be written to the ledger."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.events import EventKind
from holdfast.core.manifest import Restart, RestartOutcome
from holdfast.core.transitions import RestartStatus
from holdfast.engine.aio.service import Service
from holdfast.store import Store, Tx, Write

EVERY_S = 1.0
# A client that asks again and again on a full disk must not fill the memory.
MOST = 100


class RefusalRecorder(Service):
    """Refused restarts that are not in the ledger yet: the same full disk often blocks both."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(every_s=EVERY_S)
        self._store = store
        self._clock = clock
        self._waiting: dict[str, Restart] = {}

    def add(self, restart: Restart, why: str) -> None:
        self._waiting[restart.id] = msgspec.structs.replace(
            restart,
            status=RestartStatus.BLOCKED,
            outcome=RestartOutcome(why_blocked=why),
            updated_at=self._clock.now(),
        )
        while len(self._waiting) > MOST:
            del self._waiting[next(iter(self._waiting))]

    def with_these(self, found: Sequence[Restart], *, limit: int, before: str) -> list[Restart]:
        """A page of restarts, newest first: those of the ledger and those that it does not have yet."""
        known: dict[str, Restart] = {restart.id: restart for restart in found}
        known |= {key: restart for key, restart in self._waiting.items() if key < before}
        return sorted(known.values(), key=lambda restart: restart.id, reverse=True)[:limit]

    async def run_once(self) -> int:
        """Write the refusals to the ledger; how many. Raises StoreUnavailable while it cannot be written."""
        noted = list(self._waiting.values())
        for restart in noted:
            await self._store.write(noting(restart))
            self._waiting.pop(restart.id, None)
        return len(noted)


def noting(restart: Restart) -> Write[None]:
    """The write that notes a blocked restart, whether or not the ledger has it already."""
    assert restart.outcome is not None
    outcome, now = restart.outcome, restart.updated_at
    begun = msgspec.structs.replace(restart, status=RestartStatus.DRAINING, outcome=None)

    def note(tx: Tx) -> None:
        if tx.restarts.create(begun).status is not RestartStatus.DRAINING:
            return
        tx.restarts.settle(restart.id, RestartStatus.BLOCKED, now=now, outcome=outcome)
        tx.emit(EventKind.RESTART_BLOCKED, restart.id, at=now, why=outcome.why_blocked)

    return note
