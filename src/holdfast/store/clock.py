"""The time of a ledger that machines share: its database's, kept between two answers by what has passed here.

A wall clock is set by somebody, and two of them never agree. So on PostgreSQL nothing that is compared comes
from this machine's: `now` is what the server said last, plus what has passed since by a clock that nobody
sets. Every transaction asks the server on its way, so that costs no round trip.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import msgspec

from holdfast.core.clock import Clock, SystemClock, from_micros, to_micros

# Beyond this somebody should look at the clocks, although nothing that is compared depends on it.
MOST_SKEW = timedelta(seconds=5)
SET_BY_NTP = "have NTP set both clocks (timedatectl set-ntp true, or chrony)"

# A server whose time moves by more than this, against all that we know of it, has another clock now.
_JUMP_NS = 1_000_000_000
# Two clocks that NTP slews at the same time part by no more than so much of what passes.
_DRIFT_PPM = 1000
# The server's answer is a whole number of microseconds.
_ROUNDED_NS = 1000

# It goes on while the machine sleeps; where it has another name (macOS), CLOCK_MONOTONIC does.
passed_ns: Callable[[], int] = partial(
    time.clock_gettime_ns, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)


class _Known(msgspec.Struct, frozen=True):
    """The server's time less what has passed here; wrong by at most `error` when it was found out."""

    offset: int
    error: int
    at: int

    def error_at(self, passed: int) -> int:
        return self.error + max(0, passed - self.at) * _DRIFT_PPM // 1_000_000


class LedgerClock:
    """What the database's clock says, as far as this process knows. Any thread may ask and tell.

    It may go back, but only by less than it was uncertain; or when the server's own clock does.
    """

    def __init__(self, *, passed: Callable[[], int] = passed_ns) -> None:
        self._passed = passed
        self._lock = threading.Lock()
        # Until the server has said anything, this machine's.
        self._offset = to_micros(SystemClock.now()) * 1000 - passed()
        self._known: _Known | None = None
        # Moments before this one were stored before a jump; by so much they may mean another.
        self._clear_from = self._jumped_by = 0
        # How often the server's clock has jumped, and by how much the last time.
        self.jumps = 0
        self.last_jump = timedelta(0)

    def now(self) -> datetime:
        return from_micros((self._passed() + self._offset) // 1000)

    def nanos(self) -> int:
        """The same for who needs no datetime: every step asks twice."""
        return self._passed() + self._offset

    @property
    def uncertainty(self) -> timedelta:
        """By how much `now` may be wrong."""
        known = self._known
        return timedelta(microseconds=0 if known is None else known.error_at(self._passed()) // 1000)

    def doubt_about(self, moment: datetime) -> timedelta:
        """By how much now and a moment in the ledger may be further apart, or nearer, than they look."""
        with self._lock:
            is_clear = to_micros(moment) * 1000 >= self._clear_from
            doubt = 0 if is_clear else self._jumped_by
        return self.uncertainty + timedelta(microseconds=doubt // 1000)

    @property
    def skew(self) -> timedelta:
        """How far this machine's clock is ahead of the database's."""
        return SystemClock.now() - self.now()

    def steady_ns(self) -> int:
        """What has passed here, whatever the server says: for lengths of time, which no jump may change."""
        return self._passed()

    def learn(self, asked: int, said_us: int) -> None:
        """What the server has just answered; it was asked at that moment of `steady_ns`. It read its clock
        between then and now; nobody knows when, so the middle is wrong by half of that at most."""
        answered = self._passed()
        error = (answered - asked) // 2 + _ROUNDED_NS
        at = answered - (answered - asked) // 2
        offset = said_us * 1000 - at
        with self._lock:
            known = self._known
            if known is None:
                self._take(_Known(offset, error, at))
            elif at > known.at:  # else somebody else was answered meanwhile
                self._compare(known, _Known(offset, error, at))

    def _compare(self, known: _Known, heard: _Known) -> None:
        apart, aged = abs(heard.offset - known.offset), known.error_at(heard.at)
        if apart <= heard.error:
            # What we know may be true. To follow every answer would only shake the clock.
            self._take(_Known(known.offset, min(aged, apart + heard.error), heard.at))
            return
        if apart > heard.error + aged + _JUMP_NS:
            # A failover, or somebody has set it. What was stored before means another moment now.
            forth = heard.offset - known.offset
            self._jumped_by += apart
            self._clear_from = max(self._clear_from, heard.at + heard.offset + max(0, -forth))
            self.jumps += 1
            self.last_jump = timedelta(microseconds=forth // 1000)
        self._take(heard)

    def _take(self, known: _Known) -> None:
        self._known, self._offset = known, known.offset


def clock_for(clock: Clock) -> tuple[Clock, LedgerClock]:
    """The clock by which a shared ledger lives, and the one that learns from its server.

    They are one, unless the caller has a clock of its own and means it.
    """
    if isinstance(clock, LedgerClock):
        return clock, clock
    learns = LedgerClock()
    return (learns if type(clock) is SystemClock else clock), learns


def uncertainty_of(clock: Clock) -> timedelta:
    """By how much the time that a clock says may be wrong."""
    return clock.uncertainty if isinstance(clock, LedgerClock) else timedelta(0)


def doubt_about(clock: Clock, moment: datetime) -> timedelta:
    """For who compares now with a moment in the ledger: added where a mistake could repeat something."""
    return clock.doubt_about(moment) if isinstance(clock, LedgerClock) else timedelta(0)


def skew_of(clock: Clock) -> timedelta:
    """How far this machine's clock is ahead of the ledger's; none, when that is the same."""
    return clock.skew if isinstance(clock, LedgerClock) else timedelta(0)


def jumps_of(clock: Clock) -> int:
    """How often the ledger's clock has jumped while we looked."""
    return clock.jumps if isinstance(clock, LedgerClock) else 0


def skew_in_words(skew: timedelta) -> str:
    seconds = skew.total_seconds()
    where = "ahead of" if seconds > 0 else "behind"
    return f"this machine's clock is {abs(seconds):,.1f} s {where} the database's"
