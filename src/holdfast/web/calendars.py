"""The calendar of schedules as days of one time zone: a week or a month, with what fires on each day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

if TYPE_CHECKING:
    from holdfast.views.calendar import CalendarEntryView, CalendarView

WEEK, MONTH = "week", "month"
# A schedule that fires more often on one day is shown as a number.
SHOWN_EACH = 3
# The order in which the counts of a day are told: first what a person should see.
_ORDER = ("failed", "missed", "requeued", "running", "due", "done", "coming")


class DayEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One firing, or all firings of one schedule on one day."""

    schedule: str
    title: str
    # The local time; of several, the first.
    at: str
    status: str
    task_id: str | None
    why: str | None
    is_retry: bool
    # For several: how many, and how many of each status.
    count: int = 1
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> str:
        """What became of it, in words."""
        if self.counts:
            return ", ".join(f"{number} {_word(status)}" for status, number in self.counts)
        told = _word(self.status)
        return f"{told}, queued again" if self.is_retry and self.status != "requeued" else told


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """One day of the calendar, in its time zone."""

    date: date
    is_today: bool
    is_beside: bool
    entries: tuple[DayEntry, ...]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Which days a calendar shows, and in which zone."""

    kind: str
    zone: str
    first: date
    days: int
    # The day that the visitor chose.
    chosen: date

    @property
    def begins_at(self) -> datetime:
        return midnight(self.first, self.zone)

    @property
    def ends_at(self) -> datetime:
        return midnight(self.first + timedelta(days=self.days), self.zone)

    @property
    def title(self) -> str:
        if self.kind == MONTH:
            return f"{self.chosen:%B %Y}"
        last = self.first + timedelta(days=self.days - 1)
        return f"{self.first:%-d %b} to {last:%-d %b %Y}"

    @property
    def before(self) -> date:
        if self.kind == WEEK:
            return self.chosen - timedelta(days=7)
        return (self.chosen.replace(day=1) - timedelta(days=1)).replace(day=1)

    @property
    def after(self) -> date:
        if self.kind == WEEK:
            return self.chosen + timedelta(days=7)
        return (self.chosen.replace(day=28) + timedelta(days=4)).replace(day=1)


def span_of(kind: str | None, chosen: str | None, zone: str | None, *, now: datetime) -> Span:
    """A week from Monday, or a month with the days that fill its first and its last week."""
    known = known_zone(zone)
    day = _date_of(chosen) or now.astimezone(ZoneInfo(known)).date()
    if kind == MONTH:
        first = _monday(day.replace(day=1))
        last = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        return Span(kind=MONTH, zone=known, first=first, days=((last - first).days // 7 + 1) * 7, chosen=day)
    return Span(kind=WEEK, zone=known, first=_monday(day), days=7, chosen=day)


def known_zone(name: str | None) -> str:
    """The zone of this name; UTC for one that does not exist."""
    try:
        return ZoneInfo(name or "UTC").key
    except (KeyError, ValueError, OSError):  # not found; not a key; a directory
        return "UTC"


def midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), tzinfo=ZoneInfo(zone)).astimezone(UTC)


def days_of(calendar: CalendarView, span: Span, *, now: datetime) -> list[Day]:
    """Each entry on its local day, also on days of 23 and 25 hours."""
    zone = ZoneInfo(span.zone)
    titles = {one.schedule: one.title for one in calendar.schedules}
    by_day: dict[date, list[CalendarEntryView]] = {}
    for entry in calendar.entries:
        by_day.setdefault(entry.at.astimezone(zone).date(), []).append(entry)
    today = now.astimezone(zone).date()
    dates = [span.first + timedelta(days=number) for number in range(span.days)]
    return [
        Day(
            date=one,
            is_today=one == today,
            is_beside=span.kind == MONTH and one.month != span.chosen.month,
            entries=tuple(_entries(by_day.get(one, []), titles, zone)),
        )
        for one in dates
    ]


def _entries(
    found: Sequence[CalendarEntryView], titles: dict[str, str], zone: ZoneInfo
) -> Iterable[DayEntry]:
    of_schedule: dict[str, list[CalendarEntryView]] = {}
    for entry in found:
        of_schedule.setdefault(entry.schedule, []).append(entry)
    made: list[tuple[datetime, DayEntry]] = []
    for name, several in of_schedule.items():
        groups = [[one] for one in several] if len(several) <= SHOWN_EACH else [several]
        made += [(group[0].at, _entry(group, titles.get(name, name), zone)) for group in groups]
    return [entry for _, entry in sorted(made, key=lambda one: (one[0], one[1].schedule))]


def _entry(group: Sequence[CalendarEntryView], title: str, zone: ZoneInfo) -> DayEntry:
    first = group[0]
    told = [(status, number) for status in _ORDER if (number := sum(one.status == status for one in group))]
    return DayEntry(
        schedule=first.schedule,
        title=title,
        at=f"{first.at.astimezone(zone):%H:%M}",
        status=told[0][0] if told else first.status,
        task_id=first.task_id if len(group) == 1 else None,
        why=first.why if len(group) == 1 else None,
        is_retry=len(group) == 1 and first.is_retry,
        count=len(group),
        counts=tuple(told) if len(group) > 1 else (),
    )


def _word(status: str) -> str:
    return {"requeued": "queued again", "coming": "to come"}.get(status, status)


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _date_of(text: str | None) -> date | None:
    try:
        found = date.fromisoformat(text) if text else None
    except ValueError:
        return None
    # Far from the ends of what a calendar can count.
    return found if found is not None and 1971 <= found.year <= 2999 else None
