"""The sweep: ends recorded work that is lost, reconciles flows, stamps and deletes what has ended.

A preview and an apply are one plan. The plan is read first; each of its changes is then checked again in the
write that makes it, so a record that has changed in between is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.core.claim import Boot
from holdfast.core.clock import Clock
from holdfast.core.errors import NotFound
from holdfast.core.events import EventKind
from holdfast.core.ids import new_id
from holdfast.core.recorded import RecordedWork
from holdfast.core.retention import RetentionLimits
from holdfast.core.run import RunOutcome, RunRecord
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import RunStatus
from holdfast.engine.aio.service import Service
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, end_task
from holdfast.engine.ledger.retention import NO_LIMITS, DueTasks, find_due, pruning_tasks
from holdfast.engine.producers.contract import Alive, Dead, Ended, Reattached, Restarted, WorkLost
from holdfast.engine.producers.writes import note_life
from holdfast.store import Store, Tx, Write
from holdfast.store.blobs import pack
from holdfast.store.recorded import SignOfLife
from holdfast.upkeep.audit import Audit, AuditReport, has_ended
from holdfast.upkeep.flow_sweep import PlannedFlowChange, SweptFlows, apply_to_flows, plan_flows
from holdfast.upkeep.plugins import PluginSweep, PluginSwept, sweep_plugins
from holdfast.upkeep.proofs import LOST_AFTER, NoProofs, Proofs, grace_of, last_sign, may_be_silent

log = logging.getLogger("holdfast")

PAGE = 500
# How many changes of each kind one plan has; the next pass continues.
MOST_PLANNED = 500
# After a longer pause between two passes the machine slept, or its clock jumped: producers could not report.
_MISSED_PASSES = 3
_RECOVERED = "recovered"
_SWEPT = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING})


class ChangeKind(StrEnum):
    """What a sweep does to a record."""

    # Recorded work without proof of life is lost, unless its runtime finds it again now.
    RECONCILE = "reconcile"
    # Recorded work gets the outcome that its runtime knows.
    SETTLE = "settle"
    # An ended task gets the time to clean it up.
    STAMP = "stamp"
    # A task whose retention is over is deleted.
    PRUNE = "prune"


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change that a sweep would make, and why. `seen` is the run as the plan read it: the guard."""

    kind: ChangeKind
    task_id: str
    reason: str
    seen: RunRecord | None = None
    # What the runtime is asked about before the work is lost.
    work: RecordedWork | None = None
    sign_at: datetime | None = None
    outcome: RunOutcome | None = None
    cleanup_after: datetime | None = None
    # A task whose stamp is over, and whose kind is kept for longer.
    kept: Task | None = None


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All changes of one pass, in the order in which they are made."""

    id: str
    now: datetime
    # The time that deletions trust; None while nothing may be deleted.
    prune_at: datetime | None = None
    changes: list[PlannedChange] = []
    # Work that its runtime has proved alive; that is recorded as a sign of life.
    alive: list[RecordedWork] = []
    flows: list[PlannedFlowChange] = []


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """How many changes a pass made; a record that changed after the plan was read is not counted."""

    reconciled: int = 0
    # Work that its runtime has found again, or started again, before it was lost.
    recovered: int = 0
    settled: int = 0
    stamped: int = 0
    pruned: int = 0
    flows: SweptFlows = SweptFlows()
    plugins: tuple[PluginSwept, ...] = ()


class SilentRun(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded work that has been silent for longer than its grace, or whose process has died."""

    work: RecordedWork
    since: datetime
    # How the process died that executed the work itself: then no grace is left.
    death: str | None = None


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made of, as one read of the ledger has found it."""

    silent: list[SilentRun]
    unstamped: list[Task]
    due: DueTasks = DueTasks()
    prune_at: datetime | None = None
    flows: list[PlannedFlowChange] = []


class Sweep(Service):
    """Makes a plan and applies it, again and again. Several may work at once: each change is made once."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        proofs: Proofs | None = None,
        watch: ClockWatch | None = None,
        has_died: Callable[[Boot], bool] = has_ended,
        plugins: Sequence[PluginSweep] = (),
        lost_after: timedelta = LOST_AFTER,
        retention: timedelta = DEFAULT_RETENTION,
        limits: RetentionLimits = NO_LIMITS,
        every_s: float = 60.0,
    ) -> None:
        """Without a watch the clock is trusted for deletions, even if it jumps."""
        super().__init__(every_s=every_s)
        self._store = store
        self._clock = clock
        self._proofs = NoProofs() if proofs is None else proofs
        self._watch = watch
        self._has_died = has_died
        self._plugins = plugins
        self._lost_after = lost_after
        self._retention = retention
        self._limits = limits
        # Since when producers could report here: before that, their silence proves nothing.
        self._listening_since: datetime | None = None
        self._last_pass_at: datetime | None = None

    async def run_once(self) -> Swept:
        """One pass. Deletions are left to the pruner, which is a service of its own."""
        # A restored backup shows work as silent that went on long ago.
        if await asyncio.to_thread(self._store.held_why) is not None:
            return Swept()
        self._listen()
        return await self.apply(await self.plan(prunes=False))

    def _listen(self) -> None:
        now, last = self._clock.now(), self._last_pass_at
        longest = timedelta(seconds=self.every_s * _MISSED_PASSES)
        if last is None or not timedelta(0) <= now - last <= longest:
            self._listening_since = now
        self._last_pass_at = now

    # --- audit, plan, apply

    async def audit(self) -> AuditReport:
        now = self._clock.now()
        return await self._store.read(
            lambda tx: Audit(tx, now=now, clock=self._clock, has_died=self._has_died).report()
        )

    async def plan(self, *, prunes: bool = True) -> SweepPlan:
        now = self._clock.now()
        prune_at = None
        if prunes:
            prune_at = now if self._watch is None else await self._watch.deletion_time()
        found = await self._store.read(
            lambda tx: find_candidates(
                tx,
                now=now,
                prune_at=prune_at,
                lost_after=self._lost_after,
                listening_since=self._listening_since,
                has_died=self._has_died,
                limits=self._limits,
            )
        )
        return await make_plan(found, self._proofs, now=now, retention=self._retention, limits=self._limits)

    async def preview_plugins(self) -> list[PluginSwept]:
        """What the sweeps of plug-ins would change now."""
        return await sweep_plugins(self._plugins, is_dry_run=True)

    async def apply(self, plan: SweepPlan) -> Swept:
        """Make the changes of a plan, then let plug-ins sweep. A record that has changed is left alone, so a
        plan may be applied late, twice, or by two processes."""
        for work in plan.alive:
            await self._store.write(_beating(work, now=plan.now))
        counts: Counter[object] = Counter()
        for change in plan.changes:
            if change.kind is ChangeKind.RECONCILE:
                counts[await self._reconcile(change, plan)] += 1
            elif change.kind is not ChangeKind.PRUNE:
                counts[change.kind] += await self._store.write(self._changing(change, plan))
        pruned = [change.task_id for change in plan.changes if change.kind is ChangeKind.PRUNE]
        if pruned:
            prune_at = plan.now if plan.prune_at is None else plan.prune_at
            counts[ChangeKind.PRUNE] = await self._store.write(
                _pruning(pruned, now=prune_at, limits=self._limits)
            )
        flows = await apply_to_flows(
            self._store, self._clock, plan.flows, now=plan.now, prune_at=plan.prune_at
        )
        return Swept(
            flows=flows,
            reconciled=counts[ChangeKind.RECONCILE],
            recovered=counts[_RECOVERED],
            settled=counts[ChangeKind.SETTLE],
            stamped=counts[ChangeKind.STAMP],
            pruned=counts[ChangeKind.PRUNE],
            plugins=tuple(await sweep_plugins(self._plugins, is_dry_run=False)),
        )

    async def _reconcile(self, change: PlannedChange, plan: SweepPlan) -> object:
        """Give the runtime its last chance, then declare the work lost; which of them it came to, or None."""
        assert change.work is not None
        try:
            answer = await self._proofs.reattach(change.work)
        except Exception as error:  # noqa: BLE001 - a runtime that fails has not given up its work
            log.warning("the runtime of %s could not recover it: %r", change.task_id, error)
            return None
        match answer:
            case Reattached() | Restarted():
                await self._store.write(_beating(change.work, now=self._clock.now()))
                return _RECOVERED
            case WorkLost(why=why):
                change = msgspec.structs.replace(change, reason=why, outcome=_lost(why))
        return change.kind if await self._store.write(self._changing(change, plan)) else None

    def _changing(self, change: PlannedChange, plan: SweepPlan) -> Write[bool]:
        if change.kept is not None:
            return _stamping_again(change, change.kept, limits=self._limits, now=plan.now)
        if change.kind is ChangeKind.STAMP:
            return _stamping(change, now=plan.now)
        return _ending(change, plan=plan, retention=self._retention)


