"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class FakeClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def set(self, moment: datetime) -> None:
        self._now = moment

    def advance(self, **by: float) -> datetime:
        """`advance(minutes=5)`: five minutes later, at once. Returns the new time."""
        self.set(self._now + timedelta(**by))
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Who sleeps by this clock moves it: the time has passed when this returns, and no time was spent.

        Of several who sleep at once, each moves it as far as it needs.
        """
        until = self._now + timedelta(seconds=seconds)
        await asyncio.sleep(0)  # what is ready goes first
        if self._now < until:
            self.set(until)
