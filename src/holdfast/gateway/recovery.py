"""What a gateway does at its start with a manifest, or with the evidence of a crash."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.config.gateway import RestartSettings
from holdfast.core.checkpoint import ResumeReason, decode_seed
from holdfast.core.clock import Clock
from holdfast.core.delivery import Delivery, Letter
from holdfast.core.errors import IllegalMove, RestartBlocked
from holdfast.core.events import EventKind
from holdfast.core.ids import DeliveryId, new_restart_id
from holdfast.core.manifest import (
    CRASH,
    Fate,
    Interruption,
    InterruptionKind,
    Outcome,
    Recovered,
    Restart,
    Trigger,
    system_sentence,
)
from holdfast.core.message import CRON_CHANNEL
from holdfast.core.run import Run
from holdfast.core.task import Task
from holdfast.core.transitions import FiringStatus, RestartStatus, RunStatus, TaskStatus
from holdfast.engine.boots import Life
from holdfast.engine.ledger import cancelling
from holdfast.engine.rescue import Rescuer
from holdfast.engine.waits import sending
from holdfast.gateway.inbox import Inbox
from holdfast.gateway.manifests import beginning, consume_file
from holdfast.gateway.readiness import interruption_of
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

SENDER = "gateway"
# Where a parent finds which of its children were interrupted, and what became of them.
CHILDREN_TOPIC = "holdfast.children"
# Why the resume of a run was refused that had killed its process while it was carried alone.
QUARANTINED = "quarantined"
# Nobody reads a notice there.
_SILENT = frozenset({"system", CRON_CHANNEL, "console"})
_SUMMARY = 300
_UNDER_WAY = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING})
_NOT_RESUMED = "interrupted by a restart, and cron_retry_on_interrupt is off"


class Recovery:
    """From what was interrupted to what became of it. Every write gives the same when it is made again, so
    a crash in the middle of a recovery only means that the next start recovers again."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        life: Life,
        inbox: Inbox,
        settings: RestartSettings,
        *,
        place: str,
        home: Path,
    ) -> None:
        self._store = store
        self._clock = clock
        self._life = life
        self._inbox = inbox
        self._settings = settings
        self._place = place
        self._manifest_path = home / settings.manifest_path
        self._rescuer = Rescuer(store, clock, life)
        self._open: list[Restart] = []
        self._also: list[str] = []

    @property
    def is_needed(self) -> bool:
        return bool(self._open)

    async def look(self) -> None:
        """Before anything is rescued: what the gateway before us noted, or what its death has left."""
        before = await self._store.read(lambda tx: tx.restarts.open_of(self._place))
        self._open = [one for one in before if one.boot_id != self._life.id]
        carried = await self._rescuer.evidence()
        known = {one.task_id for restart in self._open for one in restart.manifest.interruptions}
        self._also = sorted({run.task_id for run in carried} - known)
        if self._also and not self._open:
            self._open, self._also = [await self._note_crash(self._also)], []

    async def _note_crash(self, task_ids: Sequence[str]) -> Restart:
        now = self._clock.now()
        trigger = Trigger(reason=CRASH, triggered_by=CRASH, at=now, resume_reason=ResumeReason.CRASH)
        # In our place, but not by us: should we die too, whoever comes next finds it open.
        write = beginning(
            new_restart_id(now),
            boot_id=self._life.id,
            place=self._place,
            task_ids=task_ids,
            triggers=[trigger],
            now=now,
        )
        return await self._store.write(write)

    async def finish(self) -> list[Restart]:
        """After everything was resumed: tell whoever must be told, and close what was open."""
        closed = [await self._close(restart) for restart in self._open]
        self._open = []
        return closed

    async def _close(self, restart: Restart) -> Restart:
        task_ids = [one.task_id for one in restart.manifest.interruptions]
        # What the dead carried besides, when they had begun more after the manifest was written.
        task_ids += self._also
        self._also = []
        found = await self._store.read(lambda tx: _found(tx, task_ids))
        recovered = [await self._settle(restart, one) for one in found]
        continued = [await self._continue(restart, number) for number in range(len(restart.triggers))]
        notices = await self._notify(restart, found) if self._settings.session_recovery else 0
        outcome = Outcome(
            recovered=tuple(recovered),
            notices=notices,
            continuations=sum(continued),
            parents_told=sum(one.parent is not None for one in found),
        )
        closed = await self._store.write(lambda tx: self._closing(tx, restart, outcome))
        now = self._clock.now()
        try:
            await asyncio.to_thread(consume_file, self._manifest_path, restart.manifest, outcome, now=now)
        except RestartBlocked as error:
            log.warning("%s", error.why)
        log.warning("%s", summary_of(closed))
        return closed

    def _closing(self, tx: Tx, restart: Restart, outcome: Outcome) -> Restart:
        now = self._clock.now()
        is_open = tx.restarts.get(restart.id).status is not RestartStatus.RECOVERED
        closed = tx.restarts.settle(
            restart.id, RestartStatus.RECOVERED, now=now, outcome=outcome, recovered_by=self._life.id
        )
        if is_open:
            tx.emit(
                EventKind.RESTART_RECOVERED,
                restart.id,
                at=now,
                reason=restart.manifest.reason,
                interrupted=len(outcome.recovered),
                summary=summary_of(closed),
            )
        return closed

    # --- one interruption

    async def _settle(self, restart: Restart, one: _Found) -> Recovered:
        fate = one.fate
        if one.interruption.kind is InterruptionKind.CRON:
            fate = await self._settle_cron(one)
        if one.parent is not None:
            await self._tell_parent(restart, one, one.parent)
        if fate is Fate.FAILED and await self._tell_session(restart, one):
            fate = Fate.TOLD
        return Recovered(
            task_id=one.task.id,
            fate=fate,
            run_id=None if one.run is None else one.run.id,
            why=_why(one.task),
        )

    async def _settle_cron(self, one: _Found) -> Fate:
        """Queued again with a flag, and resumed from its checkpoint; or given up, when that is wanted."""
        now = self._clock.now()
        if one.task.has_ended:
            return one.fate
        if self._settings.cron_retry_on_interrupt:
            message_id = (one.task.dedup_key or "").removeprefix("message:")
            await self._store.write(
                lambda tx: tx.firings.follow(message_id, FiringStatus.REQUEUED, task_id=one.task.id, now=now)
            )
            return one.fate
        await self._store.write(cancelling(one.task.id, owner=None, reason=_NOT_RESUMED, now=now))
        return Fate.CANCELLED

    async def _tell_session(self, restart: Restart, one: _Found) -> bool:
        """An interrupted session without a run to resume learns that it was interrupted."""
        key = one.task.session_key
        if key is None or not self._settings.session_recovery:
            return False
        if _is_to_blame(one.task):
            # Told to go on where it was, it would end the next gateway, too: it stands there for people.
            text = f"[System] Not resumed after a restart: {_why(one.task)}."
            await self._inbox.note(key, text, key=f"{restart.id}:{key}")
            return False
        text = system_sentence(restarted_at=restart.requested_at, reason=restart.manifest.reason)
        await self._inbox.ask(key, text, key=f"{restart.id}:{key}")
        return True

    async def _continue(self, restart: Restart, number: int) -> bool:
        """Who asked for the restart and said what to go on with gets it back as the next message."""
        trigger = restart.triggers[number]
        if trigger.continuation is None or trigger.session_key is None:
            return False
        # Its own words, and said to be: they must not pass for the gateway's.
        text = f"[System] The restart that you asked for is done. You had noted: {trigger.continuation}"
        await self._inbox.ask(trigger.session_key, text, key=f"{restart.id}:continuation:{number}")
        return True

    async def _tell_parent(self, restart: Restart, one: _Found, parent: Task) -> None:
        """Into its mailbox, where it may look when it wants to know; it waits for the child as before."""
        write = sending(
            parent.id,
            topic=CHILDREN_TOPIC,
            body={"child": one.task.id, "fate": one.fate.value, "restart": restart.id},
            sender=SENDER,
            key=f"{restart.id}:{one.task.id}",
            now=self._clock.now(),
        )
        with contextlib.suppress(IllegalMove):  # it has ended, and so nobody waits
            await self._store.write(write)

    # --- notices

    async def _notify(self, restart: Restart, found: Sequence[_Found]) -> int:
        """One short sentence for each place from which something was asked, and never twice."""
        by_origin: dict[bytes, _Found] = {}
        for one in found:
            origin = one.task.origin
            if origin is None or origin.channel in _SILENT or one.interruption.kind is InterruptionKind.CHILD:
                continue
            if one.fate in {Fate.RESUMED, Fate.QUEUED, Fate.FAILED}:
                by_origin.setdefault(msgspec.json.encode(origin), one)
        now = self._clock.now()

        def notify(tx: Tx) -> int:
            for origin, one in by_origin.items():
                digest = hashlib.blake2b(origin, digest_size=8).hexdigest()
                tx.deliveries.create(_notice(restart, one, digest, now))
            tx.hint("deliveries")
            return len(by_origin)

        return await self._store.write(notify) if by_origin else 0


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """One task that was interrupted, as it stands after the resumes."""

    task: Task
    interruption: Interruption
    fate: Fate
    run: Run | None
    parent: Task | None
    next_step: str | None


