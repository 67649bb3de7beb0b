"""The audit log, and the findings of an audit of the ledger."""

from __future__ import annotations

from typing import Any

from holdfast.views.browser import Visitor
from holdfast.web.page_kinds import Page, Query

PAGE = 50
FINDINGS = 200
FILTERS = ("who", "action", "subject")
SEVERITIES = ("error", "warning")
# Where the record of a subject is shown, by the beginning of its id.
_PLACES = {
    "task_": "/dashboard/tasks",
    "flow_": "/dashboard/flows",
    "rst_": "/dashboard/restarts",
    "eff_": "/dashboard/reviews",
    "camp_": "/dashboard/campaigns",
    "agent:": "/dashboard/sessions",
}


async def load_log(visitor: Visitor, query: Query) -> dict[str, Any]:
    """One filter at a time, as the log is indexed."""
    by = query.get("by", "")
    value = query.get("value", "").strip()
    for name in FILTERS:  # links of other pages name the filter itself
        if query.get(name):
            by, value = name, query[name]
    wanted = {by: value} if by in FILTERS and value else {}
    found = await visitor.ask("audit.list", limit=PAGE, pageToken=query.get("page") or None, **wanted)
    return {
        "found": found,
        "by": by if wanted else "who",
        "value": value if wanted else "",
        "kept": {"by": by, "value": value} if wanted else {},
        "filters": FILTERS,
        "place_of": place_of,
    }


async def load_findings(visitor: Visitor, query: Query) -> dict[str, Any]:
    severity = query.get("severity", "")
    wanted = {"severity": severity} if severity in SEVERITIES else {}
    found = await visitor.ask("upkeep.audit", limit=FINDINGS, **wanted)
    groups: dict[tuple[str, str], list[Any]] = {}
    for one in found.findings:
        groups.setdefault((str(one.code), str(one.severity)), []).append(one)
    return {
        "found": found,
        "groups": groups,
        "severity": severity if wanted else "",
        "place_of": place_of,
    }


def place_of(record: str | None, noun: str = "") -> str | None:
    """The page of a record; None if it has none."""
    if not record:
        return None
    if noun in ("task", "flow"):
        return f"/dashboard/{noun}s"
    return next((place for start, place in _PLACES.items() if record.startswith(start)), None)


PAGES = [
    Page(
        path="/audit",
        title="Audit log",
        template="audit.html",
        load=load_log,
        section="audit",
        follows="task question effect alert flow campaign schedule restart delivery wake message",
    ),
    Page(
        path="/findings",
        title="Findings",
        template="findings.html",
        load=load_findings,
        section="audit",
        # An audit reads much, so it is done anew only when the page is opened again.
        every_s=0,
    ),
]
