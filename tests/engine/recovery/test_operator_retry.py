"""A person's retry: a task that ended without success goes on from its last good place, exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast import app
from holdfast.core.clock import SystemClock
from holdfast.core.errors import Conflict, IllegalMove, NotFound, NotYours, Pruned, Refused
from holdfast.core.events import EventKind
from holdfast.core.ids import new_run_id
from holdfast.core.run import Queue, RunOutcome
from holdfast.core.task import Failure, RuntimeName, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.client.handles import Handle
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, NewTask, creating, end_task, ended_with
from holdfast.engine.ledger.retention import pruning, pruning_checkpoints
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.engine.recovery.reopen import FORGIVEN, NOT_RESUMED
from holdfast.store import Store, Tx
from holdfast.testing import Crashed, FailingStore, RepeatingStore
from holdfast.testing.stores import Failpoint
from tests.builders import a_run, a_task, later, put
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.stage import Stage
from tests.engine.tables import dump, execute
from tests.servers import PostgresServer

NOW = later(hours=1)
FAILED = RunOutcome(status=RunStatus.FAILED)


class RepairedService:
    """What was done outside, how often; `is_fixed` is the new code."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.is_fixed = False

    async def pay(self, to: str) -> str:
        self.done[to] += 1
        return f"paid {to}"

    async def read(self) -> str:
        self.done["read"] += 1
        if not self.is_fixed:
            raise ValueError("a bug")
        return "read"


@pytest.fixture
def service() -> RepairedService:
    return RepairedService()


def a_report(service: RepairedService, **options: Any) -> Any:
    """It pays, and then does something that fails until its bug is fixed."""
    pay = hf.opaque(service.pay)

    @hf.task(name="report", **{"backoff": "1s"} | options)
    async def report(run: hf.Run) -> str:
        return f"{await run.step(pay, 'ann')}, {await run.step(service.read)}"

    return report


async def statuses(stage: Stage, handle: Handle[Any]) -> list[RunStatus]:
    return [run.status for run in await stage.runs(handle)]


def stored(store: Store, status: TaskStatus, **changes: Any) -> Task:
    """A task that has ended so, with one run."""
    task = a_task(status=status, **changes)
    run = a_run(task, status=RunStatus(status.value))
    store.write_now(lambda tx: put(tx, task, run))
    return task


# --- the good way


async def test_a_failed_task_goes_on_after_the_bug_is_fixed(stage: Stage, service: RepairedService) -> None:
    report = a_report(service, attempts=2)
    await stage.open(report)
    handle = await stage.start(report(), key="monday")
    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    service.is_fixed = True

    retried = await handle.retry()

    assert retried.task.status is TaskStatus.QUEUED
    assert (retried.task.ended_at, retried.task.failure, retried.task.cleanup_after) == (None, None, None)
    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "paid ann, read"
    assert service.done == {"ann": 1, "read": 3}
    assert (await stage.start(report(), key="monday")).id == handle.id
    runs = await stage.runs(handle)
    assert [run.status for run in runs] == [RunStatus.FAILED, RunStatus.FAILED, RunStatus.SUCCEEDED]
    assert (runs[2].id, runs[2].resumes_run_id) == (retried.run_id, runs[1].id)
    assert_ledger_is_whole(stage.store)


async def test_only_the_last_turn_is_done_again(stage: Stage, service: RepairedService) -> None:
    @hf.task(attempts=1)
    async def loop(run: hf.Run) -> list[str]:
        notes = run.list("notes")
        async for turn in run.turns(max=3):
            notes.append(await turn.step(service.pay, f"turn {turn.number}"))
            if turn.number == 3:
                notes.append(await turn.step(service.read))
        return list(notes)

    await stage.open(loop)
    handle = await stage.start(loop())
    await stage.to_the_end(handle)
    service.is_fixed = True
    await handle.retry()

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == ["paid turn 1", "paid turn 2", "paid turn 3", "read"]
    assert service.done == {"turn 1": 1, "turn 2": 1, "turn 3": 1, "read": 2}


async def test_a_retry_gives_all_attempts_anew_and_so_does_the_next(
    stage: Stage, service: RepairedService
) -> None:
    report = a_report(service, attempts=3)
    await stage.open(report)
    handle = await stage.start(report())
    await stage.to_the_end(handle)
    for _ in range(2):
        await handle.retry()
        assert await stage.to_the_end(handle) is TaskStatus.FAILED

    assert service.done == {"ann": 1, "read": 9}
    assert len(await stage.runs(handle)) == 9


