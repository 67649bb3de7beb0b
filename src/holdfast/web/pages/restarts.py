"""Restarts: what each interrupted and what became of it, and what the last start found and did."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from holdfast.views.browser import NotAnswered, Visitor
from holdfast.web.page_kinds import Page, Query

PAGE = 20
FOLLOWS = "restart boot run_claimed run_ended checkpoint"


async def load_list(visitor: Visitor, query: Query) -> dict[str, Any]:
    found = await visitor.ask("gateway.restarts", limit=PAGE, pageToken=query.get("page") or None)
    return {
        "found": found,
        "gateway": await visitor.ask("gateway.status"),
        "readiness": await visitor.ask("gateway.readiness"),
        **await _recovery(visitor, query.get("start")),
    }


async def load_one(visitor: Visitor, query: Query) -> dict[str, Any]:
    page = await visitor.ask("gateway.restarts", restartId=query["restart"])
    restart = page.restarts[0]
    recovery = await visitor.ask("gateway.recovery", role="gateway")
    starts = [recovery.start, *recovery.earlier] if recovery.start else []
    # The first start after the restart was asked for did its recovery; it may be too old to be kept.
    after = [one for one in starts if one.began_at >= restart.requested_at]
    is_known = len(after) < len(starts) or (bool(after) and len(starts) <= 1)
    start = None
    if after and is_known:
        start = (await visitor.ask("gateway.recovery", bootId=after[-1].boot_id)).start
    return {"restart": restart, "start": start}


async def _recovery(visitor: Visitor, boot_id: str | None) -> dict[str, Any]:
    try:
        newest = await visitor.ask("gateway.recovery", role="gateway")
        chosen = newest if not boot_id else await visitor.ask("gateway.recovery", bootId=boot_id)
    except NotAnswered as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        chosen = newest
    starts = [newest.start, *newest.earlier] if newest.start else []
    return {"start": chosen.start, "starts": starts}


PAGES = [
    Page(
        path="/restarts",
        title="Restarts",
        template="restarts.html",
        load=load_list,
        section="restarts",
        follows=FOLLOWS,
        every_s=10,
    ),
    Page(
        path="/restarts/{restart}",
        title="Restart",
        template="restart.html",
        load=load_one,
        section="restarts",
        follows=FOLLOWS,
    ),
]
