"""DeliveryView: a message that failed or is still to be sent."""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec

from holdfast.core.delivery import Delivery
from holdfast.views.text import bounded, one_line

MAX_TEXT_CHARS = 500


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One message to one target, and its status."""

    id: str
    # Empty if it belongs to no task.
    task_id: str
    status: str
    # Empty if it has no channel.
    channel: str
    # The recipient on that channel; null if there is none.
    peer: str | None
    text: str
    attempts: int
    # The last failure and its kind; `in_doubt` means that the message may have been sent.
    why: str | None
    kind: str | None
    created_at: datetime
    updated_at: datetime
    # The next attempt, while it is pending.
    due_at: datetime

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryView:
        text = ""
        with contextlib.suppress(
            msgspec.DecodeError, UnicodeDecodeError
        ):  # damaged: `store verify` reports it
            text = delivery.letter.text
        origin, failure = delivery.origin, delivery.failure
        return cls(
            id=one_line(delivery.id),
            task_id=one_line(delivery.task_id),
            status=delivery.status.value,
            channel=one_line(delivery.channel),
            peer=None if origin is None or origin.peer is None else one_line(origin.peer),
            text=bounded(text, MAX_TEXT_CHARS),
            attempts=delivery.attempts,
            why=None if failure is None else one_line(failure.message),
            kind=None if failure is None else one_line(failure.kind),
            created_at=delivery.created_at,
            updated_at=delivery.updated_at,
            due_at=delivery.due_at,
        )


class DeliveryPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of deliveries, oldest first."""

    deliveries: list[DeliveryView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None
    # Damaged records, one sentence each; empty if there are none.
    problems: list[str] = []


class DeliveryChangedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A delivery after a person's decision, and what happens next."""

    delivery: DeliveryView
    next: str