async def test_a_fork_of_a_retried_task_has_no_more_attempts_than_any_other(
    stage: Stage, service: RepairedService
) -> None:
    @hf.task(name="loop", attempts=2, backoff="1s")
    async def loop(run: hf.Run) -> None:
        async for turn in run.turns(max=3):
            if turn.number == 3:
                await turn.step(service.read)

    await stage.open(loop)
    handle = await stage.start(loop())
    await stage.to_the_end(handle)
    await handle.retry()
    await stage.to_the_end(handle)
    stage.clock.advance(seconds=1)
    service.done.clear()
    forked = await stage.holdfast.fork(handle, at="turn:2")

    assert await stage.to_the_end(forked) is TaskStatus.FAILED
    assert service.done["read"] == 2


async def test_deaths_are_counted_anew_and_the_run_is_no_suspect(
    stage: Stage, service: RepairedService
) -> None:
    report = a_report(service, attempts=1)
    await stage.open(report)
    handle = await stage.start(report())
    await stage.to_the_end(handle)
    execute(stage.store, "UPDATE runs SET is_alone = 1, idle_attempts = 4")
    await handle.retry()

    last = (await stage.runs(handle))[-1]
    assert (last.is_alone, last.idle_attempts) == (False, 0)


async def test_a_timed_out_task_gets_its_time_anew(stage: Stage, service: RepairedService) -> None:
    @hf.task(timeout="1h", attempts=1)
    async def slow(run: hf.Run) -> str:
        paid = await run.step(service.pay, "ann")
        await run.sleep("50m")
        await run.sleep("50m")
        return paid

    await stage.open(slow)
    handle = await stage.start(slow())
    assert await stage.to_the_end(handle) is TaskStatus.TIMED_OUT
    await handle.retry()

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert service.done["ann"] == 1


async def test_an_opaque_effect_that_failed_is_not_called_again_by_itself(
    stage: Stage, service: RepairedService
) -> None:
    @hf.opaque
    async def send() -> str:
        service.done["send"] += 1
        raise RuntimeError("no answer")

    @hf.task(attempts=1)
    async def letters(run: hf.Run) -> str:
        try:
            await run.step(send)
        except RuntimeError:
            if not service.is_fixed:
                raise ValueError("a bug") from None
        return "sent"

    await stage.open(letters)
    handle = await stage.start(letters())
    await stage.to_the_end(handle)
    # The failure ended the run, so a person is asked first; then the task fails with it.
    await stage.holdfast.resolve((await stage.review()).id, "compensate")
    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    service.is_fixed = True
    await handle.retry()
    await stage.to_the_end(handle)

    assert service.done["send"] == 1


async def test_an_opaque_effect_that_raised_and_was_caught_is_replayed_and_not_called(
    stage: Stage, service: RepairedService
) -> None:
    @hf.opaque
    async def send() -> str:
        service.done["send"] += 1
        raise RuntimeError("no answer")

    @hf.task(attempts=1)
    async def letters(run: hf.Run) -> str:
        sent = "sent"
        try:
            await run.step(send)
        except RuntimeError:
            sent = "not sent"
        return f"{sent}, {await run.step(service.read)}"

    await stage.open(letters)
    handle = await stage.start(letters())
    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    service.is_fixed = True
    await handle.retry()

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "not sent, read"
    assert service.done == {"send": 1, "read": 2}


async def test_a_rung_that_raises_leaves_the_failed_step_to_be_tried_again(
    stage: Stage, service: RepairedService
) -> None:
    def broken(_item: object, _failure: Failure) -> list[str]:
        raise TypeError("a bug in the ladder")

    @hf.task(ladder=[hf.replan(broken)])
    async def planned(run: hf.Run) -> str:
        async for turn in run.plan(["only"]):
            return await turn.step(service.read)
        return "nothing"

    await stage.open(planned)
    handle = await stage.start(planned())
    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    service.is_fixed = True
    await handle.retry()

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "read"


