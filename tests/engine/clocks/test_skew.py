"""Skew between this machine's clock and the ledger's: said once, when it begins, changes much, and ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast.core.clock import SystemClock, to_micros
from holdfast.engine.clocks.skew import SkewWatch
from holdfast.store.clock import MOST_SKEW, SET_BY_NTP, LedgerClock
from holdfast.testing import FakeClock

Behind = Callable[[float], None]


@pytest.fixture
def clock() -> LedgerClock:
    return LedgerClock()


@pytest.fixture
def behind(clock: LedgerClock) -> Behind:
    """The server's clock is so many seconds behind this machine's from now on."""

    def set_behind(seconds: float) -> None:
        asked = clock.steady_ns()
        clock.learn(asked, to_micros(SystemClock.now() - timedelta(seconds=seconds)))

    return set_behind


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if "this machine's clock" in one.getMessage()]
    caplog.clear()
    return found


async def test_skew_is_said_once_with_its_remedy_and_again_when_it_has_changed(
    clock: LedgerClock, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    watch = SkewWatch(clock)

    behind(0.5)
    await watch.run_once()
    assert said(caplog) == []

    behind(45)
    for _ in range(3):
        await watch.run_once()
    (line,) = said(caplog)
    assert (
        line
        == "this machine's clock is 45.0 s ahead of the database's; Holdfast uses the database's; "
        + SET_BY_NTP
    )

    behind(-3600)
    for _ in range(3):
        await watch.run_once()
    (line,) = said(caplog)
    assert line.startswith("this machine's clock is 3,600.0 s behind the database's")

    behind(0.5)
    for _ in range(3):
        await watch.run_once()
    (line,) = said(caplog)
    assert line.endswith("back within the limit")


async def test_skew_about_the_bound_is_not_said_at_every_crossing(
    clock: LedgerClock, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    watch = SkewWatch(clock)
    for part in (1.05, 0.95, 1.05, 0.95):
        behind(MOST_SKEW.total_seconds() * part)
        await watch.run_once()

    assert len(said(caplog)) == 1


async def test_a_jump_of_the_servers_clock_is_said_once(
    clock: LedgerClock, behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    watch = SkewWatch(clock)
    behind(0)
    await watch.run_once()

    behind(-60)
    for _ in range(3):
        await watch.run_once()

    (line,) = [one.getMessage() for one in caplog.records if "jumped" in one.getMessage()]
    assert line.startswith("the database's clock has jumped by +60.0 s")


async def test_who_has_one_clock_has_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    assert await SkewWatch(FakeClock()).run_once() == timedelta(0)
    assert caplog.records == []
