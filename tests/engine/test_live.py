"""What every call of a program asks: the time, as it is stored."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.core.clock import SystemClock, to_micros
from holdfast.engine.live import nanos_of
from holdfast.testing import FakeClock


class OwnClock:
    """A clock of somebody else's, which knows nothing but what time it is."""

    def now(self) -> datetime:
        return datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)


class LateClock(SystemClock):
    def now(self) -> datetime:
        return datetime(1999, 12, 31, tzinfo=UTC)


def test_the_machines_time_is_the_same_however_it_is_asked() -> None:
    clock = SystemClock()

    before = to_micros(clock.now())
    micros = nanos_of(clock)() // 1000
    after = to_micros(clock.now())

    assert before <= micros <= after


def test_any_other_clock_is_asked_itself() -> None:
    fake = FakeClock()
    fake.advance(hours=1)

    for clock in (fake, OwnClock(), LateClock()):
        assert nanos_of(clock)() == to_micros(clock.now()) * 1000