async def test_a_person_who_said_fail_may_change_their_mind(stage: Stage, service: RepairedService) -> None:
    @hf.task(ladder=[hf.ask()])
    async def asking(run: hf.Run) -> str:
        return await run.step(service.read)

    await stage.open(asking)
    handle = await stage.start(asking())
    await stage.to_the_end(handle)
    await stage.holdfast.answer(await stage.question(), "fail")
    assert await stage.to_the_end(handle) is TaskStatus.FAILED

    await handle.retry()
    await stage.to_the_end(handle)
    assert service.done["read"] == 2
    service.is_fixed = True
    await stage.holdfast.answer(await stage.question(), "retry")

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert service.done["read"] == 3


async def test_the_feed_says_that_it_was_opened_again_and_that_it_ended_twice(
    stage: Stage, service: RepairedService
) -> None:
    report = a_report(service, attempts=1)
    await stage.open(report)
    handle = await stage.start(report())
    await stage.to_the_end(handle)
    service.is_fixed = True
    retried = await handle.retry()
    await stage.to_the_end(handle)

    told = await stage.events(handle, EventKind.TASK_ENDED, EventKind.TASK_REOPENED)
    assert [event.kind for event in told] == [
        EventKind.TASK_ENDED,
        EventKind.TASK_REOPENED,
        EventKind.TASK_ENDED,
    ]
    assert told[1].facts["run_id"] == retried.run_id


@pytest.mark.parametrize("status", [TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.LOST])
def test_what_failed_timed_out_or_is_lost_goes_on(store: Store, status: TaskStatus) -> None:
    task = stored(store, status)

    retried = store.write_now(retrying_task(task.id, now=NOW))

    assert retried.task.status is TaskStatus.QUEUED
    assert store.read_now(lambda tx: tx.runs.get(retried.run_id)).queue is Queue.READY


def test_what_a_producer_outside_carries_waits_for_its_producer(store: Store) -> None:
    task = a_task(status=TaskStatus.LOST, runtime=RuntimeName.ACP)
    run = a_run(task, status=RunStatus.LOST, queue=Queue.PRODUCER)
    store.write_now(lambda tx: put(tx, task, run))

    retried = store.write_now(retrying_task(task.id, now=NOW))

    assert store.read_now(lambda tx: tx.runs.get(retried.run_id)).queue is Queue.PRODUCER


# --- cancelled


async def test_a_cancelled_task_goes_on_only_if_that_is_said(stage: Stage, service: RepairedService) -> None:
    @hf.task
    async def slow(run: hf.Run) -> str:
        paid = await run.step(service.pay, "ann")
        await run.sleep("1h")
        return paid

    await stage.open(slow)
    handle = await stage.start(slow())
    await stage.settle()
    await handle.cancel("not needed")

    with pytest.raises(Refused, match=f"cancelled: not needed.*tasks retry {handle.id} --cancelled"):
        await handle.retry()
    retried = await handle.retry(cancelled=True)

    assert (retried.task.cancel_reason, retried.task.cancel_requested_at) == (None, None)
    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert service.done["ann"] == 1


# --- children


async def test_children_that_were_cancelled_with_it_go_on_and_those_a_person_cancelled_do_not(
    stage: Stage, service: RepairedService
) -> None:
    @hf.task
    async def slow(run: hf.Run, who: str) -> str:
        paid = await run.step(service.pay, who)
        await run.sleep("1h")
        return paid

    @hf.task(attempts=1)
    async def parent(run: hf.Run) -> str:
        beside = await run.spawn(slow("bob"))
        await run.spawn(slow("cid"))
        await run.sleep("40s")
        await run.step(service.read)
        return await beside

    await stage.open(parent, slow)
    handle = await stage.start(parent())
    await stage.settle()
    cid = next(one for one in children_of(stage, handle) if b"cid" in one.arguments)
    await stage.holdfast.cancel(cid.id, reason="not him")
    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    service.is_fixed = True
    await handle.retry()

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "paid bob"
    assert service.done == {"bob": 1, "cid": 1, "read": 2}
    assert sorted(one.status for one in children_of(stage, handle)) == ["cancelled", "succeeded"]
    assert_ledger_is_whole(stage.store)


def children_of(stage: Stage, handle: Handle[Any]) -> list[Task]:
    return stage.store.read_now(lambda tx: tx.tasks.children(handle.id))


async def test_a_parent_that_failed_by_its_child_goes_on_together_with_it(
    stage: Stage, service: RepairedService
) -> None:
    report = a_report(service, attempts=1)

    @hf.task(attempts=1)
    async def parent(run: hf.Run) -> str:
        return f"{await (await run.spawn(report()))}!"

    await stage.open(parent, report)
    handle = await stage.start(parent())
    assert await stage.to_the_end(handle) is TaskStatus.FAILED
    service.is_fixed = True
    await handle.retry()

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "paid ann, read!"
    assert service.done["ann"] == 1


