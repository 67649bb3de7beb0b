"""A clock for leases: it goes on while the process is frozen or the machine sleeps, and never jumps."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.store.clock import passed_ns


def steady_of(clock: Clock) -> Callable[[], int]:
    """Nanoseconds that only this process may compare. A clock of a test may bring its own `steady_ns`; else
    it is as steady as the test makes it."""
    if type(clock) is SystemClock:
        return passed_ns
    own: Callable[[], int] | None = getattr(clock, "steady_ns", None)
    return own or (lambda: to_micros(clock.now()) * 1000)
