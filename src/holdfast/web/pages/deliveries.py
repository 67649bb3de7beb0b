"""Deliveries: messages to people that failed, or that are still to be sent."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Action, Confirmation, Page, Query

PAGE = 30
LOOKED_AT = 200
TEXT_CHARS = 300
FAILED, OWED = "failed", "owed"
# The kind of failure of a delivery that may have arrived.
IN_DOUBT = "in_doubt"


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:
    which = OWED if query.get("which") == OWED else FAILED
    found = await visitor.ask("deliveries.list", which=which, limit=PAGE, pageToken=query.get("page") or None)
    return {"found": found, "which": which, "in_doubt": IN_DOUBT}


async def ask_retry(visitor: Visitor, query: Query) -> Confirmation:
    says = ["The gateway sends the message again, as soon as it can."]
    if query.get("kind") == IN_DOUBT:
        says.append(
            "An earlier attempt may have arrived: it may arrive twice, unless the receiver checks its key."
        )
    lines = await _lines(visitor, query)
    return Confirmation(title="Send it again?", says=tuple(says), lines=lines, confirm="Send again")


async def retry(visitor: Visitor, form: Query) -> str:
    return _said(await visitor.ask("deliveries.retry", deliveryId=form["deliveryId"]))


async def ask_confirm(visitor: Visitor, query: Query) -> Confirmation:
    return Confirmation(
        title="Has it arrived?",
        says=(
            "Say so only if the recipient has the message: then it counts as delivered.",
            "It is not sent again.",
        ),
        lines=await _lines(visitor, query),
        confirm="It arrived",
    )


async def confirm(visitor: Visitor, form: Query) -> str:
    return _said(await visitor.ask("deliveries.confirm", deliveryId=form["deliveryId"]))


async def ask_dismiss(visitor: Visitor, query: Query) -> Confirmation:
    return Confirmation(
        title="Drop this message?",
        says=("Nothing more of it is sent, and the recipient is not told.",),
        lines=await _lines(visitor, query),
        confirm="Drop",
        is_dangerous=True,
    )


async def dismiss(visitor: Visitor, form: Query) -> str:
    return _said(await visitor.ask("deliveries.dismiss", deliveryId=form["deliveryId"]))


async def _lines(visitor: Visitor, query: Query) -> tuple[str, ...]:
    """Which message it is, and how it begins if it is among the newest ones."""
    to, wanted = query.get("to", ""), query["deliveryId"]
    lines = [f"{wanted}{f' to {to}' if to else ''}"]
    for which in (FAILED, OWED):
        found = (await visitor.ask("deliveries.list", which=which, limit=LOOKED_AT)).deliveries
        lines += [one.text[:TEXT_CHARS] for one in found if one.id == wanted]
    return tuple(lines)


def _said(changed: Any) -> str:
    return f"Done: {changed.next}."


PAGES = [
    Page(
        path="/deliveries",
        title="Deliveries",
        template="deliveries.html",
        load=load,
        section="deliveries",
        follows="delivery",
    )
]
ACTIONS = [
    Action(name="deliveries.retry", ask=ask_retry, act=retry),
    Action(name="deliveries.confirm", ask=ask_confirm, act=confirm),
    Action(name="deliveries.dismiss", ask=ask_dismiss, act=dismiss),
]