async def test_a_child_is_retried_before_its_parent_and_not_while_that_one_goes_on(
    stage: Stage, service: RepairedService
) -> None:
    report = a_report(service, attempts=1)

    @hf.task(attempts=1)
    async def parent(run: hf.Run) -> str:
        return f"{await (await run.spawn(report()))}!"

    await stage.open(parent, report)
    handle = await stage.start(parent())
    await stage.to_the_end(handle)
    (child,) = children_of(stage, handle)
    await stage.holdfast.retry(child.id)
    await stage.to_the_end(stage.holdfast.handle(child.id))
    service.is_fixed = True
    await handle.retry()

    with pytest.raises(Conflict, match=f"{handle.id}, which started {child.id}, is queued"):
        await stage.holdfast.retry(child.id)

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert service.done == {"ann": 1, "read": 3}
    assert_ledger_is_whole(stage.store)


async def test_a_child_that_was_given_up_is_retried_and_then_its_parent(stage: Stage) -> None:
    dies = [True]

    @hf.task(name="deadly")
    async def deadly(run: hf.Run) -> object:
        if dies:
            raise Crashed
        return "alive"

    @hf.task(name="parent", attempts=3, backoff="1s")
    async def parent(run: hf.Run) -> str:
        return f"{await (await run.spawn(deadly()))}!"

    await stage.open(parent, deadly)
    handle = await stage.start(parent())
    for _ in range(40):
        if await stage.to_the_end(handle) is TaskStatus.FAILED:
            break
        await stage.open(parent, deadly)
    dies.clear()
    (child,) = children_of(stage, handle)
    await stage.holdfast.retry(child.id)
    await handle.retry()
    await stage.open(parent, deadly)

    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert await stage.result(handle) == "alive!"


def test_while_a_child_is_still_being_stopped_its_parent_is_not_retried(store: Store) -> None:
    task = stored(store, TaskStatus.FAILED)
    child = a_task(
        status=TaskStatus.RUNNING,
        parent_task_id=task.id,
        cancel_requested_at=later(),
        cancel_reason=ended_with(task.id),
    )
    store.write_now(lambda tx: put(tx, child, a_run(child, status=RunStatus.RUNNING)))
    before = dump(store)

    with pytest.raises(Conflict, match=f"{child.id}.*still being stopped"):
        store.write_now(retrying_task(task.id, now=NOW))

    assert dump(store) == before


def test_a_child_whose_parent_has_succeeded_without_it_is_not_retried(store: Store) -> None:
    parent = stored(store, TaskStatus.SUCCEEDED)
    child = stored(store, TaskStatus.FAILED, parent_task_id=parent.id)

    with pytest.raises(Refused, match=f"tasks fork {child.id}"):
        store.write_now(retrying_task(child.id, now=NOW))


# --- a resume that failed


async def test_a_task_that_could_not_be_resumed_goes_on_from_its_checkpoint(stage: Stage) -> None:
    handle, dies, program = await given_up(stage)
    dies.clear()

    retried = await handle.retry()

    assert retried.task.status is TaskStatus.PAUSED
    assert (await stage.runs(handle))[-1].id == retried.run_id
    await stage.open(program)
    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED
    assert_ledger_is_whole(stage.store)


async def test_it_goes_on_from_its_journal_if_the_checkpoint_was_pruned(stage: Stage) -> None:
    handle, dies, program = await given_up(stage)
    dies.clear()
    stage.clock.advance(days=1)
    await stage.store.write(pruning_checkpoints(older_than=stage.clock.now()))

    retried = await handle.retry()

    assert retried.task.status is TaskStatus.QUEUED
    await stage.open(program)
    assert await stage.to_the_end(handle) is TaskStatus.SUCCEEDED


async def given_up(stage: Stage) -> tuple[Handle[Any], list[bool], Any]:
    """A task that killed its process until it was given up."""
    dies = [True]

    @hf.task(timeout="1h")
    async def deadly(run: hf.Run) -> str:
        if dies:
            raise Crashed
        return "alive"

    await stage.open(deadly)
    handle = await stage.start(deadly())
    for _ in range(40):
        if await stage.to_the_end(handle) is TaskStatus.FAILED:
            break
        await stage.open(deadly)
    failure = (await handle.task()).failure
    assert failure is not None
    assert failure.kind == NOT_RESUMED
    stage.clock.advance(hours=2)
    await stage.open(deadly)
    return handle, dies, deadly


