"""Claims: a worker takes ready runs, renews its leases, and releases runs or lets them wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.claim import DEFAULT_LEASE, Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput, ClaimLost, IllegalMove, RowDamaged, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.ids import BootId, check_id, new_token
from holdfast.core.payload import check_code_name, check_name, check_number
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.engine.clocks.steady import steady_of
from holdfast.engine.ledger.inputs import check_claim, check_claims, check_moment
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, cancel_idle_run, fail_damaged, opened
from holdfast.store import Store, Tx, Write

if TYPE_CHECKING:
    from holdfast.engine.ledger.item_slots import HostLimits

MAX_BATCH = 1000
_MICROSECOND = timedelta(microseconds=1)
_LOOK_AT_MARK_NS = 1_000_000_000
# The name of the check for lost commits, in the log of troubles.
_MARK = "whether the ledger has lost commits could not be read, so no runs were taken"
# How long a suspect waits for an idle process before busy ones make room for it.
SUSPECT_PATIENCE = timedelta(minutes=5)
# How long busy processes then take no other runs. After that, the suspect runs beside others.
SUSPECT_ROOM = timedelta(minutes=1)
# A suspect that has run alone for this long does not kill its process at the start.
ALONE_AT_MOST = timedelta(minutes=1)
# When a run that is one too many for this host is ready again, for other hosts.
HOST_PAUSE = timedelta(seconds=1)
# The due time of a wait without one.
NEVER = datetime.fromisoformat("9999-01-01T00:00:00+00:00")


class ReadyRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may be claimed, and since when."""

    id: str
    is_alone: bool
    since: datetime


class ClaimedRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a worker gets: the claim, the run, and the task with its arguments."""

    claim: Claim
    run: RunRecord
    task: Task


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that were renewed, those that are lost, and the tasks whose cancel was requested."""

    held: tuple[Claim, ...]
    lost: tuple[Claim, ...]
    cancelled_task_ids: frozenset[str]


class Family:
    """One task and its descendants: a process that was started for this task runs nothing else.

    Until the task is chosen, such a process takes no runs.
    """

    def __init__(self) -> None:
        self.task_id: str | None = None
        self.is_chosen = asyncio.Event()

    def choose(self, task_id: str) -> None:
        self.task_id = task_id
        self.is_chosen.set()


