"""Reads and writes of tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import AmbiguousId, KeyConflict, NotFound, RowDamaged
from holdfast.core.ids import LAST as LAST
from holdfast.core.ids import TaskId, check_id
from holdfast.core.payload import digest_of
from holdfast.core.redaction import hide_name, redact_json, redact_name, redact_text
from holdfast.core.retention import LOST_KIND
from holdfast.core.run import RunOutcome
from holdfast.core.task import Failure, NotifyPolicy, Progress, RuntimeName, Task
from holdfast.core.transitions import TaskStatus, sources_of
from holdfast.store.blobs import pack, reference_to
from holdfast.store.contract import Row
from holdfast.store.rows.work import flow_digest, notify_digest, row_from_task, task_from_row
from holdfast.store.sealing import has_lost_key

if TYPE_CHECKING:
    from holdfast.core.task_filter import TaskFilter
    from holdfast.store.task_pages import FoundTasks
    from holdfast.store.transaction import Tx

TOMBSTONE_DAYS = 90
# The length of the digest of the arguments. The digest of the goal follows it, except in older rows.
_DIGEST_BYTES = 8


class FamilyTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task, and the one that was asked about from which it comes; it comes from itself, too."""

    task_id: str
    root_id: str
    parent_id: str | None
    has_ended: bool


class KeyedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a dedup key in the caller's words, to compare it with others under the same key."""

    # None when Holdfast generated the goal: another release may generate a different one.
    goal: str | None = None
    key: str | None = None


class TaskTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements
        self._sealing = tx.sealing

    def create(self, task: Task, asked: KeyedRequest | None = None) -> tuple[Task, bool]:
        """The task and whether it is new. If its dedup key is taken, it is the task that has the key.

        Large arguments become a blob. Raises KeyConflict when the task that has the key has another name or
        other arguments, or another goal if the caller gave one.
        """
        if task.dedup_key is not None:
            first = self._take_key(task, task.dedup_key, KeyedRequest() if asked is None else asked)
            if first is not None:
                return first, False
        packed = pack(task.arguments, self._sealing)
        task = msgspec.structs.replace(task, arguments=packed.stored)
        if self._sql.one("insert_task", row_from_task(task, self._sealing)) is None:
            return self.get(task.id), False  # the write runs a second time after its own commit
        self._tx.blobs.keep(task.id, packed)
        self._count(task)
        return task, True

    def create_many(self, tasks: Sequence[Task]) -> None:
        """Store tasks without dedup keys; the caller knows that none of them exists already."""
        packed = [pack(task.arguments, self._sealing) for task in tasks]
        stored = [
            msgspec.structs.replace(task, arguments=one.stored)
            for task, one in zip(tasks, packed, strict=True)
        ]
        self._sql.many("insert_task", [row_from_task(task, self._sealing) for task in stored])
        for task, one in zip(tasks, packed, strict=True):
            self._tx.blobs.keep(task.id, one)
            self._count(task)

    def _count(self, task: Task) -> None:
        self._tx.count("task", task.status, 1)
        self._tx.count("runtime", task.runtime, 1)

    def get(self, task_id: str) -> Task:
        """Raises RowDamaged for a damaged task, KeyLost for one that no key opens."""
        return self.look(task_id).checked()

    def look(self, task_id: str) -> Task:
        """The task, damaged or not: for showing, never for executing."""
        row = self._sql.one("get_task", {"id": task_id})
        if row is None:
            raise NotFound("task", task_id)
        return task_from_row(row, self._sealing)

    def lock(self, task_id: str) -> Task:
        """The task, locked until this transaction ends."""
        row = self._sql.one("lock_task", {"id": task_id})
        if row is None:
            raise NotFound("task", task_id)
        return task_from_row(row, self._sealing)

    def get_many(self, task_ids: Sequence[str]) -> dict[str, Task]:
        found = self._sql.all("get_tasks", {"ids": self._sql.pack(task_ids)})
        return {row[0]: task_from_row(row, self._sealing) for row in found}

    def ended_among(self, task_ids: Sequence[str]) -> list[str]:
        """Which of these have ended."""
        return [row[0] for row in self._sql.all("ended_tasks", {"ids": self._sql.pack(task_ids)})]

    def children(self, task_id: str, *, only_alive: bool = False) -> list[Task]:
        """The tasks that this one started, oldest first; without a limit, because its end affects all."""
        query = "children_of_task_alive" if only_alive else "children_of_task"
        return [task_from_row(row, self._sealing) for row in self._sql.all(query, {"task_id": task_id})]

    def families(self, task_ids: Sequence[str]) -> list[FamilyTask]:
        """These tasks and all that they started, directly or not; those that are gone are left out."""
        found = self._sql.all("families_of_tasks", {"ids": self._sql.pack(task_ids)})
        return [
            FamilyTask(task_id=row[0], root_id=row[1], parent_id=row[2], has_ended=row[3] is not None)
            for row in sorted(found, key=lambda row: (row[1], row[0]))
        ]

    def newest_children(self, task_id: str, *, limit: int) -> list[Task]:
        """Newest first, for displaying a task that may have started very many."""
        found = self._sql.all("newest_children_of_task", {"task_id": task_id, "limit": limit})
        return [task_from_row(row, self._sealing) for row in found]

    def resolve(self, prefix: str, *, owner: str | None = None) -> TaskId:
        """The one id with this prefix; only among an owner's tasks, if one is given."""
        if owner is None:
            return TaskId(resolve(self._tx, "task", "find_tasks", prefix))
        return TaskId(resolve(self._tx, "task", "find_tasks_of_owner", prefix, owner=redact_name(owner)))

    def page(
        self,
        *,
        statuses: Sequence[TaskStatus] = (),
        owner: str | None = None,
        names: Collection[str] | None = None,
        before: str = LAST,
        limit: int = 50,
    ) -> list[Task]:
        """Newest first; the last id of a page is the page token of the next. Optionally only of an owner and
        with one of these names."""
        from holdfast.core.task_filter import TaskFilter
        from holdfast.store.task_pages import page_of_tasks

        wanted = TaskFilter(
            statuses=tuple(statuses), owner=owner, names=None if names is None else frozenset(names)
        )
        return page_of_tasks(self._tx, wanted, before=before, limit=limit)

    def oldest(self, status: TaskStatus) -> Task | None:
        """The task that was created first of those in this status."""
        row = self._sql.one("oldest_task_in_status", {"status": status.value})
        return None if row is None else task_from_row(row, self._sealing)

    def find(
        self, wanted: TaskFilter, *, reach: TaskFilter | None = None, before: str = LAST, limit: int = 50
    ) -> FoundTasks:
        """A page of tasks by any filter; see task_pages.py for what it costs."""
        from holdfast.store.task_pages import find_tasks

        return find_tasks(self._tx, wanted, reach=reach, before=before, limit=limit)

    def page_by_end(self, *, before: tuple[int, str], limit: int) -> list[tuple[Task, tuple[int, str]]]:
        """Ended tasks, last ended first, each with its page token; the last one gives the next page."""
        params = {"ended_at": before[0], "before": before[1], "limit": limit}
        found = [task_from_row(row, self._sealing) for row in self._sql.all("page_of_tasks_by_end", params)]
        return [(task, (to_micros(task.ended_at), task.id)) for task in found if task.ended_at]

    def move(self, task: Task, to: TaskStatus, *, now: datetime, waits_on: str | None = None) -> None:
        """Move the task as its run moved. The caller holds the task or its run, so the guard must match."""
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
        """Move several tasks as their runs moved; returns how many."""
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
        self, task: Task, to: TaskStatus, outcome: RunOutcome, *, now: datetime, cleanup_after: datetime
    ) -> bool:
        """End the task; False if it has ended before."""
        guard = {"from": task.status.value, "sources": self._sql.pack(sources_of(to))}
        params = self._end_params(task.id, to, outcome, now, cleanup_after)
        if self._sql.one("end_task", params | guard) is None:
            return False
        self._tx.moved("task", task.status, to)
        return True

    def end_running(
        self, task_id: str, to: TaskStatus, outcome: RunOutcome, *, now: datetime, cleanup_after: datetime
    ) -> bool:
        """The same for a task that is running; False when it is not."""
        params = self._end_params(task_id, to, outcome, now, cleanup_after)
        if self._sql.one("end_running_task", params) is None:
            return False
        self._tx.moved("task", TaskStatus.RUNNING, to)
        return True

    def succeed(self, results: Mapping[str, bytes], *, now: datetime, cleanup_after: datetime) -> bool:
        """The same for several tasks that succeeded, each with its result; False when one is not running."""
        if len(self._sql.all("lock_running_tasks", {"ids": self._sql.pack(list(results))})) != len(results):
            return False
        ended_at, cleanup_at = to_micros(now), to_micros(cleanup_after)
        self._sql.many(
            "succeed_task",
            [
                {
                    "id": task_id,
                    "result": sealed,
                    "result_digest": digest_of(task_id, sealed),
                    "now": ended_at,
                    "cleanup_after": cleanup_at,
                }
                for task_id, sealed in (
                    (one, self._sealing.seal(result, "tasks.result", one)) for one, result in results.items()
                )
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
        """Reopen a task that ended without success; its time limit starts again."""
        if self._sql.one("go_on_with_task", {"id": task.id, "now": to_micros(now)}) is None:
            return False
        self._tx.moved("task", task.status, TaskStatus.QUEUED)
        return True

    def request_cancel(self, task_id: str, reason: str, *, now: datetime) -> bool:
        """Record the request; True if it is the first."""
        params = {"id": task_id, "reason": reason, "now": to_micros(now)}
        return self._sql.one("request_cancel", params) is not None

    def of_flow(self, flow_id: str, *, after: str = "", limit: int = 100) -> list[Task]:
        """The tasks of a flow, oldest first; the last id of a page is the page token of the next."""
        params = {"flow_id": flow_id, "after": after, "limit": limit}
        return [task_from_row(row, self._sealing) for row in self._sql.all("tasks_of_flow", params)]

    def lock_to_stop(self, flow_id: str, *, limit: int) -> list[str]:
        """Live tasks of a flow whose cancel was not requested yet. On PostgreSQL, tasks that another
        transaction holds are left out."""
        params = {"flow_id": flow_id, "limit": limit}
        return [row[0] for row in self._sql.all("lock_tasks_to_stop_of_flow", params)]

    def to_stop(self, flow_id: str, *, after: str = "", limit: int) -> list[str]:
        """The same without locking them; the last id of a page is the page token of the next."""
        params = {"flow_id": flow_id, "after": after, "limit": limit}
        return [row[0] for row in self._sql.all("tasks_to_stop_of_flow", params)]

    def link(self, task_id: str, flow_id: str, *, now: datetime) -> bool:
        """Make an existing task, which the caller has locked, part of a flow; False if it has a flow.
        Raises NotFound, RowDamaged."""
        row = self._sql.one("lock_task", {"id": task_id})
        if row is None:
            raise NotFound("task", task_id)
        task_from_row(row, self._sealing).checked()
        params = {
            "id": task_id,
            "flow_id": flow_id,
            "digest": flow_digest(row, flow_id),
            "from": row[13],
            "now": to_micros(now),
        }
        return self._sql.one("link_task", params) is not None

    def set_notify(self, task_id: str, policy: NotifyPolicy, *, now: datetime) -> Task:
        """The task with this policy; unchanged if it has ended. Raises NotFound, RowDamaged."""
        row = self._sql.one("lock_task", {"id": task_id})
        if row is None:
            raise NotFound("task", task_id)
        task = task_from_row(row, self._sealing)
        if task.has_ended or task.notify is policy:
            return task
        if task.is_damaged:
            raise RowDamaged("task", task_id)
        params = {
            "id": task_id,
            "notify": policy.value,
            "digest": notify_digest(row, policy),
            "from": row[13],
            "now": to_micros(now),
        }
        self._sql.one("set_notify", params)
        return self.look(task_id)

    def durations(self, name: str, *, limit: int) -> list[timedelta]:
        """How long the newest tasks of a name took that succeeded, among the last `limit`."""
        found = self._sql.all("durations_of_name", {"name": name, "limit": limit})
        return [timedelta(microseconds=row[1] - row[0]) for row in found if row[2] == "succeeded"]

    def notify_of(self, task_id: str) -> NotifyPolicy | None:
        """The policy that the task has now."""
        row = self._sql.one("get_notify", {"id": task_id})
        return None if row is None else NotifyPolicy(row[0])

    def cancels_requested(self, task_ids: Sequence[str]) -> set[str]:
        """Which of these have a request to cancel."""
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

    def past_retention(self, *, now: datetime, limit: int) -> list[str]:
        """The ids of the same tasks, without locking them: for a preview."""
        params = {"now": to_micros(now), "limit": limit}
        return [row[0] for row in self._sql.all("tasks_past_retention", params)]

    def past_limit(self, kind: str, *, before: datetime, limit: int) -> list[Task]:
        """Tasks of a runtime, or lost ones, that ended before a moment; for a preview, too."""
        params = {"before": to_micros(before), "limit": limit}
        if kind == LOST_KIND:
            found = self._sql.all("tasks_past_limit_lost", params)
        else:
            found = self._sql.all("tasks_past_limit_of_runtime", params | {"runtime": kind})
        return [task_from_row(row, self._sealing) for row in found]

    def needed_by_campaigns(self, task_ids: Sequence[str]) -> set[str]:
        """Those of these tasks with which an item goes on, or whose effects a restore must see."""
        found = self._sql.all("tasks_that_campaigns_need", {"ids": self._sql.pack(task_ids)})
        return {row[0] for row in found}

    def lock_to_prune(self, seen: Sequence[Task]) -> list[tuple[str, TaskStatus, str]]:
        """Those of these tasks that may be deleted, locked until this transaction ends: id, status, owner. A
        task that was reopened and has ended again since it was read is left out."""
        if not seen:
            return []
        ends = {task.id: to_micros(task.ended_at) for task in seen if task.ended_at is not None}
        found = self._sql.all("lock_tasks_to_prune", {"ids": self._sql.pack(list(ends))})
        return [(row[0], TaskStatus(row[1]), row[2]) for row in found if row[3] == ends[row[0]]]

    def restamp(self, task: Task, *, cleanup_after: datetime) -> bool:
        """Change when to clean up an ended task; False if it was changed since it was read."""
        assert task.ended_at is not None
        assert task.cleanup_after is not None
        params = {
            "id": task.id,
            "ended_at": to_micros(task.ended_at),
            "seen": to_micros(task.cleanup_after),
            "cleanup_after": to_micros(cleanup_after),
        }
        return self._sql.one("restamp_task", params) is not None

    def unstamped(self, *, now: datetime, limit: int) -> list[Task]:
        """Ended tasks without a time to clean them up, first ended first."""
        found = self._sql.all("unstamped_tasks", {"now": to_micros(now), "limit": limit})
        return [task_from_row(row, self._sealing) for row in found]

    def stamp(self, task_id: str, *, cleanup_after: datetime) -> bool:
        """Set when to clean up an ended task; False if it has such a time, or has not ended."""
        params = {"id": task_id, "cleanup_after": to_micros(cleanup_after)}
        return self._sql.one("stamp_task", params) is not None

    def delete(self, ended: Sequence[tuple[str, TaskStatus, str]], *, keys_expire_at: datetime) -> None:
        """Delete them with all that refers to them; their dedup keys stay as tombstones."""
        ids = self._sql.pack([task_id for task_id, _, _ in ended])
        self._sql.run("bury_keys", {"ids": ids, "expires_at": to_micros(keys_expire_at)})
        self._tx.imports.bury([task_id for task_id, _, _ in ended], expires_at=keys_expire_at)
        self._sql.run("delete_effects_of_tasks", {"ids": ids})
        self._sql.run("delete_deliveries_of_tasks", {"ids": ids})
        self._sql.run("delete_wakes_of_tasks", {"ids": ids})
        self._sql.run("delete_recorded_of_tasks", {"ids": ids})
        for row in self._sql.all("delete_tasks", {"ids": ids}):
            self._tx.count("task", TaskStatus(row[0]), -1)
            self._tx.count("runtime", RuntimeName(row[1]), -1)

    def forget_keys(self, *, now: datetime) -> None:
        self._sql.run("delete_expired_keys", {"now": to_micros(now)})
        self._tx.imports.forget(now=now)

    def _take_key(self, task: Task, key: str, asked: KeyedRequest) -> Task | None:
        """None when this task got the key; otherwise the task that had it first."""
        # A key has two forms: another process may have found a secret in it, or may not.
        for other in () if asked.key is None else {asked.key, hide_name(asked.key)} - {key}:
            row = self._sql.one("get_key", {"owner": task.owner, "key": other})
            if row is not None and row[0] != task.id:
                return self._first(task, other, row, asked)
        params = {
            "owner": task.owner,
            "key": key,
            "task_id": task.id,
            "arguments_digest": self._stored_digest(task)
            + self._goal_digest(task.goal if asked.goal is None else asked.goal),
            "now": to_micros(task.created_at),
        }
        if self._sql.one("insert_key", params) is not None:
            return None
        row = self._sql.one("get_key", {"owner": task.owner, "key": key})
        if row is None:  # its tombstone expired between the two statements
            return self._take_key(task, key, asked)
        return None if row[0] == task.id else self._first(task, key, row, asked)

    def _first(self, task: Task, key: str, row: Row, asked: KeyedRequest) -> Task:
        """The task that has the key. Raises KeyConflict when it was requested differently."""
        if not self._is_same(row, task):
            raise KeyConflict(redact_name(key), row[0])
        found = self._sql.one("get_task", {"id": row[0]})
        first = None if found is None else task_from_row(found, self._sealing)
        if asked.goal is not None and not self._is_same_goal(row, first, task, asked.goal):
            raise KeyConflict(redact_name(key), row[0], of_goal=True)
        return _from_tombstone(task, row) if first is None else first

    def _is_same(self, row: Row, task: Task) -> bool:
        """Whether the task that has the key was requested with the same name and arguments."""
        told, _ = _told(row)
        if self._sealing.is_same(told, _arguments_digest(task), "task", row[0]):
            return True
        # Older releases redacted arguments before they stored them.
        redacted = reference_to(redact_json(task.arguments))
        return told == digest_of(task.runtime.value, task.name, redacted)

    def _stored_digest(self, task: Task) -> bytes:
        """Keyed only if the arguments hold a secret: others can be compared even if the key is lost."""
        digest = _arguments_digest(task)
        if self._sealing.key_for(task.arguments) is None:
            return digest
        return self._sealing.conceal(digest, of_secret=True)

    def _goal_digest(self, said: str) -> bytes:
        """The digest of a goal for the dedup key; keyed if the goal holds a secret, because the goal itself
        is stored redacted."""
        key = self._sealing.key_for(said.encode())
        return digest_of(said) if key is None else key.digest(said.encode(), _DIGEST_BYTES)

    def _is_same_goal(self, row: Row, first: Task | None, task: Task, said: str) -> bool:
        """Whether it was requested with the same goal; True when that is no longer known."""
        _, told = _told(row)
        if not told:  # written by an older release, which redacts less
            return first is None or task.goal in (first.goal, redact_text(first.goal))
        key = self._sealing.vault.find(self._tx)
        keyed = None if key is None else key.digest(said.encode(), _DIGEST_BYTES)
        return told in (digest_of(said), keyed) or has_lost_key(self._tx)

    def _end_params(
        self, task_id: str, to: TaskStatus, outcome: RunOutcome, now: datetime, cleanup_after: datetime
    ) -> dict[str, object]:
        result = self._sealing.maybe(outcome.result, "tasks.result", task_id)
        return {
            "id": task_id,
            "to": to.value,
            "result": result,
            "result_digest": None if result is None else digest_of(task_id, result),
            "failure": None if outcome.failure is None else msgspec.json.encode(outcome.failure),
            "now": to_micros(now),
            "cleanup_after": to_micros(cleanup_after),
        }


def _from_tombstone(task: Task, row: Row) -> Task:
    """What a dedup key still records of its task after retention deleted it."""
    pruned = Failure(kind="pruned", message="the task ended and its retention is over; its result is gone")
    return msgspec.structs.replace(
        task,
        id=TaskId(row[0]),
        status=TaskStatus(row[2] or TaskStatus.LOST.value),
        failure=pruned,
        ended_at=task.created_at,
    )


def _arguments_digest(task: Task) -> bytes:
    return digest_of(task.runtime.value, task.name, reference_to(task.arguments))


def _told(row: Row) -> tuple[bytes, bytes]:
    """The digest of the arguments, keyed or not, and the digest of the goal, which older rows lack."""
    digests = bytes(row[1])
    if len(digests) <= _DIGEST_BYTES:
        return digests, b""
    return digests[:-_DIGEST_BYTES], digests[-_DIGEST_BYTES:]


def resolve(
    tx: Tx, noun: str, query: str, prefix: str, *, shown_by: str | None = None, **more: object
) -> str:
    """The one id of a noun that begins with a prefix."""
    check_id(noun, prefix)
    params = {"low": prefix, "high": prefix + LAST, **more}
    found = [str(row[0]) for row in tx.statements.all(query, params)]
    if not found:
        raise NotFound(noun, prefix, shown_by=shown_by)
    if len(found) > 1 and found[0] != prefix:
        raise AmbiguousId(noun, prefix, found)
    return found[0]
