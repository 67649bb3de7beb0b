"""Occurrences at changes of summer time, against an oracle that looks at every minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from holdfast.config.timetable import due_between, next_after
from holdfast.core.schedule_spec import ScheduleSpec

ZONES = ("Europe/Berlin", "America/New_York")
MINUTE = timedelta(minutes=1)
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2034, 1, 1, tzinfo=UTC)


class Expression:
    """A cron expression of lists of minutes and hours, each or every one; days are every day."""

    def __init__(self, minutes: tuple[int, ...] | None, hours: tuple[int, ...] | None) -> None:
        self.minutes, self.hours = minutes, hours

    @property
    def text(self) -> str:
        parts = (self.minutes, self.hours)
        return " ".join("*" if one is None else ",".join(map(str, one)) for one in parts) + " * * *"

    def matches(self, local: datetime) -> bool:
        return (self.minutes is None or local.minute in self.minutes) and (
            self.hours is None or local.hour in self.hours
        )

    @property
    def is_fixed(self) -> bool:
        """Whether it names times of the day: then each of them is once a day, also when clocks change."""
        return self.minutes is not None and self.hours is not None


@cache
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


def expressions() -> st.SearchStrategy[Expression]:
    minute = st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True).map(sorted).map(tuple)
    hour = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(sorted).map(tuple)
    return st.builds(Expression, minute | st.none(), hour | st.none())


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
@given(expression=expressions(), number=st.integers(0, 19))
@hypothesis_settings(max_examples=25, deadline=None)
def test_around_a_change_of_summer_time_nothing_fires_twice_or_never(
    zone: str, expression: Expression, number: int
) -> None:
    moment = changes_of_cached(zone)[number]

    check(expression, zone, moment - timedelta(hours=30), moment + timedelta(hours=30))


@cache
def changes_of_cached(zone: str) -> list[datetime]:
    return changes_of(zone)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_ten_years_of_occurrences_are_those_of_the_oracle(zone: str) -> None:
    for minutes, hours in (((30,), (2,)), ((0, 30), (1, 2, 3)), ((15,), None), (None, (2,))):
        check(Expression(minutes, hours), zone, FIRST, LAST)
