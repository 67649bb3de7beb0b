"""Wakes: a run that used its time is saved with one; it fires once, and the checkpoint can be resumed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from holdfast.core.checkpoint import DEFAULT_MAX_IDLE_ATTEMPTS, Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.claim import Claim
from holdfast.core.clock import Clock, from_micros, to_micros
from holdfast.core.errors import ClaimLost, IllegalMove, NotFound, ResumesHeld, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.ids import CheckpointId, check_id, new_checkpoint_id, new_wake_id
from holdfast.core.jumps import TOLERANCE, Belief
from holdfast.core.payload import check_name, check_text, clean_text
from holdfast.core.schedule import Wake, WakeReason
from holdfast.core.smart_wake import WakeOptions
from holdfast.core.task import Failure
from holdfast.core.transitions import TaskStatus, WakeStatus
from holdfast.engine.aio.service import Service
from holdfast.engine.claims.claims import wake_run
from holdfast.engine.clocks.steady import steady_of
from holdfast.engine.ledger.inputs import check_claim
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, cancel_idle_run, fail_damaged
from holdfast.engine.recovery.checkpoints import documents, to_checkpoint
from holdfast.engine.recovery.resume import Resumer, fail_resume, tell_not_resumed, too_many_attempts
from holdfast.store import Store, Tx, Write

log = logging.getLogger("holdfast")

BATCH = 500
# More than a name of a criterion in code may have; those of an agent's packet are cut.
_CRITERION_CHARS = 500
# How often a process looks for wakes without a hint.
LOOK_EVERY_S = 5.0
# So long at least, if what is due cannot be fired: another process fires it, or the ledger is away.
LEAST_S = 0.05


def load_of(tx: Tx) -> int:
    """How many tasks are queued or running: kept with every write, so it costs two small reads."""
    counts = tx.events.counts("task")
    return counts.get(TaskStatus.QUEUED.value, 0) + counts.get(TaskStatus.RUNNING.value, 0)


async def wake_time(
    store: Store, options: WakeOptions, *, now: datetime, after: timedelta | None = None
) -> datetime:
    """When a run that is saved now is woken: as its task says, else by load."""
    if after is not None:
        return now + after
    return now + options.delay(await store.read(load_of))


def pausing_until_wake(
    claim: Claim,
    *,
    due_at: datetime,
    now: datetime,
    reason: WakeReason = WakeReason.TIMEOUT_RECOVERY,
    own_reason: str | None = None,
    note: str | None = None,
    done_criteria: tuple[str, ...] = (),
    unmet: tuple[str, ...] = (),
    also: Callable[[Tx], object] | None = None,
    has_progressed: bool | None = None,
    max_idle_attempts: int = DEFAULT_MAX_IDLE_ATTEMPTS,
    retention: timedelta = DEFAULT_RETENTION,
) -> Write[Checkpoint | None]:
    """The write that saves a checkpoint of a run, raises its fence and schedules the wake of its task. If
    this was the last attempt without progress, the task fails at once.

    `also` writes what the run hands over, while it still holds its claim: the checkpoint is built from that.
    `has_progressed` says it of a run whose saved steps do not. Raises ClaimLost. None if the run failed
    because its record is damaged.
    """
    check_claim(claim)
    note = None if note is None else check_text("note", note)
    own_reason = None if own_reason is None else check_name("reason", own_reason)
    checkpoint_id, wake_id = new_checkpoint_id(now), new_wake_id(now)
    is_timeout = reason is WakeReason.TIMEOUT_RECOVERY
    resumed_for = ResumeReason.TIMEOUT if is_timeout else ResumeReason(reason.value)

    def pause(tx: Tx) -> Checkpoint | None:
        runs = [run for run in tx.runs.lock_running([claim.run_id]) if run.fence == claim.fence]
        if not runs:
            before = tx.checkpoints.find(checkpoint_id)
            if before is None:
                raise ClaimLost(claim.run_id, claim.fence)
            return before  # this write runs again after its own commit
        run = runs[0]
        if also is not None:
            also(tx)
        try:
            ((task, document),) = documents(
                tx,
                runs,
                {run.id: checkpoint_id},
                kind=CheckpointKind.TIMEOUT,
                reason=resumed_for,
                now=now,
                note=note,
            )
        except RowDamaged as damage:
            fail_damaged(tx, run, damage, now=now, retention=retention)
            return None
        document = msgspec.structs.replace(
            document, wake_id=wake_id, done_criteria=_to_show(done_criteria), unmet=_to_show(unmet)
        )
        if has_progressed is not None:
            idle = 0 if has_progressed else run.idle_attempts + 1
            document = msgspec.structs.replace(document, idle_attempts=idle)
        task = tx.tasks.lock(task.id)  # a cancel comes before this, or finds the task waiting
        is_wanted = task.cancel_requested_at is None
        too_many = too_many_attempts(tx, document, max_idle_attempts) if is_wanted else None
        if too_many is not None:
            document = msgspec.structs.replace(document, wake_id=None)
        checkpoint = to_checkpoint(tx, task, document, now=now)
        tx.checkpoints.create_many([checkpoint])
        tx.runs.pause([run.id], now=now)
        tx.emit(
            EventKind.RUN_PAUSED,
            run.id,
            at=now,
            task_id=task.id,
            checkpoint_id=checkpoint_id,
            reason=resumed_for.value,
        )
        if too_many is not None:
            fail_resume(tx, checkpoint, too_many, now=now, retention=retention)
            tell_not_resumed(checkpoint, too_many)
            return tx.checkpoints.get(checkpoint_id)
        tx.tasks.move(task, TaskStatus.WAITING, now=now, waits_on=f"wake:{wake_id}")
        wake = Wake(
            id=wake_id,
            task_id=task.id,
            checkpoint_id=checkpoint_id,
            reason=reason,
            own_reason=own_reason,
            attempt=document.idle_attempts + 1,
            created_at=now,
            due_at=due_at,
            updated_at=now,
        )
        tx.wakes.create(wake)
        tx.emit(
            EventKind.WAKE_SCHEDULED,
            wake_id,
            at=now,
            task_id=task.id,
            checkpoint_id=checkpoint_id,
            resume_from="latest_checkpoint",
            reason=wake.why,
            due_at=due_at.isoformat(),
        )
        from holdfast.core.wake_contract import report_of

        report = report_of(
            task,
            status=TaskStatus.WAITING,
            plan=document.plan,
            cursor=document.cursor,
            is_resumed=run.number > 1,
            next_wake_at=due_at,
            notes=note or wake.why,
        )
        tx.emit(EventKind.WAKE_REPORTED, wake_id, at=now, task_id=task.id, report=msgspec.to_builtins(report))
        if task.cancel_requested_at is not None:
            # Cancel beats pause, and no worker runs the task any more.
            failure = Failure(kind="cancelled", message=task.cancel_reason or "cancelled")
            cancel_idle_run(tx, tx.runs.lock(run.id), failure, now=now, retention=retention)
        return checkpoint

    return pause


def _to_show(criteria: tuple[str, ...]) -> tuple[str, ...]:
    """Names of done criteria as a checkpoint has them: a person reads it, so secrets in them are redacted."""
    from holdfast.core.wake_contract import MAX_ACTIONS

    return tuple(clean_text(one, max_chars=_CRITERION_CHARS) for one in criteria[:MAX_ACTIONS])


def rescheduling(*, now: datetime, limit: int = BATCH) -> Write[None]:
    """The write that reschedules pending wakes that were written while the clock was ahead: each is due after
    the rest of its delay, counted from now."""

    def reschedule(tx: Tx) -> None:
        for wake_id, task_id, due_at in tx.wakes.reschedule_ahead(now=now, slack=TOLERANCE, limit=limit):
            tx.emit(EventKind.WAKE_RESCHEDULED, wake_id, at=now, task_id=task_id, due_at=due_at.isoformat())

    return reschedule


def recounting(*, now: datetime, limit: int = BATCH) -> Write[None]:
    """The write for waits that began while the clock was ahead. A retry is due after its delay, counted from
    now; a run that waits is woken, and its program counts its wait from now."""

    def recount(tx: Tx) -> None:
        tx.runs.reschedule_ahead(now=now, slack=TOLERANCE, limit=limit)
        for run_id in tx.runs.waits_ahead(now=now, slack=TOLERANCE, limit=limit):
            wake_run(tx, run_id, now=now)

    return recount


def firing(*, due_by: datetime, now: datetime, limit: int = BATCH) -> Write[int]:
    """The write that fires wakes that are due: the checkpoint of each may be claimed from then on."""

    def fire(tx: Tx) -> int:
        fired = tx.wakes.fire_due(due_by=due_by, now=now, limit=limit)
        for wake in fired:
            _free(tx, wake, now)
        return len(fired)

    return fire


def firing_one(wake_id: str, *, now: datetime) -> Write[int]:
    """The write that fires one wake, unless another process has."""

    def fire(tx: Tx) -> int:
        wake = tx.wakes.fire(wake_id, now=now)
        if wake is None:
            return 0
        _free(tx, wake, now)
        return 1

    return fire


def _free(tx: Tx, wake: Wake, now: datetime) -> None:
    """A wake has fired: its task is resumed like every paused one."""
    if wake.is_damaged:
        log.error("%s; its task goes on from its checkpoint", RowDamaged("wake", wake.id))
    checkpoint_id = _checkpoint_of(tx, wake)
    task_id = None if checkpoint_id is None else tx.checkpoints.free_woken(checkpoint_id, wake.id, now=now)
    if task_id is not None:
        with contextlib.suppress(
            NotFound
        ):  # without its task, the resume of the checkpoint fails and says so
            task = tx.tasks.lock(task_id)
            if task.status is TaskStatus.WAITING:
                tx.tasks.move(task, TaskStatus.PAUSED, now=now, waits_on="resume")
        tx.hint("checkpoints")
    tx.emit(
        EventKind.WAKE_FIRED,
        wake.id,
        at=now,
        task_id=task_id or wake.task_id,
        reason=wake.why,
        is_needed=task_id is not None,
    )


def _checkpoint_of(tx: Tx, wake: Wake) -> CheckpointId | None:
    """The checkpoint that waits for a wake. Its row names the wake, too, so a damaged wake still has it."""
    return tx.checkpoints.that_waits_for(wake.id) if wake.is_damaged else wake.checkpoint_id


def cancelling_wake(
    wake_id: str, *, why: str, now: datetime, retention: timedelta = DEFAULT_RETENTION
) -> Write[Wake]:
    """The write of an operator's cancel. The task that waits for the wake fails, because nothing would ever
    resume it; `holdfast checkpoints retry` is the way back. Raises IllegalMove if the wake has fired."""
    check_id("wake", wake_id)
    why = check_text("reason", why)

    def cancel(tx: Tx) -> Wake:
        wake = tx.wakes.lock(wake_id)
        if wake.status is WakeStatus.CANCELLED:
            return wake
        if wake.status is not WakeStatus.PENDING:
            raise IllegalMove("wake", wake.id, wake.status.value, WakeStatus.CANCELLED.value)
        cancelled = tx.wakes.move(wake.id, WakeStatus.CANCELLED, now=now)
        tx.emit(EventKind.WAKE_CANCELLED, wake.id, at=now, task_id=wake.task_id, why=why)
        checkpoint_id = _checkpoint_of(tx, wake)
        checkpoint = None if checkpoint_id is None else tx.checkpoints.find(checkpoint_id)
        if checkpoint is not None and checkpoint.wake_id == wake.id:
            message = f"its wake {wake.id} was cancelled: {why}"
            failure = Failure(kind="wake_cancelled", message=message, facts={"wake_id": wake.id})
            fail_resume(tx, checkpoint, failure, now=now, retention=retention)
        return cancelled

    return cancel


class WakeTimer(Service):
    """Fires the wakes that are due and resumes what they wake. Several processes may do it at once: each wake
    fires once.

    If the wall clock is set, wakes follow its new time only after it has held for 5 minutes. A wake that was
    written while the clock was ahead is due after its delay, not at the time that its row has; so are retries
    and the waits of runs.
    """

    def __init__(
        self, store: Store, clock: Clock, resumer: Resumer, *, every_s: float = LOOK_EVERY_S
    ) -> None:
        super().__init__(every_s=every_s)
        self._store = store
        self._clock = clock
        self._resumer = resumer
        self._steady = steady_of(clock)
        self._belief = Belief.first(to_micros(clock.now()), self._steady() // 1000, is_believed=True)
        self._next: datetime | None = None

    async def run(self) -> None:
        # A worker fires what is due before it starts this service.
        await self._pause()
        await super().run()

    async def run_once(self) -> int:
        fired = await self.fire()
        if fired:
            with contextlib.suppress(ResumesHeld):  # the reaper tells it, and resumes when it may
                await self._resumer.resume_all()
        await self.recount()
        return fired

    async def recount(self) -> None:
        """Bring back due times that a clock that was ahead has moved into the future, if the present time is
        sure: a sleep that ends early cannot be taken back. Nothing is written if there are none."""
        now = self._moment()
        if not self._belief.has_held(self._steady() // 1000):
            return
        written_at = await self._store.read(lambda tx: tx.runs.last_wait_written_at())
        if written_at is not None and written_at > now + TOLERANCE:
            log.warning("runs began to wait while the clock was ahead; their waits count from now")
            await self._store.write(recounting(now=now))

    async def fire(self) -> int:
        """Fire what is due; nothing is written if nothing is."""
        fired = 0
        while True:
            self._next, written_at = await self._store.read(
                lambda tx: (tx.runs.next_wake_at(), tx.runs.last_wake_written_at())
            )
            moment = self._moment()
            if written_at is not None and written_at > moment + TOLERANCE:
                log.warning(
                    "wakes were scheduled while the clock was ahead; they are due after their delay, from now"
                )
                await self._store.write(rescheduling(now=moment))
                continue
            if self._next is None or self._next > moment:
                return fired
            now_fired = await self._fire_until(moment)
            fired += now_fired
            if not now_fired or self._next is None:  # another process is firing them, or one cannot be fired
                return fired

    async def _fire_until(self, moment: datetime) -> int:
        """Fire a batch of those that are due, in one write; if that fails, each in its own."""
        now = self._clock.now()
        try:
            return await self._store.write(firing(due_by=moment, now=now))
        except (RowDamaged, NotFound):
            due = await self._store.read(lambda tx: tx.wakes.due(due_by=moment, limit=BATCH))
        fired = 0
        for wake_id in due:
            try:
                fired += await self._store.write(firing_one(wake_id, now=now))
            except (RowDamaged, NotFound) as error:
                self.troubles.met(f"wake {wake_id}", error, again_in_s=self.every_s)
        self._next = None  # what cannot be fired is tried again at the next look, not at once
        return fired

    def _moment(self) -> datetime:
        """The present time that wakes follow."""
        # Read the wall clock first: if the process freezes in between, the time is early, never late.
        wall, passed = to_micros(self._clock.now()), self._steady() // 1000
        self._belief = self._belief.after(wall, passed)
        assert self._belief.offset is not None
        return from_micros(passed + self._belief.offset)

    async def _pause(self) -> None:
        next_in_s = self._next_in_s()
        if self._next is not None:
            next_in_s = min(next_in_s, max(LEAST_S, (self._next - self._moment()).total_seconds()))
        await self._store.wait_for("wakes", next_in_s)
