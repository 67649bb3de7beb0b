"""Closes restarts: what they interrupted was resumed, queued again or failed, and its users are notified."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.config import in_home
from holdfast.config.sections import CronSettings, RestartSettings
from holdfast.core.checkpoint import ResumeReason, decode_seed
from holdfast.core.claim import DEFAULT_LEASE
from holdfast.core.clock import Clock
from holdfast.core.delivery import Delivery, DeliveryText
from holdfast.core.errors import (
    HoldfastError,
    IllegalMove,
    NotFound,
    RestartBlocked,
    RowDamaged,
    StoreUnavailable,
)
from holdfast.core.events import EventKind
from holdfast.core.ids import DeliveryId, new_restart_id
from holdfast.core.manifest import (
    CRASH,
    Interruption,
    InterruptionKind,
    InterruptionOutcome,
    Recovered,
    Restart,
    RestartOutcome,
    Trigger,
    system_sentence,
)
from holdfast.core.message import CRON_CHANNEL
from holdfast.core.run import RunRecord
from holdfast.core.schedule import Firing
from holdfast.core.task import Task
from holdfast.core.transitions import FiringStatus, RestartStatus, RunStatus, TaskStatus
from holdfast.engine.claims.boots import Life
from holdfast.engine.conversation.transcripts import NOT_RESUMED_KINDS, tell_fired
from holdfast.engine.ledger.ledger import cancelling
from holdfast.engine.program.waits import sending
from holdfast.engine.recovery.rescue import Note
from holdfast.engine.schedules.firing import firing_of
from holdfast.gateway.inbox import Inbox
from holdfast.gateway.manifests import consume_file, planning, unconsumed, with_more
from holdfast.gateway.readiness import interruption_of
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

SENDER = "gateway"
# Where a parent finds which of its children were interrupted, and what became of them.
CHILDREN_TOPIC = "holdfast.children"
# The failure kind of a run that killed its process while it ran there alone.
QUARANTINED = "quarantined"
# Channels without a person to notify.
_SILENT = frozenset({"system", CRON_CHANNEL, "console"})
_SUMMARY = 300
# The run is not resumed yet, or another gateway resumes it right now.
_STOPPED = frozenset({RunStatus.PAUSED_FOR_RESTART, RunStatus.RESUMING})
# Do not wait longer than this for a resume: the run may be held, or its resumer may have died.
_RESUMED_WITHIN = 2 * DEFAULT_LEASE
_UNDER_WAY = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING})
_NOT_RESUMED = "interrupted by a restart, and cron_retry_on_interrupt is off"
_NOT_RETRIED = "interrupted by a restart, and its schedule has retry = false"


class Recovery:
    """Finishes the restarts that an earlier life of this gateway left open, and those of other gateways on
    the same ledger whose work this one takes over. Every write is idempotent, whichever gateway makes it:
    after a crash in the middle of a recovery, the next gateway simply recovers again."""

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
        self._place = place
        self._home = home
        # Called at each use, because settings may change while the gateway runs.
        self.settings = settings
        self.cron = CronSettings()

    # --- what was interrupted

    def noting(self, now: datetime) -> Note:
        """The part of a rescue's write that records a crash as a restart, with all runs of one pass."""
        trigger = Trigger(reason=CRASH, triggered_by=CRASH, at=now, resume_reason=ResumeReason.CRASH)
        restart_id = new_restart_id(now)

        def note(tx: Tx, runs: Sequence[RunRecord]) -> None:
            is_open = tx.restarts.open()
            # Skip runs that the dead gateway's own manifest lists: it died during its drain.
            known = {(one.boot_id, was.task_id) for one in is_open for was in one.manifest.interruptions}
            task_ids = sorted({run.task_id for run in runs if (run.claimed_by, run.task_id) not in known})
            if not task_ids:
                return
            plan = planning(
                restart_id,
                boot_id=self._life.id,
                place=self._place,
                task_ids=task_ids,
                triggers=[trigger],
                now=now,
            )
            found = plan(tx)
            before = next((one for one in is_open if self._is_found_by_us(one)), None)
            if before is None or not tx.restarts.extend(
                before, with_more(before.manifest, found.manifest), now=now
            ):
                tx.restarts.create(found)
            for task in tx.tasks.get_many(task_ids).values():
                if interruption_of(task).kind is InterruptionKind.CRON:
                    # Flag or cancel the firing before its run is resumed and could end.
                    self._requeue_or_cancel(tx, task, now)

        return note

    def _is_found_by_us(self, restart: Restart) -> bool:
        """Whether this process recorded it for a crash, as opposed to a restart of its own."""
        return restart.boot_id == self._life.id and restart.triggers[0].resume_reason is ResumeReason.CRASH

    # --- what becomes of it

    async def finish(self) -> list[Restart]:
        """At a start, after all resumes: notify sessions, parents and people, and close open restarts."""
        closed = await self.settle()
        ours = [one for one in closed if one.place == self._place]
        await self._consume_file(ours[-1] if ours else None)
        return closed

    async def settle(self) -> list[Restart]:
        """The same after each pass that may have taken over work of other gateways."""
        found = [await self._close(restart) for restart in await self._store.read(self._to_close)]
        return [one for one in found if one is not None]

    def _to_close(self, tx: Tx) -> list[Restart]:
        return [one for one in tx.restarts.open() if self._is_found_by_us(one) or self._is_left(tx, one)]

    def _is_left(self, tx: Tx, restart: Restart) -> bool:
        """Whether an earlier life of this gateway left it open; or another gateway did, which runs nothing
        and had time to come back. If that one comes back at this moment, both write the same."""
        if restart.boot_id == self._life.id:
            return False
        if restart.place == self._place:
            return True
        is_old = self._clock.now() - restart.updated_at > DEFAULT_LEASE
        return is_old and tx.runs.count_of_boot(restart.boot_id) == 0

    async def _consume_file(self, closed: Restart | None) -> None:
        """Mark the manifest in the home as consumed, also when another gateway closed the restart."""
        key = "gateway.restart.manifest_path"
        path = in_home(self._home, self.settings.manifest_path, key=key)
        if closed is None:
            closed = await self._recovered(await asyncio.to_thread(unconsumed, path))
        if closed is None or closed.outcome is None:
            return
        now = self._clock.now()
        try:
            await asyncio.to_thread(consume_file, path, closed.manifest, closed.outcome, now=now)
        except RestartBlocked as error:
            log.warning("%s", error.why)

    async def _close(self, restart: Restart) -> Restart | None:
        """Close a restart; None while another gateway still resumes some of it: the next pass tries again."""
        task_ids = [one.task_id for one in restart.manifest.interruptions]
        found = await self._store.read(lambda tx: _found(tx, task_ids))
        is_young = self._clock.now() - restart.updated_at < _RESUMED_WITHIN
        if is_young and any(one.run is not None and one.run.status in _STOPPED for one in found):
            return None
        recovered = [await self._settled(restart, one) for one in found]
        continuations = 0
        for number in range(len(restart.triggers)):
            with _on_its_own(f"the continuation of {restart.id}"):
                continuations += await self._continue(restart, number)
        notices = await self._notify(restart, found) if self.settings.session_recovery else 0
        outcome = RestartOutcome(
            recovered=tuple(recovered),
            notices=notices,
            continuations=continuations,
            parents_told=sum(one.parent is not None for one in found),
        )
        closed = await self._store.write(lambda tx: self._closing(tx, restart, outcome))
        log.warning("%s", summary_of(closed))
        return closed

    def _closing(self, tx: Tx, restart: Restart, outcome: RestartOutcome) -> Restart:
        now = self._clock.now()
        is_open = tx.restarts.get(restart.id).status is not RestartStatus.RECOVERED
        closed = tx.restarts.settle(
            restart.id, RestartStatus.RECOVERED, now=now, outcome=outcome, recovered_by=self._life.id
        )
        if is_open and closed.recovered_by == self._life.id:
            tx.emit(
                EventKind.RESTART_RECOVERED,
                restart.id,
                at=now,
                reason=restart.manifest.reason,
                interrupted=len(outcome.recovered),
                summary=summary_of(closed),
            )
        return closed

    async def _recovered(self, restart_id: str | None) -> Restart | None:
        if restart_id is None:
            return None
        try:
            found = await self._store.read(lambda tx: tx.restarts.get(restart_id))
        except (NotFound, RowDamaged):
            return None
        return found if found.status is RestartStatus.RECOVERED else None

    # --- one interruption

    async def _settled(self, restart: Restart, one: _Found) -> Recovered:
        """Like `_settle`, but a failure is only logged: it must not keep the gateway from starting."""
        with _on_its_own(f"what became of {one.task.id}"):
            return await self._settle(restart, one)
        return Recovered(task_id=one.task.id, fate=one.fate, why=_why(one.task))

    async def _settle(self, restart: Restart, one: _Found) -> Recovered:
        fate, is_retry = one.fate, False
        if one.interruption.kind is InterruptionKind.CRON:
            fate, is_retry = await self._settle_cron(one)
        if one.parent is not None:
            await self._tell_parent(restart, one, one.parent)
        if fate is InterruptionOutcome.FAILED and await self._tell_session(restart, one):
            fate = InterruptionOutcome.TOLD
        return Recovered(
            task_id=one.task.id,
            fate=fate,
            run_id=None if one.run is None else one.run.id,
            why=_why(one.task),
            is_retry=is_retry,
        )

    async def _settle_cron(self, one: _Found) -> tuple[InterruptionOutcome, bool]:
        """Queue a firing again with its flag, or cancel it, as the settings say.

        Returns what became of it, and whether it has the flag.
        """
        if one.task.has_ended:
            return one.fate, False
        now = self._clock.now()
        firing = await self._store.write(lambda tx: self._requeue_or_cancel(tx, one.task, now))
        is_cancelled = await self._store.read(lambda tx: tx.tasks.look(one.task.id).cancel_requested_at)
        if is_cancelled is None or _has_answered(firing):
            return one.fate, firing is not None and firing.is_retry
        return InterruptionOutcome.CANCELLED, False

    def _requeue_or_cancel(self, tx: Tx, task: Task, now: datetime) -> Firing | None:
        """Flag or cancel the firing, and return it. One that has answered already is left to end."""
        firing = None
        with contextlib.suppress(RowDamaged):  # one damaged row must not block the others
            firing = firing_of(tx, task)
        if _has_answered(firing):
            return firing
        why = self._why_not_again(tx, task, firing)
        if why is not None:
            cancelling(task.id, owner=None, reason=why, now=now)(tx)
        elif firing is not None and not tx.tasks.lock(task.id).has_ended:
            with contextlib.suppress(IllegalMove):  # it was queued again before
                requeued = tx.firings.move(firing.id, FiringStatus.REQUEUED, now=now)
                tell_fired(tx, requeued, now)
                return requeued
        return firing

    def _why_not_again(self, tx: Tx, task: Task, firing: Firing | None) -> str | None:
        """Why an interrupted firing is not queued again; None if it is."""
        schedule = None
        if firing is not None:
            with contextlib.suppress(RowDamaged):
                schedule = tx.schedules.find(firing.schedule)
        own = (
            schedule.spec.retry
            if schedule is not None and firing is not None and firing.is_of(schedule)
            else None
        )
        if own is False:
            return _NOT_RETRIED
        if own is None and not self.settings.cron_retry_on_interrupt:
            return _NOT_RESUMED
        # This interruption included, whose checkpoint is saved by now.
        times = tx.checkpoints.count_interruptions(task.id)
        if times > self.cron.max_retries:
            return f"interrupted {times} times, and cron.max_retries is {self.cron.max_retries}"
        return None

    async def _tell_session(self, restart: Restart, one: _Found) -> bool:
        """Tell an interrupted session without a run to resume that it was interrupted."""
        key = one.task.session_key
        if key is None or not self.settings.session_recovery:
            return False
        if _is_to_blame(one.task):
            # Only note it for people: an agent that was told to go on would crash the next gateway, too.
            if not _says_why_itself(one):
                text = f"[System] Not resumed after a restart: {_why(one.task)}."
                await self._inbox.note(key, text, key=_key(restart, "note", one.task.id))
            return False
        text = system_sentence(restarted_at=restart.requested_at, reason=restart.manifest.reason)
        await self._inbox.ask(key, text, key=_key(restart, "session", key))
        return True

    async def _continue(self, restart: Restart, number: int) -> bool:
        """Post the continuation that the asker of the restart gave, as the next message of its session."""
        trigger = restart.triggers[number]
        if trigger.continuation is None or trigger.session_key is None:
            return False
        # Quoted as the asker's own words, so that they do not pass for the gateway's.
        text = f"[System] The restart that you asked for is done. You had noted: {trigger.continuation}"
        await self._inbox.ask(trigger.session_key, text, key=f"{restart.id}:continuation:{number}")
        return True

    async def _tell_parent(self, restart: Restart, one: _Found, parent: Task) -> None:
        """Mail the parent what became of its child; the parent waits for the child as before."""
        write = sending(
            parent.id,
            topic=CHILDREN_TOPIC,
            body={"child": one.task.id, "fate": one.fate.value, "restart": restart.id},
            sender=SENDER,
            key=f"{restart.id}:{one.task.id}",
            now=self._clock.now(),
        )
        with contextlib.suppress(IllegalMove):  # the parent has ended
            await self._store.write(write)

    # --- notices

    async def _notify(self, restart: Restart, found: Sequence[_Found]) -> int:
        """Owe one short notice to each origin of interrupted work; never twice."""
        by_origin: dict[bytes, _Found] = {}
        for one in found:
            origin = one.task.origin
            if origin is None or origin.channel in _SILENT or one.interruption.kind is InterruptionKind.CHILD:
                continue
            if one.fate in {
                InterruptionOutcome.RESUMED,
                InterruptionOutcome.QUEUED,
                InterruptionOutcome.FAILED,
            } and not _says_why_itself(one):
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
    fate: InterruptionOutcome
    run: RunRecord | None
    parent: Task | None
    next_step: str | None


