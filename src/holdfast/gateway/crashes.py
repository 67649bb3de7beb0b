"""Crash backoff: how long to wait after a crash, and when crashes are a loop; pure."""

from __future__ import annotations

import msgspec


class SupervisorTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The time limits of the supervisor."""

    first_wait_s: float = 0.2
    longest_wait_s: float = 30.0
    # An unavailable ledger may be back at any moment, and a retry is cheap.
    longest_away_s: float = 5.0
    # A crash this soon after the start may be caused by a resumed run.
    early_s: float = 300.0
    crashes_until_held: int = 5
    # A healthy gateway sends a heartbeat every 5 s.
    stuck_after_s: float = 60.0
    # How long a stuck gateway may take to react to SIGTERM; if it reacts, it may drain.
    stuck_grace_s: float = 10.0
    drain_slack_s: float = 30.0
    alert_timeout_s: float = 60.0


class Crashes:
    """Counts the crashes since a gateway was last healthy, and computes the backoff."""

    def __init__(self, patience: SupervisorTimeouts) -> None:
        self._patience = patience
        self.count = 0
        self._waits = 0

    @property
    def are_a_loop(self) -> bool:
        """Whether the next gateway must start with resumes held."""
        return self.count >= self._patience.crashes_until_held

    def forget(self) -> None:
        """The gateway was healthy: start counting anew."""
        self.count = 0
        self._waits = 0

    def explain(self) -> None:
        """The run that caused the crash was found: count anew towards a loop, but keep the backoff growing.
        This cannot go on for ever: each such crash ends the run or uses up one of its attempts."""
        self.count = 0

    def wait_after_crash(self, *, lived_s: float, was_healthy: bool, jitter: float) -> float:
        """Count a crash, and return how long to wait; jitter is from 0 to 1.

        The crash of a gateway that was healthy, or ran for long, is not counted, and resets the backoff.
        """
        if was_healthy or lived_s >= self._patience.early_s:
            self._waits = 0
        else:
            self.count += 1
        return self.wait(jitter=jitter)

    def wait(self, *, jitter: float) -> float:
        """The next wait of an exponential backoff: between half of the doubled wait and all of it."""
        doubled = self._patience.first_wait_s * 2.0 ** min(self._waits, 32)
        self._waits += 1
        return min(doubled, self._patience.longest_wait_s) * (0.5 + 0.5 * jitter)
