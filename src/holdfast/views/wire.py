"""TaskSummary and its pages: tasks in the format of OpenClaw's protocol, with times in milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.projection import ProjectedStatus
from holdfast.core.recorded import RecordedDetails
from holdfast.core.session import AGENT_PREFIX
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import DeliveryStatus, TaskStatus, is_terminal
from holdfast.views.text import maybe_line, one_line
from holdfast.views.waits import brief_wait, kind_of

MAX_ACTIVITY_CHARS = 200
MAX_SUMMARY_CHARS = 1000

WireStatus: TypeAlias = Literal["queued", "running", "completed", "failed", "cancelled", "timed_out"]

# Our statuses as statuses of the protocol.
WIRE_STATUS: dict[TaskStatus, WireStatus] = {
    TaskStatus.QUEUED: "queued",
    TaskStatus.RUNNING: "running",
    # Shown as running; `execution` says that it waits, and for what.
    TaskStatus.WAITING: "running",
    TaskStatus.NEEDS_REVIEW: "running",
    # No process carries it: it waits until a worker resumes it.
    TaskStatus.PAUSED: "queued",
    TaskStatus.SUCCEEDED: "completed",
    TaskStatus.FAILED: "failed",
    TaskStatus.LOST: "failed",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.TIMED_OUT: "timed_out",
}
_RUNTIME = {
    RuntimeName.PYTHON: "cli",
    RuntimeName.COMMAND: "cli",
    RuntimeName.MEDIA: "cli",
    RuntimeName.AGENT: "subagent",
}
# The protocol has no word for a delivery that is being sent.
_DELIVERY = {DeliveryStatus.ATTEMPTING.value: DeliveryStatus.PENDING.value}
_WAIT = {
    "answer": "user_input",
    "review": "approval",
    "child": "children",
    "children": "children",
    "mail": "agent_messages",
}


class ExecutionWait(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str


class ExecutionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether it runs, waits, or has ended."""

    state: str
    last_activity_at: int | None = None
    wait: ExecutionWait | None = None


class WireDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What the protocol shows of a task and its row does not have."""

    run_id: str | None = None
    delivery_status: str | None = None
    recorded: RecordedDetails | None = None


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One task in the protocol; unknown fields are left out."""

    id: str
    status: WireStatus
    task_id: str | None = None
    kind: str | None = None
    runtime: str | None = None
    title: str | None = None
    agent_id: str | None = None
    session_key: str | None = None
    child_session_key: str | None = None
    owner_key: str | None = None
    run_id: str | None = None
    flow_id: str | None = None
    parent_task_id: str | None = None
    source_id: str | None = None
    created_at: int | None = None
    updated_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    tool_use_count: int | None = None
    last_tool_name: str | None = None
    last_activity: str | None = None
    progress_summary: str | None = None
    terminal_summary: str | None = None
    terminal_outcome: str | None = None
    error: str | None = None
    delivery_status: str | None = None
    execution: ExecutionView | None = None

    @classmethod
    def of(cls, task: Task, more: WireDetails | None = None) -> TaskSummary:
        plain = cls._of_row(task)
        if more is None:
            return plain
        shown = msgspec.structs.replace(
            plain, run_id=maybe_line(more.run_id), delivery_status=_delivery(more)
        )
        return shown if more.recorded is None else shown.with_recorded(task, more.recorded)

    def with_recorded(self, task: Task, facts: RecordedDetails) -> TaskSummary:
        """The same with what the producer of recorded work has said."""
        said = maybe_line(facts.progress_summary, MAX_SUMMARY_CHARS)
        tool = maybe_line(facts.last_tool_name)
        execution = self.execution
        if execution is not None and not task.has_ended:
            seen_at = millis(max(facts.last_event_at, task.updated_at))
            # Without `currentTool`: the protocol wants its start, which no producer tells.
            execution = msgspec.structs.replace(execution, last_activity_at=seen_at)
        return msgspec.structs.replace(
            self,
            agent_id=maybe_line(facts.agent_id) or self.agent_id,
            child_session_key=maybe_line(facts.child_session_key),
            source_id=maybe_line(facts.source_id) or self.source_id,
            tool_use_count=facts.tool_use_count,
            last_tool_name=tool,
            last_activity=maybe_line(facts.progress_summary, MAX_ACTIVITY_CHARS) or self.last_activity,
            progress_summary=said or self.progress_summary,
            terminal_summary=maybe_line(facts.terminal_summary, MAX_SUMMARY_CHARS) or self.terminal_summary,
            terminal_outcome=None if facts.terminal_outcome is None else facts.terminal_outcome.value,
            execution=execution,
        )

    @classmethod
    def _of_row(cls, task: Task) -> TaskSummary:
        failure = None if task.failure is None else one_line(task.failure.message, MAX_SUMMARY_CHARS)
        return cls(
            id=one_line(task.id),
            status=WIRE_STATUS[task.status],
            task_id=one_line(task.id),
            kind=one_line(task.name),
            runtime=_RUNTIME.get(task.runtime, task.runtime.value),
            title=one_line(task.goal),
            agent_id=agent_of(task),
            session_key=maybe_line(task.session_key),
            owner_key=one_line(task.owner),
            flow_id=maybe_line(task.flow_id),
            parent_task_id=maybe_line(task.parent_task_id),
            source_id=maybe_line(task.dedup_key),
            created_at=millis(task.created_at),
            updated_at=millis(task.updated_at),
            started_at=millis(task.started_at),
            ended_at=millis(task.ended_at),
            last_activity=_activity(task),
            progress_summary=_progress(task),
            terminal_summary=failure if task.has_ended else None,
            error=failure,
            execution=_execution(task),
        )

    def shown_as(self, projected: ProjectedStatus | None) -> TaskSummary:
        """The same task with the status that its next rescue will give it, if its worker is gone."""
        if projected is None:
            return self
        why = one_line(projected.why, MAX_ACTIVITY_CHARS)
        if is_terminal(projected.status):
            state = ExecutionView(state="unknown", last_activity_at=self.updated_at)
            return msgspec.structs.replace(
                self, status=WIRE_STATUS[projected.status], error=why, execution=state
            )
        state = ExecutionView(state="queued", last_activity_at=self.updated_at)
        return msgspec.structs.replace(
            self, status=WIRE_STATUS[projected.status], last_activity=why, execution=state
        )