def _found(tx: Tx, task_ids: Sequence[str]) -> list[_Found]:
    tasks = tx.tasks.get_many(task_ids)
    return [_find(tx, tasks[task_id]) for task_id in task_ids if task_id in tasks]


def _find(tx: Tx, task: Task) -> _Found:
    run = tx.runs.live_of_task(task.id)
    return _Found(
        task=task,
        interruption=interruption_of(task),
        fate=_fate(task, run),
        run=run,
        parent=None
        if task.parent_task_id is None
        else tx.tasks.get_many([task.parent_task_id]).get(task.parent_task_id),
        next_step=_next_step(tx, run),
    )


def _next_step(tx: Tx, run: RunRecord | None) -> str | None:
    """The next step for a notice; None when it cannot be read: the worker of the run will find that out."""
    if run is None or run.seed is None:
        return None
    try:
        return decode_seed(tx.blobs.open(run.seed)).cursor.next_step
    except (HoldfastError, msgspec.DecodeError):
        return None


def _key(restart: Restart, *parts: str) -> str:
    """A hashed key: names of people and places may hold characters that a key must not."""
    return f"{restart.id}:{hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()}"


@contextlib.contextmanager
def _on_its_own(what: str) -> Iterator[None]:
    """Log an error of one interruption and go on with the others; StoreUnavailable passes through."""
    try:
        yield
    except StoreUnavailable:
        raise
    except HoldfastError as error:
        log.error("no notice about %s: %s", what, error)  # noqa: TRY400 - the message says it all


