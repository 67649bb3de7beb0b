"""Appends an entry to the transcript of a session, and owes it to the person it is for."""

from __future__ import annotations

import msgspec

from holdfast.core.delivery import Delivery, DeliveryText
from holdfast.core.errors import KeyConflict
from holdfast.core.events import EventKind
from holdfast.core.ids import TaskId
from holdfast.core.message import CRON_CHANNEL, HASHED_ID, SPAWN_CHANNEL, Message, Role, delivery_id
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES
from holdfast.core.task import Origin
from holdfast.core.transitions import MessageStatus
from holdfast.store import Tx

# The channel of messages that the gateway itself writes.
SYSTEM_CHANNEL = "system"
# Channels without a person at the other end.
OWN_CHANNELS = frozenset({CRON_CHANNEL, SYSTEM_CHANNEL, SPAWN_CHANNEL})
# The origin of a message with which the gateway wakes an agent: tasks that the agent starts inherit it, and
# their updates do not wake it again.
WAKING = Origin(channel=SYSTEM_CHANNEL)


def append(tx: Tx, message: Message, *, is_from_stranger: bool = False) -> Message:
    """Append at the next position. The caller has locked the session.

    A stranger does not become the receiver of the session's notices.
    """
    leave_loop_with(tx, message.body)
    now = message.created_at
    session = tx.sessions.append(
        message.session_key,
        is_queued=message.status is MessageStatus.QUEUED,
        origin=message.origin if is_spoken(message) and not is_from_stranger else None,
        now=now,
    )
    placed = msgspec.structs.replace(message, position=session.last_position)
    kept = tx.messages.create(placed)
    if kept.id != placed.id:
        # Another session got a message with the same id at the same time.
        raise KeyConflict(message.channel_message_id or message.id, kept.id, of_message=True)
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


def owe(tx: Tx, message: Message, origin: Origin, *, key: str) -> Delivery:
    """Create a delivery of the message to an origin, once for each key."""
    letter = DeliveryText(
        text=message.text,
        session_key=message.session_key,
        message_id=message.id,
        reply_to=_id_on_channel(tx, message, origin),
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


def _id_on_channel(tx: Tx, message: Message, origin: Origin) -> str | None:
    """The answered message as its sender knows it: by its own id; ours if it came without one. None if the
    sender's id was only stored as a digest."""
    if message.reply_to is None:
        return None
    asked = tx.messages.get(message.reply_to)
    if asked.channel != origin.channel or asked.channel_message_id is None:
        return asked.id
    return None if asked.channel_message_id.startswith(HASHED_ID) else asked.channel_message_id


def leave_loop_with(tx: Tx, body: bytes) -> None:
    """Leave the event loop for a long text: searching it for secrets would block the loop."""
    if len(body) > REDACT_OFF_LOOP_BYTES:
        tx.sealing.leave_loop()


def is_spoken(message: Message) -> bool:
    """Whether a person wrote the message, not a schedule or the gateway."""
    return message.role is Role.USER and message.channel not in OWN_CHANNELS
