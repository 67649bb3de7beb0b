"""Workers: the processes that carry runs, by host, and those that ended last."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Page, Query

PAGE = 100
ENDED = 10


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:
    found = await visitor.ask("workers.list", limit=PAGE, pageToken=query.get("page") or None)
    hosts: dict[str, list[Any]] = {}
    for one in found.workers:
        hosts.setdefault(one.host, []).append(one)
    return {
        "found": found,
        "hosts": hosts,
        "runs": sum(one.runs for one in found.workers),
        "ended": (await visitor.ask("workers.list", which="ended", limit=ENDED)).workers,
        "gateway": await visitor.ask("gateway.status"),
    }


PAGES = [
    Page(
        path="/workers",
        title="Workers",
        template="workers.html",
        load=load,
        section="workers",
        follows="boot run_claimed run_released run_ended",
        every_s=10,
    )
]
