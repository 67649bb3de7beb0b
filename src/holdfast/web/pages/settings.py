"""Settings: every setting in effect, and where it comes from."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Page, Query

DEFAULT = "default"
# The sections whose entries have pages of their own.
PLACES = {"agents": "/dashboard/agents", "schedules": "/dashboard/schedules"}


async def load(visitor: Visitor, query: Query) -> dict[str, Any]:
    settings = (await visitor.ask("config.get")).settings
    search = query.get("q", "").strip().lower()
    only = "set" if query.get("only") == "set" else ""
    shown = [one for one in settings if _fits(one, search) and (not only or one.source != DEFAULT)]
    sections: dict[str, list[Any]] = {}
    for one in shown:
        sections.setdefault(one.key.partition(".")[0], []).append(one)
    return {
        "sections": sections,
        "sources": sorted({one.source for one in settings if one.source != DEFAULT}),
        "count": len(shown),
        "total": len(settings),
        "search": search,
        "only": only,
        "default": DEFAULT,
        "place_of": place_of,
        "gateway": await visitor.ask("gateway.status"),
    }


def place_of(key: str) -> tuple[str, str] | None:
    """The page of the agent or schedule that a setting belongs to, and its name."""
    section, _, rest = key.partition(".")
    place, name = PLACES.get(section), rest.partition(".")[0]
    return (place, name) if place is not None and name else None


def _fits(one: Any, search: str) -> bool:
    return not search or search in f"{one.key} {one.value} {one.meaning} {one.source}".lower()


PAGES = [
    Page(
        path="/settings",
        title="Settings",
        template="settings.html",
        load=load,
        section="settings",
        follows="boot",
    )
]
