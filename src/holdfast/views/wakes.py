"""WakeView, the trail of a task, and the documents of the contract for long work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.checkpoint import Checkpoint
from holdfast.core.plan import Cursor, Plan
from holdfast.core.run import RunRecord
from holdfast.core.schedule import Wake, WakeReason
from holdfast.core.task import Task
from holdfast.core.transitions import RunStatus, WakeStatus
from holdfast.core.wake_contract import (
    ResumePacket,
    TaskDocument,
    completed,
    current_step,
    document_status,
    known_as,
    next_actions,
    percent_done,
)
from holdfast.views.text import maybe_line, one_line
from holdfast.views.waits import kind_of

MAX_SHOWN = 50


class WakeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wake; or a run that waits and is woken by itself, which has no id of a wake."""

    # Null for a wait: the same run goes on, so there is nothing to cancel here.
    id: str | None
    task_id: str
    # Null for a wait.
    checkpoint_id: str | None
    reason: str
    status: WakeStatus
    # Cycles without progress before this one, plus one.
    attempt: int
    # Null for a wait that only its cause ends.
    due_at: datetime | None
    created_at: datetime
    updated_at: datetime
    # For a wait: what it waits for.
    waits_on: str | None = None
    # The name and the goal of its task; null if the task was pruned.
    task_name: str | None = None
    goal: str | None = None
    # Whether the row of the wake is damaged; its task goes on from its checkpoint all the same.
    is_damaged: bool = False

    @classmethod
    def of(cls, wake: Wake) -> WakeView:
        return cls(
            id=one_line(wake.id),
            task_id=one_line(wake.task_id),
            checkpoint_id=maybe_line(wake.checkpoint_id),
            reason=one_line(wake.why),
            status=wake.status,
            attempt=wake.attempt,
            due_at=wake.due_at,
            created_at=wake.created_at,
            updated_at=wake.updated_at,
            is_damaged=wake.is_damaged,
        )

    @classmethod
    def of_wait(cls, run: RunRecord, *, due_at: datetime | None) -> WakeView:
        """A sleep ends by its time, and may have a reason of its author's own; all else ends by its cause."""
        kind, own_reason = kind_of(run.waits_on or "")
        reason = WakeReason.SCHEDULED_PROGRESS if kind == "sleep" else WakeReason.DEPENDENCY_READY
        return cls(
            id=None,
            task_id=one_line(run.task_id),
            checkpoint_id=None,
            reason=one_line(own_reason) if kind == "sleep" and own_reason else reason.value,
            status=WakeStatus.PENDING,
            attempt=1,
            due_at=due_at,
            created_at=run.updated_at,
            updated_at=run.updated_at,
            waits_on=maybe_line(run.waits_on),
        )


def with_tasks(wakes: list[WakeView], tasks: Mapping[str, Task]) -> list[WakeView]:
    """The same wakes with the names and goals of their tasks."""
    return [
        one
        if (task := tasks.get(one.task_id)) is None
        else msgspec.structs.replace(one, task_name=one_line(task.name), goal=one_line(task.goal))
        for one in wakes
    ]


class WakePageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of what is to be woken, the first due first."""

    wakes: list[WakeView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class CycleReportView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The report of one wake cycle, with its time."""

    at: datetime
    wake_id: str
    task_id: str
    status: str
    progress_pct: int
    current_step: str | None
    resumed_from_checkpoint: bool
    next_wake_scheduled: bool
    next_wake_at: datetime | None
    notes: str


class WakeHistoryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Wakes of all tasks or of one, newest first; of one task also the reports of its cycles."""

    wakes: list[WakeView] = []
    reports: list[CycleReportView] = []
    next_page_token: str | None = None


class TaskDocumentView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a task stands, in the eleven fields of the contract for long work."""

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

    @classmethod
    def of(
        cls,
        task: Task,
        *,
        plan: Plan | None,
        cursor: Cursor,
        artifacts: list[str],
        retry_count: int,
    ) -> TaskDocumentView:
        document = TaskDocument(
            task_id=known_as(task.id, task.dedup_key),
            goal=task.goal,
            status=document_status(task.status, task.waits_on),
            current_step=None if task.has_ended else current_step(cursor, task.progress),
            progress_pct=percent_done(task.status, task.progress, plan),
            last_completed=completed(plan, cursor),
            next_actions=[] if task.has_ended else next_actions(plan, cursor),
            artifacts=artifacts[:MAX_SHOWN],
            errors=[] if task.failure is None else [f"{task.failure.kind}: {task.failure.message}"],
            retry_count=retry_count,
            updated_at=task.updated_at,
        )
        shown: dict[str, Any] = msgspec.structs.asdict(document)
        for name in ("last_completed", "next_actions", "artifacts", "errors"):
            shown[name] = [one_line(text) for text in shown[name]]
        for name in ("task_id", "goal", "current_step"):
            shown[name] = maybe_line(shown[name])
        return cls(**shown)


class ResumeStepView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a follow-up run goes on."""

    from_: str = msgspec.field(name="from")
    current_step: str | None
    next_actions: list[str]


class ResumePacketView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a follow-up run is told, from its checkpoint: what to do, where it goes on, when it is done."""

    task: str
    task_id: str
    wake_mode: str
    resume: ResumeStepView
    done_criteria: list[str]
    objective: str
    # The id of the checkpoint, and why the task is resumed.
    checkpoint: str
    reason: str
    # The done criteria that did not hold when an earlier run came to its end.
    unmet: list[str]

    @classmethod
    def of(cls, packet: ResumePacket) -> ResumePacketView:
        resume = packet.resume
        return cls(
            task=one_line(packet.task),
            task_id=one_line(packet.task_id),
            wake_mode=one_line(packet.wake_mode),
            resume=ResumeStepView(
                from_=one_line(resume.from_),
                current_step=maybe_line(resume.current_step),
                next_actions=[one_line(text) for text in resume.next_actions],
            ),
            done_criteria=[one_line(text) for text in packet.done_criteria[:MAX_SHOWN]],
            objective=one_line(packet.objective),
            checkpoint=one_line(packet.checkpoint),
            reason=one_line(packet.reason),
            unmet=[one_line(text) for text in packet.unmet[:MAX_SHOWN]],
        )


class TrailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of a task's trail: checkpoint, wake, resume or end."""

    at: datetime
    what: str
    id: str
    words: str


def trail_of(
    task: Task, runs: list[RunRecord], checkpoints: list[Checkpoint], wakes: list[Wake]
) -> list[TrailView]:
    """From the first run to the end, in order: checkpoint, wake, resume, done."""
    lines: list[tuple[datetime, int, str, str, str]] = []
    for one in checkpoints:
        words = f"{one.kind.value}, {one.reason.value}"
        if one.diagnostic is not None:
            words += f"; {one.diagnostic.message}"
        lines.append((one.created_at, 0, "checkpoint", one.id, words))
    for wake in wakes:
        words = f"{wake.why}, due {wake.due_at:%Y-%m-%d %H:%M:%S} UTC"
        lines.append((wake.created_at, 1, "wake", wake.id, words))
        if wake.status is not WakeStatus.PENDING:
            lines.append((wake.updated_at, 2, f"wake {wake.status.value}", wake.id, wake.why))
    for run in runs:
        if run.resumes_run_id is not None:
            lines.append(
                (run.created_at, 3, "resume", run.id, f"run {run.number}, resumes {run.resumes_run_id}")
            )
        elif run.status is not RunStatus.QUEUED or run.number == 1:
            lines.append((run.created_at, -1, "run", run.id, f"run {run.number}"))
    if task.ended_at is not None:
        word = "done" if document_status(task.status, None) == "done" else task.status.value
        why = "" if task.failure is None else f"{task.failure.kind}: {task.failure.message}"
        lines.append((task.ended_at, 4, word, task.id, why))
    return [
        TrailView(at=at, what=what, id=one_line(record_id), words=one_line(words, 300))
        for at, _, what, record_id, words in sorted(lines, key=lambda line: line[:2])
    ]
