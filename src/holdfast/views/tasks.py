"""TaskView, a page of them, and one task in full: sanitized and stable."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.schedule import Firing
from holdfast.core.task import Origin, Progress, Task
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.effects import EffectView
from holdfast.views.payloads import FailureView, PayloadView
from holdfast.views.programs import ChildView, ListView, LoopView, ValueView
from holdfast.views.questions import QuestionView
from holdfast.views.runs import RunView, StepView
from holdfast.views.text import bounded, maybe_line, one_line
from holdfast.views.waits import WaitView

MAX_GOAL_CHARS = 2000


class OriginView(msgspec.Struct, frozen=True, kw_only=True):
    """Where the request came from."""

    channel: str
    peer: str | None
    account_id: str | None
    thread: str | None

    @classmethod
    def maybe(cls, origin: Origin | None) -> OriginView | None:
        if origin is None:
            return None
        return cls(
            channel=one_line(origin.channel),
            peer=maybe_line(origin.peer),
            account_id=maybe_line(origin.account_id),
            thread=maybe_line(origin.thread),
        )


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a task says it is."""

    done: int
    total: int | None
    failed: int
    subtask: str | None

    @classmethod
    def maybe(cls, progress: Progress | None) -> ProgressView | None:
        if progress is None:
            return None
        return cls(
            done=progress.done,
            total=progress.total,
            failed=progress.failed,
            subtask=maybe_line(progress.subtask),
        )


class FiringView(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrence of a schedule that a task answers."""

    id: str
    schedule: str
    occurrence_at: datetime
    status: str
    # It was interrupted, and queued again.
    is_retry: bool

    @classmethod
    def of(cls, firing: Firing) -> FiringView:
        return cls(
            id=one_line(firing.id),
            schedule=one_line(firing.schedule),
            occurrence_at=firing.occurrence_at,
            status=firing.status.value,
            is_retry=firing.is_retry,
        )


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work that someone asked for, as a line of a list."""

    id: str
    status: str
    name: str
    goal: str
    owner: str
    runtime: str
    priority: int
    waits_on: str | None
    progress: ProgressView | None
    failure: FailureView | None
    cancel_requested_at: datetime | None
    cancel_reason: str | None
    origin: OriginView | None
    session_key: str | None
    parent_task_id: str | None
    flow_id: str | None
    key: str | None
    notify: str
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    is_damaged: bool

    @classmethod
    def of(cls, task: Task) -> TaskView:
        return cls(
            id=one_line(task.id),
            status=task.status.value,
            name=one_line(task.name),
            goal=bounded(task.goal, MAX_GOAL_CHARS),
            owner=one_line(task.owner),
            runtime=task.runtime.value,
            priority=task.priority,
            waits_on=maybe_line(task.waits_on),
            progress=ProgressView.maybe(task.progress),
            failure=FailureView.maybe(task.failure),
            cancel_requested_at=task.cancel_requested_at,
            cancel_reason=maybe_line(task.cancel_reason),
            origin=OriginView.maybe(task.origin),
            session_key=maybe_line(task.session_key),
            parent_task_id=maybe_line(task.parent_task_id),
            flow_id=maybe_line(task.flow_id),
            key=maybe_line(task.dedup_key),
            notify=task.notify.value,
            created_at=task.created_at,
            updated_at=task.updated_at,
            started_at=task.started_at,
            ended_at=task.ended_at,
            is_damaged=task.is_damaged,
        )


class TaskPageView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of tasks, newest first, with how many there are in each status."""

    tasks: list[TaskView] = []
    counts: dict[str, int] = {}
    # For `--before`: what follows this page; null at the end.
    next_page_token: str | None = None


class TaskDetailView(msgspec.Struct, frozen=True, kw_only=True):
    """One task in full: its lineage of runs, its checkpoints, and where its journal stands."""

    task: TaskView
    arguments: PayloadView | None
    result: PayloadView | None
    plan: PlanView | None
    runs: list[RunView]
    checkpoints: list[CheckpointLineView]
    # Those of finished turns included.
    steps_saved: int
    latest_steps: list[StepView]
    # Null for a task that no schedule asked for.
    firing: FiringView | None = None
    # In words, with the next command; null for who waits for nothing.
    waits_for: WaitView | None = None
    loops: list[LoopView] = []
    lists: list[ListView] = []
    values: list[ValueView] = []
    # The newest of them, oldest first; `more` names what has more than is shown here.
    effects: list[EffectView] = []
    questions: list[QuestionView] = []
    children: list[ChildView] = []
    more: list[str] = []
    # What of it could not be read, in sentences; empty when all of it could.
    problems: list[str] = []


class WaitedView(msgspec.Struct, frozen=True, kw_only=True):
    """The task when the waiting was over: because it had ended, or because the time was up."""

    has_ended: bool
    task: TaskView
    # Null unless it succeeded.
    result: PayloadView | None


class FollowedView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was started or followed here, with its whole result once it has one."""

    id: str
    status: str
    result: Any
    failure: FailureView | None
    # How many are saved, those of finished turns included.
    steps: int
    name: str
    goal: str
    key: str | None
    waits_on: str | None
    # False when it was found: by its key, or because it was to be resumed.
    is_new: bool

    @classmethod
    def of(cls, task: Task, *, result: Any, steps: int, is_new: bool) -> FollowedView:
        return cls(
            id=one_line(task.id),
            status=task.status.value,
            result=result,
            failure=FailureView.maybe(task.failure),
            steps=steps,
            name=one_line(task.name),
            goal=bounded(task.goal, MAX_GOAL_CHARS),
            key=maybe_line(task.dedup_key),
            waits_on=maybe_line(task.waits_on),
            is_new=is_new,
        )


class ResultView(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended, for the program that waits for it: its result is whole, as it was returned."""

    task_id: str
    status: str
    has_ended: bool
    # Null unless it succeeded.
    result: Any
    failure: FailureView | None

    @classmethod
    def of(cls, task: Task) -> ResultView:
        """Of a task whose result is in place, not a reference to a blob."""
        return cls(
            task_id=one_line(task.id),
            status=task.status.value,
            has_ended=task.has_ended,
            # Not read and written again: it comes as it is stored.
            result=None if task.result is None else msgspec.Raw(task.result),
            failure=FailureView.maybe(task.failure),
        )


class CreatedView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is recorded now, or was before under the same key."""

    task_id: str
    is_new: bool


class CancelView(msgspec.Struct, frozen=True, kw_only=True):
    """What a cancel did: `cancelled`, `cancel_requested`, or `already_ended` and changed nothing."""

    outcome: str
    task: TaskView


class RetriedView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that goes on after it ended without success: it is queued with this run, or paused with it."""

    task: TaskView
    run_id: str


class NotRetriedView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that does not go on, and why."""

    task_id: str
    code: str
    why: str


class RetriedPageView(msgspec.Struct, frozen=True, kw_only=True):
    """Of several tasks, newest first: which go on, and which do not."""

    count: int = 0
    task_ids: list[str] = []
    refused: list[NotRetriedView] = []
    # For `--before`: where the next page begins; null when all were looked at.
    next_page_token: str | None = None


class ForkedView(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was made from the past of another, now or before under the same key."""

    task: TaskView
    source_task_id: str
    at: str
    is_new: bool
