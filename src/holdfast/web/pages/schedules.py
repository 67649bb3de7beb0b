"""Schedules: when each fires, a calendar of past and coming firings, and the history of one."""

from __future__ import annotations

import secrets
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.core.clock import SystemClock, from_micros
from holdfast.views.browser import NotAnswered, Visitor
from holdfast.web.calendars import MONTH, WEEK, days_of, known_zone, span_of
from holdfast.web.page_kinds import Action, ActionDone, Confirmation, Field, Page, Query
from holdfast.web.queries import page_of

if TYPE_CHECKING:
    from datetime import datetime

PAGE = 25
HISTORY = 30
RECENT = 10
SHOWN = "schedule run_claimed run_ended task_created task_ended message_posted restart boot"


async def load_list(visitor: Visitor, query: Query) -> dict[str, Any]:
    now = SystemClock().now()
    page = await visitor.ask("cron.list", enabled="all", limit=PAGE, pageToken=query.get("page", ""))
    zones = [one.tz or "UTC" for one in page.schedules]
    found = await _calendar(visitor, query, now, zones, page_token=query.get("page") or None)
    return {
        "found": page,
        "times": {one.id: times_of(one) for one in page.schedules},
        "recent": (await visitor.ask("cron.runs", limit=RECENT)).entries,
        "at": at,
        **found,
    }


async def load_one(visitor: Visitor, query: Query) -> dict[str, Any]:
    """The history of a schedule that was removed stays."""
    now, name = SystemClock().now(), query["schedule"]
    schedule = None
    try:
        schedule = await visitor.ask("cron.get", id=name)
    except NotAnswered as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
    firings = None
    try:
        firings = await visitor.ask("cron.runs", id=name, limit=HISTORY, pageToken=query.get("page") or None)
    except NotAnswered as refused:
        if schedule is None or refused.status != HTTPStatus.NOT_FOUND:
            raise
    zones = [] if schedule is None else [schedule.tz or "UTC"]
    found = {} if schedule is None else await _calendar(visitor, query, now, zones, schedule=name)
    return {
        "schedule": schedule,
        "name": name,
        "firings": firings,
        "times": None if schedule is None else times_of(schedule),
        "at": at,
        **found,
    }


async def _calendar(
    visitor: Visitor,
    query: Query,
    now: datetime,
    zones: list[str],
    *,
    schedule: str | None = None,
    page_token: str | None = None,
) -> dict[str, Any]:
    """The calendar in the zone that the visitor chose, else in the one that most of the schedules have."""
    kind = query.get("view") or (MONTH if schedule else WEEK)
    common = [zone for zone, _ in Counter(zones).most_common()]
    zone = known_zone(query.get("tz") or (common[0] if common else "UTC"))
    span = span_of(kind, query.get("day"), zone, now=now)
    calendar = await visitor.ask(
        "cron.calendar",
        **{"from": span.begins_at, "to": span.ends_at},
        id=schedule,
        schedules=1 if schedule else PAGE,
        pageToken=page_token,
    )
    return {
        "span": span,
        "days": days_of(calendar, span, now=now),
        "zones": list(dict.fromkeys([*common, zone, "UTC"])),
        "cut": [one.schedule for one in calendar.schedules if one.is_cut],
        "views": [(WEEK, "Week"), (MONTH, "Month")],
    }


def at(millis: int | None) -> datetime | None:
    return None if millis is None else from_micros(millis * 1000)


def times_of(schedule: Any) -> str:
    """When it fires, in words."""
    times = schedule.schedule
    kind = type(times).__name__
    if kind == "AtView":
        return f"once, at {times.at}"
    if kind == "EveryView":
        return f"every {_span(times.every_ms // 1000)}"
    return f"{times.expr} ({times.tz or 'UTC'})"


def _span(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


# --- actions


async def ask_run(visitor: Visitor, query: Query) -> Confirmation:
    schedule = await visitor.ask("cron.get", id=query["id"])
    return Confirmation(
        title=f"Run {schedule.name} now?",
        says=(
            "It fires once, now, beside its plan; its next planned firing stays where it is.",
            f"If a firing of it still runs, its overlap decides what happens: {schedule.overlap or 'queue'}.",
        ),
        # One firing for this dialog, also if its answer is lost and the button is pressed again.
        fields=(Field(name="requestId", label="", kind="hidden", value=secrets.token_hex(8)),),
        confirm="Run now",
    )


async def run(visitor: Visitor, form: Query) -> ActionDone:
    answer = await visitor.ask("cron.run", id=form["id"], requestId=form.get("requestId") or None)
    if not answer.ran:
        raise NotAnswered("refused", f"it did not fire: {answer.reason}", status=HTTPStatus.CONFLICT)
    return ActionDone(
        text=f"{form['id']} fires now.", link="Its firings", href=page_of("schedules", form["id"])
    )


async def ask_pause(visitor: Visitor, query: Query) -> Confirmation:
    schedule = await visitor.ask("cron.get", id=query["id"])
    return Confirmation(
        title=f"Pause {schedule.name}?",
        says=(
            "It does not fire until it is resumed.",
            "A firing that runs now goes on; what waits for it starts after the resume.",
            "Times that pass meanwhile are not caught up.",
        ),
        confirm="Pause",
        refused=None if schedule.enabled else "it is paused already",
    )


async def pause(visitor: Visitor, form: Query) -> str:
    await visitor.ask("cron.update", id=form["id"], patch={"enabled": False})
    return f"{form['id']} is paused."


async def ask_resume(visitor: Visitor, query: Query) -> Confirmation:
    schedule = await visitor.ask("cron.get", id=query["id"])
    return Confirmation(
        title=f"Resume {schedule.name}?",
        says=("It fires again from its next time on.",),
        confirm="Resume",
        refused="it is not paused" if schedule.enabled else None,
    )


async def resume(visitor: Visitor, form: Query) -> str:
    await visitor.ask("cron.update", id=form["id"], patch={"enabled": True})
    return f"{form['id']} fires again."


async def ask_remove(visitor: Visitor, query: Query) -> Confirmation:
    schedule = await visitor.ask("cron.get", id=query["id"])
    is_declared = schedule.source == "settings"
    return Confirmation(
        title=f"Remove {schedule.name}?",
        says=("It does not fire any more. Its history stays, and a firing that runs now goes on.",),
        confirm="Remove",
        is_dangerous=True,
        refused="the settings declare it: remove it from the file, or pause it here" if is_declared else None,
    )


async def remove(visitor: Visitor, form: Query) -> str:
    await visitor.ask("cron.remove", id=form["id"])
    return f"{form['id']} is removed; its history stays."


PAGES = [
    Page(
        path="/schedules",
        title="Schedules",
        template="schedules.html",
        load=load_list,
        section="schedules",
        follows=SHOWN,
    ),
    Page(
        path="/schedules/{schedule}",
        title="Schedule",
        template="schedule.html",
        load=load_one,
        section="schedules",
        follows=SHOWN,
    ),
]
ACTIONS = [
    Action(name="schedules.run", ask=ask_run, act=run),
    Action(name="schedules.pause", ask=ask_pause, act=pause),
    Action(name="schedules.resume", ask=ask_resume, act=resume),
    Action(name="schedules.remove", ask=ask_remove, act=remove),
]