# --- refused


@pytest.mark.parametrize(
    "status", [one for one in TaskStatus if one.value not in ("failed", "timed_out", "lost", "cancelled")]
)
def test_what_goes_on_or_has_succeeded_is_not_retried(store: Store, status: TaskStatus) -> None:
    task = a_task(status=status)
    store.write_now(lambda tx: put(tx, task))
    before = dump(store)

    with pytest.raises(IllegalMove, match="retried: "):
        store.write_now(retrying_task(task.id, now=NOW))

    assert dump(store) == before


def test_an_answer_to_a_message_is_not_retried_and_the_remedy_is_named(store: Store) -> None:
    task = stored(store, TaskStatus.FAILED, session_key="agent:ada:main", runtime=RuntimeName.AGENT)

    with pytest.raises(Refused, match="holdfast sessions send agent:ada:main"):
        store.write_now(retrying_task(task.id, now=NOW))


def test_a_task_that_retention_has_removed_is_refused_with_the_reason(store: Store) -> None:
    task = stored(store, TaskStatus.FAILED, cleanup_after=later())
    store.write_now(pruning(now=NOW, events_kept=timedelta(days=1)))

    with pytest.raises(Pruned, match="retention removed it"):
        store.write_now(retrying_task(task.id, now=NOW))
    with pytest.raises(NotFound) as never_there:
        store.write_now(retrying_task("task_none", now=NOW))
    assert not isinstance(never_there.value, Pruned)


def test_only_its_owner_may_retry_it(store: Store) -> None:
    task = stored(store, TaskStatus.FAILED, owner="ada")

    with pytest.raises(NotYours):
        store.write_now(retrying_task(task.id, now=NOW, owner="bob"))

    assert store.write_now(retrying_task(task.id, now=NOW, owner="ada")).task.owner == "ada"


def test_retention_waits_for_the_second_end(store: Store) -> None:
    task = stored(store, TaskStatus.FAILED, cleanup_after=later())
    store.write_now(retrying_task(task.id, now=NOW))
    store.write_now(pruning(now=later(days=365)))

    assert store.read_now(lambda tx: tx.tasks.get(task.id)).status is TaskStatus.QUEUED


# --- once


def test_a_retry_that_runs_twice_gives_the_same_answer_and_changes_nothing(store: Store) -> None:
    task = stored(store, TaskStatus.FAILED)

    retried = RepeatingStore(store).write_now(retrying_task(task.id, now=NOW))

    assert [run.id for run in store.read_now(lambda tx: tx.runs.of_task(task.id))][1:] == [retried.run_id]


def test_a_retry_whose_answer_was_lost_is_not_done_again_when_the_task_failed_again(store: Store) -> None:
    task = stored(store, TaskStatus.FAILED)
    write = retrying_task(task.id, now=NOW)
    first = store.write_now(write)

    def fail(tx: Tx) -> None:
        run, found = tx.runs.get(first.run_id), tx.tasks.get(task.id)
        tx.runs.end_idle(run, RunStatus.FAILED, failure=None, now=NOW)
        tx.tasks.end(found, TaskStatus.FAILED, FAILED, now=NOW, cleanup_after=later(days=9))

    store.write_now(fail)
    again = store.write_now(write)

    assert again.run_id == first.run_id
    assert again.task.status is TaskStatus.FAILED


async def test_a_second_retry_is_told_that_the_task_goes_on_already(
    stage: Stage, service: RepairedService
) -> None:
    report = a_report(service, attempts=1)
    await stage.open(report)
    handle = await stage.start(report())
    await stage.to_the_end(handle)
    await handle.retry()

    with pytest.raises(IllegalMove, match="it goes on already"):
        await handle.retry()

    assert await statuses(stage, handle) == [RunStatus.FAILED, RunStatus.QUEUED]


async def test_of_many_retries_at_once_exactly_one_makes_a_follow_up_run(
    stage: Stage, service: RepairedService
) -> None:
    report = a_report(service, attempts=1)
    await stage.open(report)
    handle = await stage.start(report())
    await stage.to_the_end(handle)

    answers = await asyncio.gather(*(handle.retry() for _ in range(12)), return_exceptions=True)

    assert sum(isinstance(one, IllegalMove) for one in answers) == 11
    assert await statuses(stage, handle) == [RunStatus.FAILED, RunStatus.QUEUED]


