"""A run that reaches its time limit: saved with its wake, woken once, continued; or timed out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput, ClaimLost
from holdfast.core.events import EventKind
from holdfast.core.smart_wake import WakeOptions
from holdfast.core.task import Task
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus, WakeStatus
from holdfast.engine.client.handles import Handle
from holdfast.engine.ledger.ledger import Ledger
from holdfast.engine.recovery.resume import retrying
from holdfast.engine.recovery.wakes import WakeTimer, cancelling_wake
from holdfast.store import Store
from holdfast.testing import memory_store
from tests.backends import on_sqlite
from tests.engine.stage import Stage
from tests.engine.workers import GateAndNotes, carrying, soon, until


@pytest.fixture
def memory() -> Iterator[Store]:
    store = memory_store(SystemClock())
    yield store
    store.close()


def long_task(
    stage: Stage, gate: GateAndNotes, *, hours: int = 8, **options: object
) -> hf.TaskDefinition[[], int]:
    """Does one step of three minutes after another, until the hours are over."""

    async def work(number: int) -> int:
        stage.clock.advance(minutes=3)
        gate.notes.append(f"step {number}")
        return number

    @hf.task(name="long", **options)  # type: ignore[call-overload, untyped-decorator]
    async def long(run: hf.Run) -> int:
        plan = run.plan([f"part-{number}" for number in range(hours * 20)])
        async for item in plan:
            await item.step(work, item.number)
        return len(plan.items)

    return long  # type: ignore[no-any-return]


@on_sqlite
async def test_eight_hours_of_work_finish_under_a_run_timeout_of_ten_minutes(
    stage: Stage, gate: GateAndNotes
) -> None:
    long = long_task(stage, gate, run_timeout="10m", smart_wake="always")
    await stage.open(long)

    handle = await stage.start(long())
    while not (await handle.task()).has_ended:
        await stage.settle()
        assert (await handle.task()).has_ended or await stage.pass_time()

    assert await handle.result() == 160
    assert gate.notes == [f"step {number}" for number in range(1, 161)]
    wakes = await stage.store.read(lambda tx: tx.wakes.page(task_id=handle.id, limit=1000))
    runs = await stage.runs(handle)
    assert len(runs) == len(wakes) + 1 > 40
    assert {wake.status for wake in wakes} == {WakeStatus.FIRED}
    assert {run.status for run in runs[:-1]} == {RunStatus.RESUMED}
    assert {wake.due_at - wake.created_at for wake in wakes} == {timedelta(minutes=2, seconds=4.8)}
    checkpoints = await stage.store.read(lambda tx: tx.checkpoints.page(task_id=handle.id, limit=1000))
    assert [one.kind for one in checkpoints] == [CheckpointKind.TIMEOUT] * len(wakes) + [
        CheckpointKind.PERIODIC
    ]
    scheduled = await stage.events(handle, EventKind.WAKE_SCHEDULED)
    told = [(one.task_id, one.facts["resume_from"], one.facts["reason"]) for one in scheduled]
    assert told == [(handle.id, "latest_checkpoint", "timeout_recovery")] * len(wakes)
    reports = await stage.events(handle, EventKind.WAKE_REPORTED)
    statuses = [event.facts["report"]["status"] for event in reports]  # type: ignore[index]
    assert statuses == ["waiting"] * len(wakes) + ["done"]


async def test_a_saved_run_waits_for_its_wake_also_through_a_restart(
    stage: Stage, gate: GateAndNotes
) -> None:
    long = long_task(stage, gate, hours=1, run_timeout="10m", smart_wake="always", wake_after="5m")
    await stage.open(long)
    handle = await stage.start(long())
    await stage.settle()

    task = await handle.task()
    assert (task.status, str(task.waits_on)[:10]) == (TaskStatus.WAITING, "wake:wake_")
    await stage.open(long)
    await stage.settle()
    assert [run.status for run in await stage.runs(handle)] == [RunStatus.PAUSED_FOR_RESTART]

    await stage.pass_time(minutes=5)
    await stage.settle()

    (first, second) = await stage.runs(handle)
    assert (first.status, second.resumes_run_id) == (RunStatus.RESUMED, first.id)


async def test_a_task_that_is_cancelled_while_it_waits_leaves_no_wake(
    stage: Stage, gate: GateAndNotes
) -> None:
    long = long_task(stage, gate, hours=1, run_timeout="10m", smart_wake="always")
    await stage.open(long)
    handle = await stage.start(long())
    await stage.settle()

    await handle.cancel(reason="no longer needed")

    (wake,) = await stage.store.read(lambda tx: tx.wakes.page(task_id=handle.id))
    assert (await handle.status(), wake.status) == (TaskStatus.CANCELLED, WakeStatus.CANCELLED)


async def test_without_smart_wake_the_run_times_out(quick: Stage, gate: GateAndNotes) -> None:
    long = long_task(quick, gate, hours=1, run_timeout="10m", smart_wake="never")
    await quick.open(long)

    handle = await quick.start(long())
    await quick.settle()

    task = await handle.task()
    assert (task.status, gate.notes) == (TaskStatus.TIMED_OUT, [f"step {number}" for number in range(1, 5)])
    assert task.failure is not None
    assert "0:10:00 (smart_wake is never)" in task.failure.message


@pytest.mark.parametrize("value", [-1, "0s", "-5m", "ten minutes"])
def test_a_run_timeout_that_is_no_span_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="run_timeout"):
        hf.task(run_timeout=value)(_nothing)  # type: ignore[call-overload]


def test_a_run_timeout_longer_than_the_task_is_refused_with_an_example() -> None:
    with pytest.raises(BadInput, match=r'@hf.task\(timeout="6h", run_timeout="10m"\)'):
        hf.task(timeout="1h", run_timeout="2h")(_nothing)


async def _nothing(run: hf.Run) -> None:
    """Does nothing."""


async def test_a_step_longer_than_the_run_timeout_ends_as_a_failed_resume_with_the_evidence(
    memory: Store,
) -> None:
    began: list[int] = []

    async def hang() -> None:
        began.append(1)
        await asyncio.Event().wait()

    @hf.task(run_timeout="200ms", smart_wake="always", wake_after=0, attempts=3)
    async def stuck(run: hf.Run) -> None:
        await run.step(hang)

    async with carrying(memory, SystemClock(), stuck, grace=0.5) as process:
        handle = await process.holdfast.start(stuck())
        task = await soon(ended(handle))
        runs = await process.runs(handle.id)
        wakes = await memory.read(lambda tx: tx.wakes.page(task_id=handle.id))

    assert (task.status, len(began), len(wakes)) == (TaskStatus.FAILED, 3, 2)
    assert [run.status for run in runs] == [RunStatus.RESUMED, RunStatus.RESUMED, RunStatus.FAILED_RESUME]
    assert task.failure is not None
    assert (task.failure.kind, task.failure.facts["why"]) == ("failed_resume", "no_progress")
    assert "made no call within its run_timeout of 0:00:00.200000" in task.failure.message
    assert [wake.attempt for wake in wakes] == [3, 2]


async def test_the_last_cycle_without_progress_fails_its_task_without_another_wake(stage: Stage) -> None:
    @hf.task(run_timeout="10m", smart_wake="always", attempts=3)
    async def late(run: hf.Run) -> None:
        stage.clock.advance(minutes=9)  # it comes to its first step too late
        await run.step(hf.step(lambda: None, name="never"))

    await stage.open(late)
    handle = await stage.start(late())
    await stage.settle()
    for _ in range(2):
        assert await handle.status() is TaskStatus.WAITING
        await stage.pass_time()
        await stage.settle()

    failure = (await handle.task()).failure
    assert failure is not None
    assert (failure.kind, failure.facts["why"]) == ("failed_resume", "no_progress")
    assert "attempt 3 of 3 without progress" in failure.message
    wakes = await stage.store.read(lambda tx: tx.wakes.page(task_id=handle.id))
    assert [wake.status for wake in wakes] == [WakeStatus.FIRED] * 2
    (checkpoint,) = (await stage.store.read(lambda tx: tx.checkpoints.page(task_id=handle.id)))[:1]
    assert (checkpoint.status, checkpoint.wake_id) == (CheckpointStatus.FAILED_RESUME, None)
    (*_, report) = await stage.events(handle, EventKind.WAKE_REPORTED)
    assert report.facts["report"]["status"] == "failed"  # type: ignore[index]
    await stage.store.write(retrying(checkpoint.id, now=stage.clock.now()))
    await stage.open(late)
    await stage.settle()
    assert await handle.status() is TaskStatus.WAITING


async def test_a_run_with_smart_wake_records_a_checkpoint_after_each_chunk(memory: Store) -> None:
    is_over = False

    async def work(number: int) -> int:
        await asyncio.sleep(0.005)
        return number

    @hf.task(run_timeout="1h", smart_wake="always")
    async def busy(run: hf.Run) -> None:
        async for turn in run.turns(max=100_000):
            await turn.step(work, turn.number)
            if is_over:
                return

    def recorded() -> list[CheckpointKind]:
        return [one.kind for one in memory.read_now(lambda tx: tx.checkpoints.page(limit=99))]

    options = WakeOptions(chunk=timedelta(milliseconds=50))
    async with carrying(memory, SystemClock(), busy, wakes=options) as process:
        handle = await process.holdfast.start(busy())
        # The first one of the task, and two chunks.
        await until(lambda: len(recorded()) >= 3)
        is_over = True
        await soon(handle.result())

    assert set(recorded()) == {CheckpointKind.PERIODIC}


async def test_an_effect_in_flight_at_the_limit_comes_to_its_end_and_is_done_once(memory: Store) -> None:
    sent: list[str] = []

    async def send(text: str) -> str:
        await asyncio.sleep(0.5)
        sent.append(text)
        return text

    @hf.task(run_timeout="200ms", smart_wake="always", wake_after=0)
    async def mailing(run: hf.Run) -> str:
        first = await run.tool(send, {"text": "tides"})
        return first + await run.step(hf.step(lambda: "!", name="more"))

    async with carrying(memory, SystemClock(), mailing) as process:
        handle = await process.holdfast.start(mailing())
        result = await soon(handle.result())
        runs = await process.runs(handle.id)

    assert (result, sent, len(runs)) == ("tides!", ["tides"], 2)


async def test_each_wake_fires_once_when_two_processes_race_for_it(stage: Stage, gate: GateAndNotes) -> None:
    long = long_task(stage, gate, hours=1, run_timeout="10m", smart_wake="always", wake_after="5h")
    await stage.open(long)
    handles = [await stage.start(long()) for _ in range(5)]
    await stage.settle()
    stage.clock.advance(hours=5)

    fired = await asyncio.gather(*(timer_of(stage).fire() for _ in range(4)))

    assert sum(fired) == 5
    for handle in handles:
        (event,) = await stage.events(handle, EventKind.WAKE_FIRED)
        assert event.facts["is_needed"] is True
    await stage.open(long)
    await stage.settle()
    assert [len(await stage.runs(handle)) for handle in handles] == [2] * 5


async def test_a_frozen_run_that_wakes_up_after_it_was_saved_is_refused(
    stage: Stage, gate: GateAndNotes
) -> None:
    long = long_task(stage, gate, hours=1, run_timeout="10m", smart_wake="always")
    await stage.open(long)
    handle = await stage.start(long())
    await stage.settle()
    (old,) = stage.executions

    with pytest.raises(ClaimLost):
        await Ledger(stage.store, stage.clock).finish(old.live.claim, "done")
    assert await handle.status() is TaskStatus.WAITING


@pytest.mark.parametrize("hours", [-1, 24 * 365])
async def test_a_clock_that_jumps_does_not_keep_a_wake_from_firing(
    quick: Stage, gate: GateAndNotes, hours: int
) -> None:
    long = long_task(quick, gate, hours=1, run_timeout="10m", smart_wake="always", wake_after="5m")
    await quick.open(long)
    handle = await quick.start(long())
    await quick.settle()
    clock = JumpingClock(quick.clock.now())
    timer = WakeTimer(quick.store, clock, quick._resumer)

    clock.passed_s, clock.jumped_by = 301.0, timedelta(hours=hours)

    assert await timer.run_once() == 1
    assert [run.status for run in await quick.runs(handle)] == [RunStatus.RESUMED, RunStatus.QUEUED]


async def test_a_wake_that_was_saved_while_the_clock_was_a_year_ahead_is_due_after_its_delay(
    stage: Stage, gate: GateAndNotes
) -> None:
    long = long_task(stage, gate, hours=1, run_timeout="10m", smart_wake="always", wake_after="5m")
    await stage.open(long)
    stage.clock.jump(days=365)
    handle = await stage.start(long())
    await stage.settle()
    stage.clock.jump(days=-365)
    timer = timer_of(stage)

    assert await timer.run_once() == 0
    stage.clock.advance(minutes=4, seconds=59)
    assert await timer.run_once() == 0
    stage.clock.advance(seconds=1)
    assert await timer.run_once() == 1
    (event,) = await stage.events(handle, EventKind.WAKE_RESCHEDULED)
    assert event.facts == {"due_at": stage.clock.now().isoformat()}


async def test_several_processes_move_a_wake_from_the_future_once(stage: Stage, gate: GateAndNotes) -> None:
    long = long_task(stage, gate, hours=1, run_timeout="10m", smart_wake="always", wake_after="5h")
    await stage.open(long)
    stage.clock.jump(days=365)
    handles = [await stage.start(long()) for _ in range(5)]
    await stage.settle()
    stage.clock.jump(days=-365)

    await asyncio.gather(*(timer_of(stage).fire() for _ in range(4)))
    stage.clock.advance(hours=4)
    await asyncio.gather(*(timer_of(stage).fire() for _ in range(4)))
    stage.clock.advance(hours=1)
    fired = await asyncio.gather(*(timer_of(stage).fire() for _ in range(4)))

    assert sum(fired) == 5
    for handle in handles:
        assert len(await stage.events(handle, EventKind.WAKE_RESCHEDULED)) == 1


async def test_a_process_whose_clock_jumps_ahead_and_back_wakes_by_the_time_that_has_passed(
    quick: Stage, gate: GateAndNotes
) -> None:
    long = long_task(quick, gate, hours=1, run_timeout="10m", smart_wake="always", wake_after="5m")
    await quick.open(long)
    clock = JumpingClock(quick.clock.now())
    timer = WakeTimer(quick.store, clock, quick._resumer)
    clock.passed_s, clock.jumped_by = 60.0, timedelta(days=365)
    quick.clock.set(clock.now())
    await quick.start(long())
    await quick.settle()

    clock.passed_s += 9 * 60
    assert await timer.run_once() == 0
    clock.passed_s, clock.jumped_by = clock.passed_s + 60, timedelta(0)
    assert await timer.run_once() == 0
    clock.passed_s += 4 * 60
    assert await timer.run_once() == 1


async def test_a_process_that_began_while_the_clock_was_ahead_keeps_the_delays_of_later_wakes(
    quick: Stage, gate: GateAndNotes
) -> None:
    long = long_task(quick, gate, hours=1, run_timeout="10m", smart_wake="always", wake_after="1h")
    await quick.open(long)
    clock = JumpingClock(quick.clock.now())
    clock.jumped_by = timedelta(days=365)
    timer = WakeTimer(quick.store, clock, quick._resumer)
    clock.jumped_by = timedelta(0)
    await timer.run_once()
    clock.passed_s += 301  # the time that was set has held for long enough
    quick.clock.set(clock.now())
    await quick.start(long())
    await quick.settle()
    saved_at = quick.clock.now()

    clock.passed_s += (saved_at - clock.now()).total_seconds() + 3599
    assert await timer.run_once() == 0
    clock.passed_s += 1
    assert await timer.run_once() == 1


async def test_a_cancelled_wake_fails_its_task_and_a_retry_of_the_checkpoint_resumes_it(
    stage: Stage, gate: GateAndNotes
) -> None:
    long = long_task(stage, gate, hours=1, run_timeout="10m", smart_wake="always")
    await stage.open(long)
    handle = await stage.start(long())
    await stage.settle()
    (wake,) = await stage.store.read(lambda tx: tx.wakes.page(task_id=handle.id))

    for _ in range(2):
        await stage.store.write(cancelling_wake(wake.id, why="the disk is full", now=stage.clock.now()))

    failure = (await handle.task()).failure
    assert failure is not None
    assert (failure.kind, failure.facts["why"]) == ("failed_resume", "wake_cancelled")
    assert wake.checkpoint_id is not None
    await stage.store.write(retrying(wake.checkpoint_id, now=stage.clock.now()))
    await stage.open(long)
    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED


@pytest.mark.parametrize(("minutes", "is_woken"), [(1, False), (9, True)])
async def test_auto_switches_smart_wake_on_from_the_start_if_earlier_tasks_came_near_the_limit(
    quick: Stage, minutes: int, *, is_woken: bool
) -> None:
    is_slow = False

    async def work() -> None:
        quick.clock.advance(minutes=11 if is_slow else minutes)

    @hf.task(run_timeout="10m", attempts=1)
    async def usual(run: hf.Run) -> None:
        async for turn in run.turns(max=1):
            await turn.step(work)
        await run.step(hf.step(lambda: None, name="more"))

    await quick.open(usual)
    for _ in range(3):
        await quick.run(usual())
    is_slow = True

    handle = await quick.start(usual())
    await quick.settle()

    limited = await quick.events(handle, EventKind.RUN_LIMITED)
    assert bool(limited) is is_woken
    # Either way it has saved a step, so it is not stuck, and is woken.
    assert await handle.status() is TaskStatus.WAITING


class JumpingClock:
    """A wall clock that was set, over a steady one that was not."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self.passed_s = 0.0
        self.jumped_by = timedelta(0)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.passed_s) + self.jumped_by

    def steady_ns(self) -> int:
        return int(self.passed_s * 1e9)


def timer_of(stage: Stage) -> WakeTimer:
    return WakeTimer(stage.store, stage.clock, stage._resumer)


async def ended(handle: Handle[Any]) -> Task:
    while not (task := await handle.task()).has_ended:  # noqa: ASYNC110 - no hint tells it
        await asyncio.sleep(0.01)
    return task


async def test_a_step_that_may_take_longer_than_its_run_is_refused_with_an_example(quick: Stage) -> None:
    @hf.step(timeout="1h")
    async def slow() -> None:
        """Not begun."""

    @hf.task(run_timeout="10m")
    async def tight(run: hf.Run) -> None:
        await run.step(slow)

    await quick.open(tight)
    handle = await quick.start(tight())
    await quick.settle()

    failure = (await handle.task()).failure
    assert failure is not None
    assert "step slow may take 1:00:00 (its timeout), and one run only 0:10:00" in failure.message
    assert '@hf.task(run_timeout="30m")' in failure.message
