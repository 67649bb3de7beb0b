"""OwnerSnapshot: the tasks of one owner that matter now, without those that retention is about to remove."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.durations import in_one_unit
from holdfast.core.message import plain_line
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus

# How long a task that has ended still matters, and how long one that failed.
ENDED_FOR = timedelta(minutes=5)
FAILED_FOR = timedelta(hours=1)
MAX_TITLE_CHARS = 80
NO_TASKS = "no tasks"

_FAILURES = frozenset({TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.LOST})
_GROUPS = (
    ("running", frozenset({TaskStatus.RUNNING})),
    ("queued", frozenset({TaskStatus.QUEUED, TaskStatus.PAUSED})),
    ("waiting", frozenset({TaskStatus.WAITING})),
    ("in review", frozenset({TaskStatus.NEEDS_REVIEW})),
)


class OwnerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Active tasks, tasks that have just ended, and tasks that failed lately."""

    at: datetime
    # Newest first.
    active: tuple[Task, ...]
    # Those that have just ended, the last one first.
    ended: tuple[Task, ...]
    # Those that failed in the last hour, the last one first; some have just ended, too.
    failed: tuple[Task, ...]

    @classmethod
    def of(cls, tasks: Sequence[Task], now: datetime) -> OwnerSnapshot:
        active = [task for task in tasks if task.ended_at is None]
        kept = [task for task in tasks if task.ended_at is not None and not _is_past_retention(task, now)]
        kept.sort(key=lambda one: (one.ended_at, one.id), reverse=True)
        return cls(
            at=now,
            active=tuple(sorted(active, key=lambda one: one.id, reverse=True)),
            ended=tuple(task for task in kept if _is_within(task, now, ENDED_FOR)),
            failed=tuple(
                task for task in kept if task.status in _FAILURES and _is_within(task, now, FAILED_FOR)
            ),
        )

    @property
    def recent(self) -> tuple[Task, ...]:
        """Each of them once: active ones, those that have just ended, those that failed lately."""
        return tuple({task.id: task for task in (*self.active, *self.ended, *self.failed)}.values())

    @property
    def line(self) -> str:
        """`2 running · 1 queued · last: “render the title” failed 3m ago`."""
        counts = status_counts(_count(self.active))
        return status_line(counts, next(iter((*self.ended, *self.failed)), None), self.at)


def status_counts(counts: dict[TaskStatus, int]) -> list[str]:
    """The active tasks in words, by what they do."""
    named = [(name, sum(counts.get(status, 0) for status in group)) for name, group in _GROUPS]
    return [f"{number:,} {name}" for name, number in named if number]


def status_line(counts: list[str], last: Task | None, now: datetime) -> str:
    """One line about many tasks; `last` is the one that ended last."""
    if last is not None and last.ended_at is not None:
        ago = in_one_unit(now - last.ended_at)
        counts = [*counts, f"last: “{title_of(last)}” {last.status.value.replace('_', ' ')} {ago} ago"]
    return " · ".join(counts) or NO_TASKS


def title_of(task: Task, max_chars: int = MAX_TITLE_CHARS) -> str:
    """What the task is about, on one harmless line."""
    return plain_line(task.goal, max_chars) or plain_line(task.name, max_chars)


def _count(tasks: Sequence[Task]) -> dict[TaskStatus, int]:
    return {status: sum(task.status is status for task in tasks) for status in TaskStatus}


def _is_within(task: Task, now: datetime, span: timedelta) -> bool:
    return task.ended_at is not None and now - task.ended_at <= span


def _is_past_retention(task: Task, now: datetime) -> bool:
    return task.cleanup_after is not None and task.cleanup_after <= now