def _found(tx: Tx, task_ids: Sequence[str]) -> list[_Found]:
    tasks = tx.tasks.get_many(task_ids)
    return [_find(tx, tasks[task_id]) for task_id in task_ids if task_id in tasks]


def _find(tx: Tx, task: Task) -> _Found:
    run = tx.runs.live_of_task(task.id)
    parent = None if task.parent_task_id is None else tx.tasks.look(task.parent_task_id)
    seed = None if run is None or run.seed is None else decode_seed(tx.blobs.open(run.seed))
    return _Found(
        task=task,
        interruption=interruption_of(task),
        fate=_fate(task, run),
        run=run,
        parent=parent,
        next_step=None if seed is None else seed.cursor.next_step,
    )


def _fate(task: Task, run: Run | None) -> Fate:
    if task.has_ended:
        return Fate.FAILED if task.status in {TaskStatus.FAILED, TaskStatus.LOST} else Fate.ENDED
    if run is None or run.status not in _UNDER_WAY:
        return Fate.HELD
    return Fate.QUEUED if run.resumes_run_id is None else Fate.RESUMED


def _is_to_blame(task: Task) -> bool:
    """Whether it was given up because processes died with it, at last with it alone."""
    return task.failure is not None and task.failure.facts.get("why") == QUARANTINED


