"""The rate of a campaign and its estimate: of the time in which work went on, or none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.progress import SPAN, Rate, rate_of, span_of

# In the middle of a span of five minutes.
NOW = datetime(2026, 3, 2, 8, 2, 30, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


def ended(**by_minutes_ago: int) -> dict[str, int]:
    """How many items were done in the span that lies so many minutes back, such as `m20=7`."""
    return {span_of(NOW - int(name[1:]) * MINUTE): count for name, count in by_minutes_ago.items()}


def test_the_rate_is_that_of_the_last_hour() -> None:
    rate = rate_of(
        {**ended(m0=10, m30=20, m55=30), **ended(m90=1000)}, left=60, started_at=NOW - DAY, now=NOW
    )

    hours = (55 * MINUTE + 2.5 * MINUTE) / timedelta(hours=1)
    assert rate.per_hour == round(60 / hours, 2)
    assert rate.eta is not None
    assert abs(rate.eta - (NOW + timedelta(hours=hours))) < MINUTE


@pytest.mark.parametrize("started_at", [NOW - DAY, NOW - 50 * MINUTE])
def test_the_time_in_which_nothing_went_on_does_not_count(started_at: datetime) -> None:
    """100 were done in two minutes, after the machine was off."""
    rate = rate_of(ended(m1=100), left=1000, started_at=started_at, went_on_at=NOW - 2 * MINUTE, now=NOW)

    truth = NOW + timedelta(minutes=20)
    assert rate.per_hour == 3000
    assert rate.eta == truth
    assert rate.eta_low is not None
    assert rate.eta_high is not None
    assert rate.eta_low < truth < rate.eta_high


def test_what_was_done_before_a_pause_counts_with_its_own_time() -> None:
    """60 in the first of the last eleven spans, then a pause until five minutes ago, and 55 since."""
    by_span = ended(m55=60, m4=55)

    rate = rate_of(by_span, left=10, started_at=NOW - DAY, went_on_at=NOW - 5 * MINUTE, now=NOW)

    worked = SPAN + 5 * MINUTE
    assert rate.per_hour == pytest.approx(115 / (worked / timedelta(hours=1)), abs=0.01)


def test_a_short_stop_does_not_make_the_rate_jump() -> None:
    steady = {span_of(NOW - number * SPAN): 50 for number in range(12)}

    before = rate_of(steady, left=100, started_at=NOW - DAY, now=NOW)
    after = rate_of(steady, left=100, started_at=NOW - DAY, went_on_at=NOW - MINUTE, now=NOW)

    assert after == before


def test_the_first_items_of_a_campaign_take_the_time_since_its_start() -> None:
    started = NOW - 25 * MINUTE

    rate = rate_of(ended(m0=150), left=250, started_at=started, went_on_at=started, now=NOW)

    assert rate.per_hour == 360


@pytest.mark.parametrize("left", [0, 10])
def test_without_anything_done_or_left_there_is_no_estimate(left: int) -> None:
    done = ended(m1=10) if not left else {}

    assert rate_of(done, left=left, started_at=NOW - DAY, now=NOW).eta is None


def test_a_rate_without_estimate_keeps_what_was_counted() -> None:
    rate = rate_of(ended(m1=100), left=1000, started_at=NOW - DAY, now=NOW)

    assert rate.without_estimate() == Rate(per_hour=rate.per_hour, left=1000)
