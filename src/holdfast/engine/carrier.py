"""Claims runs of the tasks that this process knows, and carries each as a child; many at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.claim import DEFAULT_LEASE, Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.engine.boots import Life
from holdfast.engine.checkpoints import Checkpoints
from holdfast.engine.claims import ClaimedRun, Claims
from holdfast.engine.definitions import TaskDefinition
from holdfast.engine.execution import Execution
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.live import Place
from holdfast.engine.rescue import Reaper, Rescuer
from holdfast.engine.resume import Resumer
from holdfast.engine.scopes import Past, load_pasts
from holdfast.store import Store, Tx

log = logging.getLogger("holdfast")

# How long a program may take to stop by itself, after it was told.
GRACE = timedelta(seconds=10)
# Without a hint, how often the ledger is asked for work.
ASK_EVERY_S = 0.5
BATCH = 256
THREADS = 64


class Carrier:
    """Works until it is told to stop. What it carries then is paused, and resumed by whoever comes next."""

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
        on_restart: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tasks = dict(tasks)
        self._capacity = capacity
        self._grace = grace
        self._on_restart = on_restart
        self._claims = Claims(store, clock, life.id, names=sorted(self._tasks), lease=lease)
        self._heartbeat = Heartbeat(
            self._claims, on_lost=self._lost, on_cancelled=self._cancelled, lease=lease
        )
        self._reaper = Reaper(
            Rescuer(store, clock, life),
            Resumer(store, clock, life.id),
            clock,
            heartbeat=self._heartbeat,
            lease=lease,
        )
        self._rescuer = Rescuer(store, clock, life)
        self._resumer = Resumer(store, clock, life.id)
        self._checkpoints = Checkpoints(store, clock)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-step")
        self._life = life
        self._place: Place | None = None
        self._carried: dict[str, tuple[Execution, asyncio.Task[None]]] = {}
        self._is_stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def take_over(self) -> None:
        """What a process before us left in flight goes on: rescued, resumed, ready to be claimed."""
        await self._rescuer.rescue()
        await self._resumer.resume_all()

    async def run(self) -> None:
        """Until `stop`; complete when it returns: nothing is carried here any more."""
        self._place = await self._make_place()
        async with asyncio.TaskGroup() as group:
            services = [group.create_task(one.run()) for one in (self._heartbeat, self._reaper)]
            try:
                await self._take_until_stopped(group)
                await self.drain()
            finally:
                self._heartbeat.stop()
                self._reaper.stop()
                for service in services:
                    service.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        self._is_stopping.set()

    # --- taking

    async def _take_until_stopped(self, group: asyncio.TaskGroup) -> None:
        while not self._is_stopping.is_set():
            taken = 0
            try:
                await self._rescuer.ready_due()
                taken = await self.take_some(group)
            except HoldfastError as error:
                log.warning("no runs were taken: %s", error)
            if not taken:
                await self._wait_for_work()

    async def take_some(self, group: asyncio.TaskGroup) -> int:
        """Claim what there is room for and begin to carry it; how many."""
        room = min(BATCH, self._capacity - len(self._carried))
        if room <= 0 or not self._tasks:
            return 0
        claimed = await self._claims.take(room)
        if claimed:
            pasts = await self._load([one for one in claimed if not _is_fresh(one)])
            for one in claimed:
                self._begin(group, one, pasts.get(one.task.id) or Past())
        return len(claimed)

    async def _wait_for_work(self) -> None:
        waits = [
            asyncio.ensure_future(self._store.wait_for("runs", ASK_EVERY_S)),
            asyncio.ensure_future(self._is_stopping.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _load(self, claimed: list[ClaimedRun]) -> dict[str, Past]:
        if not claimed:
            return {}
        task_ids = [one.task.id for one in claimed]
        return await self._store.read(lambda tx: load_pasts(tx, task_ids))

    def _begin(self, group: asyncio.TaskGroup, claimed: ClaimedRun, past: Past) -> None:
        assert self._place is not None
        execution = Execution(
            self._place, claimed, self._tasks[claimed.task.name], past, on_restart=self._on_restart
        )
        self._heartbeat.hold(claimed.claim)
        child = group.create_task(self._carry(execution), name=f"holdfast {claimed.run.id}")
        self._carried[claimed.run.id] = (execution, child)

    async def _carry(self, execution: Execution) -> None:
        claim = execution.claimed.claim
        try:
            await execution.carry()
        except asyncio.CancelledError:
            if not execution.live.is_given_up and execution.live.why is None:
                raise
        except Exception:  # whatever nobody foresaw: one run must not end the others
            log.exception("%s could not be carried; it will be rescued", claim.run_id)
        finally:
            self._heartbeat.let_go(claim)
            self._carried.pop(claim.run_id, None)

    async def _make_place(self) -> Place:
        def key(tx: Tx) -> str:
            return tx.boots.fact("ledger_id") or ""

        digest_key = (await self._store.read(key)).encode()[:32] or b"holdfast"
        return Place(
            store=self._store,
            clock=self._clock,
            life=self._life,
            threads=self._threads,
            digest_key=digest_key,
            newest=self._heartbeat.newest,
            sleep=getattr(self._clock, "sleep", asyncio.sleep),
        )

    # --- stopping

    def _lost(self, claim: Claim) -> None:
        """Somebody else has it: whatever the program still does counts for nothing."""
        carried = self._carried.get(claim.run_id)
        if carried is not None:
            execution, child = carried
            execution.live.give_up("claim lost")
            child.cancel()

    def _cancelled(self, claim: Claim) -> None:
        """Told at its next call first; forced after the grace."""
        carried = self._carried.get(claim.run_id)
        if carried is None or carried[0].live.why == "cancelled":
            return
        execution, child = carried
        execution.live.stop("cancelled")
        asyncio.get_running_loop().call_later(self._grace.total_seconds(), self._force, execution, child)

    def _force(self, execution: Execution, child: asyncio.Task[None]) -> None:
        if not child.done():
            child.cancel()
            asyncio.get_running_loop().call_later(1.0, self._force, execution, child)

    async def drain(self, *, reason: ResumeReason = ResumeReason.EXPLICIT_RESTART) -> None:
        """Every run stops at its next call, at the latest after the grace, and is paused by a checkpoint."""
        for execution, _ in list(self._carried.values()):
            execution.live.stop("draining")
        children = [child for _, child in self._carried.values()]
        if children:
            # A program that is in the middle of something long is interrupted there, but no effect is.
            await asyncio.wait(children, timeout=0 if self._are_calm() else self._grace.total_seconds())
        left = [execution for execution, _ in self._carried.values()]
        await self._pause(left, reason)
        for execution, child in list(self._carried.values()):
            execution.live.give_up("draining")
            child.cancel()
        children = [child for _, child in self._carried.values()]
        if children:
            await asyncio.wait(children, timeout=self._grace.total_seconds())
        for run_id, (execution, child) in list(self._carried.items()):
            if not child.done():
                log.error("%s does not stop; its writes are refused", run_id)
                execution.live.is_over = True

    def _are_calm(self) -> bool:
        return not any(execution.live.has_effects for execution, _ in self._carried.values())

    async def _pause(self, left: list[Execution], reason: ResumeReason) -> None:
        claims = [one.live.claim for one in left if not one.live.is_given_up]
        if claims:
            with contextlib.suppress(StoreUnavailable):
                await self._checkpoints.pause(claims, reason)


def _is_fresh(claimed: ClaimedRun) -> bool:
    """Nobody has carried it before, so its journal is empty."""
    return claimed.run.number == 1 and claimed.run.fence == 1
