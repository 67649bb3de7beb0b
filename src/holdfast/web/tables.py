"""The tables of the dashboard: its menu, all pages, and all actions."""

from __future__ import annotations

import msgspec

from holdfast.web.page_kinds import Action, Page
from holdfast.web.pages import (
    agents,
    alerts,
    audit,
    campaigns,
    deliveries,
    failures,
    flows,
    overview,
    questions,
    restarts,
    reviews,
    schedules,
    sessions,
    settings,
    tasks,
    wakes,
    workers,
)


class MenuEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the menu."""

    section: str
    title: str
    href: str
    # The second key after `g`, to go there.
    key: str


MENU = [
    MenuEntry(section="overview", title="Overview", href="/", key="o"),
    MenuEntry(section="tasks", title="Tasks", href="/dashboard/tasks", key="t"),
    MenuEntry(section="failures", title="Failures", href="/dashboard/failures", key="f"),
    MenuEntry(section="reviews", title="Reviews", href="/dashboard/reviews", key="r"),
    MenuEntry(section="questions", title="Questions", href="/dashboard/questions", key="q"),
    MenuEntry(section="campaigns", title="Campaigns", href="/dashboard/campaigns", key="c"),
    MenuEntry(section="agents", title="Agents", href="/dashboard/agents", key="a"),
    MenuEntry(section="flows", title="Flows", href="/dashboard/flows", key="l"),
    MenuEntry(section="sessions", title="Sessions", href="/dashboard/sessions", key="s"),
    MenuEntry(section="deliveries", title="Deliveries", href="/dashboard/deliveries", key="d"),
    MenuEntry(section="schedules", title="Schedules", href="/dashboard/schedules", key="h"),
    MenuEntry(section="wakes", title="Wakes", href="/dashboard/wakes", key="w"),
    MenuEntry(section="alerts", title="Alerts", href="/dashboard/alerts", key="e"),
    MenuEntry(section="restarts", title="Restarts", href="/dashboard/restarts", key="x"),
    MenuEntry(section="workers", title="Workers", href="/dashboard/workers", key="k"),
    MenuEntry(section="audit", title="Audit log", href="/dashboard/audit", key="u"),
    MenuEntry(section="settings", title="Settings", href="/dashboard/settings", key="i"),
]
PAGES: list[Page] = [
    *overview.PAGES,
    *tasks.PAGES,
    *failures.PAGES,
    *reviews.PAGES,
    *questions.PAGES,
    *campaigns.PAGES,
    *agents.PAGES,
    *flows.PAGES,
    *sessions.PAGES,
    *deliveries.PAGES,
    *schedules.PAGES,
    *wakes.PAGES,
    *alerts.PAGES,
    *restarts.PAGES,
    *workers.PAGES,
    *audit.PAGES,
    *settings.PAGES,
]
ACTIONS: list[Action] = [
    *overview.ACTIONS,
    *tasks.ACTIONS,
    *failures.ACTIONS,
    *reviews.ACTIONS,
    *questions.ACTIONS,
    *campaigns.ACTIONS,
    *agents.ACTIONS,
    *flows.ACTIONS,
    *sessions.ACTIONS,
    *deliveries.ACTIONS,
    *schedules.ACTIONS,
    *wakes.ACTIONS,
    *alerts.ACTIONS,
]
