"""Service: writes what the gateway did or refused into the audit log; the number of refusals is bounded."""

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
# How many different refusals are kept between two writes; the others are only counted.
MOST = 20
# How many notes are kept while the ledger cannot be written; the oldest are dropped first.
MOST_NOTES = 1000
GATEWAY = Actor(who="gateway", door=Door.GATEWAY)


class AuditRecorder(Service):
    """Collects entries in memory and writes them once a second; equal refusals become one entry.

    A flood of wrong tokens must not fill the ledger or make callers wait for its disk. If the process dies,
    the entries of its last second are lost. Changes by callers are not: each is written with its entry.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(every_s=EVERY_S)
        self._store = store
        self._clock = clock
        self._notes: list[AuditEntry] = []
        self._refusals: dict[tuple[str, ...], AuditEntry] = {}
        self._dropped = 0

    def note(self, action: str, *, outcome: AuditOutcome = AuditOutcome.DONE, why: str | None = None) -> None:
        """Note what the gateway did by itself: it obeyed a signal, or applied changed settings."""
        self._notes.append(GATEWAY.entry(action, outcome, now=self._clock.now(), why=why))
        del self._notes[:-MOST_NOTES]

    async def record(self, entry: AuditEntry) -> None:
        """Record an act before it begins. While the ledger is away the entry waits in memory and does not
        block the act: an operator must be able to revoke a token or stop a gateway on a full disk."""
        try:
            await self._store.write(lambda tx: tx.audit.add(entry))
        except StoreUnavailable:
            self._notes = [*self._notes, entry][-MOST_NOTES:]

    def refuse(
        self, actor: Actor, action: str, why: str, *, subject: str | None = None, is_failure: bool = False
    ) -> None:
        """Note a refused request. Cheap at any rate of requests: it is written only at the next pass."""
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
        with contextlib.suppress(HoldfastError):  # the process ends: there is no later pass to retry in
            await self.run_once()

    async def run_once(self) -> int:
        """Write all entries; returns how many. Raises StoreUnavailable and keeps them for the next pass."""
        notes, refusals, dropped = self._notes, self._refusals, self._dropped
        entries = [*notes, *refusals.values()]
        if dropped:
            entries.append(_rest(dropped, self._clock.now()))
        if not entries:
            return 0

        def write(tx: Tx) -> None:
            for entry in entries:
                tx.audit.add(entry)

        # Entries that arrive during this write belong to the next pass.
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
