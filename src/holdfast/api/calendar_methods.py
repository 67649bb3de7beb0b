"""cron.calendar: what fired and what will fire in a span of time, at a bounded cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.contract import READ, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, calls
from holdfast.api.pages import bad_token
from holdfast.api.params import NameText, PageToken, Params
from holdfast.api.schedules import ScheduleCaller
from holdfast.config.timetable import next_after
from holdfast.core.errors import BadInput
from holdfast.core.schedule_spec import Schedule, check_schedule_name
from holdfast.views.calendar import CalendarEntryView, CalendarLineView, CalendarView

if TYPE_CHECKING:
    from holdfast.core.schedule import Firing
    from holdfast.store.transaction import Tx

LONGEST = timedelta(days=93)
MAX_ENTRIES = 2000
MAX_SCHEDULES = 100

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class CalendarAsked(Params, frozen=True, kw_only=True):
    """The firings from one moment until another, at most 93 days later."""

    begins_at: _Moment = msgspec.field(name="from")
    ends_at: _Moment = msgspec.field(name="to")
    # At most so many past firings, and as many that are to come, shared equally by the schedules of the page.
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_ENTRIES)] = 1000
    # Only this schedule.
    id: NameText | None = None
    # How many schedules, by name.
    schedules: Annotated[int, msgspec.Meta(ge=1, le=MAX_SCHEDULES)] = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


async def calendar(gateway: GatewayDoor, asked: CalendarAsked, caller: Caller) -> CalendarView:
    by, now = ScheduleCaller.of(gateway.config, caller), gateway.clock.now()
    return await gateway.store.read(lambda tx: read_calendar(tx, asked, by=by, now=now))


def read_calendar(tx: Tx, asked: CalendarAsked, *, by: ScheduleCaller, now: datetime) -> CalendarView:
    """Raises BadInput for a span that is empty or too long."""
    if not timedelta(0) < asked.ends_at - asked.begins_at <= LONGEST:
        raise BadInput("to", f"it must be later than from, and at most {LONGEST.days} days later")
    if asked.id is not None:
        page = [by.find(tx, asked.id)]
    else:
        after = _after(asked.page_token)
        page = tx.schedules.page(after=after, owner=by.reach.owner, limit=asked.schedules + 1)
    shown = [one for one in page[: asked.schedules] if by.covers(one)]
    share = max(1, asked.limit // max(1, len(shown)))
    lines: list[CalendarLineView] = []
    fired: list[Firing] = []
    coming: list[CalendarEntryView] = []
    for schedule in shown:
        past, has_more_past = _past(tx, schedule, asked, by, share)
        ahead, has_more_ahead = _coming(schedule, asked, now, share)
        fired += past
        coming += [CalendarEntryView.coming(schedule.name, at) for at in ahead]
        lines.append(CalendarLineView.of(schedule, is_cut=has_more_past or has_more_ahead))
    tasks = tx.tasks.get_many([one.task_id for one in fired if one.task_id is not None])
    entries = [CalendarEntryView.of(one, tasks.get(one.task_id or "")) for one in fired] + coming
    return CalendarView(
        begins_at=asked.begins_at,
        ends_at=asked.ends_at,
        schedules=lines,
        entries=sorted(entries, key=lambda one: (one.at, one.schedule)),
        next_page_token=page[asked.schedules - 1].name if len(page) > asked.schedules else None,
    )


def _past(
    tx: Tx, schedule: Schedule, asked: CalendarAsked, by: ScheduleCaller, share: int
) -> tuple[list[Firing], bool]:
    """The latest firings of the span, and whether there are more."""
    found = tx.firings.page(
        schedule.name,
        made_at=by.sees_since(schedule),
        since=asked.begins_at,
        before=asked.ends_at,
        limit=share + 1,
    )
    return found[:share], len(found) > share


def _coming(
    schedule: Schedule, asked: CalendarAsked, now: datetime, share: int
) -> tuple[list[datetime], bool]:
    """The first occurrences of the span that are not settled, and whether there are more."""
    if not schedule.is_on or schedule.is_sealed:
        return [], False
    ahead = itertools.takewhile(
        lambda at: at < asked.ends_at, _occurrences(schedule, _start(schedule, asked, now))
    )
    found = list(itertools.islice(ahead, share + 1))
    return found[:share], len(found) > share


def _start(schedule: Schedule, asked: CalendarAsked, now: datetime) -> datetime:
    """The last moment that counts as past. An occurrence at the beginning of the span belongs to it."""
    return max(now, schedule.since_at or now, asked.begins_at - timedelta(microseconds=1))


def _occurrences(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    moment = next_after(schedule.spec, after)
    while moment is not None:
        yield moment
        moment = next_after(schedule.spec, moment)


def _after(token: str | None) -> str:
    try:
        return check_schedule_name(token) if token else ""
    except BadInput:
        raise bad_token(token or "") from None


CALENDAR_METHODS: list[Method] = [
    calls(
        "cron.calendar",
        READ,
        CalendarAsked,
        CalendarView,
        calendar,
        "The past and the coming firings of schedules in a span of time, for a calendar.",
        is_owned=True,
    ),
]