class Claims:
    """The claims of one boot."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        boot_id: BootId,
        *,
        names: Sequence[str] | None = None,
        lease: timedelta = DEFAULT_LEASE,
        retention: timedelta = DEFAULT_RETENTION,
        family: Family | None = None,
        troubles: TroubleLog | None = None,
    ) -> None:
        if lease <= timedelta(0):
            raise BadInput("lease", "a lease needs a length")
        self._store = store
        self._clock = clock
        self._boot_id = boot_id
        self._names = None if names is None else [check_code_name("name", name) for name in names]
        self._lease = lease
        self._lease_ns = lease // _MICROSECOND * 1000
        self._steady = steady_of(clock)
        self._began_at = clock.now()
        self._look_at_mark_ns = 0
        self._has_lost = False
        self._retention = retention
        self._family = family
        self._troubles = TroubleLog() if troubles is None else troubles
        # Made for the first run of a campaign.
        self._host_limits: HostLimits | None = None
        # Since when this process has taken only suspects, one after another.
        self._alone_since: datetime | None = None

    async def take(self, limit: int = 1) -> list[ClaimedRun]:
        """Claim the most urgent ready runs, at most `limit`. Each claim holds until its lease lapses.

        Claims nothing while it cannot be read whether the ledger has lost commits; the next call reads again.
        """
        check_number("limit", limit, low=1, high=MAX_BATCH)
        try:
            is_held = await self._is_held()
        except StoreUnavailable as error:
            self._troubles.met(_MARK, error)
            return []
        return await self._store.write(self._taking(limit, token=new_token(), is_held=is_held))

    def _taking(self, limit: int, *, token: str, is_held: bool = False) -> Write[list[ClaimedRun]]:
        until_ns, now = self._steady() + self._lease_ns, self._clock.now()

        def take(tx: Tx) -> list[ClaimedRun]:
            runs = tx.runs.with_token(self._boot_id, token)
            if runs:  # this write runs again after its own commit
                return [self._claimed(tx, run, until_ns) for run in runs]
            usable: list[ClaimedRun] = []
            while not usable and (runs := self._pick(tx, limit, token, now, is_held=is_held)):
                usable = self._begin(tx, runs, until_ns, now)
            return usable

        return take

    def _begin(self, tx: Tx, runs: Sequence[RunRecord], until_ns: int, now: datetime) -> list[ClaimedRun]:
        """Move the tasks of the claimed runs to running. A damaged one fails here and blocks no other."""
        tx.tasks.move_many([run.task_id for run in runs], TaskStatus.QUEUED, TaskStatus.RUNNING, now=now)
        tasks = tx.tasks.get_many([run.task_id for run in runs])
        if any(task.campaign_id is not None for task in tasks.values()):
            runs = self._within_limits(tx, runs, tasks, now)
        usable = []
        for run in runs:
            tx.emit(EventKind.RUN_CLAIMED, run.id, at=now, task_id=run.task_id, fence=run.fence)
            try:
                usable.append(self._claimed(tx, run, until_ns, tasks))
            except RowDamaged as damage:
                fail_damaged(tx, run, damage, now=now, retention=self._retention)
        return usable

    def _within_limits(
        self, tx: Tx, runs: Sequence[RunRecord], tasks: Mapping[str, Task], now: datetime
    ) -> list[RunRecord]:
        """The runs that may run on this host by the limits of their campaigns; the others are left to other
        hosts, and ready again in a moment."""
        if self._host_limits is None:
            from holdfast.engine.ledger.item_slots import HostLimits

            boot = tx.boots.get(self._boot_id)
            self._host_limits = HostLimits("" if boot is None else boot.node)
        left_out = self._host_limits.left_out(tx, tasks.values())
        if not left_out:
            return list(runs)
        due_at = now + HOST_PAUSE
        for run in runs:
            if run.task_id in left_out:
                tx.runs.release(run.id, run.fence, due_at=due_at, queue=Queue.LATER, now=now)
        tx.tasks.move_many(sorted(left_out), TaskStatus.RUNNING, TaskStatus.QUEUED, now=now)
        return [run for run in runs if run.task_id not in left_out]

    def _pick(self, tx: Tx, limit: int, token: str, now: datetime, *, is_held: bool) -> list[RunRecord]:
        """Claim suspects first, each alone; claim all other runs together.

        While a suspect waits for an idle process, a busy one goes on with other runs. If the suspect has
        waited for SUSPECT_PATIENCE, busy processes take no runs for SUSPECT_ROOM, so that one of them becomes
        idle. After that, the suspect runs beside others. A series of suspects does not block the other runs
        for ever: `_pick_alone` lets those go first in between.
        """
        if tx.runs.boot_carries_suspect(self._boot_id):
            return []
        if is_held:
            return self._pick_new(tx, limit, token, now)
        ready = None if self._family is None else self._ready_in(tx, self._family, MAX_BATCH)
        suspects = self._waiting_suspects(tx, ready, now)
        beside: list[RunRecord] = []
        if suspects:
            if not tx.runs.boot_carries_any(self._boot_id):
                alone = self._pick_alone(tx, suspects, limit, ready, token, now)
                if alone:
                    return alone
            waited = now - suspects[0].since
            if SUSPECT_PATIENCE <= waited < SUSPECT_PATIENCE + SUSPECT_ROOM:
                return []
            if waited >= SUSPECT_PATIENCE + SUSPECT_ROOM:
                beside = [
                    self._exonerated(tx, run, now)
                    for run in self._claim_each(tx, suspects[:1], token, now, limit=1)
                ]
        return [*beside, *self._pick_others(tx, limit - len(beside), ready, token, now)]

    def _pick_alone(
        self,
        tx: Tx,
        suspects: Sequence[ReadyRun],
        limit: int,
        ready: Sequence[ReadyRun] | None,
        token: str,
        now: datetime,
    ) -> list[RunRecord]:
        """For an idle process: a suspect, unless it is the turn of the other runs."""
        if self._alone_since is not None and now - self._alone_since >= SUSPECT_PATIENCE:
            others = self._pick_others(tx, limit, ready, token, now)
            if others:
                return others
        alone = self._claim_each(tx, suspects, token, now, limit=1)
        if alone and self._alone_since is None:
            self._alone_since = now
        return alone

    def _pick_others(
        self, tx: Tx, limit: int, ready: Sequence[ReadyRun] | None, token: str, now: datetime
    ) -> list[RunRecord]:
        self._alone_since = None
        if limit == 0:
            return []
        if ready is not None:
            return self._claim_each(tx, [one for one in ready if not one.is_alone], token, now, limit=limit)
        return tx.runs.claim_ready(
            boot_id=self._boot_id, token=token, names=self._names, limit=limit, now=now, lease=self._lease
        )

    def _claim_each(
        self, tx: Tx, asked: Sequence[ReadyRun], token: str, now: datetime, *, limit: int
    ) -> list[RunRecord]:
        """The first of these that no other worker has claimed meanwhile, at most `limit`."""
        claimed: list[RunRecord] = []
        for one in asked:
            if len(claimed) == limit:
                break
            run = tx.runs.claim(one.id, boot_id=self._boot_id, token=token, now=now, lease=self._lease)
            if run is not None:
                claimed.append(run)
        return claimed

    def _exonerated(self, tx: Tx, run: RunRecord, now: datetime) -> RunRecord:
        """A suspect that runs beside others: if the process dies, this run is not the only possible cause."""
        exonerate(tx, run.id, run.fence, now=now)
        return msgspec.structs.replace(run, is_alone=False)

    async def _is_held(self) -> bool:
        """Whether the database has lost commits, and no operator has accepted that.

        Checked at most once a second, in a thread: a shared database has to be read for it.
        """
        if self._steady() >= self._look_at_mark_ns:
            self._has_lost = await asyncio.to_thread(self._store.held_why) is not None
            self._look_at_mark_ns = self._steady() + _LOOK_AT_MARK_NS
            self._troubles.worked(_MARK)
        return self._has_lost

    def _pick_new(self, tx: Tx, limit: int, token: str, now: datetime) -> list[RunRecord]:
        """Only runs that were created since this process began. An older run that looks queued may have been
        started in a commit that is lost."""
        new = set(tx.runs.ready_since(self._began_at, self._names or (), limit=limit))
        if self._family is not None:
            new &= {one.id for one in self._ready_in(tx, self._family, MAX_BATCH)}
        claimed = [
            tx.runs.claim(run_id, boot_id=self._boot_id, token=token, now=now, lease=self._lease)
            for run_id in sorted(new)
        ]
        return [run for run in claimed if run is not None]

    def has_ready(self, tx: Tx) -> bool:
        """Whether there is a run to claim."""
        if self._family is not None:
            return bool(self._ready_in(tx, self._family, 1))
        return tx.runs.has_ready(self._names or ())

    def _ready_in(self, tx: Tx, family: Family, limit: int) -> list[ReadyRun]:
        if family.task_id is None:
            return []
        found = tx.runs.ready_of_tree(family.task_id, self._names or (), limit=limit)
        return [ReadyRun(id=run_id, is_alone=is_alone, since=since) for run_id, is_alone, since in found]

    def _waiting_suspects(
        self, tx: Tx, ready: Sequence[ReadyRun] | None, now: datetime
    ) -> Sequence[ReadyRun]:
        """By urgency; but first the one that has waited longest, if it has waited for SUSPECT_PATIENCE."""
        if ready is None:
            suspects = [
                ReadyRun(id=run_id, is_alone=True, since=since)
                for run_id, name, since in tx.runs.suspects(limit=MAX_BATCH)
                if self._names is None or name in self._names
            ]
        else:
            suspects = [one for one in ready if one.is_alone]
        oldest = min(suspects, key=lambda one: one.since, default=None)
        if oldest is not None and now - oldest.since >= SUSPECT_PATIENCE:
            return [oldest, *(one for one in suspects if one is not oldest)]
        return suspects

    async def start(self, run_id: str) -> ClaimedRun:
        """Claim one run by its id: for a producer that runs its recorded work itself."""
        check_id("run", run_id)
        until_ns = self._steady() + self._lease_ns
        now, token = self._clock.now(), new_token()

        def start(tx: Tx) -> ClaimedRun:
            mine = tx.runs.with_token(self._boot_id, token)
            if mine:
                return self._claimed(tx, mine[0], until_ns)
            before = tx.runs.lock(run_id)
            run = tx.runs.claim(
                run_id,
                boot_id=self._boot_id,
                token=token,
                now=now,
                lease=self._lease,
                status=before.status,
            )
            if run is None:
                raise IllegalMove("run", run_id, before.status.value, RunStatus.RUNNING.value)
            tx.tasks.move(tx.tasks.lock(run.task_id), TaskStatus.RUNNING, now=now)
            tx.emit(EventKind.RUN_CLAIMED, run.id, at=now, task_id=run.task_id, fence=run.fence)
            return self._claimed(tx, run, until_ns)

        return await self._store.write(start)

    async def renew(self, claims: Sequence[Claim]) -> Renewed:
        """Extend the leases. The worker must stop working on the claims that are lost."""
        claims = check_claims(claims)
        if not claims:
            return Renewed(held=(), lost=(), cancelled_task_ids=frozenset())
        until_ns = self._steady() + self._lease_ns
        now = self._clock.now()

        def renew(tx: Tx) -> Renewed:
            kept = tx.runs.renew(
                [claim.run_id for claim in claims], boot_id=self._boot_id, now=now, lease=self._lease
            )
            held, lost = [], []
            for claim in claims:
                fence, until = kept.get(claim.run_id, (None, None))
                if fence != claim.fence or until is None:
                    lost.append(claim)
                    continue
                is_alone = claim.is_alone and not self._is_exonerated(tx, claim.run_id, claim.fence, now)
                held.append(
                    msgspec.structs.replace(
                        claim, lease_until=until, held_until_ns=until_ns, is_alone=is_alone
                    )
                )
            cancelled = tx.tasks.cancels_requested([claim.task_id for claim in held])
            return Renewed(held=tuple(held), lost=tuple(lost), cancelled_task_ids=frozenset(cancelled))

        return await self._store.write(renew)

    def _is_exonerated(self, tx: Tx, run_id: str, fence: int, now: datetime) -> bool:
        run = tx.runs.get(run_id)
        if run.is_alone and run.started_at is not None and now - run.started_at >= ALONE_AT_MOST:
            return exonerate(tx, run_id, fence, now=now)
        return not run.is_alone

    async def release(self, claim: Claim, *, due_at: datetime | None = None) -> None:
        """Release the run, so that any worker may claim it, now or later. Raises ClaimLost.

        If a cancel was requested, the task ends here, because no worker runs it any more.
        """
        check_claim(claim)
        now = self._clock.now()
        due = now if due_at is None else check_moment("due_at", due_at)
        queue = Queue.READY if due <= now else Queue.LATER

        def release(tx: Tx) -> None:
            if tx.runs.release(claim.run_id, claim.fence, due_at=due, queue=queue, now=now):
                tx.emit(EventKind.RUN_RELEASED, claim.run_id, at=now, task_id=claim.task_id)
                follow(tx, claim, TaskStatus.QUEUED, now=now, retention=self._retention)
                tx.hint("runs")
            elif not _is_after(tx, claim, RunStatus.QUEUED):
                raise ClaimLost(claim.run_id, claim.fence)

        await self._store.write(release)

    async def wait(self, claim: Claim, *, waits_on: str, due_at: datetime | None = None) -> None:
        """Let the run wait for something, by its name, without a claim. The same run continues later.

        If a cancel was requested, the task ends here instead of waiting. Raises ClaimLost.
        """
        check_claim(claim)
        waits_on = check_name("waits_on", waits_on)
        due = NEVER if due_at is None else check_moment("due_at", due_at)
        now = self._clock.now()

        def wait(tx: Tx) -> None:
            if tx.runs.wait(claim.run_id, claim.fence, waits_on=waits_on, due_at=due, now=now):
                tx.emit(EventKind.RUN_WAITED, claim.run_id, at=now, task_id=claim.task_id, waits_on=waits_on)
                follow(tx, claim, TaskStatus.WAITING, now=now, waits_on=waits_on, retention=self._retention)
            elif not _is_after(tx, claim, RunStatus.WAITING):
                raise ClaimLost(claim.run_id, claim.fence)

        await self._store.write(wait)

    async def wake(self, run_id: str) -> bool:
        """Make a waiting run ready: what it waited for has come. False if it was not waiting."""
        check_id("run", run_id)
        now = self._clock.now()
        return await self._store.write(lambda tx: wake_run(tx, run_id, now=now))

    def _claimed(
        self, tx: Tx, run: RunRecord, until_ns: int, tasks: Mapping[str, Task] | None = None
    ) -> ClaimedRun:
        """What the worker gets, with large payloads read from their blobs. Raises RowDamaged."""
        if run.is_damaged:
            raise RowDamaged("run", run.id)
        task = tx.tasks.get(run.task_id) if tasks is None else tasks[run.task_id]
        seed = None if run.seed is None else tx.blobs.open(run.seed)
        return ClaimedRun(
            claim=claim_of(run, until_ns), run=msgspec.structs.replace(run, seed=seed), task=opened(tx, task)
        )


async def unknown_names(store: Store, known: Mapping[str, object]) -> list[str]:
    """The names of tasks that have ready runs and are not known here."""
    return [name for name in await store.read(lambda tx: tx.runs.ready_names()) if name not in known]


def follow(
    tx: Tx,
    claim: Claim,
    to: TaskStatus,
    *,
    now: datetime,
    waits_on: str | None = None,
    retention: timedelta = DEFAULT_RETENTION,
) -> None:
    """Move the task of a run whose claim was given up. If a cancel was requested, the task ends here."""
    task = tx.tasks.lock(claim.task_id)
    tx.tasks.move(task, to, now=now, waits_on=waits_on)
    if task.cancel_requested_at is not None:
        # No worker runs the task any more, so none can stop it.
        failure = Failure(kind="cancelled", message=task.cancel_reason or "cancelled")
        cancel_idle_run(tx, tx.runs.look(claim.run_id), failure, now=now, retention=retention)


def exonerate(tx: Tx, run_id: str, fence: int, *, now: datetime) -> bool:
    """A suspect need not run alone any longer: it made progress, or lived long enough.

    The workers that left it alone take other runs again. False when it was no suspect, or not ours.
    """
    if not tx.runs.exonerate(run_id, fence, now=now):
        return False
    tx.hint("runs")
    return True


def was_given_up(tx: Tx, claim: Claim) -> bool:
    """Whether the run waits because of our own write, which ran before."""
    return _is_after(tx, claim, RunStatus.WAITING)


def claim_of(run: RunRecord, until_ns: int = 0) -> Claim:
    """The claim on a running run; its holder may rely on it until `until_ns`."""
    assert run.claimed_by is not None
    assert run.lease_until is not None
    return Claim(
        run_id=run.id,
        task_id=run.task_id,
        boot_id=run.claimed_by,
        fence=run.fence,
        lease_until=run.lease_until,
        held_until_ns=until_ns,
        is_alone=run.is_alone,
    )


def wake_run(tx: Tx, run_id: str, *, now: datetime) -> bool:
    """Make a waiting run and its task ready. False if the run was not waiting."""
    if not tx.runs.wake(run_id, now=now):
        return False
    run = tx.runs.look(run_id)
    tx.tasks.move(tx.tasks.lock(run.task_id), TaskStatus.QUEUED, now=now)
    tx.emit(EventKind.RUN_WOKEN, run_id, at=now, task_id=run.task_id)
    tx.hint("runs")
    return True


def _is_after(tx: Tx, claim: Claim, status: RunStatus) -> bool:
    """Whether our own write ran before: giving up a claim raises the fence by one, a cancel by one more."""
    run = tx.runs.get(claim.run_id)
    return (run.status, run.fence) in {(status, claim.fence + 1), (RunStatus.CANCELLED, claim.fence + 2)}
