"""The time limit of one run in this process: when it is asked to stop, and when its time is over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from holdfast.core.smart_wake import SmartWake, WakeOptions

_SECOND_NS = 1_000_000_000


class RunLimit:
    """Counted from the claim by a clock that never jumps: a wait that gives up the claim does not count."""

    def __init__(
        self,
        length: timedelta,
        mode: SmartWake,
        options: WakeOptions,
        *,
        wake_after: timedelta | None,
        now_ns: int,
        has_progressed: Callable[[], bool],
    ) -> None:
        self.length = length
        self.mode = mode
        self.options = options
        self.wake_after = wake_after
        # Whether preflight expects the run to come near its limit; None before preflight.
        self.is_expected: bool | None = None
        self._has_progressed = has_progressed
        length_ns = int(length.total_seconds() * _SECOND_NS)
        self.over_at_ns = now_ns + length_ns
        self.stop_at_ns = now_ns + int(length_ns * (1 - options.stop_before))

    @property
    def is_smart(self) -> bool:
        """Whether the run is saved and woken. `auto` also saves a run that was expected to be short, if it
        makes progress: only one that makes none is taken for stuck."""
        if self.mode is SmartWake.AUTO:
            return self.is_expected is not False or self._has_progressed()
        return self.mode is SmartWake.ALWAYS

    def must_stop(self, now_ns: int) -> bool:
        """Whether the run must stop at its next call."""
        return now_ns >= self.stop_at_ns and (now_ns >= self.over_at_ns or self.is_smart)

    def stop_in_s(self, now_ns: int) -> float:
        return max(0.0, (self.stop_at_ns - now_ns) / _SECOND_NS)

    def over_in_s(self, now_ns: int) -> float:
        return max(0.0, (self.over_at_ns - now_ns) / _SECOND_NS)
