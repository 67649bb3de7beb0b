"""One run while this process carries it: its claim, whether it must stop, and what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.core.errors import CannotSeal, ClaimLost, PageDamaged, RunOver, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.run import Run as RunRecord
from holdfast.core.task import Task
from holdfast.engine.aio.eager import begin
from holdfast.engine.aio.threads import AtWork
from holdfast.engine.claims.boots import Life
from holdfast.engine.clocks.steady import ElapsedTime
from holdfast.engine.journal.codec import Exited
from holdfast.engine.ledger.batched_ends import BatchedEnds, GoodEnd
from holdfast.engine.program.run_phase import HELD, PROGRAM_OVER, RunPhase, StopReason, move
from holdfast.engine.program.secrets import Secrets
from holdfast.engine.program.stopping import Stopping
from holdfast.store import Store, Tx, Write
from holdfast.store.clock import LedgerClock
from holdfast.store.sealing import LedgerKey, Sealing

log = logging.getLogger("holdfast")

T = TypeVar("T")

MOST_DELAYED = 256
# How often a write that is kept is tried again while the ledger is away, and for how long at most.
KEEP_EVERY_S = 0.5
KEPT_FOR_S = 24 * 3600.0
# What the child of an effect is cancelled with when the program does not wait for it any longer.
CUT_SHORT = "holdfast: cut short"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where runs are carried: what all of them share in one process."""

    store: Store
    clock: Clock
    # What the clock says: every step asks twice, and needs no datetime.
    nanos: Callable[[], int]
    # How much of a lease is left is told by another one, which does not jump.
    steady: Callable[[], int]
    life: Life
    threads: Executor
    # For digests of inputs, so that nobody guesses a short secret from its digest.
    digest_key: bytes
    # The claim with its present lease.
    newest: Callable[[Claim], Claim]
    # Passes time as the clock does.
    sleep: Callable[[float], Awaitable[object]]
    # How long an effect that its own program has cancelled may take to end: doubt is dearer than patience.
    landing_s: float = 2.0
    secrets: Secrets = msgspec.field(default_factory=Secrets)
    # For runs that end while others are carried: many may end at once.
    ends: BatchedEnds | None = None
    # By its key, each effect that is being called here, and the run that calls it.
    calling: dict[str, LiveRun] = msgspec.field(default_factory=dict)
    # Runs that know what came of an effect and cannot write it, because the ledger is away.
    keeping: set[str] = msgspec.field(default_factory=set)
    # Those that run in threads.
    at_work: AtWork = msgspec.field(default_factory=AtWork)
    # For waits that a wall clock must not cut short.
    elapsed: ElapsedTime


def nanos_of(clock: Clock) -> Callable[[], int]:
    """What a clock says, in nanoseconds; of the machine's, as SystemClock reads it."""
    if isinstance(clock, LedgerClock):
        return clock.nanos
    return time.time_ns if type(clock) is SystemClock else lambda: to_micros(clock.now()) * 1000  # noqa: TID251


class TooLate(Exception):
    """An effect was not begun: the lease, or the time that it may take, was over."""

    def __init__(self, *, is_lease: bool) -> None:
        super().__init__("its lease had lapsed" if is_lease else "no time was left for it")
        self.is_lease = is_lease


class RunSealing(Sealing):
    """Seals what a run stores outside of a write. Without a key the run stops, as it does in a write: no
    `except Exception` of the program may take that for the failure of a step."""

    __slots__ = ("_live",)

    def __init__(self, live: LiveRun) -> None:
        super().__init__(live.store.sealing.vault)
        self._live = live

    def _key(self) -> LedgerKey:
        try:
            return super()._key()
        except StoreUnavailable as error:
            raise self._live.stop_without_ledger(error) from error


