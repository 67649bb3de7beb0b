"""Ends runs that succeed at the same moment in one write, instead of several writes for each."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import OutcomeUnknown, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.flow import TaskChangeKind
from holdfast.core.session import may_be_told
from holdfast.core.step import Step
from holdfast.core.task import Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, end_wakes, tell_campaign, tell_family, tell_flow
from holdfast.store import Store, Tx, Write

# The largest batch in one write.
MOST_AT_ONCE = 500


class GoodEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has succeeded with a small result, and has nothing else to save."""

    claim: Claim
    task: Task
    result: bytes
    last_step: Step | None = None
    # Whether its task may have been saved and woken before.
    may_have_wakes: bool = False
    # The write that ends this run alone, at a given time: used if the batch fails.
    alone: Callable[[datetime], Write[bool]]


_Waiting: TypeAlias = "tuple[GoodEnd, asyncio.Future[datetime | None]]"


class NotAll(Exception):
    """One run of the batch is not held any more, or has ended before: end each alone."""


class BatchedEnds:
    """Collects the runs that end in one pass of the event loop, and ends them in one write.

    Why: `python -m bench --quick --only "SQLite: 1,000 runs"` reaches 0.38 and 0.39 of raw writes with it,
    and 0.34 and 0.35 if each run ends by its own write (worker.CROWD out of reach; three runs each).
    """

    def __init__(self, store: Store, clock: Clock, *, is_crowded: Callable[[], bool]) -> None:
        self._store = store
        self._clock = clock
        # Whether batching pays: a run that ends alone is ended sooner by its own write.
        self.is_crowded = is_crowded
        self._waiting: list[_Waiting] = []
        self._children: set[asyncio.Task[None]] = set()

    async def end(self, one: GoodEnd) -> datetime | None:
        """When the run ended; None if it had ended in another way. Raises what its own write raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[datetime | None] = loop.create_future()
        self._waiting.append((one, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._begin)
        return await future

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), MOST_AT_ONCE):
            some = waiting[first : first + MOST_AT_ONCE]
            child = asyncio.get_running_loop().create_task(self._end(some))
            self._children.add(child)
            child.add_done_callback(functools.partial(self._ended, some))

    def _ended(self, waiting: Sequence[_Waiting], child: asyncio.Task[None]) -> None:
        self._children.discard(child)
        # If this child was cancelled, fail its waiters so that none of them hangs.
        _tell_away(waiting, "the write of an end was interrupted")

    async def _end(self, waiting: Sequence[_Waiting]) -> None:
        now = self._clock.now()
        try:
            await self._store.write(ending([one for one, _ in waiting], now=now))
        except OutcomeUnknown:
            await asyncio.gather(*(self._end_alone(*one, now) for one in waiting))
        except StoreUnavailable as error:
            # Do not end each alone: each would wait for the ledger again.
            _tell_away(waiting, str(error))
        except Exception:  # noqa: BLE001 - each run alone gets its own error
            await asyncio.gather(*(self._end_alone(*one, now) for one in waiting))
        else:
            for _, future in waiting:
                if not future.done():
                    future.set_result(now)

    async def _end_alone(self, one: GoodEnd, future: asyncio.Future[datetime | None], now: datetime) -> None:
        try:
            is_ended = await self._store.write(one.alone(now))
        except Exception as error:  # noqa: BLE001 - goes to its waiter
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(now if is_ended else None)


def _tell_away(waiting: Sequence[_Waiting], why: str) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(StoreUnavailable(why))


def ending(
    ends: Sequence[GoodEnd], *, now: datetime, retention: timedelta = DEFAULT_RETENTION
) -> Write[None]:
    """The write that ends all of these runs, or none. Raises NotAll."""

    def end_all(tx: Tx) -> None:
        claims = [one.claim for one in ends]
        results: dict[str, bytes] = {one.task.id: one.result for one in ends}
        ended = tx.runs.succeed(claims, now=now)
        if not ended and all(_was_so(tx, one, now) for one in ends):
            return  # this write runs again after its own commit
        if ended != len(ends):
            raise NotAll
        if not tx.tasks.succeed(results, now=now, cleanup_after=now + retention):
            raise NotAll
        woken = [(one.task, TaskStatus.SUCCEEDED, None) for one in ends if one.may_have_wakes]
        if woken:
            end_wakes(tx, woken, now=now)
        run_status, task_status = RunStatus.SUCCEEDED.value, TaskStatus.SUCCEEDED.value
        for one in ends:
            task = one.task
            tx.emit(EventKind.RUN_ENDED, one.claim.run_id, at=now, task_id=task.id, status=run_status)
            tx.emit(EventKind.TASK_ENDED, task.id, at=now, task_id=task.id, status=task_status)
            tell_family(tx, task, now=now)
            tell_flow(tx, task, TaskChangeKind.ENDED, now=now, status=TaskStatus.SUCCEEDED)
            tell_campaign(
                tx,
                task,
                now=now,
                status=TaskStatus.SUCCEEDED,
                result=one.result,
                last_step=one.last_step,
            )
            if may_be_told(task):
                from holdfast.engine.ledger.updates import tell_requester

                tell_requester(
                    tx, task, TaskStatus.SUCCEEDED, run_id=one.claim.run_id, now=now, result=one.result
                )

    return end_all


def _was_so(tx: Tx, one: GoodEnd, now: datetime) -> bool:
    run, task = tx.runs.get(one.claim.run_id), tx.tasks.look(one.claim.task_id)
    return (run.status, run.fence, run.ended_at, task.result) == (
        RunStatus.SUCCEEDED,
        one.claim.fence,
        now,
        one.result,
    )
