"""Cancel a task: the runtime that controls the work stops it, then its record ends; every answer says why."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from holdfast.core.clock import Clock, SystemClock
from holdfast.core.errors import NotFound
from holdfast.core.events import EventKind
from holdfast.core.recorded import RecordedWork
from holdfast.core.task import Failure
from holdfast.core.transitions import FlowStatus, RunStatus, TaskStatus
from holdfast.engine.aio.background import beside
from holdfast.engine.client.flows import Flows
from holdfast.engine.client.handles import Holdfast
from holdfast.engine.ledger.flows import FlowCancelRequested, NewFlow
from holdfast.engine.ledger.ledger import AlreadyEnded, Cancelled, CancelRequested, Ledger
from holdfast.engine.producers import stopper as stopper_module
from holdfast.engine.producers import stopping
from holdfast.engine.producers.contract import (
    LifeAnswer,
    LifeUnknown,
    NotMine,
    ReattachAnswer,
    StopAnswer,
    Unsupported,
    WorkStopped,
)
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.stopper import ASK_AGAIN, Stopper
from holdfast.engine.producers.stopping import NotStopped
from holdfast.store import Store
from holdfast.store.events import START
from holdfast.testing import FakeClock
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Barrier, assert_ended_well, fork
from tests.engine.parts import Parts
from tests.lifecycles.deaths import a_record, dead_producers, killed_producers, work_of


class WorkControl:
    """A runtime that controls all media work, and notes what it has stopped."""

    name = "media"

    def __init__(self, answer: StopAnswer | None = None) -> None:
        self.answer = WorkStopped() if answer is None else answer
        self.stopped: list[str] = []

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002 - the shape of a runtime
        if work.task.runtime != "media":
            return NotMine()
        self.stopped.append(work.run.id)
        return self.answer

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002
        return LifeUnknown()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:  # noqa: ARG002
        return NotMine()


class HangingRuntime(WorkControl):
    """A runtime that never answers."""

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002
        await asyncio.Event().wait()
        raise AssertionError


async def create_and_cancel(store: Store, clock: Clock, run_id: str) -> None:
    producers = Producers(store, clock, runtimes=[WorkControl()])
    await producers.create(a_record(run_id), is_running=True)
    await producers.cancel(run_id, reason="too slow")


def ends_of(store: Store, task_id: str) -> list[object]:
    events = store.read_now(lambda tx: tx.events.of_task(task_id, START))
    return [event.facts["status"] for event in events if event.kind is EventKind.TASK_ENDED]


# --- what a caller is told


async def test_running_work_is_stopped_by_its_runtime_and_its_record_ends(
    store: Store, clock: FakeClock
) -> None:
    runtime = WorkControl()
    holdfast = Holdfast(store, clock, {}, runtimes=lambda: [runtime])
    work = await Producers(store, clock).create(a_record("run"), is_running=True)

    outcome = await holdfast.cancel(work.task.id, reason="too slow")

    assert isinstance(outcome, Cancelled)
    assert outcome.task.status is TaskStatus.CANCELLED
    assert outcome.task.cancel_reason == "too slow"
    assert runtime.stopped == ["run"]


async def test_missing_ended_and_unstoppable_tasks_have_answers_of_their_own(
    store: Store, clock: FakeClock
) -> None:
    runtime = WorkControl(Unsupported(reason="it prints on paper"))
    holdfast = Holdfast(store, clock, {}, runtimes=lambda: [runtime])
    producers = Producers(store, clock)
    ended = await producers.create(a_record("ended"), is_running=True)
    await producers.finish("ended", 1)
    printing = await producers.create(a_record("printing"), is_running=True)

    late = await holdfast.cancel(ended.task.id, reason="too slow")
    kept = await holdfast.cancel(printing.task.id, reason="too slow")
    with pytest.raises(NotFound):
        await holdfast.cancel("task_unknown", reason="too slow")

    assert isinstance(late, AlreadyEnded)
    assert late.task.status is TaskStatus.SUCCEEDED
    assert runtime.stopped == ["printing"], "ended work is not stopped"
    assert isinstance(kept, NotStopped)
    assert (kept.reason, kept.task.status) == ("it prints on paper", TaskStatus.RUNNING)
    assert kept.task.cancel_reason == "too slow", "the producer hears of it"


async def test_work_that_no_runtime_controls_ends_in_the_record_and_its_producer_hears_of_it(
    store: Store, clock: FakeClock
) -> None:
    holdfast = Holdfast(store, clock, {}, runtimes=lambda: [WorkControl()])
    work = await Producers(store, clock).create(a_record("run", runtime="acp"), is_running=True)

    outcome = await holdfast.cancel(work.task.id, reason="too slow")
    beat = await Producers(store, clock).beat("run")

    assert isinstance(outcome, Cancelled)
    assert isinstance(beat, AlreadyEnded)


async def test_a_runtime_that_hangs_counts_as_one_that_cannot_stop_its_work(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "STOP_TIMEOUT_S", 0.01)
    producers = Producers(store, clock, runtimes=[HangingRuntime()])
    await producers.create(a_record("run"), is_running=True)

    outcome = await producers.cancel("run", reason="too slow")

    assert isinstance(outcome, NotStopped)
    assert "did not answer" in outcome.reason


# --- children, and requests that a process left behind


async def test_the_recorded_children_of_a_failed_task_are_stopped_by_their_runtimes(
    store: Store, clock: FakeClock
) -> None:
    runtime, producers = WorkControl(), Producers(store, clock)
    parent = await producers.create(a_record("parent", runtime="acp"), is_running=True)
    child = await producers.create(a_record("child", parent_task_id=parent.task.id), is_running=True)
    await producers.fail("parent", Failure(kind="exit", message="no disk"))
    before = (await work_of(store, "child")).task

    ended = await Stopper(store, clock, lambda: [runtime]).run_once()

    assert before.status is TaskStatus.RUNNING, "nothing has stopped it yet"
    assert before.cancel_requested_at is not None
    assert (ended, runtime.stopped) == (1, ["child"])
    after = (await work_of(store, "child")).task
    assert after.status is TaskStatus.CANCELLED
    assert after.cancel_reason == f"{parent.task.id}, which started it, has ended"
    assert ends_of(store, child.task.id) == ["cancelled"]


async def test_a_stopper_asks_again_only_after_a_while_about_work_that_cannot_be_stopped(
    store: Store, clock: FakeClock
) -> None:
    runtime = WorkControl(Unsupported(reason="it prints on paper"))
    stopper = Stopper(store, clock, lambda: [runtime])
    work = await Producers(store, clock).create(a_record("run"), is_running=True)
    requested = await Ledger(store, clock).cancel(work.task.id, reason="too slow")
    await stopper.run_once()
    await stopper.run_once()
    asked_at_first = len(runtime.stopped)
    clock.advance(seconds=ASK_AGAIN.total_seconds())
    runtime.answer = WorkStopped()

    ended = await stopper.run_once()

    assert isinstance(requested, CancelRequested)
    assert (asked_at_first, ended) == (1, 1)
    assert (await work_of(store, "run")).task.status is TaskStatus.CANCELLED


async def test_work_that_cannot_be_stopped_does_not_keep_a_stopper_from_the_work_after_it(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopper_module, "BATCH", 2)
    runtime = WorkControl(Unsupported(reason="it prints on paper"))
    for number in range(5):
        work = await Producers(store, clock).create(a_record(f"run-{number}"), is_running=True)
        await Ledger(store, clock).cancel(work.task.id, reason="too slow")

    await Stopper(store, clock, lambda: [runtime]).run_once()

    assert sorted(runtime.stopped) == [f"run-{number}" for number in range(5)]


async def test_a_cancelled_flow_has_its_recorded_work_stopped_by_the_runtime(
    store: Store, clock: FakeClock
) -> None:
    flows, runtime = Flows(store, clock), WorkControl()
    flow = await flows.create(NewFlow(name="film", owner="ada", mode="task_mirrored"))
    await Producers(store, clock).create(a_record("run", flow_id=flow.id), is_running=True)

    outcome = await flows.cancel(flow.id, reason="too slow")
    await Stopper(store, clock, lambda: [runtime]).run_once()

    assert isinstance(outcome, FlowCancelRequested)
    assert runtime.stopped == ["run"]
    assert (await work_of(store, "run")).task.status is TaskStatus.CANCELLED
    assert (await flows.get(flow.id)).status is FlowStatus.CANCELLED


async def test_a_script_leaves_a_request_to_a_gateway_for_a_while(store: Store, clock: FakeClock) -> None:
    script = Stopper(store, clock, lambda: [WorkControl()], patience=timedelta(minutes=1))
    work = await Producers(store, clock).create(a_record("run"), is_running=True)
    await Ledger(store, clock).cancel(work.task.id, reason="too slow")

    early = await script.run_once()
    clock.advance(minutes=1)
    later = await script.run_once()

    assert (early, later) == (0, 1)


async def test_a_request_wakes_the_stopper_of_a_running_process(store: Store, clock: FakeClock) -> None:
    class TellingControl(WorkControl):
        """Says when it has stopped something."""

        def __init__(self) -> None:
            super().__init__()
            self.is_asked = asyncio.Event()

        async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:
            self.is_asked.set()
            return await super().cancel(work, reason)

    runtime = TellingControl()
    work = await Producers(store, clock).create(a_record("run"), is_running=True)

    async with beside(Stopper(store, clock, lambda: [runtime], every_s=3600)):
        await Ledger(store, clock).cancel(work.task.id, reason="too slow")
        async with asyncio.timeout(30):
            await runtime.is_asked.wait()

    assert runtime.stopped == ["run"]


async def test_a_worker_task_is_not_the_stoppers_business(
    parts: Parts, store: Store, clock: FakeClock
) -> None:
    task = await parts.create()
    await parts.claims.take(1)
    await parts.ledger.cancel(task.id, reason="too slow")

    assert await Stopper(store, clock, lambda: [WorkControl()]).run_once() == 0
    assert (await parts.ledger.get(task.id)).status is TaskStatus.RUNNING


# --- the process that cancels dies


@pytest.mark.slow
async def test_a_cancel_that_died_anywhere_after_its_request_is_finished_by_the_next_process(
    store: Store, clock: FakeClock
) -> None:
    points = 0
    async for run_id, point in dead_producers(store, clock, create_and_cancel):
        points += 1
        runtime = WorkControl()
        found = store.read_now(lambda tx, run_id=run_id: tx.runs.get_many([run_id]))  # type: ignore[misc]
        if not found:
            continue  # it died before there was anything to cancel
        task = (await work_of(store, run_id)).task
        is_requested = task.cancel_requested_at is not None

        await Stopper(store, clock, lambda runtime=runtime: [runtime]).run_once()  # type: ignore[misc]

        after = (await work_of(store, run_id)).task
        wanted = TaskStatus.CANCELLED if is_requested else TaskStatus.RUNNING
        assert after.status is wanted, f"at {point}"
        assert ends_of(store, task.id) == (["cancelled"] if is_requested else []), f"at {point}"
        assert runtime.stopped == ([] if task.has_ended or not is_requested else [run_id]), f"at {point}"
    assert points > 10
    assert_ledger_is_whole(store)


@pytest.mark.slow
def test_a_cancel_that_was_killed_leaves_one_outcome_to_the_next_process(place: LedgerAddress) -> None:
    run_ids = killed_producers(place, create_and_cancel)
    store = place.open()

    asyncio.run(Stopper(store, SystemClock(), lambda: [WorkControl()]).run_once())

    statuses = {run.status for run in store.read_now(lambda tx: tx.runs.get_many(run_ids)).values()}
    for run_id in store.read_now(lambda tx: tx.runs.get_many(run_ids)):
        task = asyncio.run(work_of(store, run_id)).task
        assert (task.status is TaskStatus.CANCELLED) is (task.cancel_requested_at is not None)
        assert len(ends_of(store, task.id)) == int(task.has_ended)
    assert statuses == {RunStatus.CANCELLED, RunStatus.RUNNING}
    assert_ledger_is_whole(store)
    store.close()


# --- cancel races finish


@pytest.mark.slow
def test_of_a_cancel_and_a_finish_in_two_processes_one_is_the_end_and_the_other_is_explained(
    place: LedgerAddress,
) -> None:
    run_ids = [f"race-{number}" for number in range(20)]
    assert_ended_well(fork(partial(create_all, place, run_ids)))
    barrier = Barrier()
    racers = [
        fork(partial(finish_all, place, run_ids, barrier)),
        fork(partial(cancel_all, place, run_ids[::-1], barrier)),
    ]
    barrier.open(len(racers))
    for racer in racers:
        assert_ended_well(racer)

    store = place.open()
    for run_id in run_ids:
        work = asyncio.run(work_of(store, run_id))
        assert work.details is not None
        (end,) = ends_of(store, work.task.id)
        assert end == work.task.status.value
        if end == "succeeded":
            assert work.details.late_report is None
        else:
            assert end == "cancelled"
            assert work.details.late_report is not None
            assert work.details.late_report.status is RunStatus.SUCCEEDED
    assert_ledger_is_whole(store)
    store.close()


def create_all(place: LedgerAddress, run_ids: list[str]) -> None:
    store = place.open()
    producers = Producers(store, SystemClock())
    for run_id in run_ids:
        asyncio.run(producers.create(a_record(run_id), is_running=True))
    store.close()


def finish_all(place: LedgerAddress, run_ids: list[str], barrier: Barrier) -> None:
    store = place.open()
    barrier.arrive()
    for run_id in run_ids:
        asyncio.run(Producers(store, SystemClock()).finish(run_id, 1))
    store.close()


def cancel_all(place: LedgerAddress, run_ids: list[str], barrier: Barrier) -> None:
    store = place.open()
    barrier.arrive()
    for run_id in run_ids:
        asyncio.run(Producers(store, SystemClock(), runtimes=[WorkControl()]).cancel(run_id, reason="enough"))
    store.close()
