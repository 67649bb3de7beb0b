"""One run in this process: its claim, its phase, its writes, and what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core.checkpoint import DEFAULT_MAX_IDLE_ATTEMPTS
from holdfast.core.claim import Claim
from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.core.effect import EffectClass
from holdfast.core.errors import CannotSeal, ClaimLost, PageDamaged, RunOver, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES
from holdfast.core.run import RunRecord
from holdfast.core.smart_wake import WakeOptions
from holdfast.core.step import Step
from holdfast.core.task import Task
from holdfast.engine.aio.eager import begin
from holdfast.engine.aio.threads import EffectsInThreads
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import exonerate
from holdfast.engine.clocks.steady import ElapsedTime
from holdfast.engine.journal.codec import Exited
from holdfast.engine.ledger.batched_ends import BatchedEnds, GoodEnd
from holdfast.engine.program.run_limit import RunLimit
from holdfast.engine.program.run_phase import HELD, PROGRAM_OVER, RunPhase, StopReason, move
from holdfast.engine.program.secrets import Secrets
from holdfast.engine.program.stopping import Stopping
from holdfast.store import Store, Tx, Write
from holdfast.store.clock import LedgerClock
from holdfast.store.sealing import LedgerKey, Sealing

log = logging.getLogger("holdfast")

T = TypeVar("T")

MOST_DELAYED = 256
# How often a kept write is tried again while the ledger is away, and for how long at most.
KEEP_EVERY_S = 0.5
KEPT_FOR_S = 24 * 3600.0
# Reasons to stop for which the work goes on elsewhere.
_MAY_FINISH = frozenset({StopReason.DRAINING, StopReason.RUN_TIMEOUT})
# The message of the cancel if the program no longer waits for an effect.
CUT_SHORT = "holdfast: cut short"


class RunHost(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of one process share."""

    store: Store
    clock: Clock
    # The clock in nanoseconds: every step reads it twice, and needs no datetime.
    nanos: Callable[[], int]
    # A clock that does not jump, for leases.
    steady: Callable[[], int]
    life: Life
    threads: Executor
    # Keys the digests of inputs, so that a short secret cannot be guessed from its digest.
    digest_key: bytes
    # The claim with its present lease.
    newest: Callable[[Claim], Claim]
    # Sleeps as the clock passes time.
    sleep: Callable[[float], Awaitable[object]]
    # How long to wait for an effect that its own program has cancelled, before its outcome is unknown.
    landing_s: float = 2.0
    # Up to this size, results of steps stay when their turn has committed.
    keep_bytes: int = KEEP_RESULTS_BYTES
    secrets: Secrets = msgspec.field(default_factory=Secrets)
    # Effects of these classes are not performed before a person approves them.
    approval: frozenset[EffectClass] = frozenset()
    # How runs are saved before their time limit, and woken.
    wakes: WakeOptions = WakeOptions()
    # After so many attempts without progress a task fails, unless it sets another number.
    max_idle_attempts: int = DEFAULT_MAX_IDLE_ATTEMPTS
    # Ends many runs in one write.
    ends: BatchedEnds | None = None
    # For each effect that is being called here, by its key: the run that calls it.
    calling: dict[str, LiveRun] = msgspec.field(default_factory=dict)
    # Runs that cannot write the outcome of an effect, because the ledger is away.
    keeping: set[str] = msgspec.field(default_factory=set)
    # Effects that run in threads.
    at_work: EffectsInThreads = msgspec.field(default_factory=EffectsInThreads)
    # For waits that a wall clock must not cut short.
    elapsed: ElapsedTime


def nanos_of(clock: Clock) -> Callable[[], int]:
    """A clock in nanoseconds; the machine's clock is read directly."""
    if isinstance(clock, LedgerClock):
        return clock.nanos
    return time.time_ns if type(clock) is SystemClock else lambda: to_micros(clock.now()) * 1000  # noqa: TID251


class TooLate(Exception):
    """An effect was not begun: the lease, or the time that it may take, was over."""

    def __init__(self, *, is_lease: bool) -> None:
        super().__init__("its lease had lapsed" if is_lease else "no time was left for it")
        self.is_lease = is_lease


