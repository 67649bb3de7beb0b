"""FailureGroupView: failed tasks with one cause, and what became of a retry of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.fingerprint import Fingerprint
from holdfast.core.task import Task
from holdfast.views.payloads import FailureView
from holdfast.views.tasks import NotRetriedView
from holdfast.views.text import one_line

NAMES_SHOWN = 10
TASKS_SHOWN = 10
MAX_PATTERN_CHARS = 400


class FailedTaskView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One failed task of a group."""

    task_id: str
    name: str
    status: str
    message: str
    at: datetime

    @classmethod
    def of(cls, task: Task) -> FailedTaskView:
        return cls(
            task_id=one_line(task.id),
            name=one_line(task.name),
            status=task.status.value,
            message="" if task.failure is None else one_line(task.failure.message),
            at=task.ended_at or task.updated_at,
        )


class FailureGroupView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The failed tasks with one fingerprint: the same kind of failure, at the same place, with messages that
    differ only in numbers, ids and quoted text."""

    fingerprint: str
    kind: str
    # The innermost frame of the author's code, or the step; empty if neither is known.
    place: str
    # The message without what differs.
    pattern: str
    count: int
    # By status: failed, timed_out, lost.
    statuses: dict[str, int]
    # By the name of the task, the most frequent ones.
    names: dict[str, int]
    first_at: datetime
    last_at: datetime
    # The failure of the one that ended last.
    example: FailureView | None
    # The ones that ended last, newest first.
    newest: list[FailedTaskView]

    @classmethod
    def of(cls, fingerprint: Fingerprint, tasks: Sequence[Task]) -> FailureGroupView:
        newest = sorted(tasks, key=lambda task: task.ended_at or task.updated_at, reverse=True)
        lines = [FailedTaskView.of(task) for task in newest[:TASKS_SHOWN]]
        return cls(
            fingerprint=fingerprint.id,
            kind=one_line(fingerprint.kind),
            place=one_line(fingerprint.place),
            pattern=one_line(fingerprint.pattern, MAX_PATTERN_CHARS),
            count=len(tasks),
            statuses=dict(Counter(task.status.value for task in tasks)),
            names={
                one_line(name): number
                for name, number in Counter(task.name for task in tasks).most_common(NAMES_SHOWN)
            },
            first_at=min(task.ended_at or task.updated_at for task in tasks),
            last_at=lines[0].at,
            example=FailureView.maybe(newest[0].failure),
            newest=lines,
        )


class FailuresView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Groups of failed tasks, the largest first."""

    groups: list[FailureGroupView] = []
    # How many tasks were read, the newest ones; there may be older ones.
    tasks_read: int
    has_older: bool
    # How many groups there are beyond those shown.
    more_groups: int = 0
    # Pass it to `failures.retry`, to retry no task that fails after this list was read.
    as_of: datetime


class RetriedGroupView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The tasks of one fingerprint that were retried, newest first, and those that were not."""

    fingerprint: str
    count: int = 0
    task_ids: list[str] = []
    refused: list[NotRetriedView] = []
    # How many more have this fingerprint: call again to retry them.
    left: int = 0
