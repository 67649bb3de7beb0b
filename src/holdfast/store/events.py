"""Reads of the feed of events and of the counts that every write maintains."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.clock import to_micros
from holdfast.core.errors import BadInput, FeedGap
from holdfast.core.events import Event, EventKind
from holdfast.core.patterns import compiled_late
from holdfast.store.rows.work import event_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx

START = "0.0"
_POSITION = compiled_late(r"(\d{1,19})\.(\d{1,18})\Z")


class EventTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def after(self, position: str = START, *, limit: int = 100) -> list[Event]:
        """The events after a position, in order. Raises FeedGap when some of them were pruned."""
        txid, place = parse_position(position)
        if place:
            pruned = self._sql.one("get_fact", {"name": "pruned_events"})
            if pruned is not None and (txid, place) < parse_position(pruned[0]):
                oldest = self._sql.one("oldest_event", {})
                raise FeedGap(position, START if oldest is None else f"{oldest[0]}.{oldest[1]}")
        found = self._sql.all("feed", {"txid": str(txid), "position": place, "limit": limit})
        return [event_from_row(row) for row in found]

    def of_task(self, task_id: str, position: str = START, *, limit: int = 1000) -> list[Event]:
        _, place = parse_position(position)
        found = self._sql.all("feed_of_task", {"task_id": task_id, "position": place, "limit": limit})
        return [event_from_row(row) for row in found]

    def newest_of_task(self, task_id: str, *, limit: int = 20) -> list[Event]:
        """The last events of a task, oldest first."""
        found = self._sql.all("newest_events_of_task", {"task_id": task_id, "limit": limit})
        return [event_from_row(row) for row in reversed(found)]

    def of_task_and_kind(self, task_id: str, kind: EventKind, *, limit: int) -> list[Event]:
        """The newest events of one kind about a task, oldest first."""
        params = {"task_id": task_id, "kind": kind.value, "limit": limit}
        return [event_from_row(row) for row in reversed(self._sql.all("events_of_task_and_kind", params))]

    def newest(self, *, limit: int = 20) -> list[Event]:
        """The last events of the feed, oldest first."""
        found = self._sql.all("newest_events", {"limit": limit})
        return [event_from_row(row) for row in reversed(found)]

    def newest_of_flow(self, flow_id: str, *, limit: int = 20) -> list[Event]:
        """The last events of a flow, oldest first."""
        found = self._sql.all("newest_events_of_flow", {"flow_id": flow_id, "limit": limit})
        return [event_from_row(row) for row in reversed(found)]

    def prune(self, *, older_than: datetime, limit: int = 10_000) -> int:
        """Delete old events; a follower that has not read them gets a FeedGap."""
        gone = self._sql.all("prune_events", {"older_than": to_micros(older_than), "limit": limit})
        if gone:
            before = self._sql.one("get_fact", {"name": "pruned_events"})
            newest = max((int(row[0]), int(row[1])) for row in gone)
            if before is not None:
                newest = max(newest, parse_position(before[0]))
            self._sql.run("set_fact", {"name": "pruned_events", "value": f"{newest[0]}.{newest[1]}"})
        return len(gone)

    def counts(self, noun: str) -> dict[str, int]:
        """How many records of a noun have each status, without a scan."""
        return {row[0]: int(row[1]) for row in self._sql.all("counts", {"noun": noun}) if row[1]}


def parse_position(position: object) -> tuple[int, int]:
    found = _POSITION().match(position) if isinstance(position, str) else None
    if found is None:
        raise BadInput("position", f"this is not a position of the feed; begin with {START!r}")
    return int(found.group(1)), int(found.group(2))
