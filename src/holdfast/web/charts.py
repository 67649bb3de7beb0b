"""Chart: the series that the script of the dashboard draws; and those of a campaign, as pure functions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from holdfast.views.progress import RateView
    from holdfast.views.throughput import ThroughputView


class Series(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a chart: a value for each of its moments, None where it has none."""

    label: str
    # A colour of the style: good, busy, waits, bad or quiet.
    tone: str
    values: list[float | None]
    dash: bool = False
    fill: bool = False
    # A line that only bounds a band.
    hidden: bool = False


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over time. A band fills the space between two of them, which are counted from 1."""

    # In seconds since 1970, ascending.
    times: list[int]
    series: list[Series]
    bands: list[tuple[int, int]] = []

    @property
    def json(self) -> str:
        return msgspec.json.encode(self).decode()


def done_over_time(throughput: ThroughputView, rate: RateView) -> Chart | None:
    """How many items are done, and from now on when the rest will be: expected, at best and at worst."""
    spans = throughput.spans
    if not spans:
        return None
    length = timedelta(seconds=throughput.span_s)
    done = throughput.done - sum(span.done for span in spans)
    times, known = [], []
    for span in spans:
        times.append(span.began_at)
        known.append(done)
        done += span.done
    until = max(min(throughput.at, spans[-1].began_at + length), times[-1] + timedelta(seconds=1))
    times.append(until)
    known.append(throughput.done)
    ahead = _ahead(rate, until)
    target = throughput.done + rate.left
    blank: list[float | None] = [None] * (len(times) - 1)

    def forecast(label: str, eta: datetime | None, *, is_bound: bool) -> Series:
        values: list[float | None] = [
            _expected(throughput.done, target, until, eta, at) for at in [until, *ahead]
        ]
        tone = "busy"
        return Series(label=label, tone=tone, values=blank + values, dash=not is_bound, hidden=is_bound)

    moments = [*times, *ahead]
    series = [
        Series(label="Done", tone="good", values=[*known, *[None] * len(ahead)], fill=True),
        Series(label="All items", tone="quiet", values=[throughput.total] * len(moments), dash=True),
    ]
    if ahead:
        series += [
            # The band is drawn with its lines, so the expected line comes after it.
            forecast("At best", rate.eta_low, is_bound=True),
            forecast("At worst", rate.eta_high, is_bound=True),
            forecast("Expected", rate.eta, is_bound=False),
        ]
    return Chart(
        times=[int(at.timestamp()) for at in moments], series=series, bands=[(3, 4)] if ahead else []
    )


def done_per_span(throughput: ThroughputView) -> Chart | None:
    """How many items were done in each span; the last span is not over yet."""
    if not throughput.spans:
        return None
    values: list[float | None] = [span.done for span in throughput.spans]
    label = f"Done in {throughput.span_s // 60} min"
    return Chart(
        times=[int(span.began_at.timestamp()) for span in throughput.spans],
        series=[Series(label=label, tone="busy", values=values, fill=True)],
    )


def _ahead(rate: RateView, now: datetime) -> list[datetime]:
    """The moments of the estimate; a worst case that is very late does not press the rest together."""
    if rate.eta is None or rate.eta <= now or not rate.left:
        return []
    horizon = now + 2 * (rate.eta - now)
    last = horizon if rate.eta_high is None else min(rate.eta_high, horizon)
    found = {at for at in (rate.eta_low, rate.eta, last) if at is not None and at > now}
    # Two moments in one second would be one place on the axis.
    return sorted({int(at.timestamp()): at for at in found if at.timestamp() >= now.timestamp() + 1}.values())


def _expected(done: int, target: int, now: datetime, eta: datetime | None, at: datetime) -> float:
    if eta is None:
        return float(done)
    if eta <= now:
        return float(target)
    share = min(1.0, (at - now) / (eta - now))
    return round(done + (target - done) * share, 2)
