"""Owes the requester of a detached task an update about its status, in the write that changes the status."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.delivery import Delivery, DeliveryText, is_told, update_key
from holdfast.core.durations import in_one_unit
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventKind
from holdfast.core.message import (
    SYSTEM_MARK,
    Message,
    Role,
    clean_message,
    delivery_id,
    update_id,
    without_tags,
)
from holdfast.core.payload import clean_text, decode_payload, encode_payload
from holdfast.core.session import AGENT_PREFIX
from holdfast.core.task import Failure, NotifyPolicy, Origin, Task
from holdfast.core.transitions import MessageStatus, TaskStatus
from holdfast.engine.ledger.entries import OWN_CHANNELS, SYSTEM_CHANNEL, append, owe
from holdfast.store import Tx, Write

_MOST_TITLE = 120
_MOST_DETAIL = 500

_WORDS = {
    TaskStatus.WAITING: "waits",
    TaskStatus.NEEDS_REVIEW: "waits for an operator's decision",
    TaskStatus.SUCCEEDED: "is done",
    TaskStatus.FAILED: "failed",
    TaskStatus.TIMED_OUT: "was not done in the time it may take",
    TaskStatus.CANCELLED: "was cancelled",
    TaskStatus.LOST: "was lost: nothing proves that it still runs",
}


def setting_policy(task_id: str, policy: NotifyPolicy, *, now: datetime) -> Write[Task]:
    """The write that sets of what the requester is told.

    It holds the task, so the task ends before it or after it. The update of an end is owed in the write that
    ends the task, by the policy of that moment.
    """

    def set_policy(tx: Tx) -> Task:
        before = tx.tasks.lock(task_id).notify
        task = tx.tasks.set_notify(task_id, policy, now=now)
        if task.notify is not before:
            tx.emit(EventKind.TASK_NOTIFY_CHANGED, task_id, at=now, task_id=task_id, notify=policy.value)
        return task

    return set_policy


def tell_requester(
    tx: Tx,
    task: Task,
    status: TaskStatus,
    *,
    now: datetime,
    result: bytes | None = None,
    failure: Failure | None = None,
) -> None:
    """Owe the update, once for each status, and add it to the transcript of the task's session.

    A task that answers a message is not told of: its answer is. Nor is a child that its parent waits for.
    """
    # A worker has the task as it was when it claimed the run; the policy may have changed since.
    task = msgspec.structs.replace(task, notify=tx.tasks.notify_of(task.id) or task.notify)
    if task.origin is None or task.notify is NotifyPolicy.SILENT or not is_told(task.notify, status):
        return
    if task.parent_task_id is not None or task.name.startswith(AGENT_PREFIX):
        return
    text = clean_message(_sentence(tx, task, status, result, failure, now), Role.SYSTEM)
    key, session_key = update_key(task.id, status), task.session_key or task.owner
    session = tx.sessions.hold(session_key)
    # A schedule and the gateway have no address: tell the person who wrote last in the session.
    origin: Origin | None = task.origin
    if task.origin.channel in OWN_CHANNELS:
        origin = None if session is None else session.origin
    if session is None:
        if origin is not None:
            _owe_alone(tx, task, status, text, origin, key=key, now=now)
        return
    said = Message(
        id=update_id(task.id, status.value),
        session_key=session_key,
        position=0,
        role=Role.SYSTEM,
        channel=SYSTEM_CHANNEL,
        channel_message_id=key,
        body=encode_payload("update", text),
        created_at=now,
        status=MessageStatus.NOTED,
        task_id=task.id,
        updated_at=now,
    )
    if tx.messages.find(said) is not None:
        return
    placed = append(tx, said)
    if origin is not None:
        owe(tx, placed, origin, key=key)


def _owe_alone(
    tx: Tx, task: Task, status: TaskStatus, text: str, origin: Origin, *, key: str, now: datetime
) -> None:
    """For a task without a session: there is no transcript to add it to."""
    tx.deliveries.create(
        Delivery(
            id=delivery_id(update_id(task.id, status.value)),
            task_id=task.id,
            idempotency_key=key,
            origin=origin,
            message=msgspec.json.encode(DeliveryText(text=text)),
            created_at=now,
            due_at=now,
            updated_at=now,
        )
    )
    tx.hint("deliveries")


def _sentence(
    tx: Tx, task: Task, status: TaskStatus, result: bytes | None, failure: Failure | None, now: datetime
) -> str:
    """`[System] “count the beds” is done after 3m (task_…): 40 beds`."""
    took = "" if task.started_at is None else f" after {in_one_unit(now - task.started_at)}"
    text = f"{SYSTEM_MARK} “{_line(task.goal, _MOST_TITLE)}” {_WORDS[status]}{took} ({task.id})"
    detail = _said(tx, result) if failure is None else failure.message
    return f"{text}: {_line(detail, _MOST_DETAIL)}" if detail.strip() else f"{text}."


def _said(tx: Tx, result: bytes | None) -> str:
    """The result if it is text; other results are for programs."""
    if result is None:
        return ""
    try:
        found = decode_payload(tx.blobs.open(result))
    except HoldfastError:  # a result that cannot be read must not keep its task from ending
        return ""
    return found if isinstance(found, str) else ""


def _line(text: str, max_chars: int) -> str:
    """On one line, without secrets, terminal colours and tags: a channel may show it as HTML."""
    return without_tags(" ".join(clean_text(text, max_chars=max_chars).split()))
