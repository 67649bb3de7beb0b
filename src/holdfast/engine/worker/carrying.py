"""Executes each claimed run in a child, and stops the runs whose claim is lost or whose task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.core.claim import Claim
from holdfast.core.errors import HoldfastError, PageDamaged
from holdfast.core.task import Task
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.journal.scopes import TaskHistory
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.engine.program.live_run import LiveRun, RunHost
from holdfast.engine.program.run_phase import RunPhase, StopReason
from holdfast.engine.worker.drain import Drain
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.in_flight import FORCE_EVERY_S, RunInFlight, RunsInFlight, Sleep
from holdfast.engine.worker.run_limits import RunLimits
from holdfast.engine.worker.unfinished import OnLetGo, UnfinishedRuns
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.engine.program.restart_requests import OnRestart

log = logging.getLogger("holdfast")

_FORCE_TIMES = 5


class RunCarrier:
    """Begins the runs that were taken, and hears how each of them ended."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[..., Any]],
        in_flight: RunsInFlight,
        drain: Drain,
        unfinished: UnfinishedRuns,
        *,
        capacity: int,
        news: asyncio.Event,
        start: Callable[[Coroutine[Any, Any, None]], None],
        on_restart: OnRestart | None,
        on_let_go: OnLetGo,
        on_left: Callable[[LiveRun], None],
        limits: RunLimits,
    ) -> None:
        """`start` runs a coroutine in the background, until the worker ends; `news` wakes the worker."""
        self._store = store
        self._tasks = tasks
        self._in_flight = in_flight
        self._drain = drain
        self._unfinished = unfinished
        self._capacity = capacity
        self._news = news
        self._start = start
        self._on_restart = on_restart
        self._on_let_go = on_let_go
        self._on_left = on_left
        self._limits = limits
        # Set when the worker begins to run.
        self.host: RunHost | None = None
        # The database has told that tasks are to be cancelled.
        self.cancels = asyncio.Event()
        # An error that no run may swallow: it ends the worker.
        self._fatal: BaseException | None = None

    def caller_of(self, idempotency_key: str) -> Task | None:
        """The task whose run in this process is calling the effect with that key."""
        live = None if self.host is None else self.host.calling.get(idempotency_key)
        return None if live is None else live.task

    def raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    def begin(self, claimed: ClaimedRun, past: TaskHistory) -> Exception | None:
        """Start a child that executes it; returns the error if that is not possible."""
        assert self.host is not None
        sleep = Sleep(self.host.sleep)
        definition = self._tasks[claimed.task.name]
        try:
            execution = Execution(
                self.host, claimed, definition, past, sleep=sleep, on_restart=self._on_restart
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
        if one.live.limit is not None:
            self._start(self._limits.watch(one, one.live.limit))
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
        self._unfinished.ended(one)
        was_full = len(self._in_flight) >= self._capacity
        self._in_flight.put_down(one)
        self._on_left(one.live)
        self._on_let_go(one.claim.task_id, one.execution.ended)
        # A run that must run alone has kept all others waiting.
        if was_full or one.claim.is_alone or self._in_flight.left_over or self._fatal is not None:
            self._news.set()
        self._drain.news.set()

    # --- claims that are lost, tasks that are cancelled

    def lost(self, claim: Claim) -> None:
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

    def cancelled(self, claim: Claim) -> None:
        """Its next call raises Stopping; after the grace the worker interrupts it."""
        one = self._in_flight.carried.get(claim.run_id)
        if one is not None and one.live.why is not StopReason.CANCELLED and not one.live.is_given_up:
            one.tell(StopReason.CANCELLED)
            self._start(self._force(one, after_s=self._drain.patience.grace_s))

    def tell_cancelled(self, task_ids: frozenset[str]) -> None:
        if task_ids:
            for one in list(self._in_flight.carried.values()):
                if one.claim.task_id in task_ids:
                    self.cancelled(one.claim)

    async def follow_cancels(self) -> None:
        """React to cancels at once; the heartbeat notices them, too, but later."""
        while True:
            await self.cancels.wait()
            self.cancels.clear()
            task_ids = self._in_flight.task_ids()
            if task_ids:
                with contextlib.suppress(HoldfastError):
                    found = await self._store.read(lambda tx: tx.tasks.cancels_requested(task_ids))  # noqa: B023 - read at once
                    self.tell_cancelled(frozenset(found))

    async def _force(self, one: RunInFlight, *, after_s: float) -> None:
        """Interrupt a program that does not stop by itself again and again; then end its run without it."""
        if await one.ends_within(after_s):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain.patience.effects_s):
                await one.live.until_calm()
        for _ in range(_FORCE_TIMES):
            one.child.cancel()
            if await one.ends_within(FORCE_EVERY_S):
                return
        await self._drain.end_cancelled(one)
        one.abandon()
        self._in_flight.let_go([one])
