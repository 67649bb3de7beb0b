"""The clock of a shared ledger: what the server said last, plus what has passed here; never a wall clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.core.clock import EPOCH, SystemClock
from holdfast.store.clock import LedgerClock, clock_for, doubt_about, skew_of, uncertainty_of
from holdfast.testing import FakeClock

SECOND = 1_000_000_000
HOUR_S = 3600


class Here:
    """What has passed on this machine, and the server's clock: `ahead_us` of it."""

    def __init__(self) -> None:
        self.passed = 1000 * SECOND
        self.ahead_us = 5_000_000_000
        self.clock = LedgerClock(passed=lambda: self.passed)

    def ask(self, *, there_s: float = 0.0005, back_s: float = 0.0005) -> None:
        """A round trip; so long takes the question, and so long the answer."""
        asked = self.clock.steady_ns()
        self.passed += int(there_s * SECOND)
        said_us = self.server_us
        self.passed += int(back_s * SECOND)
        self.clock.learn(asked, said_us)

    @property
    def server_us(self) -> int:
        return self.passed // 1000 + self.ahead_us

    @property
    def wrong_by(self) -> timedelta:
        return self.clock.now() - EPOCH - timedelta(microseconds=self.server_us)


def test_the_time_is_the_servers_at_the_middle_of_the_round_trip() -> None:
    here = Here()

    here.ask()

    assert here.wrong_by == timedelta(0)
    here.passed += 3600 * SECOND
    assert here.wrong_by == timedelta(0)
    assert here.clock.nanos() == here.server_us * 1000


def test_it_is_never_more_wrong_than_it_says() -> None:
    here = Here()
    for there_s, back_s in [(0.5, 0.0), (0.0, 0.5), (0.001, 0.2), (0.0, 0.01), (30.0, 0.1), (0.2, 0.0)]:
        here.ask(there_s=there_s, back_s=back_s)
        assert abs(here.wrong_by) <= here.clock.uncertainty
        here.passed += 60 * SECOND

    assert here.clock.uncertainty < timedelta(seconds=0.5)


def test_an_answer_that_took_long_says_little_and_changes_nothing() -> None:
    here = Here()
    here.ask()
    before = here.clock.uncertainty

    here.ask(there_s=600.0, back_s=0.0)

    assert here.wrong_by == timedelta(0)
    assert here.clock.uncertainty - before < timedelta(seconds=1)
    assert here.clock.jumps == 0


def test_it_becomes_less_certain_while_no_caller_asks() -> None:
    here = Here()
    here.ask()
    before = here.clock.uncertainty

    here.passed += HOUR_S * SECOND

    assert here.clock.uncertainty - before == timedelta(hours=1) / 1000


def test_a_clock_that_drifts_is_followed_and_has_not_jumped() -> None:
    here = Here()
    for _ in range(1000):
        here.ask()
        here.passed += 10 * SECOND
        here.ahead_us += 4000

    assert abs(here.wrong_by) <= here.clock.uncertainty <= timedelta(milliseconds=20)
    assert here.clock.jumps == 0


@pytest.mark.parametrize("hours", [1, -1])
def test_a_server_whose_clock_jumps_is_followed_at_once_and_what_was_stored_before_is_in_doubt(
    hours: int,
) -> None:
    here = Here()
    here.ask()
    before = here.clock.now()
    here.ahead_us += hours * HOUR_S * 1_000_000
    here.passed += SECOND

    here.ask()

    assert here.wrong_by == timedelta(0)
    assert here.clock.jumps == 1
    assert abs(here.clock.last_jump - timedelta(hours=hours)) < timedelta(milliseconds=10)
    assert here.clock.uncertainty < timedelta(milliseconds=10)
    assert here.clock.doubt_about(before) > timedelta(hours=0.99)
    # While it shows hours that it has shown before, no reader can tell which of them is meant.
    assert (here.clock.doubt_about(here.clock.now()) > timedelta(hours=0.99)) == (hours < 0)
    here.passed += 2 * HOUR_S * SECOND
    assert here.clock.doubt_about(here.clock.now()) < timedelta(seconds=10)
    assert here.clock.doubt_about(before) > timedelta(hours=0.99)


def test_jumps_add_up() -> None:
    here = Here()
    here.ask()
    before = here.clock.now()
    for hours in (1, -1, 1):
        here.ahead_us += hours * HOUR_S * 1_000_000
        here.passed += SECOND
        here.ask()

    assert here.clock.jumps == 3
    assert here.clock.doubt_about(before) > timedelta(hours=2.99)


def test_an_answer_that_was_overtaken_by_a_later_one_is_not_heard() -> None:
    here = Here()
    asked, said_us = here.clock.steady_ns(), here.server_us
    here.ahead_us += 3_600_000_000
    here.passed += 2 * SECOND
    here.ask()

    here.passed -= SECOND  # as if this thread had been answered before
    here.clock.learn(asked, said_us)

    assert here.clock.jumps == 0
    assert here.wrong_by == timedelta(0)


def test_only_the_machines_clock_gives_way_to_the_servers() -> None:
    given = FakeClock()
    chosen, learns = clock_for(given)

    assert chosen is given
    chosen, learns = clock_for(SystemClock())
    assert chosen is learns
    assert clock_for(learns) == (learns, learns)


def test_a_clock_that_is_alone_has_neither_skew_nor_doubt() -> None:
    assert skew_of(SystemClock()) == skew_of(FakeClock()) == timedelta(0)
    assert uncertainty_of(SystemClock()) == timedelta(0)
    assert doubt_about(FakeClock(), EPOCH) == timedelta(0)
