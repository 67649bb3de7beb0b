"""What must be true of every ledger, whatever happened to the processes that wrote it.

Each check reads like the sentence it stands for. They look at the rows and at nothing that the engine derives
from them, so that a mistake there cannot excuse itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TypeVar

import msgspec

from holdfast.core.checkpoint import Checkpoint
from holdfast.core.events import Event, EventKind
from holdfast.core.run import TASK_STATUS_OF, Queue, Run
from holdfast.core.step import Step
from holdfast.core.task import Task
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus, is_terminal
from holdfast.store import Store, Tx, rows
from holdfast.store.contract import Row
from holdfast.store.events import START, parse_position
from holdfast.store.verify import scan

T = TypeVar("T")

_PAUSED = {RunStatus.PAUSED_FOR_RESTART, RunStatus.RESUMING}
_OPEN = {CheckpointStatus.PAUSED_FOR_RESTART, CheckpointStatus.RESUMING}
_CONTINUED = {RunStatus.RESUMED, RunStatus.FAILED_RESUME}


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a ledger says, at one moment."""

    tasks: dict[str, Task]
    runs: dict[str, Run]
    checkpoints: dict[str, Checkpoint]
    steps: list[Step]
    events: list[Event]
    counts: dict[str, dict[str, int]]
    living_boots: set[str]

    def runs_of(self, task_id: str) -> list[Run]:
        return sorted((r for r in self.runs.values() if r.task_id == task_id), key=lambda run: run.number)


def contents_of(store: Store) -> Contents:
    return store.read_now(_read)


def _read(tx: Tx) -> Contents:
    def every(noun: str, width: int, read: Callable[[Row], T]) -> list[T]:
        return [read(row) for row in scan(tx, noun, width)]

    return Contents(
        tasks={task.id: task for task in every("tasks", 1, rows.task_from_row)},
        runs={run.id: run for run in every("runs", 1, rows.run_from_row)},
        checkpoints={one.id: one for one in every("checkpoints", 1, rows.checkpoint_from_row)},
        steps=every("steps", 4, rows.step_from_row),
        events=_feed(tx),
        counts={noun: tx.events.counts(noun) for noun in ("task", "run", "checkpoint")},
        living_boots={boot.id for boot in tx.boots.alive(limit=100_000)},
    )


def _feed(tx: Tx) -> list[Event]:
    feed: list[Event] = []
    while page := tx.events.after(feed[-1].position if feed else START, limit=1000):
        feed += page
    return feed


def assert_ledger_is_whole(store: Store, *, is_at_rest: bool = False) -> Contents:
    """Nothing doubled, nothing stuck, nothing damaged; at rest: nothing left to do, either."""
    assert store.verify() == []
    contents = contents_of(store)
    assert_every_task_has_one_unbroken_line_of_runs(contents)
    assert_every_interruption_has_at_most_one_follow_up(contents)
    assert_every_paused_run_is_paused_by_one_checkpoint(contents)
    assert_tasks_show_what_their_last_run_shows(contents)
    assert_nothing_is_stuck(contents)
    assert_every_step_was_saved_by_a_run_of_its_task(contents)
    assert_counts_are_what_a_scan_finds(contents)
    assert_events_tell_the_story_in_order(contents)
    if is_at_rest:
        assert_everything_has_ended(contents)
    return contents


def assert_every_task_has_one_unbroken_line_of_runs(contents: Contents) -> None:
    lines = _by_task(contents.runs.values())
    assert lines.keys() == contents.tasks.keys()
    for line in lines.values():
        line.sort(key=lambda run: run.number)
        assert [run.number for run in line] == list(range(1, len(line) + 1))
        assert line[0].resumes_run_id is None
        for before, after in pairwise(line):
            assert after.resumes_run_id == before.id
            assert before.status in _CONTINUED, f"{before.id} is {before.status} and was followed up"


def assert_every_interruption_has_at_most_one_follow_up(contents: Contents) -> None:
    followed = Counter(run.resumes_run_id for run in contents.runs.values() if run.resumes_run_id)
    assert all(times == 1 for times in followed.values())
    for checkpoint in contents.checkpoints.values():
        if checkpoint.status is CheckpointStatus.RESUMED:
            assert checkpoint.resumed_run_id is not None
            follow_up = contents.runs[checkpoint.resumed_run_id]
            assert follow_up.resumes_run_id == checkpoint.run_id
            assert follow_up.checkpoint_id == checkpoint.id
            assert contents.runs[checkpoint.run_id].status is RunStatus.RESUMED
        else:
            assert checkpoint.resumed_run_id is None
    for run in contents.runs.values():
        if run.status is RunStatus.RESUMED:
            assert followed[run.id] == 1, f"{run.id} is resumed and nothing continues it"


