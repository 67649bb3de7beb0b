"""What a producer records about work that it executes itself, on each database."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import BadInput, NotFound, NotYours, OwnerMissing, ParentMissing, RunIdTaken
from holdfast.core.events import EventKind
from holdfast.core.payload import decode_payload
from holdfast.core.recorded import RecordedWork, TerminalOutcome
from holdfast.core.task import Failure, NotifyPolicy, Progress
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.ledger.ledger import AlreadyEnded, Cancelled, Finished
from holdfast.engine.ledger.retention import pruning
from holdfast.engine.producers.contract import (
    Alive,
    LifeAnswer,
    NotMine,
    ReattachAnswer,
    StopAnswer,
    Unsupported,
    WorkLost,
    WorkStopped,
)
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.stopping import NotStopped, ending_stopped
from holdfast.engine.producers.writes import NewRecord, Noted
from holdfast.runtimes.cli import CliRuntime, pid_reference
from holdfast.store import Store
from holdfast.store.events import START
from holdfast.testing import FakeClock
from holdfast.testing.stores import RepeatingStore
from holdfast.upkeep.proofs import RuntimeProofs
from holdfast.upkeep.sweep import Sweep
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.dead_processes import die
from tests.engine.parts import Parts

FAILURE = Failure(kind="exit", message="it exited with 1")


def a_record(**changes: Any) -> NewRecord:
    return NewRecord(
        **{"name": "render", "goal": "render the title", "owner": "ada", "runtime": "media"} | changes
    )


@pytest.fixture
def producers(store: Store, clock: FakeClock) -> Producers:
    return Producers(store, clock)


def ignored(store: Store, task_id: str) -> list[dict[str, object]]:
    events = store.read_now(lambda tx: tx.events.of_task(task_id, START))
    return [event.facts for event in events if event.kind is EventKind.UPDATE_IGNORED]


async def test_work_is_created_started_reported_and_finished_by_its_run_id(
    producers: Producers, store: Store, clock: FakeClock
) -> None:
    work = await producers.create(a_record(run_id="render-1", source_id="src", agent_id="painter"))
    await producers.start("render-1")
    clock.advance(seconds=5)
    await producers.progress(
        "render-1", Progress(done=1, total=3), summary="frame 1", tool="ffmpeg", tool_uses=2
    )
    finished = await producers.finish("render-1", {"frames": 3}, summary="three frames")

    assert work.task.status is TaskStatus.QUEUED
    assert isinstance(finished, Finished)
    after = await producers.get(work.task.id)
    assert after.task.status is TaskStatus.SUCCEEDED
    assert decode_payload(after.task.result or b"") == {"frames": 3}
    assert after.task.progress == Progress(done=1, total=3)
    assert after.details is not None
    assert after.details.progress_summary == "frame 1"
    assert after.details.terminal_summary == "three frames"
    assert after.details.terminal_outcome is TerminalOutcome.SUCCEEDED
    assert (after.details.last_tool_name, after.details.tool_use_count) == ("ffmpeg", 2)
    assert after.details.alive_until is None
    assert_ledger_is_whole(store)


async def test_the_same_finish_again_is_finished_and_another_result_changes_nothing(
    producers: Producers, store: Store
) -> None:
    work = await producers.create(a_record(), is_running=True)
    await producers.finish(work.run.id, 1)
    again = await producers.finish(work.run.id, 1)
    other = await producers.finish(work.run.id, 2)
    failed = await producers.fail(work.run.id, FAILURE)

    assert isinstance(again, Finished)
    assert isinstance(other, AlreadyEnded)
    assert isinstance(failed, AlreadyEnded)
    assert decode_payload((await producers.get(work.run.id)).task.result or b"") == 1
    assert [one["asked"] for one in ignored(store, work.task.id)] == ["succeeded", "failed"]


async def test_a_finish_before_the_start_starts_and_ends_the_work(producers: Producers, store: Store) -> None:
    work = await producers.create(a_record())
    await producers.finish(work.task.id, "done")
    late = await producers.start(work.run.id)

    after = await producers.get(work.run.id)
    assert after.run.status is RunStatus.SUCCEEDED
    assert after.run.started_at is not None
    assert isinstance(late, AlreadyEnded)
    assert_ledger_is_whole(store)


async def test_a_weaker_update_after_the_end_is_ignored_and_told(producers: Producers, store: Store) -> None:
    work = await producers.create(a_record(), is_running=True)
    await producers.time_out(work.run.id, Failure(kind="timeout", message="it took an hour"))
    late = await producers.progress(work.run.id, summary="still at it")
    beat = await producers.beat(work.run.id)

    assert isinstance(late, AlreadyEnded)
    assert isinstance(beat, AlreadyEnded)
    after = await producers.get(work.run.id)
    assert after.task.status is TaskStatus.TIMED_OUT
    assert after.details is not None
    assert after.details.progress_summary is None
    assert after.details.terminal_summary == "it took an hour"
    assert len(ignored(store, work.task.id)) == 1


async def test_every_sign_of_life_counts_for_the_time_that_the_producer_promised(
    producers: Producers, store: Store, clock: FakeClock
) -> None:
    work = await producers.create(a_record(beat_timeout_s=60), is_running=True)
    clock.advance(seconds=50)
    await producers.beat(work.run.id)
    clock.advance(seconds=50)
    early = store.read_now(lambda tx: tx.recorded.silent(now=clock.now(), limit=10))
    clock.advance(seconds=10)
    late = store.read_now(lambda tx: tx.recorded.silent(now=clock.now(), limit=10))

    assert early == []
    assert [one.task_id for one in late] == [work.task.id]


async def test_no_worker_takes_over_recorded_work_however_silent_it_is(
    parts: Parts, producers: Producers, clock: FakeClock
) -> None:
    work = await producers.create(a_record(), is_running=True)
    clock.advance(days=400)

    rescued = await parts.rescuer.rescue()

    assert (rescued.checkpointed, rescued.lost) == (0, 0)
    assert (await producers.get(work.run.id)).run.status is RunStatus.RUNNING


async def test_work_of_a_process_that_died_is_lost_at_once(
    store: Store, clock: FakeClock, tmp_path: Path, producers: Producers
) -> None:
    dead = await Parts.begin(store, clock, locks=tmp_path / "boots")
    work = await producers.create(a_record(), is_running=True, holder=dead.life.id)
    die(dead)
    alive = await Parts.begin(store, clock, locks=tmp_path / "boots")

    rescued = await alive.rescuer.rescue()

    assert rescued.lost == 1
    after = await producers.get(work.run.id)
    assert after.task.status is TaskStatus.LOST
    assert after.details is not None
    assert after.details.alive_until is None
    assert_ledger_is_whole(store)
    await alive.life.end()


async def test_work_that_a_dead_process_only_watched_is_left_to_its_runtime(
    store: Store, clock: FakeClock, tmp_path: Path, producers: Producers
) -> None:
    dead = await Parts.begin(store, clock, locks=tmp_path / "boots")
    mine = pid_reference(os.getpid())
    pid, started, kernel = mine.replace("@", ":").split(":")[1:]
    living, gone = [
        await producers.create(
            a_record(runtime="cli", reference=reference), is_running=True, holder=dead.life.id
        )
        for reference in (mine, f"pid:{pid}:{int(started) - 1}@{kernel}")
    ]
    die(dead)
    alive = await Parts.begin(store, clock, locks=tmp_path / "boots")

    rescued = [await alive.rescuer.rescue() for _ in range(2)]
    at_first = {one.run.id: (await producers.get(one.run.id)).task.status for one in (living, gone)}
    clock.advance(minutes=20)
    sweep = Sweep(store, clock, proofs=RuntimeProofs([CliRuntime()]))
    await sweep.apply(await sweep.plan(prunes=False))

    assert [one.lost for one in rescued] == [0, 0]
    assert set(at_first.values()) == {TaskStatus.RUNNING}
    assert (await producers.get(living.run.id)).task.status is TaskStatus.RUNNING
    lost = (await producers.get(gone.run.id)).task
    assert lost.failure is not None
    assert lost.failure.message.endswith(f"process {pid} has ended without a report")
    assert_ledger_is_whole(store)
    await alive.life.end()


async def test_a_repeated_create_finds_the_first_record(producers: Producers) -> None:
    first = await producers.create(a_record(run_id="render-1"), is_running=True)
    again = await producers.create(a_record(run_id="render-1"), is_running=True)

    assert again.task.id == first.task.id


async def test_a_record_without_its_owner_its_parent_or_its_own_run_id_is_refused(
    producers: Producers,
) -> None:
    await producers.create(a_record(run_id="render-1"))

    for wanted, changes in (
        (OwnerMissing, {"owner": None}),
        (OwnerMissing, {"owner": " "}),
        (ParentMissing, {"child_session_key": "agent:painter:sub"}),
        (ParentMissing, {"scope": "session"}),
        (RunIdTaken, {"run_id": "render-1", "name": "another"}),
        (NotYours, {"run_id": "render-1", "owner": "eve"}),
        (NotFound, {"flow_id": "flow_unknown"}),
        (NotFound, {"parent_task_id": "task_unknown"}),
        (BadInput, {"runtime": "python"}),
        (BadInput, {"run_id": "Not An Id"}),
        (BadInput, {"beat_timeout_s": 0}),
    ):
        with pytest.raises(wanted):
            await producers.create(a_record(**changes))


async def test_another_owner_cannot_report_and_a_workers_task_takes_no_report(
    producers: Producers, parts: Parts
) -> None:
    work = await producers.create(a_record())
    ours = await parts.create()

    with pytest.raises(NotYours):
        await producers.finish(work.run.id, owner="eve")
    with pytest.raises(BadInput, match="executed by a worker"):
        await producers.finish(ours.id)
    with pytest.raises(NotFound):
        await producers.start("run-unknown")


async def test_a_runtime_with_output_of_its_own_is_silent_unless_asked(producers: Producers) -> None:
    quiet = await producers.create(a_record(runtime="cron"))
    told = await producers.create(a_record(runtime="subagent"))

    assert quiet.task.notify is NotifyPolicy.SILENT
    assert told.task.notify is NotifyPolicy.DONE_ONLY


async def test_a_cancel_ends_the_record_when_no_runtime_controls_the_work(
    producers: Producers, store: Store, clock: FakeClock
) -> None:
    work = await producers.create(a_record(), is_running=True)
    outcome = await producers.cancel(work.task.id, reason="too slow")
    beat = await producers.beat(work.run.id)
    clock.advance(seconds=1)
    again = await producers.cancel(work.task.id, reason="too slow")

    assert isinstance(outcome, Cancelled)
    assert isinstance(beat, AlreadyEnded)
    assert beat.task.status is TaskStatus.CANCELLED
    assert isinstance(again, AlreadyEnded)
    assert_ledger_is_whole(store)


async def test_of_a_cancel_and_a_finish_the_first_counts_and_the_other_is_told(
    producers: Producers, store: Store, clock: FakeClock
) -> None:
    won = await producers.create(a_record(), is_running=True)
    lost = await producers.create(a_record(), is_running=True)
    await producers.finish(won.run.id, "done")
    late_cancel = await producers.cancel(won.task.id, reason="too slow")
    store.write_now(ending_stopped(lost.task.id, reason="too slow", now=clock.now()))
    late_finish = await producers.finish(lost.run.id, "done")

    assert isinstance(late_cancel, AlreadyEnded)
    assert late_cancel.task.status is TaskStatus.SUCCEEDED
    assert isinstance(late_finish, AlreadyEnded)
    assert late_finish.task.status is TaskStatus.CANCELLED
    assert [one["asked"] for one in ignored(store, lost.task.id)] == ["succeeded"]


class Scripted:
    """A runtime that answers as the test says, and notes what it was asked to stop."""

    name = "scripted"

    def __init__(self, answer: StopAnswer | Exception) -> None:
        self.answer = answer
        self.stopped: list[str] = []

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:
        self.stopped.append(f"{work.task.name}: {reason}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002 - the shape of a runtime
        return Alive()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:  # noqa: ARG002
        return WorkLost(why="scripted")


async def test_the_runtime_that_controls_the_work_stops_it_before_the_record_ends(
    store: Store, clock: FakeClock
) -> None:
    other, mine, third = Scripted(NotMine()), Scripted(WorkStopped()), Scripted(WorkStopped())
    producers = Producers(store, clock, runtimes=[other, mine, third])
    work = await producers.create(a_record(), is_running=True)

    outcome = await producers.cancel(work.run.id, reason="too slow")

    assert isinstance(outcome, Cancelled)
    assert [len(one.stopped) for one in (other, mine, third)] == [1, 1, 0]


@pytest.mark.parametrize("answer", [Unsupported(reason="it cannot be stopped"), RuntimeError("no socket")])
async def test_work_that_cannot_be_stopped_goes_on_and_its_producer_hears_of_the_request(
    store: Store, clock: FakeClock, answer: StopAnswer | Exception
) -> None:
    producers = Producers(store, clock, runtimes=[Scripted(answer)])
    work = await producers.create(a_record(), is_running=True)
    outcome = await producers.cancel(work.run.id, reason="too slow")
    beat = await producers.beat(work.run.id)
    stopped = await producers.stopped(work.run.id, reason="too slow")

    assert isinstance(outcome, NotStopped)
    assert "cannot be stopped" in outcome.reason or "no socket" in outcome.reason
    assert isinstance(beat, Noted)
    assert beat.is_cancel_requested
    assert stopped.task.status is TaskStatus.CANCELLED


async def test_the_facts_of_recorded_work_are_pruned_with_its_task(
    producers: Producers, store: Store, clock: FakeClock
) -> None:
    work = await producers.create(a_record(), is_running=True)
    await producers.finish(work.run.id)
    clock.advance(days=31)

    forgotten = store.write_now(pruning(now=clock.now() + timedelta(days=1)))

    assert forgotten.tasks == 1
    assert store.read_now(lambda tx: tx.recorded.get(work.task.id)) is None


async def test_every_call_may_run_again_after_its_own_commit(store: Store, clock: FakeClock) -> None:
    producers = Producers(RepeatingStore(store), clock)
    work = await producers.create(a_record(run_id="render-1"), is_running=True)
    queued = await producers.create(a_record())
    await producers.start(queued.run.id)
    await producers.progress(work.run.id, Progress(done=1), summary="frame 1")
    await producers.beat(work.run.id)
    await producers.note_dropped(work.run.id, 3)
    await producers.note_unrecorded("render", "render-0", 2)
    await producers.cancel(queued.run.id, reason="enough")
    await producers.finish(work.run.id, {"frames": 1})
    await producers.fail(work.run.id, FAILURE)

    assert (await producers.get(work.run.id)).task.status is TaskStatus.SUCCEEDED
