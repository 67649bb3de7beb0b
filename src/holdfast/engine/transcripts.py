"""The transcript of a session: a message is posted, answered, or said to have failed, in one write each."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime

import msgspec

from holdfast.core.delivery import Delivery, Letter
from holdfast.core.errors import BadInput, KeyConflict, NotFound
from holdfast.core.events import EventKind
from holdfast.core.ids import MessageId, SessionId, TaskId, new_message_id
from holdfast.core.message import (
    CRON_CHANNEL,
    Message,
    Role,
    clean_message,
    delivery_id,
    notice_id,
    reply_id,
)
from holdfast.core.payload import MAX_NAME_CHARS, encode_payload
from holdfast.core.redaction import redact_text
from holdfast.core.session import Session, agent_of
from holdfast.core.task import Origin
from holdfast.core.transitions import FiringStatus, MessageStatus, TaskStatus
from holdfast.engine.inputs import check_choice
from holdfast.store import Tx

# The channel of what the gateway itself says, which came from nowhere.
SYSTEM_CHANNEL = "system"
# Nobody stands at the other end of these.
OWN_CHANNELS = frozenset({CRON_CHANNEL, SYSTEM_CHANNEL})

_ID = re.compile(rf"[!-~]([ -~]{{0,{MAX_NAME_CHARS - 2}}}[!-~])?")

_SENTENCES = {
    TaskStatus.CANCELLED: "was cancelled before it was answered",
    TaskStatus.TIMED_OUT: "was not answered in the time it may take",
}


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """The message as it stands in the transcript; a duplicate was there before."""

    message: Message
    is_duplicate: bool


# --- posting


def new_message(
    session_key: str,
    text: object,
    origin: Origin | None,
    *,
    channel_message_id: str | None = None,
    role: Role | str = Role.USER,
    is_noted: bool = False,
    now: datetime,
) -> Message:
    """A message fit to be stored; its place in the transcript is given by `post`. Raises BadInput."""
    agent_of(session_key)
    role = check_choice("role", role, Role)
    if origin is not None and not isinstance(origin, Origin):
        raise BadInput("origin", f"an origin is needed, not {type(origin).__name__}")
    checked = None if origin is None else origin.checked()
    cleaned = clean_message(text, role)
    return Message(
        id=new_message_id(now),
        session_key=session_key,
        position=0,
        role=role,
        channel=SYSTEM_CHANNEL if checked is None else checked.channel,
        account_id="" if checked is None else checked.account_id or "",
        channel_message_id=None if channel_message_id is None else _checked_id(channel_message_id),
        origin=checked,
        body=encode_payload("message", cleaned, max_bytes=2**21),
        created_at=now,
        status=MessageStatus.NOTED if is_noted else MessageStatus.QUEUED,
        updated_at=now,
    )


def _checked_id(value: object) -> str:
    """The channel's own name for a message. Kept as it is: one that was redacted would fit another, too."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise BadInput(
            "message id", f"1 to {MAX_NAME_CHARS} printable ASCII characters are needed; give it another id"
        )
    if redact_text(value) != value:
        return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    return value


def post(tx: Tx, message: Message, *, parent_key: str | None = None) -> Posted:
    """It enters the transcript, and waits for its turn unless it is only noted; once, however often posted.

    Raises KeyConflict when its channel used the same id for something else.
    """
    now = message.created_at
    if tx.sessions.hold(message.session_key) is None:
        tx.sessions.create(
            Session(
                # From the message's own, so that the write gives the same answer when it runs again.
                id=SessionId(f"sess_{message.id.removeprefix('msg_')}"),
                key=message.session_key,
                agent=agent_of(message.session_key),
                parent_key=parent_key,
                created_at=now,
                updated_at=now,
            )
        )
        tx.sessions.hold(message.session_key)
    before = tx.messages.find(message)
    if before is not None:
        return _found(before, message)
    posted = _append(tx, message)
    tx.hint("sessions")
    return Posted(message=posted, is_duplicate=False)


def _found(before: Message, message: Message) -> Posted:
    is_same = (before.session_key, before.role, before.body) == (
        message.session_key,
        message.role,
        message.body,
    )
    if not is_same:
        raise KeyConflict(message.channel_message_id or message.id, before.id)
    return Posted(message=before, is_duplicate=before.id != message.id)