def find_candidates(
    tx: Tx,
    *,
    now: datetime,
    prune_at: datetime | None,
    lost_after: timedelta = LOST_AFTER,
    listening_since: datetime | None = None,
    has_died: Callable[[Boot], bool] = has_ended,
    limits: RetentionLimits = NO_LIMITS,
) -> Candidates:
    """What one plan may change. Without `prune_at` nothing is to be deleted."""
    return Candidates(
        silent=_silent_runs(
            tx, now=now, lost_after=lost_after, listening_since=listening_since, has_died=has_died
        ),
        unstamped=tx.tasks.unstamped(now=now, limit=MOST_PLANNED),
        due=DueTasks() if prune_at is None else find_due(tx, now=prune_at, limit=MOST_PLANNED, limits=limits),
        prune_at=prune_at,
        flows=plan_flows(tx, prune_at=prune_at),
    )


def _silent_runs(
    tx: Tx,
    *,
    now: datetime,
    lost_after: timedelta,
    listening_since: datetime | None,
    has_died: Callable[[Boot], bool],
) -> list[SilentRun]:
    found: list[SilentRun] = []
    boots: dict[str, str | None] = {}
    after = ""
    while len(found) < MOST_PLANNED:
        runs = tx.runs.recorded(after=after, limit=PAGE)
        ids = [run.task_id for run in runs]
        tasks, facts = tx.tasks.get_many(ids), tx.recorded.get_many(ids)
        for run in runs:
            task, details = tasks.get(run.task_id), facts.get(run.task_id)
            if task is None or run.status not in _SWEPT:
                continue
            since = last_sign(task, run, details)
            death = _death_of_holder(tx, run, has_died, boots)
            if death is not None:
                work = RecordedWork(task=task, run=run, details=details)
                found.append(SilentRun(work=work, since=since, death=death))
                continue
            if may_be_silent(run, details, now):
                continue
            silent_since = since if listening_since is None else max(since, listening_since)
            if now - silent_since >= grace_of(task, details, lost_after):
                work = RecordedWork(task=task, run=run, details=details)
                found.append(SilentRun(work=work, since=since))
        if len(runs) < PAGE:
            break
        after = runs[-1].id
    return found[:MOST_PLANNED]


