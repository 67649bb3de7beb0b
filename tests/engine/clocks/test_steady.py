"""What has surely passed, whatever the wall clock says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.engine.clocks.steady import ElapsedTime
from holdfast.testing import FakeClock

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class TwoClocks(FakeClock):
    """Its steady clock goes on while the wall clock is set."""

    def steady_ns(self) -> int:
        return self.boottime_us() * 1000


@pytest.fixture
def clock() -> TwoClocks:
    return TwoClocks()


def test_a_clock_that_was_not_set_is_believed(clock: TwoClocks) -> None:
    elapsed, since = ElapsedTime(clock), clock.now()
    clock.advance(minutes=59)

    assert elapsed.left_of(HOUR, "key", since) == MINUTE


@pytest.mark.parametrize("by", [HOUR * 24, -HOUR])
def test_after_a_jump_only_what_was_seen_to_pass_counts(clock: TwoClocks, by: timedelta) -> None:
    elapsed, since = ElapsedTime(clock), clock.now()
    clock.jump(seconds=by.total_seconds())
    first = elapsed.left_of(HOUR, "key", since)
    clock.advance(minutes=59)
    second = elapsed.left_of(HOUR, "key", since)
    clock.advance(minutes=1)

    assert (first, second, elapsed.left_of(HOUR, "key", since)) == (HOUR, MINUTE, timedelta(0))


def test_a_process_that_started_later_cannot_tell_whether_the_clock_was_set(clock: TwoClocks) -> None:
    since = clock.now()
    clock.jump(hours=24)
    elapsed = ElapsedTime(clock)

    assert elapsed.left_of(HOUR, "key", since) == HOUR


def test_each_key_is_waited_for_on_its_own(clock: TwoClocks) -> None:
    elapsed, since = ElapsedTime(clock), clock.now()
    clock.jump(hours=24)
    elapsed.left_of(HOUR, "one", since)
    clock.advance(minutes=30)

    assert elapsed.left_of(HOUR, "two", since) == HOUR
    assert elapsed.left_of(HOUR, "one", since) == HOUR / 2
