"""Runs that end at once end in one write; what keeps one of them from that keeps no other else."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import pytest

import holdfast as hf
from holdfast.core.clock import SystemClock
from holdfast.core.errors import StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.run import Queue, RunRecord
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.ledger.batched_ends import BatchedEnds, GoodEnd, NotAll, ending
from holdfast.engine.worker.worker import CROWD
from holdfast.store import Store, Tx, Write
from holdfast.testing import WrappingStore, name_of
from tests.builders import later, running_run
from tests.conftest import Ledger
from tests.crash.invariants import assert_ledger_is_whole, contents_of
from tests.engine.tables import dump
from tests.engine.workers import carrying, soon, until

T = TypeVar("T")

MANY = CROWD + 4
TOGETHER = "ending.<locals>.end_all"
ALONE = "Execution._ending.<locals>.end"


class CountingStore(WrappingStore):
    """Tells what is written, and may be away for one kind of write."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.writes: Counter[str] = Counter()
        self.refuses: set[str] = set()

    async def write(self, write: Write[T]) -> T:
        name = name_of(write)
        self.writes[name] += 1
        if name in self.refuses:
            raise StoreUnavailable("it is away, says the test")
        return await self.inner.write(write)


class Gate:
    """Many programs that wait for one door, and then end together."""

    def __init__(self) -> None:
        self.inside = 0
        self.door = asyncio.Event()

        @hf.task(name="gated")
        async def gated(run: hf.Run, number: int) -> int:
            self.inside += 1
            await self.door.wait()
            return number * number

        self.task = gated

    async def fill(self, holdfast: Any, count: int) -> list[Any]:
        handles = await holdfast.start_many([self.task(number) for number in range(count)])
        await until(lambda: self.inside == count)
        return list(handles)


async def test_they_end_in_one_write_each_with_its_own_result(store: Store) -> None:
    gate, counting = Gate(), CountingStore(store)
    async with carrying(counting, SystemClock(), gate.task) as process:
        handles = await gate.fill(process.holdfast, MANY)
        gate.door.set()
        results = await soon(asyncio.gather(*(handle.result() for handle in handles)))

    assert results == [number * number for number in range(MANY)]
    assert counting.writes[TOGETHER] == 1
    assert counting.writes[ALONE] == 0
    contents = assert_ledger_is_whole(store, is_at_rest=True)
    assert {task.status for task in contents.tasks.values()} == {TaskStatus.SUCCEEDED}
    told = Counter(event.kind for event in contents.events)
    assert told[EventKind.RUN_ENDED] == told[EventKind.TASK_ENDED] == MANY


async def test_who_is_nearly_alone_ends_alone(store: Store) -> None:
    gate, counting = Gate(), CountingStore(store)
    async with carrying(counting, SystemClock(), gate.task) as process:
        handles = await gate.fill(process.holdfast, CROWD - 1)
        gate.door.set()
        await soon(asyncio.gather(*(handle.result() for handle in handles)))

    assert counting.writes[TOGETHER] == 0
    assert counting.writes[ALONE] == CROWD - 1


async def test_one_that_is_not_ours_any_more_keeps_no_other(store: Store) -> None:
    gate, counting = Gate(), CountingStore(store)
    async with carrying(counting, SystemClock(), gate.task) as process:
        handles = await gate.fill(process.holdfast, MANY)
        lost = (await process.runs(handles[3].id))[0]
        store.write_now(lambda tx: take_away(tx, lost))
        gate.door.set()
        others = [handle for handle in handles if handle.id != lost.task_id]
        await soon(asyncio.gather(*(handle.result() for handle in others)))
        await until(lambda: not process.worker.claims_in_flight())

    assert counting.writes[ALONE] == MANY
    task = store.read_now(lambda tx: tx.tasks.get(lost.task_id))
    assert not task.has_ended


def take_away(tx: Tx, run: RunRecord) -> None:
    """Another worker carries it from now on, as after a rescue."""
    now = SystemClock().now()
    assert tx.runs.release(run.id, run.fence, due_at=now, queue=Queue.READY, now=now)
    assert tx.runs.claim(run.id, boot_id="boot_b", token="b", now=now, lease=timedelta(minutes=1))


