"""Gives updates that could not be sent to the agent of their session, and records whether it heard them."""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec

from holdfast.core.delivery import Delivery, is_update_key
from holdfast.core.errors import NotFound
from holdfast.core.events import EventKind
from holdfast.core.message import (
    SYSTEM_MARK,
    Message,
    Role,
    clean_message,
    queued_delivery_id,
    queued_update_id,
)
from holdfast.core.payload import encode_payload
from holdfast.core.session import Session
from holdfast.core.task import Failure
from holdfast.core.transitions import DeliveryStatus, MessageStatus
from holdfast.engine.ledger.entries import OWN_CHANNELS, SYSTEM_CHANNEL, WAKING, append
from holdfast.store import Tx


def session_behind(tx: Tx, delivery: Delivery) -> Session | None:
    """The session that can be told instead, locked; None if there is none, or if the delivery is no update of
    a task: the other ones come from the session itself."""
    try:
        session_key = delivery.letter.session_key
    except msgspec.DecodeError:
        return None
    if session_key is None or not is_update_key(delivery.idempotency_key):
        return None
    task = tx.tasks.get_many([delivery.task_id]).get(delivery.task_id)
    if task is None or (task.origin is not None and task.origin.channel in OWN_CHANNELS):
        return None  # an agent that the gateway woke started it: its update does not wake the agent again
    return tx.sessions.hold(session_key)


def queue_update(tx: Tx, session: Session, delivery: Delivery, why: str, *, now: datetime) -> None:
    """Queue the update for the session's agent, which is woken by it."""
    update = delivery.letter.text.removeprefix(SYSTEM_MARK).strip()
    peer = None if delivery.origin is None else delivery.origin.peer
    where = delivery.channel if peer is None else f"{delivery.channel} ({peer})"
    told = (
        f"{SYSTEM_MARK} This update could not be sent to {where or 'a person'}: {why}. The update: {update}"
    )
    message_id = queued_update_id(delivery.letter.message_id or delivery.id, delivery.attempts)
    append(
        tx,
        Message(
            id=message_id,
            session_key=session.key,
            position=0,
            role=Role.SYSTEM,
            channel=SYSTEM_CHANNEL,
            channel_message_id=f"queued:{message_id}",
            origin=WAKING,
            body=encode_payload("update", clean_message(told, Role.SYSTEM)),
            created_at=now,
            status=MessageStatus.QUEUED,
            updated_at=now,
        ),
    )
    tx.emit(
        EventKind.DELIVERY_QUEUED,
        delivery.id,
        at=now,
        task_id=delivery.task_id or None,
        channel=delivery.channel,
        session_key=session.key,
        attempts=delivery.attempts,
        why=why,
    )
    tx.hint("sessions")


def queued_message(tx: Tx, delivery: Delivery) -> Message | None:
    """The message that waits in the queue of the session; None if the delivery does not wait there."""
    if delivery.status is not DeliveryStatus.SESSION_QUEUED:
        return None
    message_id = delivery.letter.message_id or delivery.id
    for one in (queued_update_id(message_id, delivery.attempts), message_id):
        with contextlib.suppress(NotFound):
            return tx.messages.get(one)
    return None


def settle_update(tx: Tx, message: Message, to: DeliveryStatus, *, now: datetime, why: str = "") -> None:
    """Record that the agent has heard an update in its queue, or that it will not."""
    if message.channel != SYSTEM_CHANNEL or message.origin != WAKING:
        return
    failure = Failure(kind="not_heard", message=why) if why else None
    delivery_id = queued_delivery_id(message.id)
    settled = tx.deliveries.settle_queued(delivery_id, to, failure=failure, now=now)
    if settled is None or to is DeliveryStatus.DISMISSED:
        return
    kind = EventKind.DELIVERY_SENT if to is DeliveryStatus.DELIVERED else EventKind.DELIVERY_FAILED
    said = {"found": message.id} if to is DeliveryStatus.DELIVERED else {"why": why}
    tx.emit(
        kind,
        delivery_id,
        at=now,
        task_id=settled.task_id or None,
        channel=settled.channel,
        attempts=settled.attempts,
        **said,
    )
