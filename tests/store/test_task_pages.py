"""Tasks by their end: last ended first, page by page."""

from __future__ import annotations

from datetime import timedelta

from holdfast.core.transitions import TaskStatus
from holdfast.store import Store
from tests.builders import START, a_task, later
from tests.builders import write as write_to


def test_ended_tasks_come_last_ended_first_page_by_page(store: Store) -> None:
    ended = [
        a_task(
            status=TaskStatus.FAILED,
            ended_at=later(minutes=minute),
            updated_at=later(minutes=minute),
            cleanup_after=later(minutes=minute) + timedelta(days=30),
        )
        for minute in (3, 1, 2)
    ]
    alive = a_task(created_at=START)
    for task in (*ended, alive):
        write_to(store, lambda tx, task=task: tx.tasks.create(task))  # type: ignore[misc]

    first = store.read_now(lambda tx: tx.tasks.page_by_end(before=(2**62, "~"), limit=2))
    rest = store.read_now(lambda tx: tx.tasks.page_by_end(before=first[-1][1], limit=2))

    assert [task.id for task, _ in first] == [ended[0].id, ended[2].id]
    assert [task.id for task, _ in rest] == [ended[1].id]
