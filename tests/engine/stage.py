"""One ledger and one process on it after another: for tests of programs, with a clock that obeys."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.effect import Effect, EffectClass
from holdfast.core.events import Event, EventKind
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES
from holdfast.core.run import RunRecord
from holdfast.core.transitions import TaskStatus
from holdfast.engine.aio.threads import StepThreads
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import NEVER, Claims
from holdfast.engine.client.handles import Handle, Holdfast
from holdfast.engine.clocks.steady import ElapsedTime, steady_of
from holdfast.engine.journal.scopes import load_pasts
from holdfast.engine.program.definitions import Call, TaskDefinition, by_name
from holdfast.engine.program.live_run import RunHost, nanos_of
from holdfast.engine.program.restart_requests import WantedRestart
from holdfast.engine.program.run_phase import StopReason
from holdfast.engine.program.secrets import Secrets
from holdfast.engine.recovery.attempts import record_attempts
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.engine.recovery.rescue import Rescuer
from holdfast.engine.recovery.resume import Resumer
from holdfast.engine.recovery.wakes import WakeTimer
from holdfast.engine.worker.execution import Execution
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock
from tests.engine.tables import dump

LEASE = timedelta(days=3650)
# How often a process looks for work while what it carries goes on: less and less often while there is none.
LOOK_EVERY_S, LOOK_AT_LEAST_EVERY_S = 0.01, 0.08


class Stage:
    """Nothing happens unless a test says so: `settle` carries what is ready until nothing is."""

    def __init__(self, store: Store, clock: FakeClock, locks: Path) -> None:
        self.store = store
        self.clock = clock
        self.executions: list[Execution] = []
        # What runs have asked for, and why it is refused, if it is.
        self.restarts: list[str] = []
        self.refusal: str | None = None
        # How long an effect may take to end that its own program has cancelled.
        self.landing_s = 30.0
        # Up to this size, results of steps stay when their turn has committed.
        self.keep_bytes = KEEP_RESULTS_BYTES
        # Effects of these classes wait for a person's approval.
        self.approval = frozenset[EffectClass]()
        # What steps get in place of `hf.secret`.
        self.secrets = Secrets()
        self._locks = locks
        self._life: Life | None = None

    async def open(self, *tasks: TaskDefinition[..., Any]) -> Stage:
        """A new process that knows these tasks. What one before it left goes on; that one is dead by now."""
        self.kill()
        self._known = by_name(tasks)
        self._failing = FailingStore(self.store)
        self._life = await Life.begin(self.store, self.clock, locks=self._locks)
        self.holdfast = Holdfast(self.store, self.clock, self._known)
        self._rescuer = Rescuer(self.store, self.clock, self._life)
        self._resumer = Resumer(self.store, self.clock, self._life.id)
        self._wake_timer = WakeTimer(self.store, self.clock, self._resumer)
        self._claims = Claims(
            self.store, self.clock, self._life.id, names=sorted(self._known) or None, lease=LEASE
        )
        self._threads = StepThreads(4)
        self._place = RunHost(
            store=self._failing,
            clock=self.clock,
            nanos=nanos_of(self.clock),
            steady=steady_of(self.clock),
            elapsed=ElapsedTime(self.clock),
            life=self._life,
            threads=self._threads,
            digest_key=b"stage",
            newest=lambda claim: claim,
            sleep=self.clock.sleep,
            landing_s=self.landing_s,
            keep_bytes=self.keep_bytes,
            secrets=self.secrets,
            approval=self.approval,
        )
        await record_attempts(self.store, {name: task.named_attempts for name, task in self._known.items()})
        await self._rescuer.rescue_dead_boots()
        await self._resumer.resume_all(concurrency=1)
        return self

    def kill(self) -> None:
        """What the kernel does for a process that is gone: its lock is free, its file stays."""
        if self._life is None:
            return
        self._threads.shutdown()
        lock = self._life._lock
        if lock is not None:
            assert lock._descriptor is not None
            os.close(lock._descriptor)
            self._life._lock = None
        self._life = None

    def lose_store(self) -> None:
        """The process dies here: no write of it reaches the ledger any more."""
        self._failing._died_at = _NOWHERE

    def die_at_write(self, number: int) -> None:
        """The process dies before its write of that number, counted from now on, or after the one before."""
        self._failing._plan = frozenset({Failpoint(call=len(self._failing.calls) + number, where="before")})

    async def start(self, call: Call[Any], **options: Any) -> Handle[Any]:
        return await self.holdfast.start(call, **options)

    async def run(self, call: Call[Any], **options: Any) -> Any:
        """Start it, let time pass as it needs, and return what it returns."""
        handle = await self.start(call, **options)
        while not (await handle.task()).has_ended:
            await self.settle()
            if not (await handle.task()).has_ended and not await self.pass_time():
                break
        return await self.result(handle)

    async def result(self, handle: Handle[Any]) -> Any:
        """What an ended task returned; one that has not ended is not waited for."""
        task = await handle.task()
        assert task.has_ended, f"{task.name} is {task.status}, and waits on {task.waits_on}"
        return await handle.result()

    async def to_the_end(self, handle: Handle[Any]) -> TaskStatus:
        """Let time pass until the task has ended, or until nothing is due any more; how it stands then."""
        for _ in range(100):
            await self.settle()
            if (await handle.task()).has_ended or not await self.pass_time():
                break
        return await handle.status()

    async def rescue_lapsed(self) -> None:
        await self._rescuer.rescue_lapsed()
        await self._resumer.resume_all(concurrency=1)

    async def settle(self) -> None:
        """Until nothing goes on by itself. A Crashed that a program raises ends the process."""
        others, carried = asyncio.all_tasks(), set[asyncio.Task[None]]()
        pause_s = LOOK_EVERY_S
        try:
            while self._life is not None:
                taken = await self._take()
                carried |= taken
                if not carried:
                    return
                await self._pause_for_restart()
                done, carried = await asyncio.wait(
                    carried, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
                )
                for child in done:
                    child.result()
                is_quiet = not taken and not done
                pause_s = min(2 * pause_s, LOOK_AT_LEAST_EVERY_S) if is_quiet else LOOK_EVERY_S
        except BaseException as error:
            if not _is_crash(error):
                raise
            self._failing._died_at = self._failing._died_at or _NOWHERE
            self.kill()
        finally:
            for child in asyncio.all_tasks() - others:
                child.cancel()
                with contextlib.suppress(asyncio.CancelledError, Crashed, BaseExceptionGroup):
                    await child

    async def pass_time(self, **by: float) -> bool:
        """So much later; or as late as the next thing is due. False when nothing ever is."""
        if by:
            self.clock.advance(**by)
            return True
        dues = self.store.read_now(lambda tx: (tx.runs.next_due_at(), tx.runs.next_wake_at()))
        due_at = min((one for one in dues if one is not None), default=None)
        if due_at is None or due_at >= NEVER:
            return False
        self.clock.set(max(due_at, self.clock.now()))
        return True

    async def _take(self) -> set[asyncio.Task[None]]:
        await self._rescuer.ready_due()
        await self._wake_timer.run_once()
        taken = set()
        for claimed in await self._claims.take(100):
            task_id = claimed.task.id
            pasts = await self.store.read(lambda tx: load_pasts(tx, [task_id]))  # noqa: B023 - read at once
            execution = Execution(
                self._place,
                claimed,
                self._known[claimed.task.name],
                pasts[task_id],
                on_restart=self._asked,
            )
            self.executions.append(execution)
            taken.add(asyncio.get_running_loop().create_task(execution.carry()))
        return taken

    async def _asked(self, asked: WantedRestart) -> str | None:
        self.restarts.append(asked.why)
        return self.refusal

    async def _pause_for_restart(self) -> None:
        """What the drain of a process does with runs that wait for their restart."""
        for live in (one.live for one in self.executions if not one.live.is_over):
            if live.is_ready_to_pause and self.refusal is None:
                asking = {str(live.run.id): live.restart_why or ""}
                reason = ResumeReason.EXPLICIT_RESTART
                await Checkpoints(self._failing, self.clock).pause([live.claim], reason, asking=asking)
                live.give_up(StopReason.DRAINING)

    @contextlib.asynccontextmanager
    async def carrying(self, call: Call[Any]) -> AsyncIterator[Handle[Any]]:
        """It is started, and carried while the body runs; at its end all has gone on as far as it can."""
        handle = await self.start(call)
        settling = asyncio.ensure_future(self.settle())
        try:
            yield handle
        finally:
            async with asyncio.timeout(30):
                await settling

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a fact of this process's own memory."""
        async with asyncio.timeout(10):
            while not is_so():  # noqa: ASYNC110 - no hint tells it
                await asyncio.sleep(0)

    async def tell_cancelled(self) -> None:
        """What the heartbeat of a process does: its runs are told that a caller wants them to end."""
        carried = [one for one in self.executions if not one.live.is_over]
        wanted = await self.store.read(
            lambda tx: tx.tasks.cancels_requested([one.live.task.id for one in carried])
        )
        for one in carried:
            if one.live.task.id in wanted:
                one.live.stop(StopReason.CANCELLED)

    def tell_to_drain(self) -> None:
        """What is carried stops at its next call."""
        for one in self.executions:
            one.live.stop(StopReason.DRAINING)

    async def pause(self) -> None:
        """What has stopped is paused."""
        claims = [one.live.claim for one in self.executions if not one.live.is_given_up]
        await Checkpoints(self.store, self.clock).pause(claims, ResumeReason.SIGNAL)

    # --- looking

    async def events(self, handle: Handle[Any], *kinds: EventKind) -> list[Event]:
        return [event for event in await handle.events() if not kinds or event.kind in kinds]

    async def runs(self, handle: Handle[Any]) -> list[RunRecord]:
        return await self.store.read(lambda tx: tx.runs.of_task(handle.id))

    async def review(self) -> Effect:
        """The one effect that waits for a person."""
        (effect,) = await self.holdfast.reviews()
        assert isinstance(effect, Effect)
        return effect

    async def question(self) -> str:
        """The id of the one question that is open."""
        (question,) = await self.holdfast.questions()
        return question.id

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return dump(self.store)[table]


def _is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_crash, error.exceptions))
    return isinstance(error, Crashed)


_NOWHERE: Any = "in a step"


@contextlib.contextmanager
def killing() -> Iterator[None]:
    """A step that dies inside: `with killing(): …` raises Crashed at its end."""
    yield
    raise Crashed
