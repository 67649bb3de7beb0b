"""A clock for leases: it also counts while the process is frozen or the machine sleeps, and never jumps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.store.clock import LedgerClock, passed_ns

# Two readings of a clock that was not set differ by less than this from what has passed.
_TOLERANCE = timedelta(seconds=1)


def steady_of(clock: Clock) -> Callable[[], int]:
    """Nanoseconds that only this process may compare. A test's clock may have its own `steady_ns`; else its
    wall clock is used."""
    if type(clock) is SystemClock:
        return passed_ns
    own: Callable[[], int] | None = getattr(clock, "steady_ns", None)
    return own or (lambda: to_micros(clock.now()) * 1000)


class ElapsedTime:
    """How much time has surely passed since a moment in the ledger, even if the wall clock was set.

    On PostgreSQL the server's clock decides, and `store.clock.doubt_about` tells how far it can be trusted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steady = steady_of(clock)
        self._is_shared = isinstance(clock, LedgerClock)
        self._began_at = clock.now()
        self._began_ns = self._steady()
        # By the key of an open effect: when this process first had to wait for its end.
        self._seen_ns: dict[str, int] = {}

    def left_of(self, duration: timedelta, key: str, since: datetime) -> timedelta:
        """How much of a duration that began at `since` may still be ahead; zero or less when it is over."""
        now = self._clock.now()
        if self._is_shared or not self._may_be_wrong(since, now):
            return duration - (now - since)
        # The wall clock proves nothing, so only what this process has seen pass counts.
        seen = self._seen_ns.setdefault(key, self._steady())
        left = duration - timedelta(microseconds=(self._steady() - seen) // 1000)
        if left <= timedelta(0):
            del self._seen_ns[key]
        return left

    def _may_be_wrong(self, since: datetime, now: datetime) -> bool:
        """Whether the wall clock was set after `since`, as far as this process can tell."""
        passed = timedelta(microseconds=(self._steady() - self._began_ns) // 1000)
        return since < self._began_at or abs(now - self._began_at - passed) > _TOLERANCE
