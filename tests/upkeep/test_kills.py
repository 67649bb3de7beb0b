"""A sweep may die at any point of its writes, and the next one makes the rest of its changes, each once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from holdfast.core.events import EventKind
from holdfast.core.transitions import TaskStatus
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION
from holdfast.engine.producers.contract import Alive
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, memory_store
from holdfast.upkeep.sweep import Sweep
from tests.builders import START, a_task, write
from tests.upkeep.recorded import FixedAnswer, beats, recorded_run, status_of

pytestmark = pytest.mark.slow


class SweepScene:
    """Two silent runs, a task without a time to clean it up, and one whose retention is over."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = memory_store(self.clock)
        self.silent = [recorded_run(self.store), recorded_run(self.store)]
        self.unstamped = a_task(status=TaskStatus.FAILED)
        self.old = a_task(status=TaskStatus.SUCCEEDED, cleanup_after=START)
        write(self.store, lambda tx: [tx.tasks.create(one) for one in (self.unstamped, self.old)])
        self.clock.advance(minutes=5)

    async def sweep(self, *plan: Failpoint) -> FailingStore:
        store = FailingStore(self.store, plan)
        sweep = Sweep(store, self.clock)
        with contextlib.suppress(Crashed):
            await sweep.apply(await sweep.plan())
        return store

    def assert_all_is_done_once(self) -> None:
        events = Counter(
            (event.kind, event.task_id)
            for event in self.store.read_now(lambda tx: tx.events.after(limit=999))
        )
        assert set(events.values()) == {1}
        assert [status_of(self.store, run) for run in self.silent] == [TaskStatus.LOST] * 2
        unstamped, old = self.store.read_now(
            lambda tx: [tx.tasks.get_many([one.id]).get(one.id) for one in (self.unstamped, self.old)]
        )
        assert unstamped is not None
        assert unstamped.cleanup_after == START + DEFAULT_RETENTION
        assert old is None
        assert (EventKind.TASK_PRUNED, self.old.id) in events


async def test_a_sweep_may_die_at_any_point_and_the_next_one_finishes_its_work() -> None:
    points = (await SweepScene().sweep()).failpoints()

    for point in points:
        scene = SweepScene()
        dead = await scene.sweep(point)
        await scene.sweep()

        assert dead.is_dead, f"{point} was not reached"
        scene.assert_all_is_done_once()
        scene.store.close()

    assert len(points) > 20


async def test_two_sweeps_at_the_same_moment_make_each_change_once(store: Store, clock: FakeClock) -> None:
    runs = [recorded_run(store) for _ in range(10)]
    sweeps = [Sweep(store, clock) for _ in range(2)]
    clock.advance(minutes=5)
    plans = [await sweep.plan() for sweep in sweeps]

    swept = await asyncio.gather(*(sweep.apply(plan) for sweep, plan in zip(sweeps, plans, strict=True)))

    assert sum(one.reconciled for one in swept) == len(runs)
    events = store.read_now(lambda tx: tx.events.after(limit=999))
    assert Counter(event.kind for event in events)[EventKind.TASK_ENDED] == len(runs)


async def test_a_run_that_a_runtime_proves_alive_beats_also_after_a_kill(
    store: Store, clock: FakeClock
) -> None:
    run = recorded_run(store)
    clock.advance(minutes=5)

    for where in ("before", "after"):
        failing = FailingStore(store, [Failpoint(call=1, where=where)])
        sweep = Sweep(failing, clock, proofs=FixedAnswer(Alive()))
        with pytest.raises(Crashed):
            await sweep.apply(await sweep.plan())

    assert beats(store, run) == clock.now()
    assert status_of(store, run) is TaskStatus.RUNNING
