"""DeliveryView: what is owed to somebody, or was given up."""

from __future__ import annotations

import contextlib
from datetime import datetime

import msgspec

from holdfast.core.delivery import Delivery
from holdfast.views.text import bounded, one_line

MAX_TEXT_CHARS = 500


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one target, with what became of it."""

    id: str
    # Empty when it belongs to none.
    task_id: str
    status: str
    # Empty when it names none.
    channel: str
    # Whom it goes to there; null when nobody is named.
    peer: str | None
    text: str
    attempts: int
    # Why it was not sent the last time, and the kind of that: `in_doubt` says that it may have gone out.
    why: str | None
    kind: str | None
    created_at: datetime
    updated_at: datetime
    # When it is sent next, while it is owed.
    due_at: datetime

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryView:
        text = ""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # `store verify` tells more
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


class DeliveryPageView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of deliveries, oldest first."""

    deliveries: list[DeliveryView] = []
    # For `--page`: what follows this page; null at the end.
    next_page_token: str | None = None
    # What could not be read, in sentences; empty when all could.
    problems: list[str] = []


class DeliveryChangedView(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery after a person's decision, and what happens next."""

    delivery: DeliveryView
    next: str