def _append(tx: Tx, message: Message) -> Message:
    """At the next place. Whoever calls it holds the session."""
    now = message.created_at
    is_spoken = message.role is Role.USER and message.channel not in OWN_CHANNELS
    session = tx.sessions.append(
        message.session_key,
        is_queued=message.status is MessageStatus.QUEUED,
        origin=message.origin if is_spoken else None,
        now=now,
    )
    placed = msgspec.structs.replace(message, position=session.last_position)
    kept = tx.messages.create(placed)
    if kept.id != placed.id:
        # Another session was given the same id at the same time.
        raise KeyConflict(message.channel_message_id or message.id, kept.id)
    tx.emit(
        EventKind.MESSAGE_POSTED,
        placed.id,
        at=now,
        task_id=placed.task_id,
        session_key=placed.session_key,
        position=placed.position,
        role=placed.role.value,
        channel=placed.channel,
        reply_to=placed.reply_to,
    )
    return placed


def withdraw(tx: Tx, message_id: str, *, now: datetime) -> Message:
    """A message that waits is only noted from now on. One that no longer waits stays as it is."""
    message = tx.messages.get(message_id)
    tx.sessions.hold(message.session_key)
    message = tx.messages.get(message_id)
    if message.status is not MessageStatus.QUEUED:
        return message
    tx.sessions.drop_queued(message.session_key, now=now)
    tx.firings.follow(message.id, FiringStatus.FAILED, task_id=None, now=now)
    _tell_failed(tx, message, None, "withdrawn", now)
    return tx.messages.move(message.id, MessageStatus.NOTED, now=now)


# --- answering


def answer(
    tx: Tx, *, session_key: str, message_id: str, task_id: str, text: str | None, now: datetime
) -> Message | None:
    """The agent's words enter the transcript, the message is answered, and the answer is owed to its origin.

    All of it once for a task. Without a text nothing is said; the message is answered all the same.
    """
    if tx.sessions.hold(session_key) is None:
        raise NotFound("session", session_key)
    asked = tx.messages.get(message_id)
    if asked.status not in (MessageStatus.TAKEN, MessageStatus.FAILED):
        return None
    tx.messages.move(message_id, MessageStatus.ANSWERED, now=now)
    tx.firings.follow(message_id, FiringStatus.DONE, task_id=task_id, now=now)
    if text is None:
        return None
    return _say(tx, asked, reply_id(task_id), Role.AGENT, text, task_id=task_id, now=now)


def fail(tx: Tx, asked: Message, *, task_id: str, status: TaskStatus, now: datetime) -> Message:
    """The message will not be answered by that task; its session and its origin get one short sentence."""
    tx.messages.move(asked.id, MessageStatus.FAILED, now=now)
    tx.firings.follow(asked.id, FiringStatus.FAILED, task_id=task_id, now=now)
    _tell_failed(tx, asked, task_id, status.value, now)
    what = _SENTENCES.get(status, "could not be answered: the agent failed")
    text = f"[System] Your last message {what} ({task_id}). The next one begins afresh."
    return _say(tx, asked, notice_id(task_id), Role.SYSTEM, text, task_id=task_id, now=now)


def _tell_failed(tx: Tx, message: Message, task_id: str | None, why: str, now: datetime) -> None:
    tx.emit(
        EventKind.MESSAGE_FAILED,
        message.id,
        at=now,
        task_id=task_id,
        session_key=message.session_key,
        why=why,
    )


def _say(
    tx: Tx, asked: Message, said_id: MessageId, role: Role, text: str, *, task_id: str, now: datetime
) -> Message:
    session = tx.sessions.of_key(asked.session_key)
    # What a schedule or the gateway asked for is told to whoever speaks in the session.
    origin = session.origin if asked.channel in OWN_CHANNELS else asked.origin
    said = Message(
        id=said_id,
        session_key=asked.session_key,
        position=0,
        role=role,
        channel=asked.channel if origin is None else origin.channel,
        account_id="" if origin is None else origin.account_id or "",
        origin=origin,
        body=encode_payload("answer", text),
        reply_to=asked.id,
        created_at=now,
        status=MessageStatus.NOTED,
        task_id=TaskId(task_id),
        updated_at=now,
    )
    placed = _append(tx, said)
    if origin is not None:
        owe(tx, placed, origin, key=f"{'reply' if role is Role.AGENT else 'failure'}:{task_id}")
    return placed


def owe(tx: Tx, message: Message, origin: Origin, *, key: str) -> Delivery:
    """The words of a message are owed to an origin, once for each key."""
    letter = Letter(
        text=message.text,
        session_key=message.session_key,
        message_id=message.id,
        reply_to=message.reply_to,
    )
    delivery = tx.deliveries.create(
        Delivery(
            id=delivery_id(message.id),
            task_id=message.task_id or TaskId(""),
            idempotency_key=key,
            origin=origin,
            message=msgspec.json.encode(letter),
            created_at=message.created_at,
            due_at=message.created_at,
            updated_at=message.created_at,
        )
    )
    tx.hint("deliveries")
    return delivery
