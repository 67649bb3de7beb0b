"""The oldest task of a status, on each database."""

from __future__ import annotations

from holdfast.core.ids import TaskId
from holdfast.core.transitions import TaskStatus
from holdfast.store import Store
from tests.builders import a_task


def test_the_oldest_task_of_a_status_is_that_which_was_created_first(store: Store) -> None:
    waiting = [a_task(id=TaskId(f"task_{number}"), status=TaskStatus.WAITING) for number in (3, 2, 4)]
    others = [
        a_task(id=TaskId("task_1"), status=TaskStatus.QUEUED),
        a_task(id=TaskId("task_0"), status=TaskStatus.RUNNING),
    ]
    store.write_now(lambda tx: tx.tasks.create_many([*waiting, *others]))

    def oldest(status: TaskStatus) -> str | None:
        found = store.read_now(lambda tx: tx.tasks.oldest(status))
        return None if found is None else found.id

    assert oldest(TaskStatus.WAITING) == "task_2"
    assert oldest(TaskStatus.QUEUED) == "task_1"
    # No other status is taken for it, before or after it in the order of the index.
    assert oldest(TaskStatus.PAUSED) is None
    assert oldest(TaskStatus.SUCCEEDED) is None