def _fate(task: Task, run: RunRecord | None) -> InterruptionOutcome:
    if task.status is TaskStatus.CANCELLED:
        return InterruptionOutcome.CANCELLED
    if task.has_ended:
        return InterruptionOutcome.FAILED if _was_not_resumed(task) else InterruptionOutcome.ENDED
    if run is None or run.status not in _UNDER_WAY:
        return InterruptionOutcome.HELD
    return InterruptionOutcome.QUEUED if run.resumes_run_id is None else InterruptionOutcome.RESUMED


def _was_not_resumed(task: Task) -> bool:
    """Whether it ended because it could not be resumed, not by a failure of its own."""
    if task.status is TaskStatus.LOST:
        return True
    return task.failure is not None and task.failure.kind in NOT_RESUMED_KINDS


def _says_why_itself(one: _Found) -> bool:
    """Whether it failed while it answered a message: then its session already tells the person why, and a
    notice would be a second message about the same failure."""
    is_answer = (one.task.dedup_key or "").startswith("message:")
    # The message of a damaged task may be damaged as well, and then its session says nothing.
    is_damaged = one.task.failure is not None and one.task.failure.kind == RowDamaged.code
    is_session = one.interruption.kind is InterruptionKind.SESSION
    return one.fate is InterruptionOutcome.FAILED and is_session and is_answer and not is_damaged


def _has_answered(firing: Firing | None) -> bool:
    return firing is not None and firing.status is FiringStatus.DONE


def _is_to_blame(task: Task) -> bool:
    """Whether it was quarantined: its processes died, the last one while it ran nothing else."""
    return task.failure is not None and task.failure.facts.get("why") == QUARANTINED


def _why(task: Task) -> str | None:
    return None if task.failure is None else task.failure.message[:_SUMMARY]


def _notice(restart: Restart, one: _Found, digest: str, now: datetime) -> Delivery:
    if one.fate is InterruptionOutcome.FAILED:
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
        message=msgspec.json.encode(DeliveryText(text=text, session_key=one.task.session_key)),
        created_at=now,
        due_at=now,
        updated_at=now,
    )


def summary_of(restart: Restart) -> str:
    """One sentence for the operator."""
    outcome = restart.outcome or RestartOutcome()
    counts: dict[str, int] = {}
    for one in outcome.recovered:
        counts[one.fate.value] = counts.get(one.fate.value, 0) + 1
    parts = [f"{number} {fate}" for fate, number in sorted(counts.items())]
    what = ", ".join(parts) if parts else "nothing was interrupted"
    return f"recovered from a {restart.kind} ({restart.manifest.reason}): {what}"