class TaskListed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A page of tasks. It may be short or empty although `nextCursor` says that more may follow."""

    tasks: list[TaskSummary]
    next_cursor: str | None = None

    # `tasks` has no default, so an empty list is still sent.


class TaskFound(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One task."""

    task: TaskSummary


class TaskCancelled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The outcome of a cancel."""

    found: bool
    cancelled: bool
    reason: str | None = None
    task: TaskSummary | None = None


class TaskWaited(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One task when it had ended, or when the wait timed out."""

    ended: bool
    reason: str | None = None
    task: TaskSummary


class TaskRetried(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome for one of several tasks."""

    task_id: str
    ok: bool
    reason: str | None = None
    duplicate_risk: bool | None = None
    task: TaskSummary | None = None


class TasksRetried(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome for each task."""

    results: list[TaskRetried]


class TaskDismissed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome for the deliveries of one of several tasks."""

    task_id: str
    ok: bool
    reason: str | None = None
    task: TaskSummary | None = None


class TasksDismissed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome for each task."""

    results: list[TaskDismissed]


class TaskEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The event `task`."""

    action: str
    task: TaskSummary


def millis(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment) // 1000


def agent_of(task: Task) -> str | None:
    """The agent that a task belongs to."""
    if task.name.startswith(AGENT_PREFIX):
        return one_line(task.name.removeprefix(AGENT_PREFIX))
    parts = (task.session_key or "").split(":")
    return one_line(parts[1]) if len(parts) > 2 and parts[0] == "agent" else None


def _delivery(more: WireDetails) -> str | None:
    status = maybe_line(more.delivery_status)
    return None if status is None else _DELIVERY.get(status, status)


def _activity(task: Task) -> str | None:
    if task.waits_on is not None:
        return one_line(f"waits for {brief_wait(task.waits_on)}", MAX_ACTIVITY_CHARS)
    if task.progress is not None and task.progress.subtask:
        return one_line(task.progress.subtask, MAX_ACTIVITY_CHARS)
    return None


def _progress(task: Task) -> str | None:
    if task.progress is None:
        return None
    total = "" if task.progress.total is None else f" of {task.progress.total:,}"
    failed = f", {task.progress.failed:,} failed" if task.progress.failed else ""
    return f"{task.progress.done:,}{total} done{failed}"


def _execution(task: Task) -> ExecutionView:
    if task.has_ended:
        return ExecutionView(state="finished", last_activity_at=millis(task.updated_at))
    if task.status is TaskStatus.QUEUED or task.status is TaskStatus.RUNNING:
        return ExecutionView(state=task.status.value, last_activity_at=millis(task.updated_at))
    kind = "" if task.waits_on is None else kind_of(task.waits_on)[0]
    wait = ExecutionWait(kind=_WAIT.get(kind, "external"))
    return ExecutionView(state="waiting", last_activity_at=millis(task.updated_at), wait=wait)