class LiveRun:
    """Every call of a program asks here first: may it go on?"""

    def __init__(
        self,
        place: Place,
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
        # What the database could not read of it; asking again would not help.
        self.damage: PageDamaged | None = None
        # Whether it may have started other tasks: a first run knows.
        self.has_children = run.number > 1 or run.fence > 1
        # Pure steps whose results only this process knows yet.
        self._delayed: tuple[Write[object], ...] = ()
        # When the whole task must be over; waits end then, too.
        self.deadline: datetime | None = None
        # Functions of steps and writes that are under way.
        self.in_flight = 0
        # One of them was in a thread, and what it gave is perhaps not saved yet.
        self._was_in_thread = False
        self._cleaning = 0
        # Effects whose intent is noted and whose outcome is not.
        self.effects = 0
        # Why an outcome that is known cannot be written now; None when none waits for that.
        self.unwritten: str | None = None
        # When that was found out last, by the loop's own clock.
        self.unwritten_at = 0.0
        # Why the run has asked for a restart, while it waits for one.
        self.restart_why: str | None = None
        # Made for the first who waits: seldom anybody does, and every step would pay for it.
        self.changed: asyncio.Event | None = None

    # --- its phase

    @property
    def is_stopping(self) -> bool:
        """Whether the program must make no more calls."""
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
        """Whether the program may still come to its own end although a drain has begun: none of its calls was
        refused, so its answer and its result are what they would have been without the drain."""
        return self.phase is RunPhase.STOPPING and self.why is StopReason.DRAINING

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
        if self.why is not None and (not self._cleaning or self.is_given_up):
            self.tell_stopping()
            raise Stopping(self.why)

    def tell_stopping(self) -> bool:
        """Whether the run must stop, for a program that asks and may act on it."""
        if self.phase is RunPhase.STOPPING:
            self._move(RunPhase.TOLD)
        return self.is_stopping

    async def refuse(self) -> None:
        """Raises what `check` raises, and lets others go on first: a program that swallows it may call again
        at once, for ever. Returns while the run cleans up."""
        await asyncio.sleep(0)
        self.check()

    def stop(self, why: StopReason) -> None:
        """From now on every call raises Stopping. The first reason stays, but a cancel beats the others."""
        if self.phase is RunPhase.RUNNING:
            self._move(RunPhase.STOPPING)
        self.why = why if self.why is None else self.why.then(why)
        if self.changed is not None:
            self.changed.set()

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
        """Whether others may end together with this run, and nothing of it waits to be saved."""
        return self.place.ends is not None and not self._delayed and self.place.ends.is_crowded()

    async def end(self, good: GoodEnd) -> datetime | None:
        """The good end of this run, perhaps with others. Raises as `write` does."""
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
        program may take that for the failure of a step, and go on another way.

        What `is_kept` is what the world knows already, such as the outcome of an effect: while the ledger is
        away (a full disk, a database that was stopped) it stays in memory, and is written when that is over.
        """
        saves: tuple[Write[object], ...] = ()
        if self._delayed:
            saves, self._delayed = self._delayed, saves
            write = _all_of(saves, write)
        self.in_flight += 1
        try:
            return await self.store.write(write)
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
        finally:
            self.in_flight -= 1
            if self._was_in_thread and not self.in_flight:
                self._was_in_thread = False
            if self.changed is not None:
                self.changed.set()

    def _may_keep(self, error: Exception) -> bool:
        """Whether the ledger is only away: neither damaged nor without its key."""
        is_away = isinstance(error, StoreUnavailable) and not isinstance(error, CannotSeal)
        return is_away and not self.is_given_up and not self.is_over

    async def _write_later(self, write: Write[T], error: Exception) -> T:
        """Until it is written, the claim is lost, or the run is given up. Raises as `write` does.

        Cancelled, it is forgotten: the worker that carries the run next finds the intent and settles it.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + KEPT_FOR_S
        if not self.place.keeping:
            log.warning(
                "%s knows what came of an effect and cannot write it: %s; that is kept in memory, as for all "
                "others here, and written when the ledger works again",
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
        """Part of a write that saves something: a suspect that makes progress is none any longer."""
        claim = self.claim
        if claim.is_alone and tx.runs.exonerate(claim.run_id, claim.fence, now=now):
            tx.hint("runs")

    async def read(self, read: Callable[[Tx], T]) -> T:
        try:
            return await self.store.read(read)
        except (StoreUnavailable, PageDamaged) as error:
            raise self.stop_without_ledger(error) from error

    def stop_without_ledger(self, error: StoreUnavailable | PageDamaged) -> Stopping:
        why = StopReason.LEDGER_AWAY
        if isinstance(error, CannotSeal):
            why = StopReason.CANNOT_SEAL
            log.warning("%s is given back and tried again later: %s", self.run.id, error)
        if isinstance(error, PageDamaged):
            self.damage, why = error, StopReason.LEDGER_DAMAGED
        self.stop(why)
        self.tell_stopping()
        return Stopping(why)

    async def delay(self, save: Write[object]) -> None:
        """Save it with the next write, or when many have come together."""
        self._delayed += (save,)
        if len(self._delayed) >= MOST_DELAYED:
            await self.write(lambda _tx: None)

    async def call_in_thread(self, fn: Callable[[], T], limit: asyncio.Timeout | None = None) -> T:
        """Nobody can interrupt a thread: who is cancelled waits for it, so that nothing goes on unseen.
        A function that is late, or an effect that is cut short, is left alone."""
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

    # --- what is under way

    def landed(self) -> None:
        self.in_flight -= 1
        if self.changed is not None:
            self.changed.set()

    async def sleep(self, seconds: float) -> None:
        """As the clock passes time; who was told to stop does not wait for it, unless it cleans up."""
        await (self.place.sleep(seconds) if self._cleaning else self._sleep(seconds))

    async def until_idle(self) -> None:
        """Until nothing is under way beside us: what is unwound in the middle would have to be done again."""
        while self.in_flight or self.effects:
            await self.until_change()

    # --- effects in flight

    def lapsed(self) -> Stopping:
        """Nothing is left of the lease: the run stops here, also while it cleans up."""
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
        """Whether it only waits for the restart that it has asked for: a drain need not wait for it."""
        return self.restart_why is not None and not self.in_flight and not self.effects

    @property
    def must_land(self) -> bool:
        """Whether something is in flight that nobody should repeat: an effect, or a function that no one can
        interrupt because it is in a thread, until what it gave is saved."""
        return self.effects > 0 or (self._was_in_thread and self.in_flight > 0)

    async def until_calm(self) -> None:
        """Until no effect is in flight: to stop in the middle of one would leave it in doubt."""
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

    # --- small facts

    async def tell_late(self, kind: EventKind, **facts: object) -> None:
        """Evidence of a run that we have lost; so nothing guards it."""
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
        # As a coroutine does: no future can hold it, and whoever waits would wait for ever.
        raise RuntimeError("the function raised StopIteration") from error
    except (SystemExit, KeyboardInterrupt) as error:
        # In a thread it is never the Ctrl-C of a person, and would end the loop of whoever waits.
        raise Exited(error) from error


async def sheltered(act: Coroutine[Any, Any, T], *, patience: Callable[[], float | None] = lambda: None) -> T:
    """As `shielded`, but whoever cancels twice means it; and who cancels once, too, when it has not ended
    within the seconds of `patience`, which is asked then. None says that there is no hurry."""
    child, value = begin(act)
    return value if child is None else await landed(child, patience)


async def landed(child: asyncio.Task[T], patience: Callable[[], float | None]) -> T:
    """The rest of `sheltered`, for who has begun it."""
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
    """Wait for it to the end, also when we are cancelled; then be cancelled."""
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
        child.exception()  # looked at, so that nobody complains
    raise cancelled
