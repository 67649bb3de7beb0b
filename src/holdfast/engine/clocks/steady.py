"""A clock for leases: it also counts while the process is frozen or the machine sleeps, and never jumps."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.clock import Clock, SystemClock, to_micros
from holdfast.store.clock import passed_ns


def steady_of(clock: Clock) -> Callable[[], int]:
    """Nanoseconds that only this process may compare. A test's clock may have its own `steady_ns`; else its
    wall clock is used."""
    if type(clock) is SystemClock:
        return passed_ns
    own: Callable[[], int] | None = getattr(clock, "steady_ns", None)
    return own or (lambda: to_micros(clock.now()) * 1000)
