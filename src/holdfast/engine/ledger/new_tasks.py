"""A task to create, checked, and stored with its first run."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.events import EventKind
from holdfast.core.ids import TaskId, check_id, new_run_id, new_task_id
from holdfast.core.payload import (
    MAX_GOAL_BYTES,
    check_code_name,
    check_name,
    check_number,
    check_text,
    encode_payload,
)
from holdfast.core.redaction import redact_name
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import DEFAULT_PRIORITY, LOWEST_PRIORITY, NotifyPolicy, Origin, RuntimeName, Task
from holdfast.engine.ledger.inputs import check_choice, check_moment
from holdfast.store import Tx
from holdfast.store.tasks import KeyedRequest


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task to create. The same `key` again, for the same owner, finds the first task."""

    name: str
    goal: str
    owner: str = "system"
    arguments: object = {}
    runtime: RuntimeName = RuntimeName.PYTHON
    origin: Origin | None = None
    session_key: str | None = None
    parent_task_id: str | None = None
    flow_id: str | None = None
    campaign_id: str | None = None
    key: str | None = None
    notify: NotifyPolicy = NotifyPolicy.DONE_ONLY
    priority: int = DEFAULT_PRIORITY
    due_at: datetime | None = None
    # Whether the caller has set the goal. Then a task with the same key and another goal is a conflict. A
    # generated goal may differ from release to release, so it is not compared.
    has_own_goal: bool = True


def insert_prepared(
    tx: Tx, task: Task, run: RunRecord, now: datetime, asked: KeyedRequest | None = None
) -> tuple[Task, bool]:
    """The task that has this id or key now, and whether it was created here."""
    kept, is_new = tx.tasks.create(task, asked)
    if is_new:
        tx.runs.create(run)
        tell_of_new(tx, task, now)
    return kept, is_new


def tell_of_new(tx: Tx, task: Task, now: datetime) -> None:
    tx.emit(EventKind.TASK_CREATED, task.id, at=now, task_id=task.id, name=task.name, owner=task.owner)
    tx.hint("runs")


def prepare(new: NewTask, now: datetime) -> tuple[Task, RunRecord]:
    """A new task and its first run. The write that stores the task packs its arguments. Raises BadInput."""
    task_id = new_task_id(now)
    due_at = now if new.due_at is None else check_moment("due_at", new.due_at)
    name = _checked_task_name(new.name)
    priority = check_number("priority", new.priority, low=0, high=LOWEST_PRIORITY)
    task = Task(
        id=task_id,
        owner=check_name("owner", new.owner),
        runtime=check_choice("runtime", new.runtime, RuntimeName),
        name=name,
        goal=check_text("goal", new.goal, max_bytes=MAX_GOAL_BYTES),
        arguments=encode_payload("arguments", new.arguments),
        origin=_checked_origin(new.origin),
        session_key=None if new.session_key is None else check_name("session_key", new.session_key),
        parent_task_id=None
        if new.parent_task_id is None
        else TaskId(check_id("parent_task_id", new.parent_task_id)),
        flow_id=None if new.flow_id is None else check_id("flow_id", new.flow_id),
        campaign_id=None if new.campaign_id is None else check_id("campaign_id", new.campaign_id),
        dedup_key=None if new.key is None else check_name("key", new.key),
        notify=check_choice("notify", new.notify, NotifyPolicy),
        created_at=now,
        updated_at=now,
        priority=priority,
    )
    if not task.runtime.is_executed_here:
        queue = Queue.PRODUCER
    else:
        queue = Queue.READY if due_at <= now else Queue.LATER
    run = RunRecord(
        id=new_run_id(now),
        task_id=task_id,
        task_name=name,
        number=1,
        created_at=now,
        updated_at=now,
        priority=priority,
        due_at=due_at,
        queue=queue,
    )
    return task, run


def _checked_task_name(name: object) -> str:
    """The name as the worker declares it, unredacted, so that it matches. A name with a secret is refused."""
    checked = check_code_name("name", name)
    if redact_name(checked) != checked:
        raise BadInput("name", "it holds a secret of this process; name the task otherwise")
    return checked


def _checked_origin(origin: object) -> Origin | None:
    if origin is None:
        return None
    if not isinstance(origin, Origin):
        raise BadInput("origin", f"an origin is needed, not {type(origin).__name__}")
    return origin.checked()
