"""Reads what the protocol shows of a task beside its row: its run, its delivery, its producer's reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.views.wire import TaskSummary, WireDetails

if TYPE_CHECKING:
    from holdfast.core.task import Task
    from holdfast.store.transaction import Tx


def summaries(tx: Tx, tasks: Sequence[Task]) -> list[TaskSummary]:
    """In a few queries for all of them."""
    ids = [task.id for task in tasks]
    if not ids:
        return []
    runs, deliveries = tx.runs.last_ids_of_tasks(ids), tx.deliveries.last_statuses_of_tasks(ids)
    facts = tx.recorded.readable(ids)
    return [
        TaskSummary.of(
            task,
            WireDetails(
                run_id=runs.get(task.id),
                delivery_status=deliveries.get(task.id, "not_applicable"),
                recorded=facts.get(task.id),
            ),
        )
        for task in tasks
    ]


def summary(tx: Tx, task: Task) -> TaskSummary:
    return summaries(tx, [task])[0]
