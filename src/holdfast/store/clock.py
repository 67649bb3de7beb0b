"""The time of a ledger that several machines share: the database's, extrapolated between two answers.

Wall clocks can be set, and two of them never agree. So on PostgreSQL no time that is compared comes from this
machine's wall clock: `now` is the server's last answer plus the time since then by the monotonic clock. Every
transaction asks the server along with its first statement, so that costs no round trip.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import msgspec

from holdfast.core.clock import Clock, SystemClock, from_micros, to_micros

# Beyond this an operator should check the clocks, although no comparison depends on it.
MOST_SKEW = timedelta(seconds=5)
SET_BY_NTP = "have NTP set both clocks (timedatectl set-ntp true, or chrony)"

# If the server's time differs from our estimate by more than this, its clock was set or replaced.
_JUMP_NS = 1_000_000_000
# The most by which two clocks that NTP slews drift apart, as a part of the time that passes.
_DRIFT_PPM = 1000
# The server's answer is a whole number of microseconds.
_ROUNDED_NS = 1000

# A clock that counts while the machine sleeps; on macOS that is CLOCK_MONOTONIC.
passed_ns: Callable[[], int] = partial(
    time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)


class _Known(msgspec.Struct, frozen=True):
    """The server's time minus the monotonic clock; at `at` it was wrong by at most `error`."""

    offset: int
    error: int
    at: int

    def error_at(self, passed: int) -> int:
        return self.error + max(0, passed - self.at) * _DRIFT_PPM // 1_000_000


class LedgerClock:
    """This process's estimate of the database's clock. It is thread-safe.

    It may go back, but only by less than its uncertainty, or when the server's own clock does.
    """

    def __init__(self, *, passed: Callable[[], int] = passed_ns) -> None:
        self._passed = passed
        self._lock = threading.Lock()
        # Until the server's first answer, this machine's clock.
        self._offset = to_micros(SystemClock.now()) * 1000 - passed()
        self._known: _Known | None = None
        # Moments before this one were stored before a jump, and may be wrong by that much.
        self._clear_from = self._jumped_by = 0
        # How often the server's clock has jumped, and by how much the last time.
        self.jumps = 0
        self.last_jump = timedelta(0)

    def now(self) -> datetime:
        return from_micros((self._passed() + self._offset) // 1000)

    def nanos(self) -> int:
        """The same in nanoseconds, because every step asks twice and a datetime costs more."""
        return self._passed() + self._offset

    @property
    def uncertainty(self) -> timedelta:
        """By how much `now` may be wrong."""
        known = self._known
        return timedelta(microseconds=0 if known is None else known.error_at(self._passed()) // 1000)

    def doubt_about(self, moment: datetime) -> timedelta:
        """The possible error of the difference between now and a moment in the ledger."""
        with self._lock:
            is_clear = to_micros(moment) * 1000 >= self._clear_from
            doubt = 0 if is_clear else self._jumped_by
        return self.uncertainty + timedelta(microseconds=doubt // 1000)

    @property
    def skew(self) -> timedelta:
        """How far this machine's clock is ahead of the database's."""
        return SystemClock.now() - self.now()

    def steady_ns(self) -> int:
        """The monotonic clock, for lengths of time: no jump of the server's clock changes it."""
        return self._passed()

    def learn(self, asked: int, said_us: int) -> None:
        """Record the server's answer; `asked` is the `steady_ns` of the question. The server read its clock
        between then and now, so the middle is wrong by at most half of that."""
        answered = self._passed()
        error = (answered - asked) // 2 + _ROUNDED_NS
        at = answered - (answered - asked) // 2
        offset = said_us * 1000 - at
        with self._lock:
            known = self._known
            if known is None:
                self._take(_Known(offset, error, at))
            elif at > known.at:  # otherwise another thread recorded a newer answer
                self._compare(known, _Known(offset, error, at))

    def _compare(self, known: _Known, heard: _Known) -> None:
        apart, aged = abs(heard.offset - known.offset), known.error_at(heard.at)
        if apart <= heard.error:
            # The answer is compatible with our estimate. Following every answer would add jitter.
            self._take(_Known(known.offset, min(aged, apart + heard.error), heard.at))
            return
        if apart > heard.error + aged + _JUMP_NS:
            # A failover, or the clock was set. Moments that were stored before are now ambiguous.
            forth = heard.offset - known.offset
            self._jumped_by += apart
            self._clear_from = max(self._clear_from, heard.at + heard.offset + max(0, -forth))
            self.jumps += 1
            self.last_jump = timedelta(microseconds=forth // 1000)
        self._take(heard)

    def _take(self, known: _Known) -> None:
        self._known, self._offset = known, known.offset


def clock_for(clock: Clock) -> tuple[Clock, LedgerClock]:
    """The clock of a shared ledger, and the one that follows its server.

    They are the same, unless the caller passes a clock of its own.
    """
    if isinstance(clock, LedgerClock):
        return clock, clock
    learns = LedgerClock()
    return (learns if type(clock) is SystemClock else clock), learns


def uncertainty_of(clock: Clock) -> timedelta:
    """By how much the time of a clock may be wrong."""
    return clock.uncertainty if isinstance(clock, LedgerClock) else timedelta(0)


def doubt_about(clock: Clock, moment: datetime) -> timedelta:
    """The possible error when now is compared with a moment in the ledger. Add it where a mistake could
    repeat work."""
    return clock.doubt_about(moment) if isinstance(clock, LedgerClock) else timedelta(0)


def skew_of(clock: Clock) -> timedelta:
    """How far this machine's clock is ahead of the ledger's; zero when they are the same clock."""
    return clock.skew if isinstance(clock, LedgerClock) else timedelta(0)


def jumps_of(clock: Clock) -> int:
    """How often the ledger's clock has jumped since this process began to follow it."""
    return clock.jumps if isinstance(clock, LedgerClock) else 0


def skew_in_words(skew: timedelta) -> str:
    seconds = skew.total_seconds()
    where = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {abs(seconds):,.1f} s {where} the database's"
