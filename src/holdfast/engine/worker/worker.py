"""A worker: the parts that take, carry and drain the runs of one process, and its life from start to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.checkpoint import DEFAULT_MAX_IDLE_ATTEMPTS, ResumeReason
from holdfast.core.claim import DEFAULT_LEASE, Claim
from holdfast.core.clock import Clock
from holdfast.core.effect import EffectClass
from holdfast.core.errors import CheckpointNotSaved, HoldfastError, ResumesHeld, RowDamaged
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES
from holdfast.core.smart_wake import WakeOptions
from holdfast.core.task import Task
from holdfast.engine.aio.threads import StepThreads
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import Claims, Family
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.clocks.skew import SkewWatch
from holdfast.engine.clocks.steady import ElapsedTime, steady_of
from holdfast.engine.ledger.batched_ends import BatchedEnds
from holdfast.engine.ledger.ledger import Ledger
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.engine.program.live_run import RunHost, nanos_of, shielded
from holdfast.engine.program.secrets import Given, Secrets
from holdfast.engine.recovery.attempts import record_attempts
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.engine.recovery.rescue import Reaper, Rescued, Rescuer, RescueRecorder
from holdfast.engine.recovery.resume import RESUME_CONCURRENCY, Resumed, Resumer
from holdfast.engine.recovery.wakes import WakeTimer
from holdfast.engine.worker.carrying import RunCarrier
from holdfast.engine.worker.drain import Drain, DrainTimeouts
from holdfast.engine.worker.in_flight import RunsInFlight
from holdfast.engine.worker.run_limits import RunLimits
from holdfast.engine.worker.saved_steps import SavedSteps
from holdfast.engine.worker.taking import RunTaker
from holdfast.engine.worker.unfinished import OnLetGo, UnfinishedRuns
from holdfast.store import Store, Tx

if TYPE_CHECKING:
    from holdfast.engine.program.restart_requests import OnRestart
    from holdfast.engine.recovery.start_log import StartLog, StepFacts

log = logging.getLogger("holdfast")

# How long a program may take to stop by itself, after it was told.
GRACE = timedelta(seconds=10)
# How long a drain waits for effects in flight, and for other steps, by default.
DRAIN_TIMEOUT = timedelta(seconds=30)
STEP_PATIENCE = timedelta(seconds=1)
# From so many runs on, runs that end at the same time are ended in one write.
CROWD = 16
THREADS = 64

# How long a pass of the reaper may hold up a drain.
_REAPER_S = 2.0


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
        on_let_go: OnLetGo = lambda _task_id, _ended: None,
        max_idle_attempts: int = DEFAULT_MAX_IDLE_ATTEMPTS,
        resume_concurrency: int = RESUME_CONCURRENCY,
        notary: RescueRecorder | None = None,
        family: Family | None = None,
        troubles: TroubleLog | None = None,
        keep_bytes: int = KEEP_RESULTS_BYTES,
        wakes: WakeOptions | None = None,
        approval: frozenset[EffectClass] = frozenset(),
    ) -> None:
        """`unwind` is the time that programs have after the deadline of a drain to stop by themselves; by
        default the grace. Without `on_restart` every run that asks for a restart is refused. The notary
        hears of everything that is rescued here; `troubles` is shared with other services of the process. Of
        the steps of finished turns, results up to `keep_bytes` stay. `wakes` holds for tasks that set nothing
        else. Effects of the classes in `approval` wait for a person's approval."""
        self._store = store
        self._clock = clock
        self._life = life
        self._tasks = dict(tasks)
        patience = DrainTimeouts(
            effects_s=drain_timeout.total_seconds(),
            steps_s=min(step_patience, drain_timeout).total_seconds(),
            grace_s=grace.total_seconds(),
            unwind_s=(grace if unwind is None else unwind).total_seconds(),
        )
        self._secrets = secrets if isinstance(secrets, Secrets) else Secrets(secrets)
        self._keep_bytes = keep_bytes
        self._wakes = WakeOptions() if wakes is None else wakes
        self._approval = approval
        self._max_idle_attempts = max_idle_attempts
        self._family = family
        self._troubles = TroubleLog() if troubles is None else troubles
        self._claims = Claims(
            store,
            clock,
            life.id,
            names=sorted(self._tasks),
            lease=lease,
            family=family,
            troubles=self._troubles,
        )
        self._heartbeat = Heartbeat(
            self._claims,
            on_lost=lambda claim: self._carrier.lost(claim),
            on_cancelled=lambda claim: self._carrier.cancelled(claim),
            lease=lease,
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
        self._saved_steps = SavedSteps(
            store, clock, runs=lambda: [one.live for one in self._in_flight.carried.values()]
        )
        self._saved_steps.troubles = self._troubles
        self._wake_timer = WakeTimer(store, clock, self._resumer)
        self._drain = Drain(self._in_flight, self._ledger, Checkpoints(store, clock), self._threads, patience)
        self._group: asyncio.TaskGroup | None = None
        # Background work of this worker; it ends with the worker.
        self._beside: list[asyncio.Task[None]] = []
        # Something may have changed: a run is ready, a child has ended, the worker must stop.
        self._news = asyncio.Event()
        self._is_stopping = False
        # Whether a drain that could not save every run is taken back.
        self._may_go_on = False
        self._blocked: CheckpointNotSaved | None = None
        self._is_decided = asyncio.Event()
        self.has_ended = asyncio.Event()
        unfinished = UnfinishedRuns(
            store,
            clock,
            self._claims,
            self._heartbeat,
            self._ledger,
            self._in_flight,
            self._drain,
            lease=lease,
            on_let_go=on_let_go,
        )
        self._carrier = RunCarrier(
            store,
            self._tasks,
            self._in_flight,
            self._drain,
            unfinished,
            capacity=capacity,
            news=self._news,
            start=self._start,
            on_restart=on_restart,
            on_let_go=on_let_go,
            on_left=self._saved_steps.left,
            limits=RunLimits(store, clock, self._ledger, self._in_flight, patience),
        )
        self._taker = RunTaker(
            store,
            clock,
            self._claims,
            self._heartbeat,
            self._rescuer,
            self._carrier,
            unfinished,
            self._in_flight,
            self._tasks,
            capacity=capacity,
            family=family,
            troubles=self._troubles,
            news=self._news,
            is_stopping=lambda: self._is_stopping,
        )

    async def take_over(self, *, is_allowed: bool = False, start: StartLog | None = None) -> Resumed:
        """Rescue and resume what an earlier process left in flight, so that it can be claimed.

        Runs that are held after a crash loop are only rescued, unless a person has allowed them. `start`
        records what was found and done.
        """
        await record_attempts(self._store, {name: task.named_attempts for name, task in self._tasks.items()})
        if start is None:
            await self._rescue()
            return await self._resume(is_allowed=is_allowed)
        from holdfast.core.start_record import StartStep

        await start.load()
        async with start.step(StartStep.RECONCILE) as found:
            found.rescued(await self._rescue())
        async with start.step(StartStep.RESUME) as found:
            resumed = await self._resume(is_allowed=is_allowed, facts=found)
            found.resumed(resumed)
        return resumed

    async def _rescue(self) -> Rescued:
        rescued = await self._rescuer.rescue()
        try:
            await self._wake_timer.fire()
        except RowDamaged as damage:
            # The timer says so again and again; what else was left must go on.
            log.error("wakes that are due could not be fired: %s", damage)  # noqa: TRY400 - no defect of this line
        return rescued

    async def _resume(self, *, is_allowed: bool, facts: StepFacts | None = None) -> Resumed:
        try:
            return await self._resumer.resume_all(is_allowed=is_allowed)
        except ResumesHeld as held:
            log.warning("%s", held)
            if facts is not None:
                await facts.held(self._store, str(held))
            return Resumed()

    def hold_resumes(self, why: str | None) -> None:
        """Resume nothing until this is called with None: paused runs stay paused, and show this reason."""
        self._resumer.held = why

    async def run(self) -> None:
        """Until `stop`; when it returns, no run is in flight here.

        Raises CheckpointNotSaved if a run could not be paused: another process will rescue it.
        """
        self._carrier.host = host = await self._make_host()
        self._life.is_at_work = lambda: bool(host.at_work)
        self._taker.look_in_a_while()
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
            self._saved_steps.run(),
            self._wake_timer.run(),
            self._taker.listen("runs", self._news),
            self._taker.listen("cancels", self._carrier.cancels),
            self._carrier.follow_cancels(),
            SkewWatch(self._clock).run(),
        ):
            self._start(act)
        if self._family is not None:
            self._start(self._adopt(self._family))
        await asyncio.sleep(0)  # so that they listen before the first look
        try:
            while True:
                await self._taker.until_stopped()
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
            await _unharmed(self._saved_steps.run_once())
            self._carrier.raise_fatal()
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
        self._drain.patience = msgspec.structs.replace(
            self._drain.patience, effects_s=seconds, steps_s=seconds
        )

    def resume_side_by_side(self, batches: int) -> None:
        """Set how many batches of paused runs are resumed at a time, from the next pass on."""
        self._resumer.concurrency = batches

    @property
    def longest_stop_s(self) -> float:
        """A drain that takes longer is stuck: a program blocks the event loop."""
        return self._drain.patience.effects_s + 2 * self._drain.patience.unwind_s + _REAPER_S

    def claims_in_flight(self) -> list[Claim]:
        """The claims that would have to be paused if the process ended now. Thread-safe."""
        return [one.claim for one in self._in_flight.all_runs() if not one.live.is_given_up]

    def caller_of(self, idempotency_key: str) -> Task | None:
        """The task whose run in this process is calling the effect with that key."""
        return self._carrier.caller_of(idempotency_key)

    # --- what runs in the background

    async def _adopt(self, family: Family) -> None:
        """Once the task of this process is chosen: an earlier process may have left it in flight."""
        await family.is_chosen.wait()
        await self.take_over()
        self._taker.look_now()
        self._news.set()

    async def _make_host(self) -> RunHost:
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
            wakes=self._wakes,
            max_idle_attempts=self._max_idle_attempts,
            approval=self._approval,
            secrets=self._secrets,
            ends=BatchedEnds(self._store, self._clock, is_crowded=lambda: len(self._in_flight) >= CROWD),
        )

    def _start(self, act: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        self._beside = [one for one in self._beside if not one.done()]
        self._beside.append(self._group.create_task(_unharmed(act)))


async def _unharmed(act: Awaitable[object]) -> None:
    """An error in background work must not end the runs."""
    try:
        await act
    except HoldfastError as error:
        log.warning("%s", error)
    except Exception:  # unexpected
        log.exception("background work failed; the runs go on")