def test_killed_anywhere_a_retry_has_happened_whole_or_not_at_all(store: Store) -> None:
    recording = FailingStore(store)
    recording.write_now(retrying_task(failed_with_children(store).id, now=NOW))

    points = recording.failpoints()
    assert len(points) > 8
    for point in points:
        dies_once(store, point)


def failed_with_children(store: Store) -> Task:
    task = stored(store, TaskStatus.FAILED)
    stored(store, TaskStatus.CANCELLED, parent_task_id=task.id, cancel_reason=ended_with(task.id))
    return task


def dies_once(store: Store, point: Failpoint) -> None:
    task = failed_with_children(store)
    before = dump(store)
    write = retrying_task(task.id, now=NOW)

    with pytest.raises(Crashed):
        FailingStore(store, [point]).write_now(write)

    if point.where != "after":
        assert dump(store) == before
    # A caller that asks again with the same write, as after a lost answer, gets the one follow-up run.
    retried = store.write_now(write)
    runs = store.read_now(lambda tx: tx.runs.of_task(task.id))
    assert [run.id for run in runs][1:] == [retried.run_id]
    (child,) = store.read_now(lambda tx: tx.tasks.children(task.id))
    assert child.status is TaskStatus.QUEUED


def test_the_note_in_the_journal_is_by_the_run_that_ended(store: Store) -> None:
    (task,) = store.write_now(creating([NewTask(name="report", goal="tides")], now=later()))
    store.write_now(lambda tx: _fail(tx, task))
    store.write_now(retrying_task(task.id, now=NOW, run_id=new_run_id(NOW)))

    (note,) = store.read_now(lambda tx: tx.journal.steps(task.id))
    first, _ = store.read_now(lambda tx: tx.runs.of_task(task.id))
    assert (note.name, note.run_id, note.result) == (FORGIVEN, first.id, b"1")


def _fail(tx: Tx, task: Task) -> None:
    run = tx.runs.last_of_task(task.id)
    tx.runs.end_idle(run, RunStatus.FAILED, failure=None, now=later())
    end_task(tx, run, FAILED, now=later(), retention=DEFAULT_RETENTION)


# --- with a real process

KILLED = """
import os, signal, sys
from holdfast import app
from holdfast.core.clock import SystemClock
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.testing import FailingStore, Failpoint

url, task_id, where, statement = *sys.argv[1:4], int(sys.argv[4])
store = FailingStore(
    app.open_store(url, clock=SystemClock()),
    [Failpoint(call=1, where=where, statement=statement)],
    act=lambda: os.kill(os.getpid(), signal.SIGKILL),
)
store.write_now(retrying_task(task_id, now=SystemClock().now()))
print("still alive")
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server = request.getfixturevalue("postgres_server")
    assert isinstance(server, PostgresServer)
    return server.create_database()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "where", "statement"),
    [
        *[("sqlite", "before", 0), ("sqlite", "inside", 1), ("sqlite", "inside", 6), ("sqlite", "after", 0)],
        *[("postgres", "inside", 3), ("postgres", "after", 0)],
    ],
    indirect=["url"],
)
def test_a_process_that_is_killed_while_it_retries_leaves_none_or_one_follow_up_run(
    url: str, where: str, statement: int
) -> None:
    store = app.open_store(url, clock=SystemClock())
    task = failed_with_children(store)
    store.close()

    died = subprocess.run(
        [sys.executable, "-c", KILLED, url, task.id, where, str(statement)],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")},
    )

    assert (died.returncode, died.stdout) == (-signal.SIGKILL, b""), died.stderr.decode()
    store = app.open_store(url, clock=SystemClock())
    is_done = where == "after"
    assert len(store.read_now(lambda tx: tx.runs.of_task(task.id))) == 1 + is_done
    again = retrying_task(task.id, now=store.clock.now())
    if is_done:
        with pytest.raises(IllegalMove, match="it goes on already"):
            store.write_now(again)
    else:
        store.write_now(again)
    assert [run.status for run in store.read_now(lambda tx: tx.runs.of_task(task.id))] == [
        RunStatus.FAILED,
        RunStatus.QUEUED,
    ]
    assert store.verify() == []
    store.close()
