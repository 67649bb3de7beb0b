"""Clock and SystemClock: the only way time enters the program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> datetime:
        """The present moment, in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    # The one place that reads the clock (besides `engine/program/live_run.py`, for steps). A partial, because
    # a Python function around it would cost a call per read.
    now = staticmethod(partial(datetime.now, UTC))  # noqa: TID251


def to_micros(moment: datetime) -> int:
    """A moment as stored: whole microseconds since 1970, which both databases keep exactly."""
    since = moment - EPOCH
    # Faster than dividing timedeltas, which costs twice as much; every write needs several of these.
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
