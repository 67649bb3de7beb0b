"""A clock for leases: it goes on while the process is frozen or the machine sleeps, and never jumps."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from holdfast.core.clock import Clock, SystemClock, to_micros

# On Linux the monotonic clock stands still while the machine is suspended, and this one does not.
# Elsewhere (macOS) the monotonic clock goes on.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_of(clock: Clock) -> Callable[[], int]:
    """Nanoseconds that only this process may compare. A clock of a test may bring its own `steady_ns`; else
    it is as steady as the test makes it."""
    if type(clock) is SystemClock:
        return functools.partial(time.clock_gettime_ns, _STEADY)
    own: Callable[[], int] | None = getattr(clock, "steady_ns", None)
    return own or (lambda: to_micros(clock.now()) * 1000)
