"""Forget what has ended long ago, a bounded number at a time."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.events import EventKind
from holdfast.engine.aio.service import Service
from holdfast.engine.clocks.clock_watch import ClockWatch
from holdfast.store import Store, Tx, Write
from holdfast.store.records import Place
from holdfast.store.tasks import LAST, TOMBSTONE_DAYS

BATCH = 500
EVENTS_KEPT = timedelta(days=30)
BOOTS_KEPT = timedelta(days=30)
# Who did what is asked for long after the work is forgotten.
AUDIT_KEPT = timedelta(days=365)
# As long as a dedup key: a channel that hands a message in again within that time is told that it was there.
CONVERSATIONS_KEPT = timedelta(days=TOMBSTONE_DAYS)
# So many of the last messages of a session in use stay however old they are: an agent is reminded of some of
# them, and people look for others.
MESSAGES_KEPT = 1000


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass removed."""

    tasks: int = 0
    events: int = 0
    messages: int = 0
    sessions: int = 0
    firings: int = 0
    deliveries: int = 0
    restarts: int = 0


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """How far one round through old messages and sessions has got: what must stay is not looked at always."""

    messages: Place = Place()
    sessions: Place = Place()


class Pruner(Service):
    """Removes ended tasks whose retention is over, old events, expired keys, and old conversations."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        watch: ClockWatch | None = None,
        every_s: float = 60.0,
        events_kept: timedelta = EVENTS_KEPT,
    ) -> None:
        """Without a watch the clock is believed, whatever it says."""
        super().__init__(every_s=every_s)
        self._store = store
        self._clock = clock
        self._watch = watch
        self._events_kept = events_kept
        self._walk = Walk()

    async def run_once(self) -> Forgotten:
        # Not asked again: between two looks the clock may jump.
        now = self._clock.now() if self._watch is None else await self._watch.deletion_time()
        if now is None:
            return Forgotten()
        forgotten = await self._store.write(pruning(now=now, events_kept=self._events_kept))
        write = pruning_conversations(now=now, walk=self._walk)
        also, self._walk = await self._store.write(write)
        return msgspec.structs.replace(also, tasks=forgotten.tasks, events=forgotten.events)


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
        tx.audit.prune(older_than=now - AUDIT_KEPT, limit=limit)
        events = tx.events.prune(older_than=now - events_kept, limit=limit * 20)
        return Forgotten(tasks=len(ended), events=events)

    return prune


def pruning_conversations(
    *, now: datetime, walk: Walk, kept: int = MESSAGES_KEPT, limit: int = BATCH
) -> Write[tuple[Forgotten, Walk]]:
    """The write that forgets one batch of what was said, fired, sent and restarted; and where to go on."""
    older_than = now - CONVERSATIONS_KEPT

    def prune(tx: Tx) -> tuple[Forgotten, Walk]:
        # Firings before their messages, and messages before their sessions: nothing names what is gone.
        firings = tx.firings.delete(tx.firings.to_prune(older_than=older_than, limit=limit))
        messages = tx.messages.old(older_than=older_than, kept=kept, after=walk.messages, limit=limit)
        sessions = tx.sessions.old(older_than=older_than, after=walk.sessions, limit=limit)
        forgotten = Forgotten(
            firings=firings,
            messages=tx.messages.delete(messages.ids),
            sessions=tx.sessions.delete(sessions.ids),
            deliveries=tx.deliveries.delete(tx.deliveries.to_prune(older_than=older_than, limit=limit)),
            restarts=tx.restarts.delete(tx.restarts.to_prune(older_than=older_than, limit=limit)),
        )
        return forgotten, Walk(messages=messages.place, sessions=sessions.place)

    return prune


def pruning_checkpoints(*, older_than: datetime, before: str = LAST, limit: int = BATCH) -> Write[list[str]]:
    """The write that removes settled checkpoints of ended tasks; their ids."""

    def prune(tx: Tx) -> list[str]:
        found = tx.checkpoints.to_prune(older_than=older_than, before=before, limit=limit)
        if found:
            tx.checkpoints.delete(found)
        return [one.id for one in found]

    return prune
