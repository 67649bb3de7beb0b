"""Forget what has ended long ago, a bounded number at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.events import EventKind
from holdfast.engine.service import Service
from holdfast.store import Store, Tx, Write
from holdfast.store.tasks import LAST, TOMBSTONE_DAYS

BATCH = 500
EVENTS_KEPT = timedelta(days=30)
BOOTS_KEPT = timedelta(days=30)


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass removed."""

    tasks: int = 0
    events: int = 0


class Pruner(Service):
    """Removes ended tasks whose retention is over, old events, expired keys."""

    def __init__(
        self, store: Store, clock: Clock, *, every_s: float = 60.0, events_kept: timedelta = EVENTS_KEPT
    ) -> None:
        super().__init__(every_s=every_s)
        self._store = store
        self._clock = clock
        self._events_kept = events_kept

    async def run_once(self) -> Forgotten:
        now = self._clock.now()
        return await self._store.write(pruning(now=now, events_kept=self._events_kept))


def pruning(*, now: datetime, events_kept: timedelta = EVENTS_KEPT, limit: int = BATCH) -> Write[Forgotten]:
    """The write that forgets one batch."""

    def prune(tx: Tx) -> Forgotten:
        ended = tx.tasks.to_prune(now=now, limit=limit)
        if ended:
            ids = [task_id for task_id, _, _ in ended]
            tx.journal.delete_of_tasks(ids)
            tx.checkpoints.delete_of_tasks(ids)
            tx.runs.delete_of_tasks(ids)
            tx.blobs.stop_using(ids)
            tx.tasks.delete(ended, keys_expire_at=now + timedelta(days=TOMBSTONE_DAYS))
            for task_id in ids:
                tx.emit(EventKind.TASK_PRUNED, task_id, at=now, task_id=task_id)
        tx.tasks.forget_keys(now=now)
        tx.boots.forget_ended(older_than=now - BOOTS_KEPT)
        events = tx.events.prune(older_than=now - events_kept, limit=limit * 20)
        return Forgotten(tasks=len(ended), events=events)

    return prune


def pruning_checkpoints(*, older_than: datetime, before: str = LAST, limit: int = BATCH) -> Write[list[str]]:
    """The write that removes settled checkpoints of ended tasks; their ids."""

    def prune(tx: Tx) -> list[str]:
        found = tx.checkpoints.to_prune(older_than=older_than, before=before, limit=limit)
        if found:
            tx.checkpoints.delete(found)
        return [one.id for one in found]

    return prune
