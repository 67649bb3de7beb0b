"""The counts of a campaign: their names, and the arithmetic of percent, rate and time left; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.transitions import ItemStatus

# Ends are counted in spans of this length, from which rates are computed.
SPAN = timedelta(minutes=5)
_SPAN_US = SPAN // timedelta(microseconds=1)


class Tally(StrEnum):
    """What is counted. Pending items are those that are in no other state."""

    TOTAL = "total"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"


class CountKind(StrEnum):
    """What a count is about: a batch, a priority, a category, or a span of time."""

    BATCH = "b"
    PRIORITY = "p"
    CATEGORY = "c"
    SPAN = "t"


TALLY_OF = {
    ItemStatus.PENDING: None,
    ItemStatus.RUNNING: Tally.RUNNING,
    ItemStatus.PAUSED: Tally.PAUSED,
    ItemStatus.DONE: Tally.DONE,
    ItemStatus.FAILED: Tally.FAILED,
}


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many items are in which state."""

    total: int = 0
    running: int = 0
    paused: int = 0
    done: int = 0
    failed: int = 0

    @property
    def pending(self) -> int:
        return max(0, self.total - self.running - self.paused - self.done - self.failed)

    @property
    def percent(self) -> float:
        """How much is done, rounded to two digits; never 100 before all is done."""
        if not self.total:
            return 0.0
        percent = round(100.0 * self.done / self.total, 2)
        return 99.99 if percent == 100.0 and self.done < self.total else percent

    def __add__(self, other: ItemCounts) -> ItemCounts:
        return ItemCounts(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


def counts_of(tallies: Mapping[str, int]) -> ItemCounts:
    return ItemCounts(**{tally.value: tallies.get(tally.value, 0) for tally in Tally})


def noun_of(campaign_id: str, phase: int, by: CountKind, name: str) -> str:
    """The name under which the ledger keeps one count; those of one phase and kind stand together."""
    return f"{campaign_id}/{phase:02d}/{by.value}/{name}"


def batch_key(number: int) -> str:
    """The number of a batch as a part of a count's name: sorted as the numbers are."""
    return f"{number:09d}"


def span_of(moment: datetime) -> str:
    """The span in which a moment lies, by its number."""
    return f"{to_micros(moment) // _SPAN_US:012d}"


def span_began_at(number: int) -> datetime:
    """The moment at which the span with this number began."""
    return from_micros(number * _SPAN_US)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How quickly items end, and when the rest will be done: most likely, at best and at worst."""

    per_hour: float
    # How many items run, or will start without the help of a person.
    left: int
    eta: datetime | None = None
    eta_low: datetime | None = None
    eta_high: datetime | None = None

    def without_estimate(self) -> Rate:
        return Rate(per_hour=self.per_hour, left=self.left)


def rate_of(
    done_by_span: Mapping[str, int],
    *,
    left: int,
    started_at: datetime | None,
    now: datetime,
    went_on_at: datetime | None = None,
    spans: int = 12,
) -> Rate:
    """The rate over the last hour, or since the start if that is later. The pause before `went_on_at`, when
    the work went on after a stop, does not count: it began when the last span with an end was over.

    The band comes from the scatter of the spans: a Poisson count of n ends is known to about two times its
    square root. Without an end in that time there is no estimate, because none would be honest.
    """
    number = to_micros(now) // _SPAN_US
    first = number - spans
    if started_at is not None:
        first = max(first, to_micros(started_at) // _SPAN_US - 1)
    ended = sum(count for span, count in done_by_span.items() if first < int(span) <= number)
    begins_us = (first + 1) * _SPAN_US
    if started_at is not None:
        begins_us = max(begins_us, to_micros(started_at))
    worked_us = to_micros(now) - begins_us
    if went_on_at is not None:
        worked_us -= _pause_us(done_by_span, begins_us, min(to_micros(went_on_at), to_micros(now)))
    hours = max(worked_us, 1_000_000) / 3_600_000_000
    per_hour = ended / hours
    if not ended or not left:
        return Rate(per_hour=round(per_hour, 2), left=left)
    spread = 2 * math.sqrt(ended)

    def until(count: float) -> datetime | None:
        # More than a century ahead is no estimate.
        hours_left = left * hours / count if count > 0 else math.inf
        return now + timedelta(hours=hours_left) if hours_left < 876_000 else None

    return Rate(
        per_hour=round(per_hour, 2),
        left=left,
        eta=until(ended),
        eta_low=until(ended + spread),
        eta_high=until(ended - spread),
    )


def _pause_us(done_by_span: Mapping[str, int], begins_us: int, went_on_us: int) -> int:
    """How long nothing was done before the work went on; a pause of less than a span cannot be told."""
    before = [
        int(span) for span, count in done_by_span.items() if count and int(span) < went_on_us // _SPAN_US
    ]
    stopped_us = max([begins_us, *((span + 1) * _SPAN_US for span in before)])
    pause_us = went_on_us - stopped_us
    return pause_us if pause_us > _SPAN_US else 0


def total_of(counts: Sequence[ItemCounts]) -> ItemCounts:
    total = ItemCounts()
    for one in counts:
        total += one
    return total
