"""Reads of item-phases that have begun, as state files and the recovery document show them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.campaign import ItemPhase
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.events import Event
from holdfast.core.transitions import ItemStatus
from holdfast.store.contract import Row
from holdfast.store.rows.campaigns import ITEM_PHASE_COLUMNS, item_phase_from_row
from holdfast.store.rows.work import event_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class ChangedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item in one phase, with what its own record says."""

    at: ItemPhase
    item_id: str
    name: str
    created_at: datetime


class ChangePosition(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Where a reader of changes is: after this item-phase, as it was at this time in microseconds."""

    updated_at: int = -1
    phase: int = -1
    place: int = -1


class ItemChangeTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def changed(self, campaign_id: str, after: ChangePosition, *, limit: int) -> list[ChangedItem]:
        """In the order of their changes. One that changes again comes again, later."""
        params = {"campaign_id": campaign_id, "limit": limit} | msgspec.structs.asdict(after)
        return [_changed_item(row) for row in self._sql.all("changed_items", params)]

    def of_items(self, campaign_id: str, item_ids: Sequence[str]) -> list[ChangedItem]:
        """All phases of these items that have begun, an item after another, each in the order of phases."""
        params = {"campaign_id": campaign_id, "ids": self._sql.pack(item_ids)}
        return [_changed_item(row) for row in self._sql.all("begun_phases_of_items", params)]

    def in_status(
        self, campaign_id: str, phase: int, status: ItemStatus, *, after: int = -1, limit: int
    ) -> list[ChangedItem]:
        """In the order of items; the place of the last one is the page token of the next page."""
        params = {
            "campaign_id": campaign_id,
            "phase": phase,
            "status": status.value,
            "after": after,
            "limit": limit,
        }
        return [_changed_item(row) for row in self._sql.all("items_of_phase_in_status", params)]

    def in_order(self, campaign_id: str, phase: int, *, after: int = -1, limit: int) -> list[ChangedItem]:
        """All items of one phase; the place of the last one is the page token of the next page."""
        params = {"campaign_id": campaign_id, "phase": phase, "after": after, "limit": limit}
        return [_changed_item(row) for row in self._sql.all("items_of_phase_in_order", params)]

    def checkpoints_of_tasks(self, task_ids: Sequence[str]) -> dict[str, str]:
        """The id of the last checkpoint of each task that has one."""
        found = self._sql.all("newest_checkpoints_of_tasks", {"ids": self._sql.pack(task_ids)})
        return {row[0]: row[1] for row in found}

    def failures_by_day(self, campaign_id: str, phase: int, *, limit: int = 400) -> dict[date, int]:
        """How many items that are failed now did so on each day, the newest days."""
        params = {"campaign_id": campaign_id, "phase": phase, "limit": limit}
        found = self._sql.all("failures_by_day", params)
        return {date(1970, 1, 1) + timedelta(days=int(row[0])): int(row[1]) for row in found}

    def failures_on(self, campaign_id: str, phase: int, day: date, *, limit: int) -> list[ChangedItem]:
        """Items that are failed now and failed on this day (in UTC), the newest first."""
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        params = {
            "campaign_id": campaign_id,
            "phase": phase,
            "since": to_micros(begin),
            "until": to_micros(begin + timedelta(days=1)),
            "limit": limit,
        }
        return [_changed_item(row) for row in self._sql.all("failures_between", params)]

    def events(self, campaign_id: str, *, limit: int) -> list[Event]:
        """The last events of the campaign itself, oldest first."""
        found = self._sql.all("newest_events_of_campaign", {"campaign_id": campaign_id, "limit": limit})
        return [event_from_row(row) for row in reversed(found)]


def _changed_item(row: Row) -> ChangedItem:
    item_id, name, created_at = row[ITEM_PHASE_COLUMNS:]
    return ChangedItem(
        at=item_phase_from_row(row[:ITEM_PHASE_COLUMNS]),
        item_id=item_id,
        name=name,
        created_at=from_micros(created_at),
    )
