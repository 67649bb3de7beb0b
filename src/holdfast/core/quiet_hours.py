"""QuietHours: the hours of each day in which notices of alerts are held back; pure."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo

import msgspec

from holdfast.core.alert import AlertSeverity

_MINUTE = timedelta(minutes=1)
# A whole day is quiet at most, and no clock is set by more than a day.
_LONGEST = timedelta(days=2)


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    """From `start` to `end` by the clock of a time zone, also across midnight; `end` is not quiet."""

    start: time
    end: time
    zone: tzinfo
    # Severities whose notices are sent at once all the same.
    let_through: frozenset[AlertSeverity]

    def holds(self, severity: AlertSeverity, now: datetime) -> bool:
        return severity not in self.let_through and self.is_quiet(now)

    def is_quiet(self, now: datetime) -> bool:
        """By what the clock on the wall shows: when it is set, an hour is quiet twice, or not at all."""
        shown = now.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= shown < self.end
        return shown >= self.start or shown < self.end

    def ends_at(self, now: datetime) -> datetime:
        """When the quiet hours that hold now are over, to the minute."""
        moment = now.astimezone(UTC).replace(second=0, microsecond=0)
        last = moment + _LONGEST
        while self.is_quiet(moment) and moment < last:
            moment += _MINUTE
        return moment
