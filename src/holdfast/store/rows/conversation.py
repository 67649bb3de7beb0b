"""Rows of conversations: sessions, messages and deliveries."""

from __future__ import annotations

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.delivery import Delivery, channel_of
from holdfast.core.errors import KeyLost, RowDamaged
from holdfast.core.message import Message, Role
from holdfast.core.payload import digest_of
from holdfast.core.seal_mode import SEALED
from holdfast.core.session import Session
from holdfast.core.transitions import DeliveryStatus, MessageStatus, SessionStatus
from holdfast.store.contract import Row
from holdfast.store.rows.reading import (
    Params,
    json_of,
    micros_of,
    moment_of,
    read_failure,
    read_origin,
    reads,
)
from holdfast.store.sealing import CLOSED, Sealing


@reads("delivery")
def delivery_from_row(row: Row, sealing: Sealing = CLOSED) -> Delivery:
    if digest_of(*row[:7]) != row[7]:
        raise RowDamaged("delivery", row[0])
    origin = None if row[3] is None else read_origin(row[3])
    if channel_of(origin) != row[14]:
        # A gateway that does not have its channel would claim it.
        raise RowDamaged("delivery", row[0])
    return Delivery(
        id=row[0],
        task_id=row[1],
        idempotency_key=row[2],
        origin=origin,
        message=sealing.open(row[5], "deliveries.message", row[0]),
        created_at=from_micros(row[6]),
        status=DeliveryStatus(row[8]),
        attempts=row[9],
        due_at=from_micros(row[10]),
        failure=None if row[11] is None else read_failure(row[11]),
        claimed_by=row[12],
        updated_at=from_micros(row[13]),
    )


def row_from_delivery(delivery: Delivery, sealing: Sealing) -> Params:
    row: Params = {
        "id": delivery.id,
        "task_id": delivery.task_id,
        "idempotency_key": delivery.idempotency_key,
        "origin": json_of(delivery.origin),
        "target": delivery.target,
        "message": sealing.seal(delivery.message, "deliveries.message", delivery.id),
        "created_at": to_micros(delivery.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "due_at": to_micros(delivery.due_at),
        "failure": json_of(delivery.failure),
        "claimed_by": delivery.claimed_by,
        "updated_at": to_micros(delivery.updated_at),
        "channel": delivery.channel,
    }


@reads("session")
def session_from_row(row: Row) -> Session:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("session", row[0])
    return Session(
        id=row[0],
        key=row[1],
        agent=row[2],
        parent_key=row[3],
        created_at=from_micros(row[4]),
        status=SessionStatus(row[6]),
        waits_on=row[7],
        origin=None if row[8] is None else read_origin(row[8]),
        task_id=row[9],
        last_position=row[10],
        queued=row[11],
        ready_at=moment_of(row[12]),
        updated_at=from_micros(row[13]),
    )


def row_from_session(session: Session) -> Params:
    row: Params = {
        "id": session.id,
        "key": session.key,
        "agent": session.agent,
        "parent_key": session.parent_key,
        "created_at": to_micros(session.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": session.status.value,
        "waits_on": session.waits_on,
        "origin": json_of(session.origin),
        "task_id": session.task_id,
        "last_position": session.last_position,
        "queued": session.queued,
        "ready_at": micros_of(session.ready_at),
        "updated_at": to_micros(session.updated_at),
    }


@reads("message")
def message_from_row(row: Row, sealing: Sealing = CLOSED) -> Message:
    """The message; `is_sealed` when its key is lost, so that its session continues without it."""
    if digest_of(*row[:11]) != row[11]:
        raise RowDamaged("message", row[0])
    is_sealed = False
    try:
        body = sealing.open(row[8], "messages.body", row[0])
    except KeyLost:
        body, is_sealed = SEALED, True
    return Message(
        id=row[0],
        session_key=row[1],
        position=row[2],
        role=Role(row[3]),
        channel=row[4],
        account_id=row[5],
        channel_message_id=row[6],
        origin=None if row[7] is None else read_origin(row[7]),
        body=body,
        reply_to=row[9],
        created_at=from_micros(row[10]),
        status=MessageStatus(row[12]),
        task_id=row[13],
        updated_at=from_micros(row[14]),
        is_sealed=is_sealed,
    )


def row_from_message(message: Message, sealing: Sealing) -> Params:
    row: Params = {
        "id": message.id,
        "session_key": message.session_key,
        "position": message.position,
        "role": message.role.value,
        "channel": message.channel,
        "account_id": message.account_id,
        "channel_message_id": message.channel_message_id,
        "origin": json_of(message.origin),
        "body": sealing.seal(message.body, "messages.body", message.id),
        "reply_to": message.reply_to,
        "created_at": to_micros(message.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": message.status.value,
        "task_id": message.task_id,
        "updated_at": to_micros(message.updated_at),
    }