def assert_every_paused_run_is_paused_by_one_checkpoint(contents: Contents) -> None:
    by_run = Counter(one.run_id for one in contents.checkpoints.values() if one.status in _OPEN)
    paused = {run.id: run for run in contents.runs.values() if run.status in _PAUSED}
    assert by_run == Counter(dict.fromkeys(paused, 1))
    for one in contents.checkpoints.values():
        if one.status in _OPEN:
            assert paused[one.run_id].status.value == str(one.status)
        if one.status is CheckpointStatus.FAILED_RESUME:
            assert one.diagnostic is not None, f"{one.id} failed and does not say why"
            assert contents.runs[one.run_id].status in {RunStatus.FAILED_RESUME, RunStatus.CANCELLED}


def assert_tasks_show_what_their_last_run_shows(contents: Contents) -> None:
    lines = _by_task(contents.runs.values())
    for task in contents.tasks.values():
        last = max(lines[task.id], key=lambda run: run.number)
        assert task.status is TASK_STATUS_OF[last.status], (
            f"{task.id} is {task.status}, {last.id} {last.status}"
        )
        assert (task.result is not None) == (task.status is TaskStatus.SUCCEEDED)
        assert (task.cleanup_after is not None) == task.has_ended


def assert_nothing_is_stuck(contents: Contents) -> None:
    """Every record that has not ended names a living owner, a due time or a waker."""
    for run in contents.runs.values():
        match run.status:
            case RunStatus.RUNNING:
                assert run.claimed_by in contents.living_boots, (
                    f"{run.id} is carried by the dead {run.claimed_by}"
                )
                assert run.lease_until is not None
            case RunStatus.QUEUED:
                assert run.queue in {Queue.READY, Queue.LATER, Queue.PRODUCER}
                assert run.claimed_by is None
            case RunStatus.WAITING:
                assert run.waits_on
            case RunStatus.RESUMING:
                (checkpoint,) = (
                    one
                    for one in contents.checkpoints.values()
                    if one.run_id == run.id and one.status is CheckpointStatus.RESUMING
                )
                assert checkpoint.claimed_by in contents.living_boots
                assert checkpoint.lease_until is not None
            case RunStatus.PAUSED_FOR_RESTART:
                pass  # its checkpoint is its waker: see above
            case _:
                assert is_terminal(run.status)


def assert_everything_has_ended(contents: Contents) -> None:
    left = [f"{task.id} is {task.status}" for task in contents.tasks.values() if not task.has_ended]
    left += [f"{run.id} is {run.status}" for run in contents.runs.values() if not run.has_ended]
    left += [f"{one.id} is {one.status}" for one in contents.checkpoints.values() if one.status in _OPEN]
    assert left == []


def assert_every_step_was_saved_by_a_run_of_its_task(contents: Contents) -> None:
    keys = Counter((step.task_id, step.scope, step.name, step.occurrence) for step in contents.steps)
    assert all(times == 1 for times in keys.values())
    for step in contents.steps:
        assert contents.runs[step.run_id].task_id == step.task_id


def assert_counts_are_what_a_scan_finds(contents: Contents) -> None:
    scanned = {
        "task": Counter(str(task.status) for task in contents.tasks.values()),
        "run": Counter(str(run.status) for run in contents.runs.values()),
        "checkpoint": Counter(str(one.status) for one in contents.checkpoints.values() if one.status),
    }
    assert contents.counts == scanned


def assert_events_tell_the_story_in_order(contents: Contents) -> None:
    """The feed only rises, and whoever hears all of it in the order of its places arrives at the ledger.

    (On a server the feed itself is in the order in which transactions began: what one of them saw of another
    may be told before it. Places are given when things happen.)
    """
    places = [parse_position(event.position) for event in contents.events]
    assert places == sorted(set(places)), next(pair for pair in pairwise(places) if pair[0] >= pair[1])
    story = Story()
    for event in sorted(contents.events, key=lambda event: parse_position(event.position)[1]):
        story.hear(event)
    assert story.tasks == {task.id: task.status for task in contents.tasks.values()}
    assert story.runs == {run.id: run.status for run in contents.runs.values() if run.id in story.runs}
    told = story.checkpoints
    assert told == {one.id: one.status for one in contents.checkpoints.values() if one.status}


