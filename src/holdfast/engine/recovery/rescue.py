"""Finds runs whose worker died or let its lease lapse, and turns them into checkpoints to be resumed."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

import msgspec

from holdfast.core.checkpoint import Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.claim import DEFAULT_LEASE, Boot
from holdfast.core.clock import Clock
from holdfast.core.errors import PageDamaged
from holdfast.core.events import EventKind
from holdfast.core.ids import new_checkpoint_id
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus
from holdfast.engine.aio.service import Service
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import wake_run
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, end_recorded_run, fail_damaged
from holdfast.engine.recovery.checkpoints import save_and_pause
from holdfast.engine.recovery.resume import Resumed, Resumer
from holdfast.store import Store, Tx, Write

log = logging.getLogger("holdfast")

BATCH = 500
# The shortest pause between two passes of a reaper that waits for the end of a lease.
NEAREST_S = 0.25
# So long after the end of a lease, it has lapsed by the clock of the store, too.
_AFTER_LAPSE_S = 0.02
_FIRST_PASS_AFTER_S = 0.25


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did: runs that became checkpoints, runs that are damaged or lost, checkpoints that were
    returned by their resumer, and runs that are due."""

    checkpointed: int = 0
    damaged: int = 0
    lost: int = 0
    returned: int = 0
    made_ready: int = 0
    dead_boots: tuple[str, ...] = ()

    def __add__(self, other: Rescued) -> Rescued:
        return Rescued(
            checkpointed=self.checkpointed + other.checkpointed,
            damaged=self.damaged + other.damaged,
            lost=self.lost + other.lost,
            returned=self.returned + other.returned,
            made_ready=self.made_ready + other.made_ready,
            dead_boots=self.dead_boots + other.dead_boots,
        )


Note: TypeAlias = Callable[[Tx, Sequence[RunRecord]], None]


class RescueRecorder(Protocol):
    """Records what was rescued, so that the people it concerns can be notified."""

    def noting(self, now: datetime) -> Note:
        """The function is called in the write that rescues these runs, before it changes them: so each
        interruption is recorded together with its checkpoint, and once."""

    async def settle(self) -> object:
        """Called after each pass, when everything was resumed that could be."""


class SilentRecorder:
    """The recorder of a process that sends no notices."""

    def noting(self, now: datetime) -> Note:  # noqa: ARG002 - the shape of a recorder
        return lambda _tx, _runs: None

    async def settle(self) -> None:
        return None


