"""Claims runs of the tasks that this process knows, and executes many of them at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from holdfast.core.checkpoint import DEFAULT_MAX_IDLE_ATTEMPTS, ResumeReason
from holdfast.core.claim import DEFAULT_LEASE, Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import (
    CheckpointNotSaved,
    ClaimLost,
    HoldfastError,
    PageDamaged,
    ResumesHeld,
    RowDamaged,
    StoreUnavailable,
)
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES
from holdfast.core.task import Task
from holdfast.engine.aio.threads import StepThreads
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import ClaimedRun, Claims, Family, unknown_names
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.clocks.skew import SkewWatch
from holdfast.engine.clocks.steady import ElapsedTime, steady_of
from holdfast.engine.journal.codec import failure_of
from holdfast.engine.journal.scopes import TaskHistory, load_pasts
from holdfast.engine.ledger.batched_ends import BatchedEnds
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, Ledger, fail_damaged
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.engine.program.live_run import RunHost, nanos_of, shielded
from holdfast.engine.program.restart_requests import OnRestart
from holdfast.engine.program.run_phase import RunPhase, StopReason
from holdfast.engine.program.secrets import Given, Secrets
from holdfast.engine.recovery.attempts import record_attempts
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.engine.recovery.rescue import Reaper, Rescuer, RescueRecorder
from holdfast.engine.recovery.resume import RESUME_CONCURRENCY, Resumed, Resumer
from holdfast.engine.worker.drain import Drain, DrainTimeouts
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.in_flight import FORCE_EVERY_S, RunInFlight, RunsInFlight, Sleep
from holdfast.store import Store, Tx
from holdfast.store.clock import jumps_of

T = TypeVar("T")

log = logging.getLogger("holdfast")

# How long a program may take to stop by itself, after it was told.
GRACE = timedelta(seconds=10)
# How long a drain waits for effects in flight, and for other steps, by default.
DRAIN_TIMEOUT = timedelta(seconds=30)
STEP_PATIENCE = timedelta(seconds=1)
# How often the worker looks for work without a notification; a look only reads.
ASK_EVERY_S = 0.5
# From so many runs on, runs that end at the same time are ended in one write.
CROWD = 16
BATCH = 256
THREADS = 64

_LISTEN_S = 60.0
# How long a pass of the reaper may hold up a drain.
_REAPER_S = 2.0
_FORCE_TIMES = 5
# The name of the loop that claims runs, in the log of troubles.
_TAKING = "no runs were taken"
# Between two attempts of a run whose lease had lapsed both times before.
_LAPSED_PAUSE_S = 1.0
# Reasons to release a run and try it again later, each time after a longer pause.
_GIVEN_BACK = frozenset({StopReason.LEASE_LAPSED, StopReason.CANNOT_SEAL})


class LedgerScan(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the ledger found."""

    is_ready: bool
    due_at: datetime | None
    cancelled: frozenset[str]


