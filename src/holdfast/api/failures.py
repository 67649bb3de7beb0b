"""Failures for the API: failed tasks by fingerprint, and a retry of all that have one."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.params import NameText, PageSize, Params
from holdfast.api.tasks import retry_several
from holdfast.core.fingerprint import Fingerprint, fingerprint_of
from holdfast.core.task import Failure
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import TaskStatus
from holdfast.views.failures import FailureGroupView, FailuresView, RetriedGroupView

if TYPE_CHECKING:
    from holdfast.core.task import Task
    from holdfast.store.contract import Store
    from holdfast.store.transaction import Tx

FAILED = (TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.LOST)
# Only the newest failed tasks are grouped, so that a list costs the same with any number of them.
READ_AT_MOST = 1000

FingerprintText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class FailuresAsked(Params, frozen=True, kw_only=True):
    """Groups of the newest 1,000 tasks that failed, timed out or are lost, the largest group first."""

    # Only the group with this fingerprint.
    fingerprint: FingerprintText | None = None
    # Only tasks with this name.
    name: NameText | None = None
    limit: PageSize = 50


class FailuresRetryAsked(Params, frozen=True, kw_only=True):
    """Retry the tasks of one fingerprint, newest first: those among the newest 1,000 failed tasks."""

    fingerprint: FingerprintText
    name: NameText | None = None
    # Only tasks that ended until then, so that a repeated call retries none that failed anew.
    ended_until: datetime | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=READ_AT_MOST)] = READ_AT_MOST


def read_failures(tx: Tx, asked: FailuresAsked, *, now: datetime, reach: Reach = EVERYTHING) -> FailuresView:
    tasks, has_older = _failed(tx, asked.name, reach)
    groups = _grouped(tasks)
    found = sorted(groups.items(), key=lambda one: (len(one[1]), one[1][0].id), reverse=True)
    if asked.fingerprint is not None:
        found = [one for one in found if one[0].id == asked.fingerprint]
    return FailuresView(
        groups=[FailureGroupView.of(*one) for one in found[: asked.limit]],
        tasks_read=len(tasks),
        has_older=has_older,
        more_groups=max(0, len(found) - asked.limit),
        as_of=now,
    )


def retry_failures(store: Store, asked: FailuresRetryAsked, *, reach: Reach = EVERYTHING) -> RetriedGroupView:
    """Retry the tasks of one fingerprint. A second call finds only those that failed again."""
    found = [task.id for task in store.read_now(lambda tx: _with_fingerprint(tx, asked, reach))]
    retried, refused = retry_several(store, found[: asked.limit], reach=reach)
    return RetriedGroupView(
        fingerprint=asked.fingerprint,
        count=len(retried),
        task_ids=retried,
        refused=refused,
        left=max(0, len(found) - asked.limit),
    )


def _with_fingerprint(tx: Tx, asked: FailuresRetryAsked, reach: Reach) -> list[Task]:
    tasks, _ = _failed(tx, asked.name, reach)
    until = asked.ended_until
    return [
        task
        for fingerprint, group in _grouped(tasks).items()
        if fingerprint.id == asked.fingerprint
        for task in group
        if until is None or (task.ended_at or task.updated_at) <= until
    ]


def _failed(tx: Tx, name: str | None, reach: Reach) -> tuple[list[Task], bool]:
    """The newest failed tasks, and whether there are older ones."""
    wanted = TaskFilter(statuses=FAILED, names=None if name is None else frozenset({name}))
    found = tx.tasks.find(wanted, reach=reach.filter, limit=READ_AT_MOST)
    return found.tasks, found.next_before is not None


def _grouped(tasks: list[Task]) -> dict[Fingerprint, list[Task]]:
    groups: dict[Fingerprint, list[Task]] = {}
    for task in tasks:
        failure = task.failure or Failure(kind=task.status.value, message="")
        groups.setdefault(fingerprint_of(failure), []).append(task)
    return groups