class Rescuer:
    """Rescues runs and checkpoints whose holder died or let its lease lapse. Several may work at once."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        life: Life,
        *,
        retention: timedelta = DEFAULT_RETENTION,
        notary: RescueRecorder | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._life = life
        self.notary = notary or SilentRecorder()
        # Whether the last pass left lapsed claims to workers that are alive.
        self.has_spared = False
        self._retention = retention

    async def rescue(self) -> Rescued:
        """One pass: dead boots, lapsed leases (see `rescue_lapsed`), and runs that are due."""
        found = await self.rescue_dead_boots()
        found += await self.rescue_lapsed(spares_living=True)
        return found + await self.ready_due()

    async def rescue_dead_boots(self) -> Rescued:
        """Rescue everything that boots held whose death is proved."""
        boots = await self._store.read(lambda tx: _unburied(tx, self._life.directory))
        done = Rescued()
        for boot in boots:
            if self._life.has_died(boot):
                done += await self._rescue_boot(boot)
            elif self._life.is_lost(boot):
                await self._life.forget(boot)
        return done

    async def _rescue_boot(self, boot: Boot) -> Rescued:
        done = Rescued(dead_boots=(boot.id,))
        company = await self._store.read(lambda tx: tx.runs.count_of_boot(boot.id))
        while True:
            runs = await self._store.read(lambda tx: tx.runs.of_boot(boot.id, limit=BATCH))
            if not runs:
                break
            note = f"process {boot.pid} died"
            done += await self._rescue_runs(runs, note=note, company=company)
        while True:
            held = await self._store.read(lambda tx: tx.checkpoints.resuming_of_boot(boot.id, limit=BATCH))
            if not held:
                break
            done += await self._store.write(self._returning(held, was_late=False))
        await self._life.bury(boot)
        return done

    async def rescue_lapsed(self, *, spares_living: bool = False) -> Rescued:
        """Rescue claims whose lease has lapsed. If the holder is alive after all, the raised fence refuses
        its writes.

        A process that has just started cannot know why a lease lapsed: the machine may have slept, or its
        clock jumped. With `spares_living` it leaves the runs of boots alone whose locks prove them alive, so
        that they can renew.
        """
        now, done, is_more = self._clock.now(), Rescued(), True
        self.has_spared = False
        while is_more:
            runs = await self._store.read(lambda tx: tx.runs.lapsed(now=now, limit=BATCH))
            if spares_living:
                runs = await self._without_living(runs)
            held = await self._store.read(lambda tx: tx.checkpoints.lapsed(now=now, limit=BATCH))
            found = Rescued()
            if runs:
                found += await self._rescue_runs(runs, note="its lease lapsed", company=None)
            if held:
                found += await self._store.write(self._returning(held, was_late=True))
            done += found
            is_more = found != Rescued() and BATCH in {len(runs), len(held)}
        return done

    async def _without_living(self, runs: Sequence[RunRecord]) -> list[RunRecord]:
        holders = {run.claimed_by for run in runs if run.claimed_by is not None}
        boots = await self._store.read(lambda tx: [tx.boots.get(boot_id) for boot_id in sorted(holders)])
        living = {boot.id for boot in boots if boot is not None and self._life.is_alive(boot)}
        self.has_spared = bool(living)
        return [run for run in runs if run.claimed_by not in living]

    async def next_lapse_s(self) -> float:
        """In how many seconds the first lease lapses; infinite if there is none."""
        now = self._clock.now()
        left = await self._store.read(lambda tx: tx.runs.next_lapse(now=now))
        return math.inf if left is None else left.total_seconds()

    async def ready_due(self) -> Rescued:
        """Make runs ready that are due. Nothing is written if there are none."""
        done = Rescued()
        due_at = await self._store.read(lambda tx: tx.runs.next_due_at())
        while due_at is not None and due_at <= self._clock.now():
            some = await self._ready_some()
            done += some
            if some.made_ready < BATCH:
                break
        return done

    async def _ready_some(self) -> Rescued:
        now = self._clock.now()

        def ready(tx: Tx) -> Rescued:
            moved = tx.runs.ready_due(now=now, limit=BATCH)
            woken = [wake_run(tx, run_id, now=now) for run_id, _ in tx.runs.waits_over(now=now, limit=BATCH)]
            if moved:
                tx.hint("runs")
            return Rescued(made_ready=moved + sum(woken))

        return await self._store.write(ready)

    async def _rescue_runs(self, runs: Sequence[RunRecord], *, note: str, company: int | None) -> Rescued:
        """Rescue all in one write. If a page of the database cannot be read, bisect: rescue each half alone,
        down to the one run that it belongs to, which fails."""
        try:
            return await self._store.write(self._rescuing(runs, note=note, company=company))
        except PageDamaged as damage:
            if len(runs) == 1:
                log.warning("%s cannot be rescued: %s", runs[0].id, damage)
                return await self._store.write(self._giving_up(runs[0], damage))
        half = len(runs) // 2
        first = await self._rescue_runs(runs[:half], note=note, company=company)
        return first + await self._rescue_runs(runs[half:], note=note, company=company)

    def _giving_up(self, seen: RunRecord, damage: PageDamaged) -> Write[Rescued]:
        now = self._clock.now()

        def give_up(tx: Tx) -> Rescued:
            fail_damaged(tx, seen, damage, now=now, retention=self._retention)
            return Rescued(damaged=1)

        return give_up

    def _rescuing(self, seen: Sequence[RunRecord], *, note: str, company: int | None) -> Write[Rescued]:
        """Turn runs that have not changed since they were read into crash checkpoints. Work that a producer
        only recorded here is lost."""
        now = self._clock.now()
        ids = {run.id: new_checkpoint_id(now) for run in seen}
        note_interrupted = self.notary.noting(now)
        fences = {run.id: run.fence for run in seen}

        def rescue(tx: Tx) -> Rescued:
            runs = [run for run in tx.runs.lock_running(list(fences)) if run.fence == fences[run.id]]
            if company is None:
                # A lease may have been renewed since it was read.
                lapsed = {run.id for run in tx.runs.lapsed(now=now, limit=len(seen) * 4)}
                runs = [run for run in runs if run.id in lapsed]
            if runs:
                note_interrupted(tx, runs)
            carried = [run for run in runs if run.queue is not Queue.PRODUCER]
            recorded = [run for run in runs if run.queue is Queue.PRODUCER]
            saved = save_and_pause(
                tx,
                carried,
                ids,
                kind=CheckpointKind.CRASH,
                reason=ResumeReason.CRASH,
                now=now,
                note=note,
                company=company,
                retention=self._retention,
            )
            lost = sum(self._lose(tx, run, note, now) for run in recorded)
            return Rescued(checkpointed=len(saved), damaged=len(carried) - len(saved), lost=lost)

        return rescue

    def _lose(self, tx: Tx, run: RunRecord, note: str, now: datetime) -> bool:
        """End a run that the dead process executed itself. What it only watched, such as a child process, may
        live on: a sweep asks the runtime before it is lost."""
        details = tx.recorded.get(run.task_id)
        if details is not None and (details.reference or details.child_session_key):
            from holdfast.core.recorded import unregistered_holder

            runtime = tx.tasks.look(run.task_id).runtime
            tx.runs.hand_over(run.id, run.fence, claimed_by=unregistered_holder(runtime))
            return False
        failure = Failure(kind="lost", message=f"its producer gave no sign of life: {note}")
        return end_recorded_run(tx, run, RunStatus.LOST, failure, now=now, retention=self._retention)

    def _returning(self, seen: Sequence[Checkpoint], *, was_late: bool) -> Write[Rescued]:
        """Return checkpoints whose resumer died or was late before it created follow-up runs.

        Only those that have not changed since they were read: another process may have returned them, and a
        third one may have claimed them.
        """
        now = self._clock.now()
        tokens = {one.id: one.token for one in seen}

        def give_back(tx: Tx) -> Rescued:
            held = [one for one in tx.checkpoints.lock_resuming(list(tokens)) if one.token == tokens[one.id]]
            if was_late:
                lapsed = {one.id for one in tx.checkpoints.lapsed(now=now, limit=len(seen) * 4)}
                held = [one for one in held if one.id in lapsed]
            ids = [one.id for one in held]
            returned = tx.checkpoints.return_claimed(ids, now=now) if ids else []
            if returned:
                tx.runs.set_paused_again([run_id for _, run_id, _ in returned], now=now)
                tx.hint("checkpoints")
            for checkpoint_id, _, task_id in returned:
                tx.emit(EventKind.CHECKPOINT_RETURNED, checkpoint_id, at=now, task_id=task_id)
            return Rescued(returned=len(returned))

        return give_back


class Reaper(Service):
    """Rescues and resumes again and again while the process runs, not only at its start.

    After a freeze, an outage or a jump of the clock every lease looks lapsed, although every worker may be
    alive. So this process renews its own claims first, and after such a gap it gives the other workers the
    time of one lease to renew theirs. The time is counted in passes, which no jump of the clock shortens.
    When this process has just started, workers whose locks prove them alive get the same time.

    If a lease ends before the next pass is due, the pass comes at that moment: the runs of a dead process
    continue as soon as their leases have lapsed. Workers renew long before that, so it is rare.
    """

    def __init__(
        self,
        rescuer: Rescuer,
        resumer: Resumer,
        clock: Clock,
        *,
        heartbeat: Heartbeat | None = None,
        lease: timedelta = DEFAULT_LEASE,
        every_s: float = 5.0,
    ) -> None:
        super().__init__(every_s=every_s)
        self._rescuer = rescuer
        self._resumer = resumer
        self._clock = clock
        self._heartbeat = heartbeat
        self._last_pass_at: datetime | None = None
        # A smaller jump leaves a part of every lease that is renewed in time.
        self._gap = lease / 2
        self._lease_s = lease.total_seconds()
        self._passes_per_lease = math.ceil(self._lease_s / every_s)
        # The planned pause until the next pass, which is no gap.
        self._planned = timedelta(0)
        self._grace = 0
        self._young = self._passes_per_lease
        # When the first lease lapses, by the loop's clock, as of the last pass.
        self._lapse_at = math.inf

    async def run(self) -> None:
        # Before a worker starts this service, it takes over what earlier processes left. A pass at once would
        # find nothing new, and would compete with the first step of a short script.
        await self._wait(_FIRST_PASS_AFTER_S)
        await super().run()

    async def run_once(self) -> tuple[Rescued, Resumed]:
        if self._heartbeat is not None:
            await self._heartbeat.run_once()
        self._lapse_at = math.inf
        rescued = await self._rescuer.rescue_dead_boots()
        # Read the clock after the ledger, so that a jump of the ledger's clock counts as a gap, too.
        now, last = self._clock.now(), self._last_pass_at
        if last is not None and now - last - self._planned >= self._gap:
            self._grace = self._passes_per_lease
        if self._grace:
            self._grace -= 1
        else:
            rescued += await self._rescuer.rescue_lapsed(spares_living=self._young > 0)
            left_s = await self._rescuer.next_lapse_s()
            # A spared worker gets the time of one lease to renew.
            is_spared = left_s <= 0 and self._rescuer.has_spared
            self._lapse_at = _now() + (self._lease_s if is_spared else left_s + _AFTER_LAPSE_S)
        self._young = max(0, self._young - 1)
        rescued += await self._rescuer.ready_due()
        # Set even if resumes are held, because that is no gap.
        self._last_pass_at = self._clock.now()
        resumed = await self._resumer.resume_all()
        await self._rescuer.notary.settle()
        return rescued, resumed

    def _next_in_s(self) -> float:
        next_in_s = min(super()._next_in_s(), max(self._lapse_at - _now(), NEAREST_S))
        self._planned = timedelta(seconds=next_in_s)
        return next_in_s


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unburied(tx: Tx, directory: str) -> list[Boot]:
    """Boots that hold runs or checkpoints, and boots with locks in this directory whose end is not recorded.
    The death of boots with locks elsewhere cannot be proved here."""
    carrying = [tx.boots.get(boot_id) for boot_id in tx.boots.in_flight()]
    boots = {boot.id: boot for boot in (*carrying, *tx.boots.alive_at(directory)) if boot is not None}
    return list(boots.values())
