"""Tasks by their end, and those of some names: page by page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

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


def test_tasks_of_some_names_come_newest_first_of_an_owner_and_in_a_status_too(store: Store) -> None:
    rows = [("buy", "ada"), ("sell", "ada"), ("buy", "bob"), ("other", "ada"), ("buy", "ada")]
    tasks = [
        a_task(id=f"task_{number}", name=name, owner=owner, status=status)
        for number, ((name, owner), status) in enumerate(
            zip(rows, [TaskStatus.QUEUED, TaskStatus.RUNNING] * 3, strict=False)
        )
    ]
    for task in tasks:
        write_to(store, lambda tx, task=task: tx.tasks.create(task))  # type: ignore[misc]

    def ids(**wanted: Any) -> list[str]:
        return [task.id[-1] for task in store.read_now(lambda tx: tx.tasks.page(**wanted))]

    assert ids(names={"buy"}) == ["4", "2", "0"]
    assert ids(names={"buy", "sell"}, limit=2) == ["4", "2"]
    assert ids(names={"buy", "sell"}, before="task_2") == ["1", "0"]
    assert ids(names={"buy"}, owner="ada") == ["4", "0"]
    assert ids(names={"buy", "sell"}, statuses=[TaskStatus.RUNNING]) == ["1"]
    assert ids(names={"buy", "sell"}, statuses=[TaskStatus.RUNNING, TaskStatus.QUEUED]) == [
        "4",
        "2",
        "1",
        "0",
    ]
    assert ids(names=set()) == []