def _why(task: Task) -> str | None:
    return None if task.failure is None else task.failure.message[:_SUMMARY]


def _notice(restart: Restart, one: _Found, digest: str, now: datetime) -> Delivery:
    if one.fate is Fate.FAILED:
        text = f"Not resumed after restart: {_why(one.task) or 'it failed'}"
    elif one.next_step is None:
        text = "Resumed after restart; continuing."
    else:
        text = f"Resumed after restart; continuing from step {one.next_step}…"
    return Delivery(
        id=DeliveryId(f"dlv_{restart.id.removeprefix('rst_')}-{digest}"),
        task_id=one.task.id,
        idempotency_key=f"notice:{restart.id}:{digest}",
        origin=one.task.origin,
        message=msgspec.json.encode(Letter(text=text, session_key=one.task.session_key)),
        created_at=now,
        due_at=now,
        updated_at=now,
    )


def summary_of(restart: Restart) -> str:
    """One sentence for the operator."""
    outcome = restart.outcome or Outcome()
    counts: dict[str, int] = {}
    for one in outcome.recovered:
        counts[one.fate.value] = counts.get(one.fate.value, 0) + 1
    parts = [f"{number} {fate}" for fate, number in sorted(counts.items())]
    what = ", ".join(parts) if parts else "nothing was interrupted"
    return f"recovered from a restart ({restart.manifest.reason}): {what}"
