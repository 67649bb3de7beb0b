"""deliveries list, retry, dismiss: what is owed to somebody or was given up."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Literal

import click

from holdfast.api.deliveries import (
    DeliveriesAsked,
    DeliveryAsked,
    dismissing_delivery,
    read_page,
    retrying_delivery,
)
from holdfast.cli.invocation import Invocation, delivery_prefix, shared_options, whoever
from holdfast.cli.output import Output, ago
from holdfast.views.deliveries import DeliveryChangedView, DeliveryPageView, DeliveryView


@click.group("deliveries")
@shared_options
def deliveries() -> None:
    """Answers and notices on their way to somebody, and those that were given up."""


# --- list


@deliveries.command("list", short_help="What was given up, oldest first.")
@click.option("--owed", is_flag=True, help="What is still to be sent, instead.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
@click.option("--page", callback=delivery_prefix, metavar="ID", help="Newer than this one: the next page.")
@shared_options
@click.pass_obj
def list_deliveries(call: Invocation, limit: int, page: str | None, *, owed: bool) -> None:
    """What was given up, with the reason, oldest first; with --owed what is still to be sent."""
    which: Literal["owed", "failed"] = "owed" if owed else "failed"
    view = call.look_at_list(
        "deliveries.list",
        DeliveriesAsked(which=which, limit=limit, after=page),
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
        output.table(("ID", "TO", "TRIED", "SINCE", "WHY NOT", "TEXT"), rows)
        if not owed:
            first = view.deliveries[0].id
            output.say(f"send it after all: holdfast deliveries retry {first}; or not: … dismiss {first}")
    else:
        output.say("nothing is owed to anybody" if owed else "nothing was given up")
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say(f"more: --page {view.next_page_token}")


def _to(one: DeliveryView) -> str:
    return one.channel + ("" if one.peer is None else f" {one.peer}") or "nobody"


# --- retry and dismiss


@deliveries.command("retry", short_help="Send after all what was given up.")
@click.argument("delivery_id", metavar="DELIVERY", callback=delivery_prefix)
@shared_options
@click.pass_obj
def retry_delivery(call: Invocation, delivery_id: str) -> None:
    """Send after all what was given up: one more attempt, with the same idempotency key.

    Status 3 when it was not given up.
    """
    asked = DeliveryAsked(delivery_id=delivery_id)
    retrying = partial(retrying_delivery, by=whoever(None), has_gateway=False)
    view = call.change("deliveries.retry", asked, retrying, DeliveryChangedView)
    call.output.show(view, lambda: call.output.line(f"{view.delivery.id} is owed again; {view.next}"))


@deliveries.command("dismiss", short_help="Send it no more.")
@click.argument("delivery_id", metavar="DELIVERY", callback=delivery_prefix)
@shared_options
@click.pass_obj
def dismiss_delivery(call: Invocation, delivery_id: str) -> None:
    """Nothing more is done about what was given up, or is still owed. Status 3 when it went out already."""
    asked = DeliveryAsked(delivery_id=delivery_id)
    dismissing = partial(dismissing_delivery, by=whoever(None), has_gateway=False)
    view = call.change("deliveries.dismiss", asked, dismissing, DeliveryChangedView)
    call.output.show(view, lambda: call.output.line(f"{view.delivery.id} is dismissed: {view.next}"))
