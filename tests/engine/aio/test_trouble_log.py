"""TroubleLog: one voice for all services of a process, not one line a second."""

from __future__ import annotations

import pytest

from holdfast.core.errors import LedgerReplaced, RowDamaged, StoreUnavailable
from holdfast.engine.aio.trouble_log import RECENT_S, TroubleLog

AWAY = StoreUnavailable("PostgreSQL: it cannot be reached")


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def troubles(time: Time) -> TroubleLog:
    return TroubleLog(time)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_ledger_that_is_away_for_a_minute_is_a_handful_of_lines_whichever_service_finds_it_so(
    troubles: TroubleLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(60):
        for who in ("Cron", "Outbox", "Reaper"):
            troubles.met(who, AWAY)
        time.now += 1
    for who in ("Cron", "Outbox", "Reaper"):
        troubles.worked(who)

    assert said(caplog) == [
        "Cron: PostgreSQL: it cannot be reached (store_unavailable)",
        "still so after 10 s: Cron: PostgreSQL: it cannot be reached (store_unavailable)",
        "still so after 30 s: Cron: PostgreSQL: it cannot be reached (store_unavailable)",
        "the ledger can be used again, after 59 s",
    ]


def test_it_is_not_over_while_a_service_that_writes_still_fails(
    troubles: TroubleLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(30):
        troubles.met("Outbox", AWAY)
        troubles.worked("Cron")  # which only reads: a full disk can be read
        time.now += 1

    assert not any("again" in line for line in said(caplog))
    assert troubles.why_away == str(AWAY)


def test_a_service_that_tries_again_in_an_hour_does_not_hold_up_the_end(
    troubles: TroubleLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("Pruner", AWAY, again_in_s=3600)
    troubles.met("Cron", AWAY)
    time.now += RECENT_S + 1
    assert troubles.why_away is None

    time.now += 60
    troubles.worked("Cron")

    assert "the ledger can be used again" in said(caplog)[-1]


def test_a_service_that_had_no_trouble_does_not_end_it(
    troubles: TroubleLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("Pulse", AWAY)
    time.now += 3600
    troubles.worked("Refusals")  # which had nothing to write

    assert len(said(caplog)) == 1


def test_another_trouble_is_said_besides_and_ends_for_itself(
    troubles: TroubleLog, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.met("Cron", AWAY)
    troubles.met("Outbox", RowDamaged("delivery", "dlv_1"))
    troubles.met("Reaper", LedgerReplaced("ledger.db was deleted"))
    troubles.worked("Outbox")

    lines = said(caplog)
    assert len(lines) == 4
    assert "dlv_1" in lines[1]
    assert "was deleted" in lines[2]
    assert lines[3] == "Outbox (row_damaged): over, after 0 s"


def test_what_was_not_foreseen_has_its_places_once(
    troubles: TroubleLog, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        troubles.met("Cron", ZeroDivisionError("nought"))
        time.now += 1

    assert [record.exc_info is not None for record in caplog.records] == [True, False]
    assert "Cron failed; it goes on" in caplog.text


def test_where_nothing_is_wrong_nothing_is_said(
    troubles: TroubleLog, caplog: pytest.LogCaptureFixture
) -> None:
    troubles.worked("Cron")

    assert said(caplog) == []
    assert troubles.why_away is None
