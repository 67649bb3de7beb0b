"""The documents of a long task in the words of its contract: checkpoint, resume packet, report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.core.plan import Cursor, Plan
from holdfast.core.task import Failure, Progress, Task
from holdfast.core.transitions import TaskStatus

T = TaskStatus

# The status of a task in its document: running, waiting, blocked, done or failed.
DOCUMENT_STATUS: Mapping[TaskStatus, str] = {
    T.QUEUED: "running",
    T.RUNNING: "running",
    T.WAITING: "waiting",
    T.NEEDS_REVIEW: "blocked",
    T.PAUSED: "waiting",
    T.SUCCEEDED: "done",
    T.FAILED: "failed",
    T.TIMED_OUT: "failed",
    T.CANCELLED: "failed",
    T.LOST: "failed",
}
# The status of a task in a report, which knows no blocked.
REPORT_STATUS: Mapping[TaskStatus, str] = {**DOCUMENT_STATUS, T.NEEDS_REVIEW: "waiting"}
# What a task waits on while a person must act.
_PERSON = ("answer:", "review:")
RESUME_TASK = "Resume long-running task"
LATEST = "latest_checkpoint"
WAKE_MODE = "cron"
MAX_ACTIONS = 50
# How keys begin that Holdfast itself gives to tasks: of firings and of messages.
_INTERNAL_KEYS = ("firing:", "message:")


class TaskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task stands: the eleven fields that every checkpoint of a long task has."""

    task_id: str
    goal: str
    status: str
    current_step: str | None
    progress_pct: int
    last_completed: list[str]
    next_actions: list[str]
    artifacts: list[str]
    errors: list[str]
    retry_count: int
    updated_at: datetime


class ResumeStep(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Where a follow-up run goes on."""

    from_: str = LATEST
    current_step: str | None = None
    next_actions: list[str] = []


class ResumePacket(msgspec.Struct, frozen=True, kw_only=True, rename={"wake_mode": "wakeMode"}):
    """What a follow-up run is told: what to do, where it stands, and when it is done."""

    task: str = RESUME_TASK
    task_id: str
    wake_mode: str = WAKE_MODE
    resume: ResumeStep
    done_criteria: list[str] = []
    objective: str
    # The checkpoint, and why the run was woken.
    checkpoint: str
    reason: str
    # The done criteria that did not hold when an earlier run came to its end.
    unmet: list[str] = []


class CycleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one wake cycle came to: stored as an event when its run has stopped."""

    task_id: str
    status: str
    progress_pct: int
    current_step: str | None
    resumed_from_checkpoint: bool
    next_wake_scheduled: bool
    next_wake_at: datetime | None
    notes: str


def known_as(task_id: str, key: str | None) -> str:
    """The one id of a task in all its documents: the caller's own key for it, if it has one."""
    return task_id if key is None or key.startswith(_INTERNAL_KEYS) else key


def document_status(status: TaskStatus, waits_on: str | None) -> str:
    """The status of a task in its document."""
    if status is T.WAITING and (waits_on or "").startswith(_PERSON):
        return "blocked"
    return DOCUMENT_STATUS[status]


def percent_done(status: TaskStatus, progress: Progress | None, plan: Plan | None) -> int:
    """The progress that the task reports; else the items of its plan that are done."""
    if status is T.SUCCEEDED:
        return 100
    if progress is not None and progress.total:
        return max(0, min(100, 100 * progress.done // progress.total))
    if plan is not None and plan.items:
        return 100 * sum(item.is_done for item in plan.items) // len(plan.items)
    return 0


def current_step(cursor: Cursor, progress: Progress | None = None) -> str | None:
    """What the task does next, as far as it has told: the next item of its plan, or its subtask."""
    if cursor.next_step is not None:
        return cursor.next_step
    if progress is not None and progress.subtask is not None:
        return progress.subtask
    return cursor.last_completed


def completed(plan: Plan | None, cursor: Cursor) -> list[str]:
    """The steps that are done, as far as the plan tells; else the last one."""
    if plan is not None and plan.items:
        return [item.title for item in plan.items if item.is_done][-MAX_ACTIONS:]
    return [] if cursor.last_completed is None else [cursor.last_completed]


def next_actions(plan: Plan | None, cursor: Cursor) -> list[str]:
    """What is left of the plan; without one, where the program goes on."""
    if plan is not None and plan.items:
        return [item.title for item in plan.items if not item.is_done][:MAX_ACTIONS]
    if cursor.next_step is not None:
        return [cursor.next_step]
    return [] if cursor.last_completed is None else [f"go on after {cursor.last_completed}"]


def report_of(
    task: Task,
    *,
    status: TaskStatus,
    plan: Plan | None,
    cursor: Cursor,
    is_resumed: bool,
    next_wake_at: datetime | None,
    failure: Failure | None = None,
    notes: str = "",
) -> CycleReport:
    said = notes if failure is None else f"{failure.kind}: {failure.message}"
    return CycleReport(
        task_id=known_as(task.id, task.dedup_key),
        status=REPORT_STATUS[status],
        progress_pct=percent_done(status, task.progress, plan),
        current_step=None if status is T.SUCCEEDED else current_step(cursor, task.progress),
        resumed_from_checkpoint=is_resumed,
        next_wake_scheduled=next_wake_at is not None,
        next_wake_at=next_wake_at,
        notes=" ".join(said.split())[:300],
    )
