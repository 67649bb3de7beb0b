"""Deliveries for every door: what is owed to somebody or was given up, sent after all or dismissed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from holdfast.api.pages import read_sound
from holdfast.api.params import IdText, PageSize, Params
from holdfast.api.tasks import place_of
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
    """What was given up, oldest first; or what is still owed."""

    which: Literal["failed", "owed"] = "failed"
    limit: PageSize = 50
    # The `next_page_token` of the page before.
    after: IdText | None = None


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
    """The write by which what was given up is owed again. Raises IllegalMove for what was not given up."""

    def retry(tx: Tx) -> DeliveryChangedView:
        delivery_id = tx.deliveries.resolve(asked.delivery_id)
        before = tx.deliveries.get(delivery_id)
        retried = tx.deliveries.retry(delivery_id, now=now)
        if retried is None:
            if _is_so(before, DeliveryStatus.PENDING, now):  # the write runs a second time after its commit
                return _changed(before, _what_comes(before, has_gateway=has_gateway))
            raise IllegalMove(
                "delivery", delivery_id, before.status.value, "owed again (only one given up is)"
            )
        tx.emit(EventKind.DELIVERY_RETRIED, delivery_id, at=now, task_id=retried.task_id or None, by=by)
        tx.hint("deliveries")
        return _changed(retried, _what_comes(before, has_gateway=has_gateway))

    return retry


def dismissing_delivery(
    asked: DeliveryAsked, *, by: str, now: datetime, has_gateway: bool = True
) -> Write[DeliveryChangedView]:
    """The write by which nobody sends it any more. Raises IllegalMove for what went out or is being sent."""
    del has_gateway  # nobody has to do anything about it

    def dismiss(tx: Tx) -> DeliveryChangedView:
        delivery_id = tx.deliveries.resolve(asked.delivery_id)
        before = tx.deliveries.get(delivery_id)
        if not _is_so(before, DeliveryStatus.DISMISSED, now):
            dismiss_delivery(tx, before, now=now, by=by)
        return _changed(tx.deliveries.get(delivery_id), "nobody sends it any more")

    return dismiss


def dismiss_delivery(tx: Tx, delivery: Delivery, *, now: datetime, by: str | None = None) -> None:
    """Raises IllegalMove unless it is owed or was given up."""
    tx.deliveries.move(delivery.id, DeliveryStatus.DISMISSED, now=now)
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
    sends = "it is sent now" if has_gateway else "a gateway sends it: `holdfast up`"
    failure = before.failure
    if failure is not None and failure.kind == "in_doubt":
        sends += "; it may have gone out before, and then it arrives twice unless its receiver knows its key"
    return sends