class RunSealing(Sealing):
    """Seals what a run stores outside of a write. Without a key the run stops, as it does in a write, so that
    no `except Exception` of the program takes that for the failure of a step."""

    __slots__ = ("_live",)

    def __init__(self, live: LiveRun) -> None:
        super().__init__(live.store.sealing.vault)
        self._live = live

    def _key(self) -> LedgerKey:
        try:
            return super()._key()
        except StoreUnavailable as error:
            raise self._live.stop_without_ledger(error) from error


# The run whose program is being executed here, for tools; asyncio tasks and threads inherit it.
running: ContextVar[LiveRun | None] = ContextVar("holdfast_run", default=None)


class LiveRun:
    """One run in the memory of its worker. Every call of its program asks here first whether it may go on."""

    def __init__(
        self,
        place: RunHost,
        claim: Claim,
        run: RunRecord,
        task: Task,
        *,
        sleep: Callable[[float], Awaitable[object]] | None = None,
    ) -> None:
        self.place = place
        self._sleep = sleep or place.sleep
        self.store = place.store
        self.sealing = RunSealing(self)
        self.clock = place.clock
        self.claim = claim
        self.run = run
        self.task = task
        self.phase = RunPhase.RUNNING
        # Why it must stop; None while it may go on.
        self.why: StopReason | None = None
        # Damage that the database found; a retry would not help.
        self.damage: PageDamaged | None = None
        # Whether it may have started other tasks: a later run does not know what earlier runs did.
        self.has_children = run.number > 1 or run.fence > 1
        # Saves of pure steps that wait for the next write.
        self._delayed: tuple[Write[object], ...] = ()
        self._delayed_step: Step | None = None
        # The step that was saved last, and the one that its item in a campaign shows.
        self.last_step: Step | None = None
        self.told_step: Step | None = None
        # The deadline of the whole task; waits end then, too.
        self.deadline: datetime | None = None
        # The time limit of this run here; None if it has none.
        self.limit: RunLimit | None = None
        # How many functions of steps, and writes, are in flight.
        self.in_flight = 0
        # One of them was in a thread, and its result may not be saved yet.
        self._was_in_thread = False
        self._cleaning = 0
        # How many effects have an intent and no outcome yet.
        self.effects = 0
        # Why the outcome of an effect cannot be written now; None if none waits.
        self.unwritten: str | None = None
        # When that was last tried, by the loop's own clock.
        self.unwritten_at = 0.0
        # Why the run has asked for a restart, while it waits for one.
        self.restart_why: str | None = None
        # Made when something waits for it, which is rare.
        self.changed: asyncio.Event | None = None

    # --- its phase

    @property
    def is_stopping(self) -> bool:
        """Whether the program must make no more calls."""
        if self.limit is not None:
            self._heed_limit(self.limit)
        return self.phase is not RunPhase.RUNNING

    @property
    def is_given_up(self) -> bool:
        """Whether the claim is gone, so that nothing is written any more."""
        return self.phase not in HELD

    @property
    def is_over(self) -> bool:
        return self.phase in PROGRAM_OVER

    @property
    def may_finish(self) -> bool:
        """Whether the program may still come to its own end although it must stop: none of its calls was
        refused, so its answer and its result are what they would have been otherwise."""
        return self.phase is RunPhase.STOPPING and self.why in _MAY_FINISH

    def _heed_limit(self, limit: RunLimit) -> None:
        """Stop a run that has used its time, also between two looks of its worker."""
        if self.phase is RunPhase.RUNNING and limit.must_stop(self.place.steady()):
            self.stop(StopReason.RUN_TIMEOUT)

    @property
    def must_cancel(self) -> bool:
        """Whether its task is cancelled, and the ledger does not know yet that the run ended for that."""
        return self.why is StopReason.CANCELLED and not self.is_given_up

    def _move(self, to: RunPhase) -> None:
        self.phase = move(self.run.id, self.phase, to)

    def check(self) -> None:
        """Raises Stopping, again and again, once the run must stop; RunOver when it has ended."""
        if self.is_over:
            raise RunOver(self.run.id)
        if self.limit is not None:
            self._heed_limit(self.limit)
        if self.why is not None and (not self._cleaning or self.is_given_up):
            self.tell_stopping()
            raise Stopping(self.why)

    def tell_stopping(self) -> bool:
        """Whether the run must stop, for a program that asks and may act on it."""
        if self.phase is RunPhase.STOPPING:
            self._move(RunPhase.TOLD)
        return self.is_stopping

    async def refuse(self) -> None:
        """Raises what `check` raises, after a pass of the loop: a program that swallows it and calls again at
        once must not block the loop. Returns while the run cleans up."""
        await asyncio.sleep(0)
        self.check()

    def stop(self, why: StopReason) -> None:
        """From now on every call raises Stopping. The first reason stays, but a cancel beats the others."""
        if self.phase is RunPhase.RUNNING:
            self._move(RunPhase.STOPPING)
        self.why = why if self.why is None else self.why.then(why)
        self._note_change()

    def let_go(self) -> None:
        """The claim is gone: whatever the program still does, it writes nothing more. Safe twice."""
        if not self.is_given_up:
            self._move(RunPhase.OVER if self.is_over else RunPhase.GIVEN_UP)

    def give_up(self, why: StopReason) -> Stopping:
        """The claim is gone, and the program must stop for that."""
        self.let_go()
        self.stop(why)
        return Stopping(why)

    def close(self) -> None:
        """The program is over: every call raises RunOver. Safe twice."""
        if not self.is_over:
            self._move(RunPhase.OVER if self.is_given_up else RunPhase.LEFT_OVER)

    def abandon(self) -> None:
        """The program does not stop, although its claim is gone: every call raises RunOver."""
        if not self.is_over:
            self._move(RunPhase.ABANDONED)

    @property
    def has_company(self) -> bool:
        """Whether this run may end in one write with others: there are many, and no pure step waits."""
        return self.place.ends is not None and not self._delayed and self.place.ends.is_crowded()

    @property
    def step_at_end(self) -> Step | None:
        """The last step that is saved once the run has ended: pure steps that wait are saved with its end."""
        return self._delayed_step if self._delayed else self.last_step

    async def end(self, good: GoodEnd) -> datetime | None:
        """End this run successfully, in one write with others. Raises as `write` does."""
        assert self.place.ends is not None
        self.in_flight += 1
        try:
            return await self.place.ends.end(good)
        except ClaimLost as error:
            raise self.give_up(StopReason.CLAIM_LOST) from error
        except (StoreUnavailable, PageDamaged) as error:
            raise self.stop_without_ledger(error) from error
        finally:
            self.landed()

    async def write(self, write: Write[T], *, is_kept: bool = False) -> T:
        """A write of this run, with the pure steps before it.

        Raises Stopping when the claim is lost or the ledger is away or damaged: no `except Exception` of the
        program may take that for the failure of a step.

        With `is_kept`, the write records what has happened already, such as the outcome of an effect. While
        the ledger is away (a full disk, a stopped database), it stays in memory and is retried.
        """
        saves: tuple[Write[object], ...] = ()
        delayed_step: Step | None = None
        if self._delayed:
            saves, self._delayed = self._delayed, saves
            delayed_step = self._delayed_step
            write = _all_of(saves, write)
        self.in_flight += 1
        try:
            written = await self.store.write(write)
        except ClaimLost as error:
            raise self.give_up(StopReason.CLAIM_LOST) from error
        except (StoreUnavailable, PageDamaged) as error:
            if is_kept and self._may_keep(error):
                return await self._write_later(write, error)
            raise self.stop_without_ledger(error) from error
        except BaseException:
            if saves:
                self._delayed = saves + self._delayed
            raise
        else:
            if saves:
                self.last_step = delayed_step
            return written
        finally:
            self.landed()
            if not self.in_flight:
                self._was_in_thread = False

    def _may_keep(self, error: Exception) -> bool:
        """Whether the ledger is only away: neither damaged nor without its key."""
        is_away = isinstance(error, StoreUnavailable) and not isinstance(error, CannotSeal)
        return is_away and not self.is_given_up and not self.is_over

    async def _write_later(self, write: Write[T], error: Exception) -> T:
        """Retry until it is written, the claim is lost, or the run is given up. Raises as `write` does.

        If it is cancelled, the next worker finds the intent and settles it.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + KEPT_FOR_S
        if not self.place.keeping:
            log.warning(
                "%s cannot write the outcome of an effect: %s; this process keeps such outcomes in memory "
                "and writes them when the ledger works again",
                self.run.id,
                error,
            )
        self.place.keeping.add(self.run.id)
        try:
            while loop.time() < give_up_at:
                self.unwritten, self.unwritten_at = str(error), loop.time()
                await asyncio.sleep(KEEP_EVERY_S)
                try:
                    return await self.store.write(write)
                except ClaimLost as lost:
                    raise self.give_up(StopReason.CLAIM_LOST) from lost
                except (StoreUnavailable, PageDamaged) as again:
                    error = again
                    if not self._may_keep(error):
                        break
        finally:
            self.unwritten = None
            self.place.keeping.discard(self.run.id)
        assert isinstance(error, (StoreUnavailable, PageDamaged))
        raise self.stop_without_ledger(error) from error

    def note_progress(self, tx: Tx, now: datetime) -> None:
        """Part of a write that saves something: progress clears a run that is suspected of crashes."""
        claim = self.claim
        if claim.is_alone:
            exonerate(tx, claim.run_id, claim.fence, now=now)

    async def read(self, read: Callable[[Tx], T]) -> T:
        try:
            return await self.store.read(read)
        except (StoreUnavailable, PageDamaged) as error:
            raise self.stop_without_ledger(error) from error

    def stop_without_ledger(self, error: StoreUnavailable | PageDamaged) -> Stopping:
        why = StopReason.LEDGER_AWAY
        if isinstance(error, CannotSeal):
            why = StopReason.CANNOT_SEAL
            log.warning("%s is released and tried again later: %s", self.run.id, error)
        if isinstance(error, PageDamaged):
            self.damage, why = error, StopReason.LEDGER_DAMAGED
        self.stop(why)
        self.tell_stopping()
        return Stopping(why)

    async def delay(self, step: Step, save: Write[object]) -> None:
        """Save it with the next write, or when MOST_DELAYED have come together."""
        self._delayed += (save,)
        self._delayed_step = step
        if len(self._delayed) >= MOST_DELAYED:
            await self.write(lambda _tx: None)

    async def call_in_thread(self, fn: Callable[[], T], limit: asyncio.Timeout | None = None) -> T:
        """Call a function in a thread. A thread cannot be interrupted, so a cancel waits for it; but a
        function that is late, or an effect that is cut short, is left to itself."""
        self._was_in_thread = True
        future = asyncio.get_running_loop().run_in_executor(self.place.threads, _answer_of, fn)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
                is_late = limit is not None and limit.expired()
                if self.is_given_up or is_late or error.args == (CUT_SHORT,):
                    break
        if cancelled is not None:
            future.cancel()
            raise cancelled
        return future.result()

    # --- what is in flight

    def landed(self) -> None:
        """A function of a step, or a write, has ended."""
        self.in_flight -= 1
        self._note_change()

    def effect_landed(self) -> None:
        """What came of an effect is recorded, or it is left to others."""
        self.effects -= 1
        self._note_change()

    def _note_change(self) -> None:
        if self.changed is not None:
            self.changed.set()

    async def sleep(self, seconds: float) -> None:
        """Sleep as the clock passes time; ends early if the run must stop, unless it cleans up."""
        await (self.place.sleep(seconds) if self._cleaning else self._sleep(seconds))

    async def until_idle(self) -> None:
        """Until nothing is in flight: steps that are interrupted would have to be done again."""
        while self.in_flight or self.effects:
            await self.until_change()

    # --- effects in flight

    def lapsed(self) -> Stopping:
        """The lease has lapsed: the run stops here, also while it cleans up."""
        self.stop(StopReason.LEASE_LAPSED)
        self.tell_stopping()
        return Stopping(self.why or StopReason.LEASE_LAPSED)

    def refuse_late(self, until_ns: int) -> None:
        """The last check before an effect is begun, in the thread that begins it. Raises TooLate.

        From the end of the lease on, another worker may settle the intent and do the effect again.
        """
        now = self.place.steady()
        if self.is_given_up or now >= self.place.newest(self.claim).held_until_ns:
            raise TooLate(is_lease=True)
        if now >= until_ns:
            raise TooLate(is_lease=False)

    @property
    def is_ready_to_pause(self) -> bool:
        """Whether it only waits for the restart that it asked for, so that a drain need not wait for it."""
        return self.restart_why is not None and not self.in_flight and not self.effects

    @property
    def must_land(self) -> bool:
        """Whether something is in flight that must not be repeated: an effect, or a function in a thread
        (which cannot be interrupted) until its result is saved."""
        return self.effects > 0 or (self._was_in_thread and self.in_flight > 0)

    async def until_calm(self) -> None:
        """Until no effect is in flight: the outcome of one that is interrupted would be unknown."""
        while self.effects:
            await self.until_change()

    async def until_change(self) -> None:
        """Until something has ended here, or the run is told to stop."""
        if self.changed is None:
            self.changed = asyncio.Event()
        self.changed.clear()
        await self.changed.wait()

    @contextlib.asynccontextmanager
    async def cleanup(self) -> AsyncIterator[None]:
        """Steps are allowed here although the run is stopping."""
        self._cleaning += 1
        try:
            yield
        finally:
            self._cleaning -= 1

    async def tell_late(self, kind: EventKind, **facts: object) -> None:
        """Record evidence about a run whose claim is lost; no fence guards this write."""
        now = self.clock.now()
        task_id, run_id = self.claim.task_id, self.claim.run_id

        def emit(tx: Tx) -> None:
            tx.emit(kind, run_id, at=now, task_id=task_id, **facts)

        await self.store.write(emit)


def _all_of(saves: Sequence[Write[object]], write: Write[T]) -> Write[T]:
    def write_all(tx: Tx) -> T:
        for save in saves:
            save(tx)
        return write(tx)

    return write_all


def _answer_of(fn: Callable[[], T]) -> T:
    try:
        return fn()
    except StopIteration as error:
        # As a coroutine does: no future can hold StopIteration, so its caller would wait for ever.
        raise RuntimeError("the function raised StopIteration") from error
    except (SystemExit, KeyboardInterrupt) as error:
        # In a thread it is never the Ctrl-C of a person, and it would end the loop of the caller.
        raise Exited(error) from error


async def sheltered(act: Coroutine[Any, Any, T], *, patience: Callable[[], float | None] = lambda: None) -> T:
    """As `shielded`, but a second cancel reaches the act, and so does the first after `patience()` seconds.
    None: wait without limit."""
    child, value = begin(act)
    return value if child is None else await landed(child, patience)


async def landed(child: asyncio.Task[T], patience: Callable[[], float | None]) -> T:
    """Wait for a child that `sheltered` has begun."""
    limit: float | None = None
    cancelled: asyncio.CancelledError | None = None
    while not child.done():
        try:
            done, _ = await asyncio.wait([child], timeout=limit)
            if not done and (limit := patience()) is not None:
                child.cancel(CUT_SHORT)
        except asyncio.CancelledError as error:
            if cancelled is not None:
                child.cancel()
            else:
                limit = patience()
            cancelled = error
    return _result_of(child, cancelled)


async def shielded(act: Coroutine[Any, Any, T]) -> T:
    """Wait for the act to its end, also if the caller is cancelled; then raise the cancel."""
    child, value = begin(act)
    if child is None:
        return value  # type: ignore[no-any-return]
    cancelled: asyncio.CancelledError | None = None
    while not child.done():
        try:
            await asyncio.wait([child])
        except asyncio.CancelledError as error:
            cancelled = error
    return _result_of(child, cancelled)


def _result_of(child: asyncio.Task[T], cancelled: asyncio.CancelledError | None) -> T:
    if cancelled is None:
        return child.result()
    if not child.cancelled():
        child.exception()  # retrieved, so that asyncio does not log it
    raise cancelled