class Worker:
    """Executes runs until it is stopped; then it pauses those in flight for the next process."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        life: Life,
        tasks: Mapping[str, TaskDefinition[..., Any]],
        *,
        capacity: int = 1000,
        lease: timedelta = DEFAULT_LEASE,
        grace: timedelta = GRACE,
        unwind: timedelta | None = None,
        drain_timeout: timedelta = DRAIN_TIMEOUT,
        step_patience: timedelta = STEP_PATIENCE,
        secrets: Secrets | Given | None = None,
        on_restart: OnRestart | None = None,
        on_let_go: Callable[[str, Task | None], None] = lambda _task_id, _ended: None,
        max_idle_attempts: int = DEFAULT_MAX_IDLE_ATTEMPTS,
        resume_concurrency: int = RESUME_CONCURRENCY,
        notary: RescueRecorder | None = None,
        family: Family | None = None,
        troubles: TroubleLog | None = None,
        keep_bytes: int = KEEP_RESULTS_BYTES,
    ) -> None:
        """`unwind` is the time that programs have after the deadline of a drain to stop by themselves; by
        default the grace. Without `on_restart` every run that asks for a restart is refused. The notary
        hears of everything that is rescued here; `troubles` is shared with other services of the process. Of
        the steps of finished turns, results up to `keep_bytes` stay."""
        self._store = store
        self._clock = clock
        self._life = life
        self._tasks = dict(tasks)
        self._names = sorted(self._tasks)
        self._capacity = capacity
        self._patience = DrainTimeouts(
            effects_s=drain_timeout.total_seconds(),
            steps_s=min(step_patience, drain_timeout).total_seconds(),
            grace_s=grace.total_seconds(),
            unwind_s=(grace if unwind is None else unwind).total_seconds(),
        )
        self._secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self._keep_bytes = keep_bytes
        self._on_restart = on_restart
        self._on_let_go = on_let_go
        self._family = family
        self._troubles = TroubleLog() if troubles is None else troubles
        self._claims = Claims(
            store, clock, life.id, names=self._names, lease=lease, family=family, troubles=self._troubles
        )
        self._heartbeat = Heartbeat(
            self._claims, on_lost=self._lost, on_cancelled=self._cancelled, lease=lease
        )
        self._heartbeat.troubles = self._troubles
        self._rescuer = Rescuer(store, clock, life, notary=notary)
        self._resumer = Resumer(
            store,
            clock,
            life.id,
            lease=lease,
            max_idle_attempts=max_idle_attempts,
            concurrency=resume_concurrency,
            family=family,
        )
        self._lease = lease
        self._reaper = self._make_reaper()
        self._ledger = Ledger(store, clock)
        self._threads = StepThreads(THREADS)
        self._in_flight = RunsInFlight(self._heartbeat)
        self._drain = Drain(
            self._in_flight, self._ledger, Checkpoints(store, clock), self._threads, self._patience
        )
        self._place: RunHost | None = None
        self._group: asyncio.TaskGroup | None = None
        # Background work of this worker; it ends with the worker.
        self._beside: list[asyncio.Task[None]] = []
        # Something may have changed: a run is ready, a child has ended, the worker must stop.
        self._news = asyncio.Event()
        self._cancels = asyncio.Event()
        self._is_stopping = False
        # Whether a drain that could not save every run is taken back.
        self._may_go_on = False
        self._blocked: CheckpointNotSaved | None = None
        self._is_decided = asyncio.Event()
        self.has_ended = asyncio.Event()
        self._look_at = 0.0
        self._has_warned = False
        # Jumps of the ledger's clock after which the claims have been renewed.
        self._jumps = jumps_of(clock)
        # How often in a row each of these runs found its lease lapsed.
        self._lapses: dict[str, int] = {}
        # An error that no run may swallow: it ends the worker.
        self._fatal: BaseException | None = None

    async def take_over(self, *, is_allowed: bool = False) -> Resumed:
        """Rescue and resume what an earlier process left in flight, so that it can be claimed.

        Runs that are held after a crash loop are only rescued, unless a person has allowed them.
        """
        await record_attempts(self._store, {name: task.named_attempts for name, task in self._tasks.items()})
        await self._rescuer.rescue()
        try:
            return await self._resumer.resume_all(is_allowed=is_allowed)
        except ResumesHeld as held:
            log.warning("%s", held)
            return Resumed()

    def hold_resumes(self, why: str | None) -> None:
        """Resume nothing until this is called with None: paused runs stay paused, and show this reason."""
        self._resumer.held = why

    async def run(self) -> None:
        """Until `stop`; when it returns, no run is in flight here.

        Raises CheckpointNotSaved if a run could not be paused: another process will rescue it.
        """
        self._place = await self._make_place()
        at_work = self._place.at_work
        self._life.is_at_work = lambda: bool(at_work)
        self._look_at = _now() + ASK_EVERY_S
        try:
            async with asyncio.TaskGroup() as self._group:
                try:
                    await self._work(self._group.create_task(self._reaper.run()))
                finally:
                    for one in self._beside:
                        one.cancel()
        except BaseExceptionGroup as errors:
            # Callers know our errors, not groups of them.
            raise errors.exceptions[0] from errors
        finally:
            self._threads.shutdown()
            self.has_ended.set()
            self._is_decided.set()

    async def _work(self, reaping: asyncio.Task[None]) -> None:
        self._beside.append(reaping)
        for act in (
            self._heartbeat.run(),
            self._listen("runs", self._news),
            self._listen("cancels", self._cancels),
            self._follow_cancels(),
            SkewWatch(self._clock).run(),
        ):
            self._start(act)
        if self._family is not None:
            self._start(self._adopt(self._family))
        await asyncio.sleep(0)  # so that they listen before the first look
        try:
            while True:
                await self._take_until_stopped()
                self._drain.tell()  # also the runs that were just claimed
                # The next process resumes what we pause now, not this one.
                self._reaper.stop()
                await asyncio.wait([reaping], timeout=_REAPER_S)
                reaping.cancel()
                try:
                    await self._drain.run(may_go_on=self._may_go_on)
                except CheckpointNotSaved as problem:
                    if not self._may_go_on or self._group is None:
                        raise
                    reaping = self._go_on(problem, self._group)
                else:
                    break
            self._raise_fatal()
        except BaseException:
            # The whole process is being ended: save what can be saved at once.
            self._is_stopping = True
            self._drain.hurry()
            await shielded(self._drain.stop_now())
            raise

    def _make_reaper(self) -> Reaper:
        reaper = Reaper(
            self._rescuer, self._resumer, self._clock, heartbeat=self._heartbeat, lease=self._lease
        )
        reaper.troubles = self._troubles
        return reaper

    def _go_on(self, problem: CheckpointNotSaved, group: asyncio.TaskGroup) -> asyncio.Task[None]:
        """Take the drain back, because not every run could be paused. Runs that have stopped already are
        released when the ledger can be written again, and replayed; those that were paused are resumed."""
        log.error("the drain is taken back: %s", problem)
        self._blocked = problem
        self._is_stopping = self._may_go_on = False
        self._reaper = self._make_reaper()
        reaping = group.create_task(self._reaper.run())
        self._beside.append(reaping)
        self._news.set()
        self._is_decided.set()
        return reaping

    async def until_decided(self) -> CheckpointNotSaved | None:
        """After `stop`: None when the worker has ended; or why the drain was taken back."""
        await self._is_decided.wait()
        return self._blocked

    def stop(self, reason: ResumeReason = ResumeReason.EXPLICIT_RESTART, *, may_go_on: bool = False) -> None:
        """Claim nothing new, and drain. Safe before `run` and twice; the first reason stays.

        With `may_go_on` the drain is taken back if a run cannot be paused; otherwise another process rescues
        that run.
        """
        if not self._is_stopping:
            self._drain.reason = reason
            self._may_go_on = may_go_on
            self._blocked = None
            self._is_decided.clear()
        self._may_go_on = self._may_go_on and may_go_on
        self._is_stopping = True
        self._drain.tell()
        self._news.set()

    def hurry(self) -> None:
        """Stop at once: pause the runs in flight where they are, without waiting."""
        self.stop()
        self._drain.hurry()

    def be_patient(self, drain_timeout: timedelta) -> None:
        """Set how long a drain waits for effects and for steps."""
        seconds = drain_timeout.total_seconds()
        self._patience = msgspec.structs.replace(self._patience, effects_s=seconds, steps_s=seconds)
        self._drain.patience = self._patience

    def resume_side_by_side(self, batches: int) -> None:
        """Set how many batches of paused runs are resumed at a time, from the next pass on."""
        self._resumer.concurrency = batches

    @property
    def longest_stop_s(self) -> float:
        """A drain that takes longer is stuck: a program blocks the event loop."""
        return self._patience.effects_s + 2 * self._patience.unwind_s + _REAPER_S

    def claims_in_flight(self) -> list[Claim]:
        """The claims that would have to be paused if the process ended now. Thread-safe."""
        return [one.claim for one in self._in_flight.everyone() if not one.live.is_given_up]

    def caller_of(self, idempotency_key: str) -> Task | None:
        """The task whose run in this process is calling the effect with that key."""
        live = None if self._place is None else self._place.calling.get(idempotency_key)
        return None if live is None else live.task

    # --- taking

    async def _take_until_stopped(self) -> None:
        is_hinted = True
        while not self._is_stopping:
            # Cleared before the look: what comes during it is found in the next round.
            self._news.clear()
            try:
                await self._take_round(is_hinted=is_hinted)
            except HoldfastError as error:
                self._troubles.met(
                    _TAKING, error, again_in_s=ASK_EVERY_S, words=f"no runs were taken: {error}"
                )
                self._look_at = _now() + ASK_EVERY_S
            is_hinted = await self._wait_for_news()
            self._raise_fatal()

    async def _take_round(self, *, is_hinted: bool) -> None:
        """Claim what is ready, as far as there is room."""
        is_time = self._look_at <= _now()
        if self._in_flight.left_over:
            await self._put_back()
        if is_time:
            is_hinted = await self._look() or is_hinted
        if is_hinted:
            room = min(BATCH, self._capacity - len(self._in_flight))
            if room > 0 and await self._take(room) == room:
                self._news.set()  # there may be more
        if is_time:  # a round without a look says nothing about the ledger
            self._troubles.worked(_TAKING)

    async def _wait_for_news(self) -> bool:
        """Until there is news, or until it is time to look; whether there is news."""
        try:
            async with asyncio.timeout_at(self._look_at):
                await self._news.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(0)  # the children begin
        return self._news.is_set()

    async def _look(self) -> bool:
        """Whether there is something to claim. Only reads: an idle process writes nothing."""
        # Set first, so that a database that is away is not asked all the time.
        self._look_at = _now() + ASK_EVERY_S
        if not self._has_warned and self._family is None:
            await self._warn_of_unknown()
        carried = self._in_flight.task_ids()

        def look(tx: Tx) -> LedgerScan:
            return LedgerScan(
                is_ready=self._claims.has_ready(tx),
                due_at=tx.runs.next_due_at(),
                cancelled=frozenset(tx.tasks.cancels_requested(carried) if carried else ()),
            )

        seen = await self._store.read(look)
        self._tell_cancelled(seen.cancelled)
        await self._renew_after_jump()
        if seen.due_at is None:
            return seen.is_ready
        due_s = (seen.due_at - self._clock.now()).total_seconds()
        if due_s <= 0:
            return bool((await self._rescuer.ready_due()).made_ready) or seen.is_ready
        self._look_at = _now() + min(due_s, ASK_EVERY_S)
        return seen.is_ready

    async def _renew_after_jump(self) -> None:
        """A clock that was set forward says that our leases have lapsed: renew them at once."""
        jumps = jumps_of(self._clock)
        if jumps != self._jumps:
            self._jumps = jumps
            await self._heartbeat.run_once()

    async def _adopt(self, family: Family) -> None:
        """Once the task of this process is chosen: an earlier process may have left it in flight."""
        await family.is_chosen.wait()
        await self.take_over()
        self._look_at = _now()
        self._news.set()

    async def _warn_of_unknown(self) -> None:
        names = await unknown_names(self._store, self._tasks)
        self._has_warned = True
        if names:
            log.warning(
                "runs of %s are ready, but no task of that name is registered here; they wait for a process "
                "that knows it: open(…, tasks=[…])",
                ", ".join(names),
            )

    async def _listen(self, topic: str, news: asyncio.Event) -> None:
        """Listen all the time, so that a notification between two waits is not lost."""
        while True:
            try:
                if await self._store.wait_for(topic, _LISTEN_S):
                    news.set()
            except HoldfastError:
                await asyncio.sleep(ASK_EVERY_S)

    async def _take(self, room: int) -> int:
        """Claim at most so many and start them; how many were claimed."""
        if not self._names:
            return 0
        claimed = await self._claims.take(room)
        for one in claimed:
            self._heartbeat.hold(one.claim)
        try:
            pasts = await self._load(claimed)
        except BaseException:
            await shielded(self._release([one.claim for one in claimed]))
            raise
        problems: list[tuple[ClaimedRun, Exception]] = []
        for one in claimed:
            past = pasts[one.task.id]
            problem = self._begin(one, past) if isinstance(past, TaskHistory) else past
            if problem is not None:
                problems.append((one, problem))
        for one, _ in problems:
            # Stop renewing the lease before ending the run.
            self._heartbeat.let_go(one.claim)
        for one, problem in problems:
            await self._end_unfit(one, problem)
        return len(claimed)

    async def _load(self, claimed: Sequence[ClaimedRun]) -> dict[str, TaskHistory | RowDamaged]:
        """The past from which each program is replayed; for a damaged task, the damage."""
        pasts: dict[str, TaskHistory | RowDamaged] = {one.task.id: TaskHistory() for one in claimed}
        task_ids = [one.task.id for one in claimed if not _is_fresh(one)]
        if task_ids:
            try:
                pasts |= await self._read(lambda tx: load_pasts(tx, task_ids))
            except RowDamaged:
                # Load each alone: one damaged task must not stop the others.
                for task_id in task_ids:
                    pasts[task_id] = await self._load_alone(task_id)
        return pasts

    async def _load_alone(self, task_id: str) -> TaskHistory | RowDamaged:
        try:
            return (await self._read(lambda tx: load_pasts(tx, [task_id])))[task_id]
        except RowDamaged as damage:
            return damage

    async def _read(self, read: Callable[[Tx], T]) -> T:
        """Retry while the database is away: the claims are still ours."""
        while True:
            try:
                return await self._store.read(read)
            except StoreUnavailable:
                if self._is_stopping:
                    raise
                await asyncio.sleep(ASK_EVERY_S)

    # --- carrying

    def _begin(self, claimed: ClaimedRun, past: TaskHistory) -> Exception | None:
        """Start a child that executes it; returns the error if that is not possible."""
        assert self._place is not None
        sleep = Sleep(self._place.sleep)
        definition = self._tasks[claimed.task.name]
        try:
            execution = Execution(
                self._place, claimed, definition, past, sleep=sleep, on_restart=self._on_restart
            )
        except Exception as error:  # noqa: BLE001 - what was stored for it cannot be used
            return error
        one = RunInFlight(execution, sleep)
        self._in_flight.take(one)
        # Not in the task group: a program that does not end must not block the worker, and an unexpected
        # error of one must not end the others. The drain awaits all of them.
        loop = asyncio.get_running_loop()
        one.child = loop.create_task(self._carry(one), name=f"holdfast {claimed.run.id}")
        one.child.add_done_callback(lambda _child: self._ended(one))
        return None

    async def _carry(self, one: RunInFlight) -> None:
        try:
            await one.execution.carry()
        except asyncio.CancelledError:
            # The worker cancelled it, for a reason that it knows; or the whole process is being ended.
            return
        except SystemExit as error:
            one.trouble = RuntimeError(f"the program called sys.exit({error.code!r})")
        except PageDamaged as damage:
            log.warning("%s could not be executed: %s", one.claim.run_id, damage)
            one.trouble = damage
        except Exception as error:  # unexpected
            log.exception("%s could not be executed", one.claim.run_id)
            one.trouble = error

    def _ended(self, one: RunInFlight) -> None:
        """Its child is done."""
        error = None if one.child.cancelled() else one.child.exception()
        if error is not None and one.live.phase is not RunPhase.ABANDONED:
            self._fatal = self._fatal or error
        if self._lapses and one.live.why not in _GIVEN_BACK:
            self._lapses.pop(one.claim.run_id, None)
        was_full = len(self._in_flight) >= self._capacity
        self._in_flight.put_down(one)
        self._on_let_go(one.claim.task_id, one.execution.ended)
        # A run that must run alone has kept all others waiting.
        if was_full or one.claim.is_alone or self._in_flight.left_over or self._fatal is not None:
            self._news.set()
        self._drain.news.set()

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    async def _make_place(self) -> RunHost:
        def key(tx: Tx) -> str:
            return tx.boots.fact("ledger_id") or ""

        digest_key = (await self._store.read(key)).encode()[:32] or b"holdfast"
        return RunHost(
            store=self._store,
            clock=self._clock,
            nanos=nanos_of(self._clock),
            steady=steady_of(self._clock),
            elapsed=ElapsedTime(self._clock),
            life=self._life,
            threads=self._threads,
            digest_key=digest_key,
            newest=self._heartbeat.newest,
            sleep=getattr(self._clock, "sleep", asyncio.sleep),
            keep_bytes=self._keep_bytes,
            secrets=self._secrets,
            ends=BatchedEnds(self._store, self._clock, is_crowded=lambda: len(self._in_flight) >= CROWD),
        )

    # --- runs that did not come to an end

    async def _end_unfit(self, claimed: ClaimedRun, problem: Exception) -> None:
        """End a run whose past is damaged, with the reason; the other runs go on."""
        now = self._clock.now()
        log.error("%s cannot be executed: %s", claimed.run.id, problem)
        try:
            if isinstance(problem, RowDamaged):
                await self._store.write(
                    lambda tx: fail_damaged(tx, claimed.run, problem, now=now, retention=DEFAULT_RETENTION)
                )
            else:
                await self._ledger.fail(claimed.claim, failure_of(problem))
        except ClaimLost:
            pass
        except PageDamaged as damage:
            # Its lease lapses; the runs that were claimed with it go on.
            log.warning("%s cannot be ended: %s", claimed.run.id, damage)
        self._on_let_go(claimed.task.id, None)

    async def _put_back(self) -> None:
        """Release runs whose child ended without a record: the database was away, or we have a bug."""
        left_over = list(self._in_flight.left_over.values())
        self._tell_lapsed(left_over)
        for one in left_over:
            with contextlib.suppress(ClaimLost):
                if one.trouble is None:
                    # It stays the same run; the next worker that claims it replays it.
                    await self._claims.release(one.claim, due_at=self._not_before(one))
                else:
                    await self._pause_troubled(one)
            self._in_flight.let_go([one])

    def _tell_lapsed(self, some: Sequence[RunInFlight]) -> None:
        """Log once for each run whose lease lapsed, however often it is tried again."""
        lapsed = [one.claim.run_id for one in some if one.live.why is StopReason.LEASE_LAPSED]
        new = [run_id for run_id in lapsed if run_id not in self._lapses]
        for one in some:
            if one.live.why in _GIVEN_BACK:
                self._lapses[one.claim.run_id] = self._lapses.get(one.claim.run_id, 0) + 1
        if new:
            log.warning(
                "%s released before an effect, because the lease had lapsed: this process could not renew "
                "it (a program that blocks the event loop? a machine that slept?), or its clock is not the "
                "ledger's; `holdfast doctor` compares them",
                f"{new[0]} was" if len(new) == 1 else f"{len(new)} runs ({new[0]} first) were",
            )

    def _not_before(self, one: RunInFlight) -> datetime | None:
        """None for the first lapse: at once. A run that lapses again and again waits longer each time."""
        again = self._lapses.get(one.claim.run_id, 0) - 1
        if again <= 0:
            return None
        pause_s = min(_LAPSED_PAUSE_S * 2.0 ** min(again - 1, 20), self._lease.total_seconds())
        return self._clock.now() + timedelta(seconds=pause_s)

    async def _pause_troubled(self, one: RunInFlight) -> None:
        try:
            await self._drain.pause_troubled(one)
        except CheckpointNotSaved as problem:
            if not isinstance(one.trouble, PageDamaged):
                raise
            # Do not retry in each round: let its lease lapse.
            log.warning("%s", problem)

    async def _release(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            with contextlib.suppress(HoldfastError):  # a claim that cannot be released lapses
                await self._claims.release(claim)
            self._heartbeat.let_go(claim)

    # --- claims that are lost, tasks that are cancelled

    def _lost(self, claim: Claim) -> None:
        """Another worker has it: nothing that the program still does is written."""
        one = self._in_flight.carried.get(claim.run_id) or self._in_flight.left_over.get(claim.run_id)
        if one is None:
            return
        one.give_up(StopReason.CLAIM_LOST)
        if one.child.done():
            self._in_flight.let_go([one])
        else:
            # Wait for effects in flight: their outcome is kept as evidence.
            self._start(self._force(one, after_s=0.0))

    def _cancelled(self, claim: Claim) -> None:
        """Its next call raises Stopping; after the grace the worker interrupts it."""
        one = self._in_flight.carried.get(claim.run_id)
        if one is not None and one.live.why is not StopReason.CANCELLED and not one.live.is_given_up:
            one.tell(StopReason.CANCELLED)
            self._start(self._force(one, after_s=self._patience.grace_s))

    def _tell_cancelled(self, task_ids: frozenset[str]) -> None:
        if task_ids:
            for one in list(self._in_flight.carried.values()):
                if one.claim.task_id in task_ids:
                    self._cancelled(one.claim)

    async def _follow_cancels(self) -> None:
        """React to cancels at once; the heartbeat notices them, too, but later."""
        while True:
            await self._cancels.wait()
            self._cancels.clear()
            task_ids = self._in_flight.task_ids()
            if task_ids:
                with contextlib.suppress(HoldfastError):
                    found = await self._store.read(lambda tx: tx.tasks.cancels_requested(task_ids))  # noqa: B023 - read at once
                    self._tell_cancelled(frozenset(found))

    async def _force(self, one: RunInFlight, *, after_s: float) -> None:
        """Interrupt a program that does not stop by itself again and again; then end its run without it."""
        if await one.ends_within(after_s):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience.effects_s):
                await one.live.until_calm()
        for _ in range(_FORCE_TIMES):
            one.child.cancel()
            if await one.ends_within(FORCE_EVERY_S):
                return
        await self._drain.end_cancelled(one)
        one.abandon()
        self._in_flight.let_go([one])

    def _start(self, act: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        self._beside = [one for one in self._beside if not one.done()]
        self._beside.append(self._group.create_task(_unharmed(act)))


async def _unharmed(act: Awaitable[None]) -> None:
    """An error in background work must not end the runs."""
    try:
        await act
    except HoldfastError as error:
        log.warning("%s", error)
    except Exception:  # unexpected
        log.exception("background work failed; the runs go on")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _is_fresh(claimed: ClaimedRun) -> bool:
    """Whether it was never executed before, so that its journal is empty. (Forks have a higher fence.)"""
    return claimed.run.number == 1 and claimed.run.fence == 1
