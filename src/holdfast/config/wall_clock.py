"""Occurrences of cron expressions that fire whenever the wall clock of a time zone matches.

Between two changes of its offset, a zone is UTC and a constant. So each such stretch of time is searched by
itself, in local time without a zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_SECOND = timedelta(seconds=1)
# Clocks do not change twice within it.
_STRIDE = timedelta(days=1)


def follows_wall_clock(expression: str) -> bool:
    """Whether it has `*` as its minute or hour (or has seconds): what names times fires once for each."""
    fields = expression.split()
    return len(fields) != 5 or fields[0].startswith("*") or fields[1].startswith("*")


def first_match(expression: str, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """The first match after a moment, in UTC; None if there is none."""
    from cronsim import CronSim

    # The last second that does not count.
    last = moment.astimezone(UTC).replace(microsecond=0)
    begins_at = last
    while True:
        offset = _offset(zone, begins_at)
        local = next(CronSim(expression, (last + offset).replace(tzinfo=None)), None)
        if local is None:
            return None
        found = local.replace(tzinfo=UTC) - offset
        change = next(_changes(zone, begins_at, found), None)
        if change is None:
            return found
        begins_at, last = change, change - _SECOND


def latest_matches(expression: str, zone: ZoneInfo, until: datetime) -> Iterator[datetime]:
    """The matches up to and including a moment, in UTC, latest first."""
    from cronsim import CronSim

    # The first second that does not count.
    end = until.astimezone(UTC).replace(microsecond=0) + _SECOND
    while True:
        # The earliest moment that is known to be in this stretch.
        inside = end - _SECOND
        offset = _offset(zone, inside)
        ends_at: datetime | None = None
        for local in CronSim(expression, (end + offset).replace(tzinfo=None), reverse=True):
            found = local.replace(tzinfo=UTC) - offset
            ends_at = max(_changes(zone, found, inside), default=None)
            if ends_at is not None:
                break
            yield found
            inside = found
        if ends_at is None:
            return
        end = ends_at


def _changes(zone: ZoneInfo, first: datetime, last: datetime) -> Iterator[datetime]:
    """When the clocks change after one moment, up to and including another: the first moments of each
    offset."""
    before = first
    while before < last:
        after = min(before + _STRIDE, last)
        offset = _offset(zone, before)
        if _offset(zone, after) == offset:
            before = after
            continue
        while after - before > _SECOND:
            middle = before + (after - before) // (2 * _SECOND) * _SECOND
            before, after = (middle, after) if _offset(zone, middle) == offset else (before, middle)
        yield after
        before = after


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    found = moment.astimezone(zone).utcoffset()
    assert found is not None
    return found
