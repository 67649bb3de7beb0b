"""Reads and writes of tasks."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import AmbiguousId, KeyConflict, NotFound, RowDamaged
from holdfast.core.ids import TaskId, check_id
from holdfast.core.payload import digest_of
from holdfast.core.run import Outcome
from holdfast.core.task import Failure, Progress, Task
from holdfast.core.transitions import TaskStatus, sources_of
from holdfast.store.contract import Row
from holdfast.store.rows.work import row_from_task, task_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

# Sorts after every id.
LAST = "~"
TOMBSTONE_DAYS = 90


class Tasks:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements

    def create(self, task: Task) -> tuple[Task, bool]:
        """The task and whether it is new. With a dedup key that is taken, it is the task that has the key."""
        if task.dedup_key is not None:
            first = self._take_key(task, task.dedup_key)
            if first is not None:
                return first, False
        if self._sql.one("insert_task", row_from_task(task)) is None:
            return self.get(task.id), False  # the write runs a second time after its own commit
        self._tx.count("task", task.status, 1)
        return task, True

    def create_many(self, tasks: Sequence[Task]) -> None:
        """Tasks without dedup keys, of which the caller knows that none is there already."""
        self._sql.many("insert_task", [row_from_task(task) for task in tasks])
        for task in tasks:
            self._tx.count("task", task.status, 1)

    def get(self, task_id: str) -> Task:
        """Raises RowDamaged rather than hand out what was not written."""
        task = self.look(task_id)
        if task.is_damaged:
            raise RowDamaged("task", task_id)
        return task

    def look(self, task_id: str) -> Task:
        """The task as it stands, damaged or not: for showing, never for working on."""
        row = self._sql.one("get_task", {"id": task_id})
        if row is None:
            raise NotFound("task", task_id)
        return task_from_row(row)

    def lock(self, task_id: str) -> Task:
        """The task, to be changed in this transaction."""
        row = self._sql.one("lock_task", {"id": task_id})
        if row is None:
            raise NotFound("task", task_id)
        return task_from_row(row)

    def get_many(self, task_ids: Sequence[str]) -> dict[str, Task]:
        found = self._sql.all("get_tasks", {"ids": self._sql.pack(task_ids)})
        return {row[0]: task_from_row(row) for row in found}

    def ended_among(self, task_ids: Sequence[str]) -> list[str]:
        """Which of these have ended."""
        return [row[0] for row in self._sql.all("ended_tasks", {"ids": self._sql.pack(task_ids)})]

    def children(self, task_id: str, *, only_alive: bool = False) -> list[Task]:
        """The tasks that this one started, oldest first; all of them, because all must hear of its end."""
        query = "children_of_task_alive" if only_alive else "children_of_task"
        return [task_from_row(row) for row in self._sql.all(query, {"task_id": task_id})]

    def newest_children(self, task_id: str, *, limit: int) -> list[Task]:
        """Newest first; for showing a task that may have started a great many."""
        found = self._sql.all("newest_children_of_task", {"task_id": task_id, "limit": limit})
        return [task_from_row(row) for row in found]

    def resolve(self, prefix: str, *, owner: str | None = None) -> TaskId:
        """The one id that begins so; of an owner's tasks alone, when one is given."""
        if owner is None:
            return TaskId(resolve(self._tx, "task", "find_tasks", prefix))
        return TaskId(resolve(self._tx, "task", "find_tasks_of_owner", prefix, owner=owner))

    def page(
        self,
        *,
        statuses: Sequence[TaskStatus] = (),
        owner: str | None = None,
        before: str = LAST,
        limit: int = 50,
    ) -> list[Task]:
        """Newest first; the last id of a page is the page token of the next."""
        name = "page_of_tasks" if owner is None else "page_of_tasks_of_owner"
        params = {"owner": owner, "before": before, "limit": limit}
        if not statuses:
            found: Iterable[Row] = self._sql.all(name, params)
        else:
            pages = [
                self._sql.all(f"{name}_in_status", params | {"status": status.value})
                for status in dict.fromkeys(statuses)
            ]
            found = heapq.merge(*pages, key=lambda row: str(row[0]), reverse=True)
        return [task_from_row(row) for row, _ in zip(found, range(limit), strict=False)]

    def page_by_end(self, *, before: tuple[int, str], limit: int) -> list[tuple[Task, tuple[int, str]]]:
        """Those that have ended, last ended first, each with its place; the last place leads on."""
        params = {"cleanup_after": before[0], "before": before[1], "limit": limit}
        found = [task_from_row(row) for row in self._sql.all("page_of_tasks_by_end", params)]
        return [(task, (to_micros(task.cleanup_after), task.id)) for task in found if task.cleanup_after]

    def move(self, task: Task, to: TaskStatus, *, now: datetime, waits_on: str | None = None) -> None:
        """Follow the run. The caller holds the task or its run, so the guard must hold."""
        if task.status == to:
            return
        params = {
            "id": task.id,
            "from": task.status.value,
            "to": to.value,
            "sources": self._sql.pack(sources_of(to)),
            "waits_on": waits_on,
            "now": to_micros(now),
        }
        if self._sql.one("move_task", params) is not None:
            self._tx.moved("task", task.status, to)

    def move_many(
        self,
        task_ids: Sequence[str],
        status: TaskStatus,
        to: TaskStatus,
        *,
        now: datetime,
        waits_on: str | None = None,
    ) -> int:
        """Several tasks follow their runs; returns how many did."""
        params = {
            "ids": self._sql.pack(task_ids),
            "from": status.value,
            "to": to.value,
            "sources": self._sql.pack(sources_of(to)),
            "waits_on": waits_on,
            "now": to_micros(now),
        }
        moved = len(self._sql.all("move_tasks", params))
        self._tx.moved("task", status, to, moved)
        return moved

    def end(
        self, task: Task, to: TaskStatus, outcome: Outcome, *, now: datetime, cleanup_after: datetime
    ) -> bool:
        """Reach the end, once."""
        guard = {"from": task.status.value, "sources": self._sql.pack(sources_of(to))}
        params = _end_params(task.id, to, outcome, now, cleanup_after)
        if self._sql.one("end_task", params | guard) is None:
            return False
        self._tx.moved("task", task.status, to)
        return True

    def end_running(
        self, task_id: str, to: TaskStatus, outcome: Outcome, *, now: datetime, cleanup_after: datetime
    ) -> bool:
        """The same for a task that is running; False when it is not."""
        params = _end_params(task_id, to, outcome, now, cleanup_after)
        if self._sql.one("end_running_task", params) is None:
            return False
        self._tx.moved("task", TaskStatus.RUNNING, to)
        return True

    def succeed(self, results: Mapping[str, bytes], *, now: datetime, cleanup_after: datetime) -> bool:
        """The same for many that have succeeded, each with its result; False when one is not running."""
        if len(self._sql.all("lock_running_tasks", {"ids": self._sql.pack(list(results))})) != len(results):
            return False
        ended_at, cleanup_at = to_micros(now), to_micros(cleanup_after)
        self._sql.many(
            "succeed_task",
            [
                {
                    "id": task_id,
                    "result": result,
                    "result_digest": digest_of(task_id, result),
                    "now": ended_at,
                    "cleanup_after": cleanup_at,
                }
                for task_id, result in results.items()
            ],
        )
        self._tx.moved("task", TaskStatus.RUNNING, TaskStatus.SUCCEEDED, len(results))
        return True

    def reopen(self, task: Task, *, now: datetime, waits_on: str) -> bool:
        params = {"id": task.id, "now": to_micros(now), "waits_on": waits_on}
        if self._sql.one("reopen_task", params) is None:
            return False
        self._tx.moved("task", TaskStatus.FAILED, TaskStatus.PAUSED)
        return True

    def go_on(self, task: Task, *, now: datetime) -> bool:
        """A task that ended without success is to be carried again; its time is counted anew."""
        if self._sql.one("go_on_with_task", {"id": task.id, "now": to_micros(now)}) is None:
            return False
        self._tx.moved("task", task.status, TaskStatus.QUEUED)
        return True

    def request_cancel(self, task_id: str, reason: str, *, now: datetime) -> bool:
        """True if this is the first request."""
        params = {"id": task_id, "reason": reason, "now": to_micros(now)}
        return self._sql.one("request_cancel", params) is not None

    def cancels_requested(self, task_ids: Sequence[str]) -> set[str]:
        """Which of these somebody wants to end."""
        return {row[0] for row in self._sql.all("cancels_requested", {"ids": self._sql.pack(task_ids)})}

    def save_progress(
        self, task_id: str, run_id: str, fence: int, progress: Progress, *, now: datetime
    ) -> bool:
        params = {
            "task_id": task_id,
            "run_id": run_id,
            "fence": fence,
            "progress": msgspec.json.encode(progress),
            "now": to_micros(now),
        }
        return self._sql.one("save_progress", params) is not None

    def to_prune(self, *, now: datetime, limit: int) -> list[tuple[str, TaskStatus, str]]:
        """Ended tasks whose retention is over: id, status, owner."""
        found = self._sql.all("tasks_to_prune", {"now": to_micros(now), "limit": limit})
        return [(row[0], TaskStatus(row[1]), row[2]) for row in found]

    def delete(self, ended: Sequence[tuple[str, TaskStatus, str]], *, keys_expire_at: datetime) -> None:
        """Remove them, with their effects, deliveries and wakes; their dedup keys stay as tombstones."""
        ids = self._sql.pack([task_id for task_id, _, _ in ended])
        self._sql.run("bury_keys", {"ids": ids, "expires_at": to_micros(keys_expire_at)})
        self._sql.run("delete_effects_of_tasks", {"ids": ids})
        self._sql.run("delete_deliveries_of_tasks", {"ids": ids})
        self._sql.run("delete_wakes_of_tasks", {"ids": ids})
        for row in self._sql.all("delete_tasks", {"ids": ids}):
            self._tx.count("task", TaskStatus(row[0]), -1)

    def forget_keys(self, *, now: datetime) -> None:
        self._sql.run("delete_expired_keys", {"now": to_micros(now)})

    def _take_key(self, task: Task, key: str) -> Task | None:
        """None when the key is this task's; else the task that had it first."""
        params = {
            "owner": task.owner,
            "key": key,
            "task_id": task.id,
            "arguments_digest": _arguments_digest(task),
            "now": to_micros(task.created_at),
        }
        if self._sql.one("insert_key", params) is not None:
            return None
        row = self._sql.one("get_key", {"owner": task.owner, "key": key})
        if row is None:  # its tombstone expired between the two statements
            return self._take_key(task, key)
        if row[0] == task.id:
            return None
        if row[1] != _arguments_digest(task):
            raise KeyConflict(key, row[0])
        first = self._sql.one("get_task", {"id": row[0]})
        return _from_tombstone(task, row) if first is None else task_from_row(first)


