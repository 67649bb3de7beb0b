"""How long to wait after a crash, and from when on resumes are held: pure."""

from __future__ import annotations

import msgspec


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the supervisor waits for what."""

    first_wait_s: float = 0.2
    longest_wait_s: float = 30.0
    # A ledger that was away may be back at any moment, and to look costs little.
    longest_away_s: float = 5.0
    # A crash so soon after its start may be the fault of what was resumed.
    early_s: float = 300.0
    crashes_until_held: int = 5
    # A gateway says every 5 s that it is alive.
    stuck_after_s: float = 60.0
    # What a stuck gateway gets to answer a SIGTERM; one that answers may drain.
    stuck_grace_s: float = 10.0
    drain_slack_s: float = 30.0
    alert_timeout_s: float = 60.0


class Crashes:
    """The crashes since the last healthy life, and what follows from them."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.count = 0
        self._waits = 0

    @property
    def are_a_loop(self) -> bool:
        """The next start must hold back what it would resume."""
        return self.count >= self._patience.crashes_until_held

    def forget(self) -> None:
        """A healthy life: whatever came before is over."""
        self.count = 0
        self._waits = 0

    def explain(self) -> None:
        """The run that is to blame was found: so many crashes may come again before it is a loop. Each time
        it spends one of its attempts or ends, so that comes to an end; the waits grow all the same."""
        self.count = 0

    def wait_after_crash(self, *, lived_s: float, was_healthy: bool, jitter: float) -> float:
        """Count a crash, and say how long to wait; jitter is from 0 to 1.

        A life that was healthy, or long, says nothing about the next one: its crash is not counted, and the
        waits begin anew.
        """
        if was_healthy or lived_s >= self._patience.early_s:
            self._waits = 0
        else:
            self.count += 1
        return self.wait(jitter=jitter)

    def wait(self, *, jitter: float) -> float:
        """Longer each time: half of the doubled wait at least, the whole of it at most."""
        doubled = self._patience.first_wait_s * 2.0 ** min(self._waits, 32)
        self._waits += 1
        return min(doubled, self._patience.longest_wait_s) * (0.5 + 0.5 * jitter)