async def test_a_ledger_that_is_away_is_asked_once_and_loses_no_end(store: Store) -> None:
    gate, counting = Gate(), CountingStore(store)
    counting.refuses = {TOGETHER}
    async with carrying(counting, SystemClock(), gate.task) as process:
        handles = await gate.fill(process.holdfast, MANY)
        gate.door.set()
        await until(lambda: counting.writes[TOGETHER] >= 1)
        assert counting.writes[ALONE] == 0
        counting.refuses.clear()
        results = await soon(asyncio.gather(*(handle.result() for handle in handles)))

    assert results == [number * number for number in range(MANY)]
    assert_ledger_is_whole(store, is_at_rest=True)


async def test_parents_go_on_when_their_children_end_together(store: Store) -> None:
    @hf.task(name="child")
    async def child(run: hf.Run, number: int) -> int:
        return number

    @hf.task(name="parent")
    async def parent(run: hf.Run) -> int:
        children = [await run.spawn(child(number)) for number in range(MANY)]
        return sum([await one for one in children])

    async with carrying(store, SystemClock(), parent, child) as process:
        handle = await process.holdfast.start(parent())
        assert await soon(handle.result()) == sum(range(MANY))

    assert_ledger_is_whole(store, is_at_rest=True)


class EndlessStore(WrappingStore):
    """A store whose writes never end."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.begun = asyncio.Event()

    async def write(self, write: Write[T]) -> T:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError(write)


@pytest.mark.parametrize("has_begun", [False, True])
async def test_who_waits_for_a_write_that_was_interrupted_is_told(store: Store, has_begun: bool) -> None:
    stuck = EndlessStore(store)
    ends = BatchedEnds(stuck, SystemClock(), is_crowded=lambda: True)
    waiting = [asyncio.ensure_future(ends.end(one)) for one in good_ends(store)]
    await until(lambda: bool(ends._children))
    if has_begun:
        await soon(stuck.begun.wait())
    for child in ends._children:
        child.cancel()

    answers = await soon(asyncio.gather(*waiting, return_exceptions=True))

    assert [type(one) for one in answers] == [StoreUnavailable] * 3


# --- the write itself


def refused(_now: object) -> Write[bool]:
    raise AssertionError("no run ends alone here")


def good_ends(store: Store, count: int = 3, result: bytes = b'"done"') -> list[GoodEnd]:
    held = [running_run(store) for _ in range(count)]
    tasks = store.read_now(lambda tx: tx.tasks.get_many([run.task_id for run, _ in held]))
    return [
        GoodEnd(claim=claim, task=tasks[run.task_id], result=result, alone=refused) for run, claim in held
    ]


def test_run_again_after_its_own_commit_it_changes_nothing(store: Store) -> None:
    write = ending(good_ends(store), now=later(seconds=1))
    store.write_now(write)
    before = dump(store)

    store.write_now(write)

    assert dump(store) == before


@pytest.mark.parametrize("lost", ["fence", "task"])
def test_it_is_all_of_them_or_none(store: Store, lost: str) -> None:
    ends = good_ends(store)
    if lost == "fence":
        stale = msgspec.structs.replace(ends[1].claim, fence=ends[1].claim.fence - 1)
        ends[1] = msgspec.structs.replace(ends[1], claim=stale)
    else:
        task = ends[1].task
        store.write_now(lambda tx: tx.tasks.move(task, TaskStatus.QUEUED, now=later(seconds=1)))
    before = dump(store)

    with pytest.raises(NotAll):
        store.write_now(ending(ends, now=later(seconds=2)))

    assert dump(store) == before


def test_of_two_that_end_the_same_runs_one_does(ledger: Ledger) -> None:
    stores = [ledger.open(), ledger.open()]
    ends = good_ends(stores[0], 20)
    others = [msgspec.structs.replace(one, result=b'"other"') for one in ends]

    def end(store: Store, some: list[GoodEnd]) -> bool:
        try:
            store.write_now(ending(some, now=later(seconds=1)))
        except NotAll:  # it was too late
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        is_done = list(threads.map(end, stores, (ends, others)))

    assert sorted(is_done) == [False, True]
    winner = ends if is_done[0] else others
    contents = contents_of(stores[0])
    assert {task.result for task in contents.tasks.values()} == {winner[0].result}
    assert {run.status for run in contents.runs.values()} == {RunStatus.SUCCEEDED}
