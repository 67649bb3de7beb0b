"""What every call of a program asks: the time, as it is stored; and what leases are counted by."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.core.clock import SystemClock, to_micros
from holdfast.engine.clocks.steady import steady_of
from holdfast.engine.program.live_run import nanos_of
from holdfast.testing import FakeClock


class OwnClock:
    """A clock of another author, which knows nothing but what time it is."""

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


def test_leases_are_counted_by_a_clock_that_cannot_be_set() -> None:
    first, second = (steady_of(SystemClock())() for _ in range(2))

    assert 0 < first <= second
    # Since the machine started, and not since 1970.
    assert second < to_micros(SystemClock().now()) * 1000


def test_a_clock_of_a_test_is_as_steady_as_the_test_makes_it() -> None:
    class Jumping(FakeClock):
        def steady_ns(self) -> int:
            return 7

    fake, jumping = FakeClock(), Jumping()
    jumping.advance(hours=1)

    assert steady_of(fake)() == to_micros(fake.now()) * 1000
    assert steady_of(jumping)() == 7
