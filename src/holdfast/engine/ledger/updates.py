"""Owes the requester of a detached task an update about its status, in the write that changes the status."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.delivery import Delivery, DeliveryText, is_told, update_key
from holdfast.core.durations import in_one_unit
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventKind
from holdfast.core.ids import MessageId
from holdfast.core.message import (
    SYSTEM_MARK,
    Message,
    Role,
    clean_message,
    delivery_id,
    plain_line,
    update_id,
)
from holdfast.core.payload import decode_payload, encode_payload
from holdfast.core.recorded import TerminalOutcome
from holdfast.core.session import AGENT_PREFIX, is_session_key, may_be_told
from holdfast.core.task import Failure, NotifyPolicy, Origin, Task
from holdfast.core.transitions import DeliveryStatus, MessageStatus, TaskStatus
from holdfast.engine.ledger.entries import OWN_CHANNELS, SYSTEM_CHANNEL, WAKING, append, owe
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
_BLOCKED = "is done, but something blocks what follows"


def is_spawned(task: Task) -> bool:
    """Whether a session gave it to another one: it answers there, and its owner is told of its end."""
    return task.name.startswith(AGENT_PREFIX) and task.session_key not in (None, task.owner)


def setting_policy(task_id: str, policy: NotifyPolicy, *, now: datetime) -> Write[Task]:
    """The write that sets which updates the requester gets.

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
    run_id: str,
    now: datetime,
    result: bytes | None = None,
    failure: Failure | None = None,
) -> None:
    """Owe the update, once for each end or other status, and add it to the transcript of the task's session.

    A task that answers a message is not told of: its answer is. Nor is a child that its parent waits for. The
    end of a task that one session gave to another is told to the session that gave it.
    Without a person to send it to, the update waits in the queue of the session and wakes its agent.
    """
    if not may_be_told(task):
        return
    # A worker has the task as it was when it claimed the run; the policy may have changed since.
    task = msgspec.structs.replace(task, notify=tx.tasks.notify_of(task.id) or task.notify)
    if task.notify is NotifyPolicy.SILENT or not is_told(task.notify, status):
        return
    if task.parent_task_id is not None or (task.name.startswith(AGENT_PREFIX) and not is_spawned(task)):
        return
    text = clean_message(_sentence(tx, task, status, result, failure, now), Role.SYSTEM)
    update = _Update(task=task, key=update_key(task.id, run_id, status), text=text, now=now)
    # Without an origin only the owner is told: another session may be named by any producer. The session that
    # answers a spawned task is not the one that waits for it.
    is_owners = task.origin is None or is_spawned(task)
    session_key = task.owner if is_owners else task.session_key or task.owner
    session = tx.sessions.hold(session_key)
    if session is None:
        _tell_without_session(tx, update, session_key)
        return
    message_id = update_id(update.key)
    # A schedule and the gateway have no address: tell the person who wrote last in the session.
    origin = task.origin if _is_person(task.origin) else session.origin
    # An agent that the gateway woke is not woken again by what it started then: that could go on for ever.
    wakes = origin is None and task.origin is None
    said = Message(
        id=message_id,
        session_key=session_key,
        position=0,
        role=Role.SYSTEM,
        channel=SYSTEM_CHANNEL,
        channel_message_id=update.key,
        origin=WAKING if wakes else None,
        body=encode_payload("update", text),
        created_at=now,
        status=MessageStatus.QUEUED if wakes else MessageStatus.NOTED,
        task_id=None if wakes else task.id,
        updated_at=now,
    )
    if tx.messages.find(said) is not None:
        return
    placed = append(tx, said)
    if origin is not None:
        owe(tx, placed, origin, key=update.key)
    elif wakes:
        tx.hint("sessions")
        _keep(tx, update, message_id, DeliveryStatus.SESSION_QUEUED, session_key=session_key)


class _Update(msgspec.Struct, frozen=True, kw_only=True):
    """One update of one task, in words."""

    task: Task
    key: str
    text: str
    now: datetime


def _is_person(origin: Origin | None) -> bool:
    return origin is not None and origin.channel not in OWN_CHANNELS


def _tell_without_session(tx: Tx, update: _Update, session_key: str) -> None:
    """There is no transcript to add it to: send it, or record that the session it was for is missing."""
    task, message_id = update.task, update_id(update.key)
    if _is_person(task.origin):
        _keep(tx, update, message_id, DeliveryStatus.PENDING, origin=task.origin)
        tx.hint("deliveries")
    elif is_session_key(session_key):
        missing = Failure(kind="parent_missing", message=f"there is no session {session_key} to tell")
        _keep(tx, update, message_id, DeliveryStatus.PARENT_MISSING, failure=missing)


def _keep(
    tx: Tx,
    update: _Update,
    message_id: MessageId,
    status: DeliveryStatus,
    *,
    origin: Origin | None = None,
    session_key: str | None = None,
    failure: Failure | None = None,
) -> None:
    """The delivery of an update that is not sent as an entry of a transcript."""
    letter = DeliveryText(
        text=update.text,
        session_key=session_key,
        message_id=None if session_key is None else message_id,
    )
    tx.deliveries.create(
        Delivery(
            id=delivery_id(message_id),
            task_id=update.task.id,
            idempotency_key=update.key,
            origin=origin,
            message=msgspec.json.encode(letter),
            created_at=update.now,
            status=status,
            due_at=update.now,
            failure=failure,
            updated_at=update.now,
        )
    )


def _sentence(
    tx: Tx, task: Task, status: TaskStatus, result: bytes | None, failure: Failure | None, now: datetime
) -> str:
    """`[System] “count the beds” is done after 3m (task_…): 40 beds`."""
    took = "" if task.started_at is None else f" after {in_one_unit(now - task.started_at)}"
    details = None if task.runtime.is_executed_here else tx.recorded.get(task.id)
    is_blocked = details is not None and details.terminal_outcome is TerminalOutcome.BLOCKED
    words = _BLOCKED if is_blocked and status is TaskStatus.SUCCEEDED else _WORDS[status]
    text = f"{SYSTEM_MARK} “{plain_line(task.goal, _MOST_TITLE)}” {words}{took} ({task.id})"
    # A producer says in its summary what a person should read.
    summary = None if details is None else details.terminal_summary
    detail = summary or (_said(tx, result) if failure is None else failure.message)
    return f"{text}: {plain_line(detail, _MOST_DETAIL)}" if detail.strip() else f"{text}."


def _said(tx: Tx, result: bytes | None) -> str:
    """The result if it is text; other results are for programs."""
    if result is None:
        return ""
    try:
        found = decode_payload(tx.blobs.open(result))
    except HoldfastError:  # a result that cannot be read must not keep its task from ending
        return ""
    return found if isinstance(found, str) else ""
