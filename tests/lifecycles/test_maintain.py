"""Run maintenance: ask the runtimes, recover cron results, declare work lost, stamp ended tasks, and prune.

Whatever the sweep dies of, the next one makes the rest of its changes, and each of them happens once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from holdfast.core.events import EventKind
from holdfast.core.recorded import RecordedWork
from holdfast.core.run import RunRecord
from holdfast.core.task import Failure, NotifyPolicy, Origin, RuntimeName
from holdfast.core.transitions import FiringStatus, RunStatus, TaskStatus
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION
from holdfast.engine.producers.contract import (
    Alive,
    LifeAnswer,
    LifeUnknown,
    NotMine,
    ReattachAnswer,
    Reattached,
    StopAnswer,
)
from holdfast.engine.producers.producers import Producers
from holdfast.store import Store, Tx
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock
from holdfast.upkeep.cron_history import FiringHistory
from holdfast.upkeep.proofs import RuntimeProofs
from holdfast.upkeep.sweep import ChangeKind, Sweep, SweepPlan, Swept
from tests.builders import START, a_firing, a_task, later, write
from tests.crash.conftest import place as place
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, assert_was_killed, fork
from tests.upkeep.recorded import recorded_run

WEBHOOK = Origin(channel="webhook", peer="ada")
# So long after its beginning, a silent record has no grace left.
SILENCE = timedelta(minutes=5)


class Sessions:
    """A runtime that knows its sessions by the names of their tasks."""

    name = "sessions"

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002 - the shape of a runtime
        return NotMine()

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        match work.task.name:
            case "alive":
                return Alive()
            case "out of sight":
                return LifeUnknown()
        return NotMine()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        return Reattached() if work.task.name == "out of sight" else NotMine()


class MaintainedLedger:
    """A ledger that needs maintenance: one record for each thing that a sweep does."""

    def __init__(self, store: Store, number: int = 0) -> None:
        """Sweeps read runs in the order of their ids, so these are numbered."""
        self.alive = recorded_run(store, id=f"run_1_{number}", task={"name": "alive"})
        self.out_of_sight = recorded_run(store, id=f"run_2_{number}", task={"name": "out of sight"})
        firing = a_firing(status=FiringStatus.DONE)
        write(store, lambda tx: tx.firings.create(firing))
        self.cron = recorded_run(
            store, runtime=RuntimeName.CRON, details={"reference": firing.id}, id=f"run_3_{number}"
        )
        told = {"name": "silent", "origin": WEBHOOK, "notify": NotifyPolicy.DONE_ONLY}
        self.silent = recorded_run(store, id=f"run_4_{number}", task=told)
        self.unstamped = a_task(status=TaskStatus.FAILED)
        self.old = a_task(status=TaskStatus.SUCCEEDED, cleanup_after=START)
        write(store, lambda tx: [tx.tasks.create(one) for one in (self.unstamped, self.old)])

    @property
    def runs(self) -> list[RunRecord]:
        return [self.alive, self.out_of_sight, self.cron, self.silent]

    def assert_all_is_done_once(self, store: Store) -> None:
        def read(tx: Tx) -> None:
            tasks = tx.tasks.get_many([run.task_id for run in self.runs] + [self.unstamped.id, self.old.id])
            statuses = [tasks[run.task_id].status for run in self.runs]
            running = TaskStatus.RUNNING
            assert statuses == [running, running, TaskStatus.SUCCEEDED, TaskStatus.LOST]
            assert [tx.runs.look(run.id).beat_at is not None for run in self.runs[:2]] == [True, True]
            assert tasks[self.unstamped.id].cleanup_after == START + DEFAULT_RETENTION
            assert self.old.id not in tasks
            assert len(tx.deliveries.of_task(self.silent.task_id)) == 1
            for run in self.runs[2:]:
                kinds = Counter(event.kind for event in tx.events.of_task(run.task_id))
                assert kinds[EventKind.TASK_ENDED] == kinds[EventKind.TASK_SWEPT] == 1
            assert [event.kind for event in tx.events.of_task(self.old.id)] == [EventKind.TASK_PRUNED]

        store.read_now(read)


def a_sweep(store: Store, clock: FakeClock) -> Sweep:
    return Sweep(store, clock, proofs=RuntimeProofs([Sessions(), FiringHistory(store)]))


async def maintain(store: Store, clock: FakeClock) -> tuple[SweepPlan, Swept]:
    sweep = a_sweep(store, clock)
    plan = await sweep.plan()
    return plan, await sweep.apply(plan)


def test_run_maintenance(store: Store, clock: FakeClock) -> None:
    scene = MaintainedLedger(store)
    clock.advance(minutes=5)

    plan, swept = asyncio.run(maintain(store, clock))

    assert [(change.kind, change.task_id, change.reason) for change in plan.changes] == [
        (ChangeKind.RECONCILE, scene.out_of_sight.task_id, "no sign of life since 2026-01-01 00:00:00 UTC"),
        (ChangeKind.SETTLE, scene.cron.task_id, plan.changes[1].reason),
        (ChangeKind.RECONCILE, scene.silent.task_id, "no sign of life since 2026-01-01 00:00:00 UTC"),
        (ChangeKind.STAMP, scene.unstamped.id, "failed without a time to clean it up"),
        (ChangeKind.PRUNE, scene.old.id, "its retention is over"),
    ]
    assert [work.task.id for work in plan.alive] == [scene.alive.task_id]
    assert swept == Swept(reconciled=1, recovered=1, settled=1, stamped=1, pruned=1)
    scene.assert_all_is_done_once(store)


def test_nothing_is_left_for_a_second_maintenance(store: Store, clock: FakeClock) -> None:
    scene = MaintainedLedger(store)
    clock.advance(minutes=5)
    asyncio.run(maintain(store, clock))

    plan, swept = asyncio.run(maintain(store, clock))

    assert (plan.changes, swept) == ([], Swept())
    scene.assert_all_is_done_once(store)


@pytest.mark.slow
def test_maintenance_may_die_at_each_point_of_its_writes(store: Store, clock: FakeClock) -> None:
    async def die_at(number: int, *plan: Failpoint) -> FailingStore:
        clock.set(START)
        scene = MaintainedLedger(store, number)
        clock.set(START + SILENCE)
        dying = FailingStore(store, plan)
        with contextlib.suppress(Crashed):
            await maintain(dying, clock)
        await maintain(store, clock)
        scene.assert_all_is_done_once(store)
        await end_what_is_left(store, clock)
        return dying

    async def die_everywhere() -> int:
        points = (await die_at(0)).failpoints()
        for number, point in enumerate(points, start=1):
            assert (await die_at(number, point)).is_dead, f"{point} was not reached"
        return len(points)

    assert asyncio.run(die_everywhere()) > 40


async def end_what_is_left(store: Store, clock: FakeClock) -> None:
    """So that the next round begins with nothing in flight."""
    for run in store.read_now(lambda tx: tx.runs.recorded(limit=100)):
        await Producers(store, clock).fail(run.id, Failure(kind="test", message="the round is over"))


@pytest.mark.slow
def test_maintenance_is_really_killed_before_in_or_after_each_of_its_writes(place: LedgerAddress) -> None:
    pipe = Pipe()
    child = fork(partial(run_alone, record_points, place, pipe))
    points = msgspec.json.decode(pipe.only_hear().hear(), type=list[Failpoint])
    assert_ended_well(child)
    pipe.close()

    for number, point in enumerate(points, start=1):
        assert_was_killed(fork(partial(run_alone, be_killed, place, point, number)))
    assert_ended_well(fork(partial(run_alone, finish, place, len(points))))

    assert {point.where for point in points} == {"before", "inside", "after"}


def run_alone(
    life: Callable[..., Coroutine[None, None, None]], place: LedgerAddress, *arguments: Any
) -> None:
    """The whole life of a process that does nothing else."""

    async def live() -> None:
        clock = FakeClock()
        store = place.open(clock)
        await life(store, clock, *arguments)
        store.close()

    asyncio.run(live())


async def record_points(store: Store, clock: FakeClock, pipe: Pipe) -> None:
    """One point for each write of a maintenance: before it, inside it and after it, in turn."""
    MaintainedLedger(store)
    clock.advance(minutes=5)
    recording = FailingStore(store)
    await maintain(recording, clock)
    await end_what_is_left(store, clock)
    points = [call.failpoints() for call in recording.calls]
    chosen = [own[(len(own) - 1) * (number % 3) // 2] for number, own in enumerate(points)]
    pipe.say(msgspec.json.encode(chosen).decode())


async def be_killed(store: Store, clock: FakeClock, point: Failpoint, number: int) -> None:
    """Finish what the one before left, then begin a round of its own, which ends at the point."""
    if number > 1:
        await finish(store, clock, number - 1)
    clock.set(START)
    MaintainedLedger(store, number)
    clock.advance(minutes=5)
    await maintain(FailingStore(store, [point], act=lambda: os.kill(os.getpid(), signal.SIGKILL)), clock)


async def finish(store: Store, clock: FakeClock, number: int) -> None:
    """The next process on this ledger; what the killed one did not do is done now, and nothing twice."""
    clock.set(later(minutes=6))
    await maintain(store, clock)
    silent = store.read_now(lambda tx: tx.runs.look(f"run_4_{number}"))
    task = store.read_now(lambda tx: tx.tasks.look(silent.task_id))
    assert (silent.status, task.status) == (RunStatus.LOST, TaskStatus.LOST)
    assert len(store.read_now(lambda tx: tx.deliveries.of_task(task.id))) == 1
    kinds = Counter(event.kind for event in store.read_now(lambda tx: tx.events.of_task(task.id)))
    assert kinds[EventKind.TASK_ENDED] == kinds[EventKind.TASK_SWEPT] == 1
    await end_what_is_left(store, clock)
    assert (await a_sweep(store, clock).plan()).changes == []


def test_an_error_in_the_recovery_of_one_record_is_told_and_keeps_none_of_the_others_waiting(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Sessions):
        async def reattach(self, work: RecordedWork) -> ReattachAnswer:
            if work.task.name == "out of sight":
                raise OSError("its socket is gone")
            return NotMine()

    scene = MaintainedLedger(store)
    clock.advance(minutes=5)
    sweep = Sweep(store, clock, proofs=RuntimeProofs([Broken(), FiringHistory(store)]))

    async def sweep_all() -> Swept:
        return await sweep.apply(await sweep.plan())

    swept = asyncio.run(sweep_all())

    assert swept == Swept(reconciled=1, settled=1, stamped=1, pruned=1)
    assert store.read_now(lambda tx: tx.tasks.look(scene.out_of_sight.task_id)).status is TaskStatus.RUNNING
    assert "its socket is gone" in caplog.text
