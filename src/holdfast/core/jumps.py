"""Belief: which time schedules and deletions use when the wall clock may have jumped.

The *offset* is the wall clock minus the time since the machine booted. Both clocks count while the machine is
suspended, and NTP slews both alike, so the offset changes only when the wall clock is set: that is a jump. A
new offset is believed once it has held for a while; until then the old one counts.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

_MICROSECOND = timedelta(microseconds=1)

# Smaller steps are accepted at once: NTP makes them, and no schedule or retention is as exact.
TOLERANCE = timedelta(seconds=10)
# Schedules use a new time once it has held for this long; ntpd waits as long before it sets a clock.
FIRES_AFTER = timedelta(minutes=5)
# Deletions cannot be undone and can wait: an NTP client polls every 34 minutes or more often.
DELETES_AFTER = timedelta(hours=1)

_TOLERANCE_US = TOLERANCE // _MICROSECOND
_FIRES_AFTER_US = FIRES_AFTER // _MICROSECOND
_DELETES_AFTER_US = DELETES_AFTER // _MICROSECOND


def is_near(offset: int, other: int) -> bool:
    return abs(offset - other) <= _TOLERANCE_US


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """What a process believes about its wall clock, in microseconds. `since` and `seen_since` count from the
    boot of the machine."""

    # None: no time has held for long enough yet.
    offset: int | None
    since: int
    # The last offset seen, and since when it has held.
    seen: int
    seen_since: int

    @classmethod
    def first(cls, wall: int, passed: int, *, is_believed: bool) -> Belief:
        seen = wall - passed
        return cls(offset=seen if is_believed else None, since=passed, seen=seen, seen_since=passed)

    def after(self, wall: int, passed: int) -> Belief:
        """The belief after one more look at both clocks."""
        seen = wall - passed
        if self.offset is not None and is_near(seen, self.offset):
            return Belief(offset=seen, since=self.since, seen=seen, seen_since=passed)
        seen_since = self.seen_since if is_near(seen, self.seen) else passed
        if passed - seen_since >= _FIRES_AFTER_US:
            return Belief(offset=seen, since=seen_since, seen=seen, seen_since=seen_since)
        return Belief(offset=self.offset, since=self.since, seen=seen, seen_since=seen_since)

    @property
    def is_away(self) -> bool:
        """Whether the wall clock differs from the time that is believed."""
        return self.offset is None or not is_near(self.seen, self.offset)

    def has_held(self, passed: int) -> bool:
        """Whether the wall clock has the time that is believed, and has had it for long enough."""
        return not self.is_away and passed - self.since >= _FIRES_AFTER_US

    def firing_time(self, passed: int) -> int | None:
        """The time that schedules use; None while there is none.

        If the wall clock jumped ahead, time continues as before the jump, so schedules fire on time and
        nothing fires too early. If it jumped back, the repeated hour has fired already: wait.
        """
        if self.offset is None or (self.is_away and self.seen < self.offset):
            return None
        return passed + self.offset

    def deletion_time(self, passed: int) -> int | None:
        """The time that decides which records are old enough to delete; None while nothing may be deleted."""
        if self.offset is None or self.is_away or passed - self.since < _DELETES_AFTER_US:
            return None
        return passed + self.offset
