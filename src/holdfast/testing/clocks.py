"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class FakeClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._passed = timedelta(days=1)

    def now(self) -> datetime:
        return self._now

    def boottime_us(self) -> int:
        """Microseconds since the machine booted; setting the clock does not change it."""
        return self._passed // timedelta(microseconds=1)

    def set(self, moment: datetime) -> None:
        """Set the wall clock, as an operator does: no time passes."""
        self._now = moment

    def advance(self, **by: float) -> datetime:
        """`advance(minutes=5)`: five minutes later, at once. Returns the new time."""
        return self._pass(timedelta(**by))

    def jump(self, **by: float) -> datetime:
        """`jump(hours=1)`: the wall clock is an hour ahead, and no time has passed. Returns the new time."""
        self.set(self._now + timedelta(**by))
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Advance the clock by this time and return at once.

        Of several concurrent sleepers, each advances it as far as it needs.
        """
        until = self._now + timedelta(seconds=seconds)
        await asyncio.sleep(0)  # let ready children run first
        if self._now < until:
            self._pass(until - self._now)

    def _pass(self, by: timedelta) -> datetime:
        self._passed += by
        self.set(self._now + by)
        return self._now
