"""deliveries list, retry, confirm, dismiss: messages that failed or are still to be sent."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Literal

import click

from holdfast.api.deliveries import (
    DeliveriesAsked,
    DeliveryAsked,
    confirming_delivery,
    dismissing_delivery,
    read_page,
    retrying_delivery,
)
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import Invocation, delivery_prefix, page_option, shared_options, user_name
from holdfast.cli.output import Output, ago
from holdfast.core.delivery import IN_DOUBT
from holdfast.views.deliveries import DeliveryChangedView, DeliveryPageView, DeliveryView


@click.group("deliveries", cls=ListGroup)
@shared_options
def deliveries() -> None:
    """Outgoing answers and notices: failed ones, and those still to be sent."""


# --- list


@deliveries.command("list", short_help="Failed deliveries, oldest first.")
@click.option("--owed", is_flag=True, help="List deliveries that are still to be sent instead.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_deliveries(call: Invocation, limit: int, page: str | None, *, owed: bool) -> None:
    """Failed deliveries with the reason, oldest first; with --owed, those still to be sent."""
    which: Literal["owed", "failed"] = "owed" if owed else "failed"
    view = call.look_at_list(
        "deliveries.list",
        DeliveriesAsked(which=which, limit=limit, page_token=page),
        lambda tx: read_page(tx, which=which, after=page or "", limit=limit),
        DeliveryPageView(),
    )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now(), owed=owed))


def _print_page(output: Output, view: DeliveryPageView, now: datetime, *, owed: bool) -> None:
    if view.deliveries:
        rows = [
            (one.id, _to(one), str(one.attempts), ago(one.created_at, now), one.why or "-", one.text)
            for one in view.deliveries
        ]
        headers = ("ID", "TO", "TRIED", "SINCE", "WHY NOT", "TEXT")
        output.table(headers, rows, leave=("TRIED", "SINCE", "TEXT", "TO"), matters="WHY NOT")
        if not owed:
            first = view.deliveries[0].id
            retry, drop = f"holdfast deliveries retry {first}", f"holdfast deliveries dismiss {first}"
            output.say(f"to send it again: {retry}; to drop it: {drop}")
            doubted = next((one.id for one in view.deliveries if one.kind == IN_DOUBT), None)
            if doubted is not None:
                output.say(f"if you know that one arrived: holdfast deliveries confirm {doubted}")
    else:
        output.say("no deliveries are pending" if owed else "no deliveries have failed")
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _to(one: DeliveryView) -> str:
    return one.channel + ("" if one.peer is None else f" {one.peer}") or "-"


# --- retry and dismiss


@deliveries.command("retry", short_help="Send a failed delivery again.")
@click.argument("delivery_id", metavar="DELIVERY", callback=delivery_prefix)
@shared_options
@click.pass_obj
def retry_delivery(call: Invocation, delivery_id: str) -> None:
    """Send a failed delivery again, with the same idempotency key.

    Exit status 3 if it has not failed.
    """
    asked = DeliveryAsked(delivery_id=delivery_id)
    retrying = partial(retrying_delivery, by=user_name(None), has_gateway=False)
    view = call.change("deliveries.retry", asked, retrying, DeliveryChangedView)
    call.output.show(view, lambda: call.output.line(f"{view.delivery.id} is queued again; {view.next}"))


@deliveries.command("confirm", short_help="Record that a delivery had arrived.")
@click.argument("delivery_id", metavar="DELIVERY", callback=delivery_prefix)
@shared_options
@click.pass_obj
def confirm_delivery(call: Invocation, delivery_id: str) -> None:
    """Record that a delivery of unknown outcome had arrived: you have asked its receiver.

    Exit status 3 for a delivery that certainly did not arrive, or has not failed.
    """
    asked = DeliveryAsked(delivery_id=delivery_id)
    confirming = partial(confirming_delivery, by=user_name(None), has_gateway=False)
    view = call.change("deliveries.confirm", asked, confirming, DeliveryChangedView)
    call.output.show(view, lambda: call.output.line(f"{view.delivery.id} is confirmed: {view.next}"))


@deliveries.command("dismiss", short_help="Drop a delivery without sending it.")
@click.argument("delivery_id", metavar="DELIVERY", callback=delivery_prefix)
@shared_options
@click.pass_obj
def dismiss_delivery(call: Invocation, delivery_id: str) -> None:
    """Drop a failed or pending delivery without sending it. Exit status 3 if it was already sent."""
    asked = DeliveryAsked(delivery_id=delivery_id)
    dismissing = partial(dismissing_delivery, by=user_name(None), has_gateway=False)
    view = call.change("deliveries.dismiss", asked, dismissing, DeliveryChangedView)
    call.output.show(view, lambda: call.output.line(f"{view.delivery.id} is dismissed: {view.next}"))
