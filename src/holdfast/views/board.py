"""BoardView: what a session's tasks do now, short enough for a chat. One reader of it may be a model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.durations import in_one_unit
from holdfast.core.message import plain_line
from holdfast.core.snapshot import MAX_TITLE_CHARS, OwnerSnapshot, title_of
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import TaskStatus
from holdfast.views.text import one_line
from holdfast.views.waits import brief_wait

SHOWN = 5
MAX_DETAIL_CHARS = 120

_ICONS = {
    TaskStatus.QUEUED: "🟡",
    TaskStatus.RUNNING: "🟢",
    TaskStatus.WAITING: "🟡",
    TaskStatus.NEEDS_REVIEW: "⚠️",
    TaskStatus.PAUSED: "🟡",
    TaskStatus.SUCCEEDED: "✅",
    TaskStatus.FAILED: "🔴",
    TaskStatus.TIMED_OUT: "⏱️",
    TaskStatus.CANCELLED: "⚪️",
    TaskStatus.LOST: "⚠️",
}
_RUNTIMES = {RuntimeName.ACP: "ACP", RuntimeName.CLI: "CLI"}


class BoardEntryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One task on the board."""

    task_id: str
    title: str
    status: str
    runtime: str
    # Its place in the list of statuses, as one character.
    icon: str
    # `elapsed 3m`, or `ended 2m ago`.
    since: str
    # The progress, what it waits for, or why it failed; on one line.
    detail: str | None

    @classmethod
    def of(cls, task: Task, now: datetime) -> BoardEntryView:
        if task.ended_at is not None:
            since = f"ended {in_one_unit(now - task.ended_at)} ago"
        elif task.started_at is not None:
            since = f"elapsed {in_one_unit(now - task.started_at)}"
        else:
            since = f"for {in_one_unit(now - task.created_at)}"
        detail = plain_line(_detail_of(task), MAX_DETAIL_CHARS)
        return cls(
            task_id=one_line(task.id),
            title=title_of(task, MAX_TITLE_CHARS),
            status=task.status.value,
            runtime=_RUNTIMES.get(task.runtime, task.runtime.value.capitalize()),
            icon=_ICONS[task.status],
            since=since,
            detail=detail or None,
        )

    @property
    def lines(self) -> list[str]:
        """Without the number."""
        told = [
            f"{self.icon} {self.title}",
            f"{self.runtime} · {self.status.replace('_', ' ')} · {self.since}",
        ]
        return told if self.detail is None else [*told, self.detail]


class BoardView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The tasks of one session: active ones, and those that have just ended."""

    session_key: str
    # How many tasks of the session are active; the total includes those that have just ended.
    active: int
    total: int
    # The first five: active tasks, then ended ones, each newest first.
    entries: list[BoardEntryView]
    # The same counts for all sessions of the agent; null if this session has tasks.
    agent_active: int | None = None
    agent_total: int | None = None

    @classmethod
    def of(cls, session_key: str, tasks: Sequence[Task], now: datetime) -> BoardView:
        """From all tasks of the session that are active or have just ended."""
        shown = visible(tasks, now)
        return cls(
            session_key=one_line(session_key),
            active=sum(not task.has_ended for task in shown),
            total=len(shown),
            entries=[BoardEntryView.of(task, now) for task in shown[:SHOWN]],
        )

    @property
    def text(self) -> str:
        """The board as a message."""
        lines = ["📋 Tasks"]
        if self.total or self.agent_total is None:
            lines.append(f"Current session: {self.active} active · {self.total} total")
        else:
            lines.append("Current session: no tasks now")
            lines.append(f"All sessions of this agent: {self.agent_active} active · {self.agent_total} total")
        for number, entry in enumerate(self.entries, 1):
            first, *rest = entry.lines
            lines += ["", f"{number}. {first}", *(f"   {line}" for line in rest)]
        if self.total > len(self.entries):
            lines += ["", f"+{self.total - len(self.entries)} more recent tasks"]
        return "\n".join(lines)


def visible(tasks: Sequence[Task], now: datetime) -> list[Task]:
    """The active tasks, newest first, then those that have just ended, the last one first."""
    snapshot = OwnerSnapshot.of(tasks, now)
    return [*snapshot.active, *snapshot.ended]


def _detail_of(task: Task) -> str:
    if task.ended_at is not None:
        return "" if task.failure is None else task.failure.message
    if task.cancel_requested_at is not None:
        return "is being cancelled"
    if task.waits_on is not None and task.status in (TaskStatus.WAITING, TaskStatus.NEEDS_REVIEW):
        return f"waits for {brief_wait(task.waits_on)}"
    progress = task.progress
    if progress is None:
        return ""
    count = f"{progress.done}" if progress.total is None else f"{progress.done} of {progress.total}"
    return f"{count} done" + (f" · {progress.subtask}" if progress.subtask else "")
