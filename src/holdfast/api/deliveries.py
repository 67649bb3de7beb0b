"""Deliveries for the API and the CLI: list failed and pending ones, retry and dismiss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from holdfast.api.pages import place_of, read_sound
from holdfast.api.params import IdText, PageSize, PageToken, Params
from holdfast.core.errors import IllegalMove
from holdfast.core.events import EventKind
from holdfast.core.transitions import DeliveryStatus, sources_of
from holdfast.views.deliveries import DeliveryChangedView, DeliveryPageView, DeliveryView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.delivery import Delivery
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx


class DeliveriesAsked(Params, frozen=True, kw_only=True):
    """Failed deliveries, oldest first; or those still to be sent."""

    which: Literal["failed", "owed"] = "failed"
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class DeliveryAsked(Params, frozen=True, kw_only=True):
    """One delivery."""

    delivery_id: IdText


def read_page(tx: Tx, *, which: str, after: str, limit: int) -> DeliveryPageView:
    problems: list[str] = []
    after = place_of("dlv", after, tx.deliveries.resolve) if after else ""
    read = tx.deliveries.owed if which == "owed" else tx.deliveries.failed
    found = read_sound(read, after=after, limit=limit + 1, problems=problems)
    return DeliveryPageView(
        deliveries=[DeliveryView.of(one) for one in found[:limit]],
        next_page_token=found[limit - 1].id if len(found) > limit else None,
        problems=problems,
    )


def retrying_delivery(
    asked: DeliveryAsked, *, by: str, now: datetime, has_gateway: bool = True
) -> Write[DeliveryChangedView]:
    """The write that queues a failed delivery again. Raises IllegalMove if it has not failed."""

    def retry(tx: Tx) -> DeliveryChangedView:
        delivery_id = tx.deliveries.resolve(asked.delivery_id)
        before = tx.deliveries.get(delivery_id)
        retried = tx.deliveries.retry(delivery_id, now=now)
        if retried is None:
            if _is_so(
                before, DeliveryStatus.PENDING, now
            ):  # the same write is running again after its commit
                return _changed(before, _what_comes(before, has_gateway=has_gateway))
            raise IllegalMove(
                "delivery", delivery_id, before.status.value, "retried: only a failed delivery can be"
            )
        tx.emit(EventKind.DELIVERY_RETRIED, delivery_id, at=now, task_id=retried.task_id or None, by=by)
        tx.hint("deliveries")
        return _changed(retried, _what_comes(before, has_gateway=has_gateway))

    return retry


def confirming_delivery(
    asked: DeliveryAsked, *, by: str, now: datetime, has_gateway: bool = True
) -> Write[DeliveryChangedView]:
    """The write that marks a delivery of unknown outcome as delivered. Raises IllegalMove for any other."""
    del has_gateway  # needs no gateway

    def confirm(tx: Tx) -> DeliveryChangedView:
        delivery_id = tx.deliveries.resolve(asked.delivery_id)
        before = tx.deliveries.get(delivery_id)
        if not _is_so(before, DeliveryStatus.DELIVERED, now):
            if not before.is_in_doubt or tx.deliveries.confirm(delivery_id, now=now) is None:
                what = "confirmed: only a failed delivery that may have arrived can be"
                raise IllegalMove("delivery", delivery_id, before.status.value, what)
            tx.emit(EventKind.DELIVERY_CONFIRMED, delivery_id, at=now, task_id=before.task_id or None, by=by)
        return _changed(tx.deliveries.get(delivery_id), "it is delivered, and is not sent again")

    return confirm


def dismissing_delivery(
    asked: DeliveryAsked, *, by: str, now: datetime, has_gateway: bool = True
) -> Write[DeliveryChangedView]:
    """The write that drops a delivery. Raises IllegalMove if it was sent or is being sent."""
    del has_gateway  # needs no gateway

    def dismiss(tx: Tx) -> DeliveryChangedView:
        delivery_id = tx.deliveries.resolve(asked.delivery_id)
        before = tx.deliveries.get(delivery_id)
        if not _is_so(before, DeliveryStatus.DISMISSED, now):
            dismiss_delivery(tx, before, now=now, by=by)
        return _changed(tx.deliveries.get(delivery_id), "it will not be sent")

    return dismiss


def dismiss_delivery(tx: Tx, delivery: Delivery, *, now: datetime, by: str | None = None) -> None:
    """Raises IllegalMove if it was sent or is being sent. The agent of its session is not told, either."""
    from holdfast.engine.conversation.transcripts import withdraw
    from holdfast.engine.ledger.session_queue import queued_message

    queued = queued_message(tx, delivery)
    tx.deliveries.move(delivery.id, DeliveryStatus.DISMISSED, now=now)
    if queued is not None:
        withdraw(tx, queued.id, now=now)
    tx.emit(
        EventKind.DELIVERY_DISMISSED,
        delivery.id,
        at=now,
        task_id=delivery.task_id or None,
        was=delivery.status.value,
        by=by,
    )


def may_be_dismissed(delivery: Delivery) -> bool:
    return delivery.status.value in sources_of(DeliveryStatus.DISMISSED)


def _is_so(delivery: Delivery, status: DeliveryStatus, now: datetime) -> bool:
    return delivery.status is status and delivery.updated_at == now


def _changed(delivery: Delivery, what: str) -> DeliveryChangedView:
    return DeliveryChangedView(delivery=DeliveryView.of(delivery), next=what)


def _what_comes(before: Delivery, *, has_gateway: bool) -> str:
    sends = (
        "the gateway sends it now" if has_gateway else "the gateway sends it when it starts: `holdfast up`"
    )
    if before.is_in_doubt:
        sends += (
            "; an earlier attempt may have arrived, so it may arrive twice unless the receiver checks its key"
        )
    return sends