def _death_of_holder(
    tx: Tx, run: RunRecord, has_died: Callable[[Boot], bool], known: dict[str, str | None]
) -> str | None:
    """How the process that executes the work itself died; None if it lives, or another one executes it."""
    if run.status is not RunStatus.RUNNING or run.claimed_by is None:
        return None
    if run.claimed_by not in known:
        boot = tx.boots.get(run.claimed_by)
        is_dead = boot is not None and has_died(boot)
        known[run.claimed_by] = (
            f"its process {boot.pid} on {boot.node} has ended" if boot and is_dead else None
        )
    return known[run.claimed_by]


async def make_plan(
    found: Candidates,
    proofs: Proofs,
    *,
    now: datetime,
    retention: timedelta = DEFAULT_RETENTION,
    limits: RetentionLimits = NO_LIMITS,
) -> SweepPlan:
    """Ask the runtimes about silent work, and say what is to be done about everything that was found."""
    changes: list[PlannedChange] = []
    alive: list[RecordedWork] = []
    for one in found.silent:
        try:
            proof = await proofs.is_alive(one.work)
        except Exception as error:  # noqa: BLE001 - a runtime that fails has proved nothing
            log.warning("the runtime of %s could not say whether it is alive: %r", one.work.task.id, error)
            continue
        match proof:
            case Alive():
                alive.append(one.work)
            case Ended(outcome=outcome, why=why):
                changes.append(_planned(one, ChangeKind.SETTLE, why, outcome))
            case Dead(why=why):
                changes.append(_planned(one, ChangeKind.RECONCILE, why, _lost(why)))
            case _ if one.work.run.status is RunStatus.RUNNING:
                why = one.death or f"no sign of life since {one.since:%Y-%m-%d %H:%M:%S} UTC"
                changes.append(_planned(one, ChangeKind.RECONCILE, why, _lost(why)))
    changes += [
        PlannedChange(
            kind=ChangeKind.STAMP,
            task_id=task.id,
            reason=f"{task.status.value} without a time to clean it up",
            cleanup_after=limits.kept_until(task) or (task.ended_at or now) + retention,
        )
        for task in found.unstamped
    ]
    changes += [
        PlannedChange(kind=ChangeKind.STAMP, task_id=task.id, reason=limits.why(task), kept=task)
        for task in found.due.kept
    ]
    changes += [
        PlannedChange(kind=ChangeKind.PRUNE, task_id=task_id, reason="its retention is over")
        for task_id in found.due.by_stamp
    ]
    changes += [
        PlannedChange(kind=ChangeKind.PRUNE, task_id=task.id, reason=limits.why(task))
        for task in found.due.by_limit
    ]
    return SweepPlan(
        id=new_id("swp", now),
        now=now,
        prune_at=found.prune_at,
        changes=changes,
        alive=alive,
        flows=found.flows,
    )


