"""The snapshot of an owner's tasks, and its one line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.core.snapshot import OwnerSnapshot
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus
from tests.builders import a_task, later

NOW = later(days=1)
T = TaskStatus


def ended(status: TaskStatus, minutes_ago: int, **changes: Any) -> Task:
    return a_task(status=status, ended_at=NOW - timedelta(minutes=minutes_ago), **changes)


def test_the_line_counts_what_is_active_and_names_what_ended_last() -> None:
    tasks = [
        a_task(status=T.RUNNING),
        a_task(status=T.RUNNING),
        a_task(status=T.QUEUED),
        a_task(status=T.WAITING),
        a_task(status=T.NEEDS_REVIEW),
        ended(T.SUCCEEDED, 4, goal="count the beds"),
        ended(T.TIMED_OUT, 3, goal="render the title"),
    ]

    line = OwnerSnapshot.of(tasks, NOW).line

    assert line == (
        "2 running · 1 queued · 1 waiting · 1 in review · last: “render the title” timed out 3m ago"
    )


def test_without_tasks_the_line_says_so() -> None:
    assert OwnerSnapshot.of([ended(T.SUCCEEDED, 6)], NOW).line == "no tasks"


def test_failures_matter_for_an_hour_and_successes_for_five_minutes() -> None:
    tasks = [
        ended(T.SUCCEEDED, 4, goal="young success"),
        ended(T.SUCCEEDED, 6, goal="old success"),
        ended(T.LOST, 59, goal="young loss"),
        ended(T.FAILED, 61, goal="old failure"),
        ended(T.CANCELLED, 30, goal="cancelled"),
    ]

    found = OwnerSnapshot.of(tasks, NOW)

    assert [task.goal for task in found.recent] == ["young success", "young loss"]
    assert [task.goal for task in found.failed] == ["young loss"]


def test_what_retention_is_about_to_remove_is_left_out() -> None:
    gone = ended(T.FAILED, 2, cleanup_after=NOW)

    assert OwnerSnapshot.of([gone], NOW).recent == ()
