"""send: a message to a person through a channel, in the format of OpenClaw's protocol."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.api.method_kinds import run_write
from holdfast.api.openclaw_chat import MessageText, wire_key
from holdfast.api.params import KeyText, NameText, Params
from holdfast.api.sessions import SessionText
from holdfast.core.delivery import Delivery, DeliveryText
from holdfast.core.errors import BadInput, KeyConflict, Refused
from holdfast.core.ids import TaskId, new_message_id
from holdfast.core.message import Role, clean_message, delivery_id
from holdfast.core.task import Origin
from holdfast.core.transitions import DeliveryStatus
from holdfast.engine.conversation.transcripts import new_message, post
from holdfast.engine.ledger.entries import owe
from holdfast.views.openclaw_gateway import SendResult
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.api.contract import Caller, GatewayDoor
    from holdfast.config.sections import Config
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

# How long the answer waits until the message is sent; after that it says `queued`.
SENT_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.5


class SendAsked(Params, frozen=True, kw_only=True):
    """A text to a person or a group on a channel of the settings; sent once for each key."""

    to: NameText
    message: MessageText
    idempotency_key: KeyText
    # The only channel that sends, if it is not named.
    channel: NameText | None = None
    account_id: NameText | None = None
    thread_id: NameText | None = None
    # The session whose agent speaks; its transcript gets the message, too.
    session_key: SessionText | None = None
    agent_id: NameText | None = None


async def send(gateway: GatewayDoor, asked: SendAsked, caller: Caller) -> SendResult:
    """Store the message, then wait a moment for the outbox. Raises Refused if the channel refuses it."""
    owed = await run_write(gateway, "send", owing, asked, caller, config=gateway.config)
    give_up_at = time.monotonic() + SENT_WITHIN_S
    while True:
        delivery = await gateway.store.read(lambda tx: tx.deliveries.get(owed.id))
        if delivery.status is DeliveryStatus.FAILED:
            why = "" if delivery.failure is None else f": {delivery.failure.message}"
            raise Refused(f"{delivery.id} was not sent{why}; see `holdfast deliveries list`")
        is_sent = delivery.status is DeliveryStatus.DELIVERED
        if is_sent or delivery.status is DeliveryStatus.DISMISSED or time.monotonic() >= give_up_at:
            return SendResult(
                run_id=one_line(asked.idempotency_key),
                message_id=one_line(delivery.id),
                channel=one_line(delivery.channel),
                status="sent" if is_sent else "queued",
            )
        await gateway.store.wait_for("deliveries", _LOOK_EVERY_S)


def owing(asked: SendAsked, *, now: datetime, config: Config) -> Write[Delivery]:
    """The write of the delivery; the same key again finds the first one. Raises BadInput, KeyConflict."""
    origin = Origin(
        channel=_channel_of(asked.channel, config),
        peer=asked.to,
        account_id=asked.account_id,
        thread=asked.thread_id,
    ).checked()
    digest = hashlib.sha256(asked.idempotency_key.encode()).hexdigest()
    key = f"send:{digest}"
    text = clean_message(asked.message, Role.AGENT)
    if asked.session_key is not None:
        session = wire_key(config, asked.session_key, asked.agent_id, is_known=True)
        said = new_message(
            session, text, None, channel_message_id=key, role=Role.AGENT, is_noted=True, now=now
        )
        return lambda tx: _same(owe(tx, post(tx, said).message, origin, key=key), origin, text, asked)
    wanted = Delivery(
        id=delivery_id(new_message_id(now)),
        task_id=TaskId(""),
        idempotency_key=key,
        origin=origin,
        message=msgspec.json.encode(DeliveryText(text=text)),
        created_at=now,
        due_at=now,
        updated_at=now,
    )

    def owe_it(tx: Tx) -> Delivery:
        tx.hint("deliveries")
        return _same(tx.deliveries.create(wanted), origin, text, asked)

    return owe_it


def _same(kept: Delivery, origin: Origin, text: str, asked: SendAsked) -> Delivery:
    if kept.origin != origin or kept.letter.text != text:
        raise KeyConflict(asked.idempotency_key, kept.id, of_message=True)
    return kept


def _channel_of(named: str | None, config: Config) -> str:
    senders = sorted(
        name for name, one in config.channels.items() if one.kind == "apprise" or one.url is not None
    )
    if named is None and len(senders) == 1:
        return senders[0]
    if named not in senders or named is None:
        known = ", ".join(senders) or "none; declare one in holdfast.toml"
        raise BadInput("channel", f"name a channel that sends: {known}")
    return named
