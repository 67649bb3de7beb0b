"""Service: what the gateway did or refused enters the audit log; of refusals only a bounded number."""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec

from holdfast.core.audit import Actor, AuditEntry, AuditOutcome, Door
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.engine.aio.service import Service
from holdfast.store import Store, Tx

EVERY_S = 1.0
# So many different refusals are kept between two writes, and the others are only counted.
MOST = 20
# While the ledger cannot be written, the oldest notes go.
MOST_NOTES = 1000
GATEWAY = Actor(who="gateway", door=Door.GATEWAY)


class AuditTrail(Service):
    """Collects entries in memory and writes them once a second; equal refusals become one entry.

    A flood of wrong tokens must not fill the ledger, nor make the callers wait for its disk. If the process
    dies, the entries of its last second are not in the log; what callers changed is, in the same write.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(every_s=EVERY_S)
        self._store = store
        self._clock = clock
        self._notes: list[AuditEntry] = []
        self._refusals: dict[tuple[str, ...], AuditEntry] = {}
        self._dropped = 0

    def note(self, action: str, *, outcome: AuditOutcome = AuditOutcome.DONE, why: str | None = None) -> None:
        """What the gateway does by itself: a signal is obeyed, changed settings are applied."""
        self._notes.append(GATEWAY.entry(action, outcome, now=self._clock.now(), why=why))
        del self._notes[:-MOST_NOTES]

    async def record(self, entry: AuditEntry) -> None:
        """Before an act begins. While the ledger is away the entry waits in memory and holds nothing up: a
        token must be revoked, and a gateway stopped, on a full disk, too."""
        try:
            await self._store.write(lambda tx: tx.audit.add(entry))
        except StoreUnavailable:
            self._notes = [*self._notes, entry][-MOST_NOTES:]

    def refuse(
        self, actor: Actor, action: str, why: str, *, subject: str | None = None, is_failure: bool = False
    ) -> None:
        """What a caller wanted and did not get. Safe at any rate: nothing is written before the next pass."""
        outcome = AuditOutcome.FAILED if is_failure else AuditOutcome.REFUSED
        same = (actor.who, actor.door.value, actor.address or "", action, outcome.value)
        before = self._refusals.get(same)
        if before is not None:
            self._refusals[same] = msgspec.structs.replace(before, times=before.times + 1)
        elif len(self._refusals) < MOST:
            now = self._clock.now()
            self._refusals[same] = actor.entry(action, outcome, now=now, subject=subject, why=why)
        else:
            self._dropped += 1

    async def run(self) -> None:
        await super().run()
        with contextlib.suppress(HoldfastError):  # the process ends, and nothing could be tried again
            await self.run_once()

    async def run_once(self) -> int:
        """How many entries were written. Raises StoreUnavailable, and they wait for the next pass."""
        notes, refusals, dropped = self._notes, self._refusals, self._dropped
        entries = [*notes, *refusals.values()]
        if dropped:
            entries.append(_rest(dropped, self._clock.now()))
        if not entries:
            return 0

        def write(tx: Tx) -> None:
            for entry in entries:
                tx.audit.add(entry)

        # What comes while this is written is for the next pass.
        self._notes, self._refusals, self._dropped = [], {}, 0
        try:
            await self._store.write(write)
        except BaseException:
            self._notes = (notes + self._notes)[-MOST_NOTES:]
            self._refusals = refusals | self._refusals
            self._dropped += dropped
            raise
        return len(entries)


def _rest(dropped: int, now: datetime) -> AuditEntry:
    why = f"{dropped} more refusals within a second are not listed one by one"
    entry = GATEWAY.entry("refusals.dropped", AuditOutcome.REFUSED, now=now, why=why)
    return msgspec.structs.replace(entry, times=dropped)
