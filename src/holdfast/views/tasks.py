"""TaskView, a page of tasks, and one task in full: sanitized, with stable fields."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.projection import ProjectedStatus
from holdfast.core.schedule import Firing
from holdfast.core.task import Origin, Progress, Task
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.effects import EffectView
from holdfast.views.payloads import FailureView, PayloadView
from holdfast.views.programs import ArtifactView, ChildView, ListView, LoopView, NoteView, ValueView
from holdfast.views.questions import QuestionView
from holdfast.views.recorded_facts import RecordedFactsView
from holdfast.views.runs import RunView, StepView
from holdfast.views.text import bounded, maybe_line, one_line
from holdfast.views.waits import WaitView
from holdfast.views.wakes import ResumePacketView, TaskDocumentView, TrailView, WakeView

MAX_GOAL_CHARS = 2000


class OriginView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class ProgressView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress that a task reports."""

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


class FiringView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The occurrence of a schedule that started a task."""

    id: str
    schedule: str
    occurrence_at: datetime
    status: str
    # True if it was interrupted and queued again.
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


class ProjectionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a task is not shown with the status that the ledger has: its worker is gone."""

    stored_status: str
    why: str


class TaskView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One task, in a list."""

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
    # Null if `status` is as the ledger has it.
    projection: ProjectionView | None = None
    # Null unless it does one item of a campaign.
    campaign_id: str | None = None

    def shown_as(self, projected: ProjectedStatus | None) -> TaskView:
        """The same task with the status that its next rescue will give it, if its worker is gone."""
        if projected is None:
            return self
        why = ProjectionView(stored_status=self.status, why=one_line(projected.why))
        return msgspec.structs.replace(self, status=projected.status.value, projection=why)

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
            campaign_id=maybe_line(task.campaign_id),
        )


class TaskPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of tasks, newest first, with the number in each status."""

    tasks: list[TaskView] = []
    counts: dict[str, int] = {}
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class TaskDetailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One task in full: its runs, its checkpoints, and the end of its journal."""

    task: TaskView
    arguments: PayloadView | None
    result: PayloadView | None
    plan: PlanView | None
    runs: list[RunView]
    checkpoints: list[CheckpointLineView]
    # Includes steps of finished turns.
    steps_saved: int
    latest_steps: list[StepView]
    # When retention may delete it; null until it has ended.
    cleanup_after: datetime | None = None
    # Of the last update that its requester is owed; `not_applicable` if none is.
    delivery_status: str = "not_applicable"
    # Null for a task that a worker executes.
    recorded: RecordedFactsView | None = None
    # Null for a task that no schedule started.
    firing: FiringView | None = None
    # What it waits for, with the next command; null if it waits for nothing.
    waits_for: WaitView | None = None
    loops: list[LoopView] = []
    lists: list[ListView] = []
    values: list[ValueView] = []
    # The newest wakes, newest first, and the trail: checkpoint, wake, resume, done.
    wakes: list[WakeView] = []
    trail: list[TrailView] = []
    # Where it stands, in the words of the contract for long work; null for recorded work.
    document: TaskDocumentView | None = None
    # What its next follow-up run is told, or its last one was told; null before it is interrupted.
    resume_packet: ResumePacketView | None = None
    # The newest ones, oldest first; `more` names the lists that are longer than shown.
    effects: list[EffectView] = []
    questions: list[QuestionView] = []
    children: list[ChildView] = []
    notes: list[NoteView] = []
    artifacts: list[ArtifactView] = []
    more: list[str] = []
    # Damaged parts, one sentence each; empty if there are none.
    problems: list[str] = []


class WaitedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The task when the wait was over: it had ended, or the wait timed out."""

    has_ended: bool
    task: TaskView
    # Null unless it succeeded.
    result: PayloadView | None
    # Why it has not ended; null if it has.
    reason: str | None = None
    # What it waits for, with the next command; null if it waits for nothing.
    waits_for: WaitView | None = None


class FollowedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task that was started or followed here, with its full result if it has one."""

    id: str
    status: str
    result: Any
    failure: FailureView | None
    # How many steps are saved, including those of finished turns.
    steps: int
    name: str
    goal: str
    key: str | None
    waits_on: str | None
    # False if the task existed before: found by its key, or resumed.
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


class ResultView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a task, for the program that waits for it, with its full result."""

    task_id: str
    status: str
    has_ended: bool
    # Null unless it succeeded.
    result: Any
    failure: FailureView | None

    @classmethod
    def of(cls, task: Task) -> ResultView:
        """From a task whose result is loaded."""
        return cls(
            task_id=one_line(task.id),
            status=task.status.value,
            has_ended=task.has_ended,
            # Pass the stored JSON on without decoding it.
            result=None if task.result is None else msgspec.Raw(task.result),
            failure=FailureView.maybe(task.failure),
        )


class CreatedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A new task, or the one with the same key."""

    task_id: str
    is_new: bool


class CancelView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a cancel, also for a task that cannot be cancelled."""

    # False if there is no such task.
    found: bool
    # True if it is cancelled, or will be when it next calls Holdfast.
    cancelled: bool
    # Why it is not cancelled, or not yet; null if it is.
    reason: str | None
    # `cancelled`, `cancel_requested`, `already_ended`, `not_supported` or `not_found`.
    outcome: str
    task: TaskView | None = None


class NotifyView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which updates the requester of a task gets, after a change."""

    # True if the task has this policy now.
    is_set: bool
    # Why it is not set, or has no effect; null otherwise.
    reason: str | None
    task: TaskView


class RetriedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A retried task; it is queued or paused with this run."""

    task: TaskView
    run_id: str


class NotRetriedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A task that was not retried, and why."""

    task_id: str
    code: str
    why: str


class RetriedPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Several tasks, newest first: those that were retried, and those that were not."""

    count: int = 0
    task_ids: list[str] = []
    refused: list[NotRetriedView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class ForkedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A fork of another task: a new one, or the one with the same key."""

    task: TaskView
    source_task_id: str
    at: str
    is_new: bool