class Story:
    """The statuses of all records as the feed alone tells them; a move that is not allowed is a lie."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskStatus] = {}
        # Runs appear with their first claim or pause: that a run was created has no event of its own.
        self.runs: dict[str, RunStatus] = {}
        self.checkpoints: dict[str, CheckpointStatus] = {}
        self._fences: dict[str, int] = {}
        self._run_of: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        subject, task = event.subject_id, event.task_id or ""
        match event.kind:
            case EventKind.TASK_CREATED:
                assert subject not in self.tasks
                self.tasks[subject] = TaskStatus.QUEUED
            case EventKind.TASK_ENDED:
                assert not is_terminal(self.tasks[subject]), f"{subject} ended twice"
                self.tasks[subject] = TaskStatus(str(event.facts["status"]))
            case EventKind.TASK_REOPENED:
                assert self.tasks[subject] is TaskStatus.FAILED
                self.tasks[subject] = TaskStatus.PAUSED
                checkpoint = str(event.facts["checkpoint_id"])
                self.checkpoints[checkpoint] = CheckpointStatus.PAUSED_FOR_RESTART
            case EventKind.RUN_CLAIMED:
                assert self.tasks[task] in {TaskStatus.QUEUED, TaskStatus.WAITING}
                assert self.runs.get(subject, RunStatus.QUEUED) in {RunStatus.QUEUED, RunStatus.WAITING}
                fence = int(str(event.facts["fence"]))
                assert fence > self._fences.get(subject, 0), f"{subject} was claimed twice with fence {fence}"
                self._fences[subject] = fence
                self.runs[subject], self.tasks[task] = RunStatus.RUNNING, TaskStatus.RUNNING
            case EventKind.RUN_RELEASED | EventKind.RUN_WOKEN:
                expected = RunStatus.RUNNING if event.kind is EventKind.RUN_RELEASED else RunStatus.WAITING
                assert self.runs[subject] is expected
                self.runs[subject], self.tasks[task] = RunStatus.QUEUED, TaskStatus.QUEUED
            case EventKind.RUN_WAITED:
                assert self.runs[subject] is RunStatus.RUNNING
                self.runs[subject], self.tasks[task] = RunStatus.WAITING, TaskStatus.WAITING
            case EventKind.RUN_PAUSED:
                assert self.runs[subject] is RunStatus.RUNNING
                self.runs[subject], self.tasks[task] = RunStatus.PAUSED_FOR_RESTART, TaskStatus.PAUSED
                checkpoint = str(event.facts["checkpoint_id"])
                assert checkpoint not in self.checkpoints
                self.checkpoints[checkpoint] = CheckpointStatus.PAUSED_FOR_RESTART
                self._run_of[checkpoint] = subject
            case EventKind.RUN_ENDED:
                assert not is_terminal(self.runs.get(subject, RunStatus.QUEUED)), f"{subject} ended twice"
                self.runs[subject] = RunStatus(str(event.facts["status"]))
            case EventKind.CHECKPOINT_CLAIMED:
                self._move(subject, CheckpointStatus.PAUSED_FOR_RESTART, CheckpointStatus.RESUMING)
            case EventKind.CHECKPOINT_RETURNED:
                self._move(subject, CheckpointStatus.RESUMING, CheckpointStatus.PAUSED_FOR_RESTART)
            case EventKind.CHECKPOINT_RESUMED:
                self._move(subject, CheckpointStatus.RESUMING, CheckpointStatus.RESUMED)
                follow_up = str(event.facts["run_id"])
                assert follow_up not in self.runs
                self.runs[follow_up], self.tasks[task] = RunStatus.QUEUED, TaskStatus.QUEUED
            case EventKind.CHECKPOINT_FAILED:
                assert self.checkpoints[subject] in _OPEN
                self.checkpoints[subject] = CheckpointStatus.FAILED_RESUME
            case _:
                pass  # boots, cancels asked for, updates ignored: they move nothing

    def _move(self, checkpoint_id: str, status: CheckpointStatus, to: CheckpointStatus) -> None:
        assert self.checkpoints[checkpoint_id] is status, f"{checkpoint_id} was told to go to {to}"
        self.checkpoints[checkpoint_id] = to
        run_id = self._run_of.get(checkpoint_id)
        if run_id is not None:
            self.runs[run_id] = RunStatus(to.value)


def _by_task(runs: Iterable[Run]) -> dict[str, list[Run]]:
    lines: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        lines[run.task_id].append(run)
    return lines
