"""Occurrences at changes of summer time, against an oracle that looks at every minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from holdfast.config.timetable import due_between, next_after
from holdfast.core.schedule_spec import ScheduleSpec

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    # Their clocks change at midnight, on both sides of it, or by half an hour.
    "America/Santiago",
    "America/Havana",
    "Africa/Cairo",
    "Asia/Beirut",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
)
MINUTE = timedelta(minutes=1)
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2034, 1, 1, tzinfo=UTC)


class Expression:
    """A cron expression of lists of minutes and hours, each or every one, and of one day of the week or the
    month, or every day."""

    def __init__(
        self,
        minutes: tuple[int, ...] | None,
        hours: tuple[int, ...] | None,
        days: tuple[str, int] | None = None,
    ) -> None:
        self.minutes, self.hours, self.days = minutes, hours, days

    @property
    def text(self) -> str:
        parts = (self.minutes, self.hours)
        times = " ".join("*" if one is None else ",".join(map(str, one)) for one in parts)
        match self.days:
            case ("weekday", number):
                return f"{times} * * {number}"
            case ("day", number):
                return f"{times} {number} * *"
        return f"{times} * * *"

    def matches(self, local: datetime) -> bool:
        return (
            (self.minutes is None or local.minute in self.minutes)
            and (self.hours is None or local.hour in self.hours)
            and self.days in (None, ("weekday", local.isoweekday() % 7), ("day", local.day))
        )

    @property
    def is_fixed(self) -> bool:
        """Whether it names times of the day: then each of them is once a day, also when clocks change."""
        return self.minutes is not None and self.hours is not None


@lru_cache(maxsize=16)  # those of a year take 80 MB
def minutes_of(zone: str, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """Every minute of a time, with what the clocks of a zone show."""
    tz, found, moment = ZoneInfo(zone), [], first
    while moment < last:
        found.append((moment, moment.astimezone(tz).replace(tzinfo=None)))
        moment += MINUTE
    return found


def oracle(expression: Expression, zone: str, first: datetime, last: datetime) -> Iterator[datetime]:
    """A fixed time fires when its wall clock time comes first, and one that is skipped when the clocks have
    moved on; any other fires whenever the wall clock matches."""
    newest: datetime | None = None
    for moment, local in minutes_of(zone, first, last):
        if not expression.is_fixed:
            if expression.matches(local):
                yield moment
            continue
        if newest is None:
            newest = local - MINUTE
        passed = []
        while newest < local:  # more than one minute where clocks are set forward
            newest += MINUTE
            passed.append(newest)
        if any(expression.matches(one) for one in passed):
            yield moment


def expressions(change: datetime, zone: str) -> st.SearchStrategy[Expression]:
    """Around midnight and the small hours, on days around a change of the clocks."""
    local = change.astimezone(ZoneInfo(zone))
    around = [local.date() + timedelta(days=days) for days in (-1, 0, 1)]
    days = st.sampled_from(
        [("weekday", one.isoweekday() % 7) for one in around] + [("day", one.day) for one in around]
    )
    minute = st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True).map(sorted).map(tuple)
    hour = (
        st.lists(st.sampled_from([22, 23, 0, 1, 2, 3, 4]), min_size=1, max_size=3, unique=True)
        .map(sorted)
        .map(tuple)
    )
    return st.builds(Expression, minute | st.none(), hour | st.none(), days | st.none())


def changes_of(zone: str) -> list[datetime]:
    """When the clocks of a zone change, to the hour."""
    tz, moment, found = ZoneInfo(zone), FIRST, []
    while moment < LAST:
        after = moment + timedelta(hours=1)
        if moment.astimezone(tz).utcoffset() != after.astimezone(tz).utcoffset():
            found.append(moment)
        moment = after
    return found


def forwards(spec: ScheduleSpec, first: datetime, last: datetime) -> list[datetime]:
    found, moment = [], first - timedelta(microseconds=1)
    while (following := next_after(spec, moment)) is not None and following < last:
        found.append(following)
        moment = following
    return found


def check(expression: Expression, zone: str, first: datetime, last: datetime) -> None:
    spec = ScheduleSpec(cron=expression.text, tz=zone)
    expected = list(oracle(expression, zone, first, last))

    assert forwards(spec, first, last) == expected
    assert due_between(spec, first - MINUTE, last - MINUTE, limit=10**7) == expected


@pytest.mark.parametrize("zone", ZONES)
@given(chance=st.data())
@hypothesis_settings(max_examples=10, deadline=None)
def test_around_a_change_of_summer_time_nothing_fires_twice_or_never(
    zone: str, chance: st.DataObject
) -> None:
    moment = chance.draw(st.sampled_from(changes_of_cached(zone)))
    expression = chance.draw(expressions(moment, zone))

    check(expression, zone, moment - timedelta(hours=30), moment + timedelta(hours=30))


@cache
def changes_of_cached(zone: str) -> list[datetime]:
    return changes_of(zone)


@pytest.mark.parametrize(
    ("text", "zone", "first", "count"),
    [
        # Saturday, 23:00 to 24:00, comes twice.
        ("5,35 * * * 6", "America/Santiago", "2029-04-08T01:59:00", 4),
        # Sunday begins at 01:00.
        ("* 1 * * 0", "America/Havana", "2026-03-08T04:00:00", 60),
        # On the 30th, 00:00 to 01:00 is skipped; it comes again on the 30th of April.
        ("* 0 30 * *", "Atlantic/Azores", "2025-03-30T00:00:00", 0),
        ("*/10 * * * *", "Australia/Lord_Howe", "2026-04-04T14:59:00", 12),
    ],
)
def test_an_expression_of_every_minute_or_hour_follows_the_wall_clock(
    text: str, zone: str, first: str, count: int
) -> None:
    spec = ScheduleSpec(cron=text, tz=zone)
    begins_at = datetime.fromisoformat(first).replace(tzinfo=UTC)

    assert len(forwards(spec, begins_at, begins_at + timedelta(hours=2))) == count


def test_an_expression_that_matches_once_in_years_is_found_on_both_sides() -> None:
    spec = ScheduleSpec(cron="* 0 29 2 *", tz="America/Santiago")

    found = next_after(spec, datetime(2025, 1, 1, tzinfo=UTC))

    assert found == datetime(2028, 2, 29, 3, tzinfo=UTC)
    assert due_between(spec, datetime(2025, 1, 1, tzinfo=UTC), found, limit=9) == [found]


@pytest.mark.slow
def test_a_year_and_all_changes_of_the_clocks_in_ten_years_are_those_of_the_oracle() -> None:
    zone = ZONES[0]
    changes = changes_of_cached(zone)
    assert len(changes) == 20
    day = timedelta(days=1)

    for first, last in [(FIRST, FIRST + 366 * day), *((moment - day, moment + day) for moment in changes)]:
        for minutes, hours in (((30,), (2,)), ((0, 30), (1, 2, 3)), ((15,), None), (None, (2,))):
            check(Expression(minutes, hours), zone, first, last)
