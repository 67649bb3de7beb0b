"""Deletes what ended long ago, in batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.events import EventKind
from holdfast.core.retention import RetentionLimits
from holdfast.core.task import Task
from holdfast.engine.aio.service import Service
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.store import Store, Tx, Write
from holdfast.store.records import PrunePosition
from holdfast.store.tasks import LAST, TOMBSTONE_DAYS

BATCH = 500
EVENTS_KEPT = timedelta(days=30)
BOOTS_KEPT = timedelta(days=30)
# Operators look at the audit log long after the work itself is deleted.
AUDIT_KEPT = timedelta(days=365)
# As long as a dedup key: if a channel sends a message again within that time, it is a duplicate.
CONVERSATIONS_KEPT = timedelta(days=TOMBSTONE_DAYS)
# The last messages of a session in use are kept, whatever their age: agents are given some of them, and
# people look for others.
MESSAGES_KEPT = 1000
NO_LIMITS = RetentionLimits()
# Tasks that a campaign still needs get a later stamp, so that a pass does not look at all of them each time.
NEEDED_FOR = timedelta(days=7)


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass removed."""

    tasks: int = 0
    flows: int = 0
    events: int = 0
    messages: int = 0
    sessions: int = 0
    firings: int = 0
    deliveries: int = 0
    restarts: int = 0


class RetentionPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far one round through old messages and sessions has got, so that the next batch continues there."""

    messages: PrunePosition = PrunePosition()
    sessions: PrunePosition = PrunePosition()


class Pruner(Service):
    """Deletes ended tasks and flows whose retention is over, expired keys, old events and conversations."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        watch: ClockWatch | None = None,
        every_s: float = 60.0,
        events_kept: timedelta = EVENTS_KEPT,
        limits: RetentionLimits = NO_LIMITS,
    ) -> None:
        """Without a watch the clock is trusted, even if it jumps."""
        super().__init__(every_s=every_s)
        self._store = store
        self._clock = clock
        self._watch = watch
        self._events_kept = events_kept
        self._limits = limits
        self._walk = RetentionPosition()

    async def run_once(self) -> Forgotten:
        # Read once: the clock may jump between two reads.
        now = self._clock.now() if self._watch is None else await self._watch.deletion_time()
        if now is None:
            return Forgotten()
        forgotten = await self._store.write(
            pruning(now=now, events_kept=self._events_kept, limits=self._limits)
        )
        also, self._walk = await self._store.write(pruning_conversations(now=now, walk=self._walk))
        return msgspec.structs.replace(
            also, tasks=forgotten.tasks, flows=forgotten.flows, events=forgotten.events
        )


def pruning(
    *,
    now: datetime,
    events_kept: timedelta = EVENTS_KEPT,
    limit: int = BATCH,
    limits: RetentionLimits = NO_LIMITS,
) -> Write[Forgotten]:
    """The write that deletes one batch."""

    def prune(tx: Tx) -> Forgotten:
        pruned = pruning_tasks(now=now, limit=limit, limits=limits)(tx)
        flows = pruning_flows(now=now, limit=limit)(tx)
        tx.tasks.forget_keys(now=now)
        tx.flows.forget_keys(now=now)
        tx.boots.forget_ended(older_than=now - BOOTS_KEPT)
        tx.starts.forget(older_than=now - BOOTS_KEPT)
        tx.audit.prune(older_than=now - AUDIT_KEPT, limit=limit)
        events = tx.events.prune(older_than=now - events_kept, limit=limit * 20)
        return Forgotten(tasks=len(pruned), flows=len(flows), events=events)

    return prune


class DueTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Ended tasks whose retention is over: by their stamp, or by the limit of their kind. Others have a stamp
    that is over, too, but their kind is kept for longer: they get a later stamp."""

    by_stamp: list[str] = []
    by_limit: list[Task] = []
    kept: list[Task] = []


def find_due(tx: Tx, *, now: datetime, limit: int, limits: RetentionLimits = NO_LIMITS) -> DueTasks:
    """What retention may delete now; locks nothing, so that a preview may ask, too."""
    stamped = tx.tasks.past_retention(now=now, limit=limit)
    kept = _kept(tx, stamped, now=now, limits=limits)
    later = {task.id for task in kept} | tx.tasks.needed_by_campaigns(stamped)
    return DueTasks(
        by_stamp=[task_id for task_id in stamped if task_id not in later],
        by_limit=_past_limits(tx, now=now, limit=limit, limits=limits),
        kept=kept,
    )


def _kept(tx: Tx, task_ids: Sequence[str], *, now: datetime, limits: RetentionLimits) -> list[Task]:
    """Those of these tasks that the limit of their kind keeps, although their stamp is over."""
    if not limits.kinds or not task_ids:
        return []
    return [task for task in tx.tasks.get_many(task_ids).values() if (limits.kept_until(task) or now) > now]


def _past_limits(tx: Tx, *, now: datetime, limit: int, limits: RetentionLimits) -> list[Task]:
    """Tasks that the limit of their kind no longer keeps, although their stamp is not over."""
    found = [
        task
        for kind, span in sorted(limits.kinds.items())
        for task in tx.tasks.past_limit(kind, before=now - span, limit=limit)
        if task.cleanup_after is not None and task.cleanup_after > now
    ]
    needed = tx.tasks.needed_by_campaigns([task.id for task in found]) if found else set()
    return [task for task in found if task.id not in needed][:limit]


def pruning_tasks(
    *,
    now: datetime,
    limit: int = BATCH,
    only: Collection[str] | None = None,
    limits: RetentionLimits = NO_LIMITS,
) -> Write[list[str]]:
    """The write that deletes ended tasks whose retention is over, and returns their ids; with `only`, no
    others. A task that may not be deleted any more, because it was reopened, is left out."""

    def prune(tx: Tx) -> list[str]:
        stamped = tx.tasks.to_prune(now=now, limit=limit)
        due = [task_id for task_id, _, _ in stamped]
        kept = _kept(tx, due, now=now, limits=limits)
        for task in kept:
            tx.tasks.restamp(task, cleanup_after=limits.kept_until(task) or now)
        later: set[str] = {task.id for task in kept}
        needed = tx.tasks.needed_by_campaigns(due) - later if due else set()
        for task in tx.tasks.get_many(sorted(needed)).values():
            tx.tasks.restamp(task, cleanup_after=now + NEEDED_FOR)
        later |= needed
        early = tx.tasks.lock_to_prune(_past_limits(tx, now=now, limit=limit, limits=limits))
        ended = [
            one for one in (*stamped, *early) if one[0] not in later and (only is None or one[0] in only)
        ]
        ids = [task_id for task_id, _, _ in ended]
        if ids:
            tx.journal.delete_of_tasks(ids)
            tx.checkpoints.delete_of_tasks(ids)
            tx.runs.delete_of_tasks(ids)
            tx.blobs.stop_using(ids)
            tx.tasks.delete(ended, keys_expire_at=now + timedelta(days=TOMBSTONE_DAYS))
            for task_id in ids:
                tx.emit(EventKind.TASK_PRUNED, task_id, at=now, task_id=task_id)
        return ids

    return prune


def pruning_flows(
    *, now: datetime, limit: int = BATCH, only: Collection[str] | None = None
) -> Write[list[str]]:
    """The write that deletes ended flows whose retention is over, with their nodes, and returns their ids;
    with `only`, no others. Their tasks have a retention of their own."""

    def prune(tx: Tx) -> list[str]:
        found = [one for one in tx.flows.to_prune(now=now, limit=limit) if only is None or one in only]
        if not found:
            return []
        gone = tx.flows.delete(found, keys_expire_at=now + timedelta(days=TOMBSTONE_DAYS))
        for flow_id in gone:
            tx.emit(EventKind.FLOW_PRUNED, flow_id, at=now)
        return gone

    return prune


def pruning_conversations(
    *, now: datetime, walk: RetentionPosition, kept: int = MESSAGES_KEPT, limit: int = BATCH
) -> Write[tuple[Forgotten, RetentionPosition]]:
    """The write that deletes one batch of old messages, sessions, firings, deliveries and restarts. Returns
    where the next batch continues."""
    older_than = now - CONVERSATIONS_KEPT

    def prune(tx: Tx) -> tuple[Forgotten, RetentionPosition]:
        # Delete firings before their messages, and messages before their sessions: no reference may dangle.
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
        return forgotten, RetentionPosition(messages=messages.place, sessions=sessions.place)

    return prune


def pruning_checkpoints(*, older_than: datetime, before: str = LAST, limit: int = BATCH) -> Write[list[str]]:
    """The write that deletes settled checkpoints of ended tasks. It returns their ids."""

    def prune(tx: Tx) -> list[str]:
        found = tx.checkpoints.to_prune(older_than=older_than, before=before, limit=limit)
        if found:
            tx.checkpoints.delete(found)
        return [one.id for one in found]

    return prune
