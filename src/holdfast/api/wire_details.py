"""Reads what the protocol shows of a task beside its row: its run, its delivery, its producer's reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.upkeep.projection import project_tasks
from holdfast.views.wire import TaskSummary, WireDetails

if TYPE_CHECKING:
    from holdfast.core.task import Task
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection


def summaries(tx: Tx, tasks: Sequence[Task], projection: Projection | None = None) -> list[TaskSummary]:
    """In a few queries for all of them. With a projection, a task whose worker is gone does not read as
    running."""
    ids = [task.id for task in tasks]
    if not ids:
        return []
    runs, deliveries = tx.runs.last_ids_of_tasks(ids), tx.deliveries.last_statuses_of_tasks(ids)
    facts, shown = tx.recorded.readable(ids), project_tasks(tx, tasks, projection)
    return [
        TaskSummary.of(
            task,
            WireDetails(
                run_id=runs.get(task.id),
                delivery_status=deliveries.get(task.id, "not_applicable"),
                recorded=facts.get(task.id),
            ),
        ).shown_as(shown.get(task.id))
        for task in tasks
    ]


def summary(tx: Tx, task: Task, projection: Projection | None = None) -> TaskSummary:
    return summaries(tx, [task], projection)[0]
