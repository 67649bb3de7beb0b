"""When to log a condition that persists: at once, then with growing intervals. Pure."""

from __future__ import annotations

FIRST_S = 10.0
LONGEST_S = 600.0


class Spacing:
    """At once, 10 s later, 20 s after that, and so on up to every 10 minutes. Times are monotonic."""

    def __init__(self, now: float) -> None:
        self.since = now
        self._next_at = now
        self._wait_s = FIRST_S

    def is_due(self, now: float) -> bool:
        """Whether to log now; if so, the next interval is longer."""
        if now < self._next_at:
            return False
        self._next_at = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, LONGEST_S)
        return True

    def lasted_s(self, now: float) -> float:
        return now - self.since


def in_words(seconds: float) -> str:
    """How long it has lasted: `12 s`, `3 min`, `5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
