"""Clock and SystemClock: the only way time enters the program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Something that knows what time it is."""

    def now(self) -> datetime:
        """The present moment, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    # The place that reads the clock (`engine/program/live_run.py` does it once more, for steps);
    # and no function of ours around it.
    now = staticmethod(partial(datetime.now, UTC))  # noqa: TID251


def to_micros(moment: datetime) -> int:
    """A moment as stored: whole microseconds since 1970, which both databases keep exactly."""
    since = moment - EPOCH
    # By hand: every write needs several of these, and dividing timedeltas costs twice as much.
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
