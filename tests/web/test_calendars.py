"""The calendar of schedules: which days it shows, and what stands on each."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from holdfast.views.calendar import CalendarEntryView, CalendarLineView, CalendarView
from holdfast.web.calendars import MONTH, WEEK, days_of, span_of

NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def calendar(*entries: CalendarEntryView) -> CalendarView:
    line = CalendarLineView(schedule="a", title="The first", is_on=True, tz=BERLIN, is_cut=False)
    return CalendarView(begins_at=NOW, ends_at=NOW, schedules=[line], entries=list(entries))


def entry(at: datetime, status: str = "done", **more: object) -> CalendarEntryView:
    return CalendarEntryView(schedule="a", at=at, status=status, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "day", "first", "days"),
    [
        (WEEK, "2026-03-29", date(2026, 3, 23), 7),
        (MONTH, "2026-03-29", date(2026, 2, 23), 42),
        (MONTH, "2027-02-10", date(2027, 2, 1), 28),
        (None, None, date(2026, 3, 23), 7),
        ("nonsense", "not a day", date(2026, 3, 23), 7),
        (MONTH, "9999-12-31", date(2026, 2, 23), 42),
    ],
)
def test_a_calendar_begins_on_a_monday_and_has_whole_weeks(
    kind: str | None, day: str | None, first: date, days: int
) -> None:
    span = span_of(kind, day, BERLIN, now=NOW)

    assert (span.first, span.days) == (first, days)
    assert span.first.weekday() == 0


def test_the_steps_of_a_month_lead_to_the_months_beside_it() -> None:
    span = span_of(MONTH, "2026-03-31", BERLIN, now=NOW)

    assert (span.before, span.after) == (date(2026, 2, 1), date(2026, 4, 1))


def test_an_unknown_zone_is_utc() -> None:
    assert span_of(WEEK, None, "../etc/passwd", now=NOW).zone == "UTC"


def test_a_week_in_which_clocks_change_is_an_hour_shorter() -> None:
    span = span_of(WEEK, "2026-03-29", BERLIN, now=NOW)

    assert span.ends_at - span.begins_at == timedelta(days=7, hours=-1)


def test_an_entry_stands_on_its_local_day_with_its_local_time() -> None:
    span = span_of(WEEK, "2026-03-29", BERLIN, now=NOW)

    days = days_of(calendar(entry(datetime(2026, 3, 28, 23, 30, tzinfo=UTC))), span, now=NOW)

    assert [(one.date.day, found.at, found.title) for one in days for found in one.entries] == [
        (29, "00:30", "The first")
    ]
    assert [one.date.day for one in days if one.is_today] == [29]


def test_many_firings_of_one_day_are_told_as_numbers_the_bad_ones_first() -> None:
    span = span_of(WEEK, "2026-03-29", BERLIN, now=NOW)
    statuses = ["done", "done", "failed", "missed", "coming"]
    entries = [entry(NOW + timedelta(minutes=number), status) for number, status in enumerate(statuses)]

    (found,) = [one for day in days_of(calendar(*entries), span, now=NOW) for one in day.entries]

    assert (found.count, found.status) == (5, "failed")
    assert found.words == "1 failed, 1 missed, 2 done, 1 to come"


def test_a_firing_that_was_queued_again_says_so() -> None:
    span = span_of(WEEK, "2026-03-29", BERLIN, now=NOW)
    entries = [entry(NOW, "requeued", is_retry=True), entry(NOW + timedelta(hours=1), "done", is_retry=True)]

    found = [one.words for day in days_of(calendar(*entries), span, now=NOW) for one in day.entries]

    assert found == ["queued again", "done, queued again"]
