"""Finalize background work: a producer reports success, failure, timeout or its own stop by run id, once."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from functools import partial

import pytest

from holdfast.core.clock import Clock, SystemClock
from holdfast.core.delivery import Delivery
from holdfast.core.events import EventKind
from holdfast.core.payload import decode_payload
from holdfast.core.task import Failure, Origin, Progress
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, AlreadyEnded, Finished
from holdfast.engine.producers.producers import Producers
from holdfast.store import Store
from holdfast.store.events import START
from holdfast.testing import FakeClock
from holdfast.upkeep.sweep import Sweep
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork
from tests.lifecycles.deaths import a_record, dead_producers, killed_producers, work_of

ORIGIN = Origin(channel="webhook:ops", peer="ada")
FAILURE = Failure(kind="exit", message="it exited with 1")


async def create_to_finish(store: Store, clock: Clock, run_id: str) -> None:
    """What a producer says about one run, from its beginning to its end."""
    producers = Producers(store, clock)
    await producers.create(a_record(run_id, origin=ORIGIN, notify="done_only"))
    await producers.start(run_id)
    await producers.progress(run_id, Progress(done=1, total=3), summary="frame 1")
    await producers.finish(run_id, {"frames": 3}, summary="three frames")


def deliveries_of(store: Store, task_id: str) -> list[Delivery]:
    return store.read_now(lambda tx: tx.deliveries.of_task(task_id))


def ends_of(store: Store, task_id: str) -> list[object]:
    events = store.read_now(lambda tx: tx.events.of_task(task_id, START))
    return [event.facts["status"] for event in events if event.kind is EventKind.TASK_ENDED]


async def test_each_way_to_end_sets_the_status_the_times_the_summary_and_the_delivery(
    store: Store, clock: FakeClock
) -> None:
    producers = Producers(store, clock)
    for name in ("done", "failed", "late", "stopped"):
        await producers.create(a_record(name, origin=ORIGIN, notify="done_only"), is_running=True)
    clock.advance(minutes=1)

    await producers.finish("done", 1, summary="one frame")
    await producers.fail("failed", FAILURE, summary="no frames")
    await producers.time_out("late", Failure(kind="timeout", message="it took an hour"))
    await producers.stopped("stopped", reason="the disk is full")

    works = [await producers.get(name) for name in ("done", "failed", "late", "stopped")]
    assert [work.task.status for work in works] == [
        TaskStatus.SUCCEEDED,
        TaskStatus.FAILED,
        TaskStatus.TIMED_OUT,
        TaskStatus.CANCELLED,
    ]
    assert [work.details and work.details.terminal_summary for work in works] == [
        "one frame",
        "no frames",
        "it took an hour",
        "the disk is full",
    ]
    for work in works:
        assert work.task.ended_at == clock.now()
        assert work.task.cleanup_after == clock.now() + DEFAULT_RETENTION
        assert len(deliveries_of(store, work.task.id)) == 1


async def test_a_finish_before_the_start_is_one_end_and_the_late_start_is_ignored(
    store: Store, clock: FakeClock
) -> None:
    producers = Producers(store, clock)
    work = await producers.create(a_record("early"))

    ended, late = await producers.finish("early", 1), await producers.start("early")

    assert isinstance(ended, Finished)
    assert isinstance(late, AlreadyEnded)
    assert ends_of(store, work.task.id) == ["succeeded"]


@pytest.mark.parametrize("first", ["succeeded", "failed", "lost"])
async def test_whatever_comes_after_the_end_changes_nothing_and_a_contradiction_is_kept(
    store: Store, clock: FakeClock, first: str
) -> None:
    producers = Producers(store, clock)
    work = await producers.create(a_record("run", origin=ORIGIN, notify="done_only"), is_running=True)
    match first:
        case "succeeded":
            await producers.finish("run", 1)
        case "failed":
            await producers.fail("run", FAILURE)
        case _:
            await producers.lose("run", why="its machine is gone")

    clock.advance(minutes=1)
    answers = [
        await producers.progress("run", summary="still at it"),
        await producers.beat("run"),
        await producers.start("run"),
        await producers.finish("run", {"frames": 3}, summary="three frames"),
        await producers.time_out("run", Failure(kind="timeout", message="it took an hour")),
    ]

    assert all(isinstance(answer, AlreadyEnded) for answer in answers)
    after = await work_of(store, "run")
    assert after.task.status.value == first
    assert ends_of(store, work.task.id) == [first]
    assert len(deliveries_of(store, work.task.id)) == 1
    assert after.details is not None
    late = after.details.late_report
    assert late is not None
    assert (late.status, late.summary, late.at) == (RunStatus.SUCCEEDED, "three frames", clock.now())
    assert decode_payload(late.result or b"") == {"frames": 3}
    assert store.read_now(lambda tx: tx.events.counts("report")) == {"late": 1}


async def test_the_same_end_in_other_words_is_no_contradiction(store: Store, clock: FakeClock) -> None:
    producers = Producers(store, clock)
    await producers.create(a_record("run"), is_running=True)
    await producers.fail("run", FAILURE)

    again = await producers.fail("run", FAILURE)
    other = await producers.fail("run", Failure(kind="exit", message="it exited with 2"))

    assert isinstance(again, Finished)
    assert isinstance(other, AlreadyEnded)
    details = (await work_of(store, "run")).details
    assert details is not None
    assert details.late_report is None


# --- the producer dies


@pytest.mark.slow
async def test_a_producer_that_died_anywhere_repeats_its_calls_and_there_is_one_end(
    store: Store, clock: FakeClock
) -> None:
    points = 0
    async for run_id, point in dead_producers(store, clock, create_to_finish):
        points += 1
        await create_to_finish(store, clock, run_id)

        work = await work_of(store, run_id)
        assert work.task.status is TaskStatus.SUCCEEDED, f"at {point}"
        assert ends_of(store, work.task.id) == ["succeeded"], f"at {point}"
        assert len(deliveries_of(store, work.task.id)) == 1, f"at {point}"
    assert points > 20
    assert_ledger_is_whole(store)


@pytest.mark.slow
async def test_a_producer_that_died_anywhere_and_never_comes_back_leaves_nothing_running(
    store: Store, clock: FakeClock
) -> None:
    run_ids = [run_id async for run_id, _ in dead_producers(store, clock, create_to_finish)]
    clock.advance(minutes=20)

    await sweep_once(Sweep(store, clock))

    found = store.read_now(lambda tx: tx.runs.get_many(run_ids))
    for run in found.values():
        # Queued work was never started: an audit reports it, and its producer may still come.
        assert run.status in {RunStatus.SUCCEEDED, RunStatus.LOST, RunStatus.QUEUED}
        if run.status is RunStatus.LOST:
            assert run.failure is not None
            assert "no sign of life since" in run.failure.message
    assert any(run.status is RunStatus.LOST for run in found.values())


@pytest.mark.slow
def test_a_producer_that_was_killed_repeats_its_calls_and_there_is_one_end(place: LedgerAddress) -> None:
    run_ids = killed_producers(place, create_to_finish)
    store = place.open()

    for run_id in run_ids:
        asyncio.run(create_to_finish(store, SystemClock(), run_id))

    for run_id in run_ids:
        work = asyncio.run(work_of(store, run_id))
        assert work.task.status is TaskStatus.SUCCEEDED
        assert ends_of(store, work.task.id) == ["succeeded"]
        assert len(deliveries_of(store, work.task.id)) == 1
    assert_ledger_is_whole(store)
    store.close()


# --- the producer is frozen


@pytest.mark.slow
def test_a_frozen_producer_that_wakes_late_is_refused_and_its_result_is_shown(place: LedgerAddress) -> None:
    begun, wake, told = Pipe(), Pipe(), Pipe()
    child = fork(partial(freeze_before_the_end, place, begun, wake, told))
    assert begun.only_hear().hear() == "running"
    os.kill(child, signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)

    assert_ended_well(fork(partial(sweep_later, place)))
    wake.say("go on")
    os.kill(child, signal.SIGCONT)
    answer = told.only_hear().hear()
    assert_ended_well(child)

    assert answer == "AlreadyEnded lost"
    store = place.open()
    work = asyncio.run(work_of(store, "frozen"))
    assert work.task.status is TaskStatus.LOST
    assert ends_of(store, work.task.id) == ["lost"]
    assert work.details is not None
    assert work.details.late_report is not None
    assert decode_payload(work.details.late_report.result or b"") == {"frames": 3}
    store.close()
    for pipe in (begun, wake, told):
        pipe.close()


def freeze_before_the_end(place: LedgerAddress, begun: Pipe, wake: Pipe, told: Pipe) -> None:
    store = place.open()
    producers = Producers(store, SystemClock())
    asyncio.run(producers.create(a_record("frozen"), is_running=True))
    begun.say("running")
    assert wake.hear() == "go on"
    answer = asyncio.run(producers.finish("frozen", {"frames": 3}))
    told.say(f"{type(answer).__name__} {answer.task.status.value}")
    store.close()


def sweep_later(place: LedgerAddress) -> None:
    store = place.open()
    later = FakeClock(SystemClock().now() + timedelta(minutes=20))
    assert asyncio.run(sweep_once(Sweep(store, later))) == 1
    store.close()


async def sweep_once(sweep: Sweep) -> int:
    """Without the time that a gateway gives to producers after its start."""
    return (await sweep.apply(await sweep.plan(prunes=False))).reconciled
