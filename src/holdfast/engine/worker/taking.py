"""Looks for runs that are ready, claims them while there is room, and loads what they are replayed from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError, RowDamaged, StoreUnavailable
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.engine.claims.claims import ClaimedRun, Claims, Family, unknown_names
from holdfast.engine.claims.heartbeat import Heartbeat
from holdfast.engine.journal.scopes import TaskHistory, load_pasts
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.engine.program.live_run import shielded
from holdfast.engine.recovery.rescue import Rescuer
from holdfast.engine.worker.carrying import RunCarrier
from holdfast.engine.worker.in_flight import RunsInFlight
from holdfast.engine.worker.unfinished import UnfinishedRuns
from holdfast.store import Store, Tx
from holdfast.store.clock import jumps_of

T = TypeVar("T")

log = logging.getLogger("holdfast")

# How often the worker looks for work without a notification; a look only reads.
ASK_EVERY_S = 0.5
BATCH = 256

_LISTEN_S = 60.0
# The name of the loop that claims runs, in the log of troubles.
_TAKING = "no runs were taken"


class LedgerScan(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the ledger found."""

    is_ready: bool
    due_at: datetime | None
    cancelled: frozenset[str]


class RunTaker:
    """Takes runs for one worker, until it is told to stop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        claims: Claims,
        heartbeat: Heartbeat,
        rescuer: Rescuer,
        carrier: RunCarrier,
        unfinished: UnfinishedRuns,
        in_flight: RunsInFlight,
        tasks: Mapping[str, TaskDefinition[..., Any]],
        *,
        capacity: int,
        family: Family | None,
        troubles: TroubleLog,
        news: asyncio.Event,
        is_stopping: Callable[[], bool],
    ) -> None:
        """`news` is set when something may have changed: a run is ready, a child has ended, the worker must
        stop."""
        self._store = store
        self._clock = clock
        self._claims = claims
        self._heartbeat = heartbeat
        self._rescuer = rescuer
        self._carrier = carrier
        self._unfinished = unfinished
        self._in_flight = in_flight
        self._tasks = tasks
        self._capacity = capacity
        self._family = family
        self._troubles = troubles
        self._news = news
        self._is_stopping = is_stopping
        self._look_at = 0.0
        self._has_warned = False
        # Jumps of the ledger's clock after which the claims have been renewed.
        self._jumps = jumps_of(clock)

    def look_now(self) -> None:
        """Look at the ledger in the next round, also without news."""
        self._look_at = _now()

    def look_in_a_while(self) -> None:
        """Claim on news alone until then."""
        self._look_at = _now() + ASK_EVERY_S

    async def listen(self, topic: str, news: asyncio.Event) -> None:
        """Listen all the time, so that a notification between two waits is not lost."""
        while True:
            try:
                if await self._store.wait_for(topic, _LISTEN_S):
                    news.set()
            except HoldfastError:
                await asyncio.sleep(ASK_EVERY_S)

    async def until_stopped(self) -> None:
        is_hinted = True
        while not self._is_stopping():
            # Cleared before the look: what comes during it is found in the next round.
            self._news.clear()
            try:
                await self._take_round(is_hinted=is_hinted)
            except HoldfastError as error:
                self._troubles.met(
                    _TAKING, error, again_in_s=ASK_EVERY_S, words=f"no runs were taken: {error}"
                )
                self.look_in_a_while()
            is_hinted = await self._wait_for_news()
            self._carrier.raise_fatal()

    async def _take_round(self, *, is_hinted: bool) -> None:
        """Claim what is ready, as far as there is room."""
        is_time = self._look_at <= _now()
        if self._in_flight.left_over:
            await self._unfinished.put_back()
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
        self.look_in_a_while()
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
        self._carrier.tell_cancelled(seen.cancelled)
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

    async def _warn_of_unknown(self) -> None:
        names = await unknown_names(self._store, self._tasks)
        self._has_warned = True
        if names:
            log.warning(
                "runs of %s are ready, but no task of that name is registered here; they wait for a process "
                "that knows it: open(…, tasks=[…])",
                ", ".join(names),
            )

    async def _take(self, room: int) -> int:
        """Claim at most so many and start them; how many were claimed."""
        if not self._tasks:
            return 0
        claimed = await self._claims.take(room)
        for one in claimed:
            self._heartbeat.hold(one.claim)
        try:
            pasts = await self._load(claimed)
        except BaseException:
            await shielded(self._unfinished.release([one.claim for one in claimed]))
            raise
        problems: list[tuple[ClaimedRun, Exception]] = []
        for one in claimed:
            past = pasts[one.task.id]
            problem = self._carrier.begin(one, past) if isinstance(past, TaskHistory) else past
            if problem is not None:
                problems.append((one, problem))
        for one, _ in problems:
            # Stop renewing the lease before ending the run.
            self._heartbeat.let_go(one.claim)
        for one, problem in problems:
            await self._unfinished.end_unfit(one, problem)
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
                if self._is_stopping():
                    raise
                await asyncio.sleep(ASK_EVERY_S)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _is_fresh(claimed: ClaimedRun) -> bool:
    """Whether it was never executed before, so that its journal is empty. (Forks have a higher fence.)"""
    return claimed.run.number == 1 and claimed.run.fence == 1
