"""Reads and writes of wakes, and of the firings of schedules."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.core.clock import to_micros
from holdfast.core.errors import IllegalMove
from holdfast.core.schedule import Firing, Wake
from holdfast.core.transitions import FiringStatus, sources_of
from holdfast.store.records import Prunable, Records
from holdfast.store.rows.gateway import firing_from_row, row_from_firing, row_from_wake, wake_from_row

_LAST_MICROS = 2**62


class WakeTable(Records[Wake]):
    noun = "wake"
    from_row = staticmethod(wake_from_row)
    to_row = staticmethod(row_from_wake)


class FiringTable(Prunable[Firing]):
    noun = "firing"
    nouns = "firings"
    has_key = True
    from_row = staticmethod(firing_from_row)
    to_row = staticmethod(row_from_firing)

    def find(self, firing: Firing) -> Firing | None:
        """The stored firing with the same id or the same occurrence."""
        row = self._sql.one("find_firing", row_from_firing(firing))
        return None if row is None else firing_from_row(row)

    def of_message(self, message_id: str) -> Firing | None:
        """The firing that posted this message, or None."""
        row = self._sql.one("find_firing_of_message", {"message_id": message_id})
        return None if row is None else firing_from_row(row)

    def follow(
        self, message_id: str, to: FiringStatus, *, task_id: str | None, now: datetime
    ) -> Firing | None:
        """Move the firing that posted this message along with it; None when there is none, or it has moved
        before."""
        params = {
            "message_id": message_id,
            "to": to.value,
            "task_id": task_id,
            "sources": self._sql.pack(sources_of(to)),
            "now": to_micros(now),
        }
        row = self._sql.one("move_firing_of_message", params)
        return None if row is None else firing_from_row(row)

    def repost(self, firing_id: str, message_id: str, *, now: datetime) -> Firing:
        """Record the new message of a firing that was queued again. Raises IllegalMove if it was not."""
        params = {"id": firing_id, "message_id": message_id, "now": to_micros(now)}
        row = self._sql.one("repost_firing", params)
        if row is None:
            status = self.get(firing_id).status.value
            raise IllegalMove("firing", firing_id, status, FiringStatus.REQUEUED.value)
        return firing_from_row(row)

    def last_of(
        self, schedule: str, *, until: datetime | None = None, slack: timedelta = timedelta(0)
    ) -> Firing | None:
        """The latest known occurrence, or the latest until a moment, inclusive.

        A missed occurrence that was recorded more than `slack` after that moment is left out: the clock of
        the gateway that recorded it was ahead, and it may still fire.
        """
        params = {
            "schedule": schedule,
            "until": _LAST_MICROS if until is None else to_micros(until),
            "missed_by": _LAST_MICROS if until is None else to_micros(until + slack),
        }
        row = self._sql.one("last_firing", params)
        return None if row is None else firing_from_row(row)

    def page(self, schedule: str, *, before: datetime | None = None, limit: int = 50) -> list[Firing]:
        """Latest first; the time of the last one is the page token of the next page."""
        params = {
            "schedule": schedule,
            "before": _LAST_MICROS if before is None else to_micros(before),
            "limit": limit,
        }
        return [firing_from_row(row) for row in self._sql.all("page_of_firings", params)]

    def open(self, *, limit: int) -> list[Firing]:
        """Firings that are due, running or queued again, oldest first."""
        return [firing_from_row(row) for row in self._sql.all("open_firings", {"limit": limit})]