def _planned(one: SilentRun, kind: ChangeKind, why: str, outcome: RunOutcome) -> PlannedChange:
    return PlannedChange(
        kind=kind,
        task_id=one.work.task.id,
        reason=why,
        seen=one.work.run,
        work=one.work,
        sign_at=one.since,
        outcome=outcome,
    )


def _lost(why: str) -> RunOutcome:
    failure = Failure(kind="lost", message=f"its producer gave no sign of life: {why}")
    return RunOutcome(status=RunStatus.LOST, failure=failure)


# --- writes


def _ending(change: PlannedChange, *, plan: SweepPlan, retention: timedelta) -> Write[bool]:
    """The write that ends recorded work, unless it has moved or given a sign of life since it was read."""
    seen, outcome, now = change.seen, change.outcome, plan.now
    assert seen is not None
    assert outcome is not None
    failure = outcome.failure
    if failure is not None:
        # The plan in the failure tells this write, run again after its own commit, from another sweep's.
        failure = msgspec.structs.replace(failure, facts=failure.facts | {"sweep": plan.id})

    def end(tx: Tx) -> bool:
        try:
            # The task first, as the producer's calls do, to avoid a deadlock.
            task = tx.tasks.lock(seen.task_id)
            run = tx.runs.lock(seen.id)
        except NotFound:
            return False
        if run.has_ended:
            return (run.status, run.failure, run.ended_at) == (outcome.status, failure, now)
        sign_at = last_sign(task, run, tx.recorded.get(task.id))
        if (run.fence, run.status) != (seen.fence, seen.status) or sign_at != change.sign_at:
            return False
        if not _end_run(tx, run, outcome.status, failure, now):
            return False
        result = None if outcome.result is None else tx.blobs.keep(task.id, pack(outcome.result, tx.sealing))
        ended = RunOutcome(status=outcome.status, result=result, failure=failure)
        end_task(tx, run, ended, now=now, retention=retention)
        tx.recorded.note_end(
            task.id, summary=None if failure is None else failure.message, outcome=None, now=now
        )
        _tell(tx, change, now)
        return True

    return end


def _end_run(tx: Tx, run: RunRecord, to: RunStatus, failure: Failure | None, now: datetime) -> bool:
    if run.status is RunStatus.RUNNING:
        return tx.runs.end_held(run.id, run.fence, to, failure=failure, now=now)
    return tx.runs.end_idle(run, to, failure=failure, now=now)


def _stamping(change: PlannedChange, *, now: datetime) -> Write[bool]:
    cleanup_after = change.cleanup_after
    assert cleanup_after is not None

    def stamp(tx: Tx) -> bool:
        if tx.tasks.stamp(change.task_id, cleanup_after=cleanup_after):
            _tell(tx, change, now)
            return True
        found = tx.tasks.get_many([change.task_id]).get(change.task_id)
        return found is not None and found.cleanup_after == cleanup_after

    return stamp


def _stamping_again(
    change: PlannedChange, task: Task, *, limits: RetentionLimits, now: datetime
) -> Write[bool]:
    until = limits.kept_until(task)
    assert until is not None

    def stamp(tx: Tx) -> bool:
        if tx.tasks.restamp(task, cleanup_after=until):
            _tell(tx, change, now)
            return True
        found = tx.tasks.get_many([task.id]).get(task.id)
        return found is not None and found.cleanup_after == until

    return stamp


def _pruning(task_ids: Collection[str], *, now: datetime, limits: RetentionLimits) -> Write[int]:
    """Retention itself, for these tasks only; how many of them are gone."""
    ids = list(task_ids)

    def prune(tx: Tx) -> int:
        pruning_tasks(now=now, limit=MOST_PLANNED, only=frozenset(ids), limits=limits)(tx)
        return len(ids) - len(tx.tasks.get_many(ids))

    return prune


def _beating(work: RecordedWork, *, now: datetime) -> Write[bool]:
    def beat(tx: Tx) -> bool:
        try:
            task, run = tx.tasks.lock(work.task.id), tx.runs.lock(work.run.id)
        except NotFound:
            return False
        # A sweep that was frozen comes late: its old proof must not hide a newer sign of life.
        if last_sign(task, run, tx.recorded.get(task.id)) > now:
            return False
        if not tx.runs.beat(work.run.id, work.run.fence, now=now):
            return False
        note_life(tx, work, SignOfLife(), now=now)
        return True

    return beat


def _tell(tx: Tx, change: PlannedChange, now: datetime) -> None:
    tx.emit(
        EventKind.TASK_SWEPT,
        change.task_id,
        at=now,
        task_id=change.task_id,
        change=change.kind.value,
        why=change.reason,
    )