def _end_params(
    task_id: str, to: TaskStatus, outcome: Outcome, now: datetime, cleanup_after: datetime
) -> dict[str, object]:
    return {
        "id": task_id,
        "to": to.value,
        "result": outcome.result,
        "result_digest": None if outcome.result is None else digest_of(task_id, outcome.result),
        "failure": None if outcome.failure is None else msgspec.json.encode(outcome.failure),
        "now": to_micros(now),
        "cleanup_after": to_micros(cleanup_after),
    }


def _from_tombstone(task: Task, row: Row) -> Task:
    """What a dedup key still knows of its task after retention removed it."""
    pruned = Failure(kind="pruned", message="the task ended and its retention is over; its result is gone")
    return msgspec.structs.replace(
        task,
        id=TaskId(row[0]),
        status=TaskStatus(row[2] or TaskStatus.LOST.value),
        failure=pruned,
        ended_at=task.created_at,
    )


def _arguments_digest(task: Task) -> bytes:
    return digest_of(task.runtime.value, task.name, task.arguments)


def resolve(tx: Tx, noun: str, query: str, prefix: str, **more: object) -> str:
    """The one id of a noun that begins with a prefix."""
    check_id(noun, prefix)
    params = {"low": prefix, "high": prefix + LAST, **more}
    found = [str(row[0]) for row in tx.statements.all(query, params)]
    if not found:
        raise NotFound(noun, prefix)
    if len(found) > 1 and found[0] != prefix:
        raise AmbiguousId(noun, prefix, found)
    return found[0]
