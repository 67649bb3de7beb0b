"""Reads of campaigns and their items for lists, with filters; and of one item by its rank, for samples."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.campaign import Campaign, ItemPhase
from holdfast.core.clock import from_micros
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.store.contract import Row
from holdfast.store.rows.campaigns import ITEM_PHASE_COLUMNS, campaign_from_row, item_phase_from_row
from holdfast.store.tasks import LAST

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class ListedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item in one phase, with its id and name; both are None if the row of the item is gone."""

    at: ItemPhase
    id: str | None
    name: str | None


class ItemFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which items of a phase a list shows: all that is given must fit. The category '' means none."""

    status: ItemStatus | None = None
    priority: str | None = None
    category: str | None = None
    batch: int | None = None


class CampaignPages:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def page(
        self,
        *,
        owner: str | None = None,
        status: CampaignStatus | None = None,
        before: str = LAST,
        limit: int = 50,
    ) -> list[Campaign]:
        """Newest first; the last id of a page is the page token of the next."""
        query = "page_of_campaigns"
        params: dict[str, object] = {"before": before, "limit": limit}
        if owner is not None:
            query, params = f"{query}_of_owner", params | {"owner": owner}
        if status is not None:
            query, params = f"{query}_in_status", params | {"status": status.value}
        return [campaign_from_row(row) for row in self._sql.all(query, params)]

    def items(
        self, campaign_id: str, phase: int, wanted: ItemFilter, *, after: int = -1, limit: int = 100
    ) -> list[ListedItem]:
        """In the order of items; the place of the last one is the page token of the next page."""
        params: dict[str, object] = {
            "campaign_id": campaign_id,
            "phase": phase,
            "after": after,
            "limit": limit,
            "category": wanted.category,
        }
        status = None if wanted.status is None else wanted.status.value
        if wanted.batch is not None:
            found = self._sql.all("page_of_phase_batch", params | {"batch": wanted.batch, "status": status})
            # A batch has items of one priority.
            rows = [row for row in found if wanted.priority in (None, row[3])]
        elif status is not None:
            params |= {"status": status, "priority": wanted.priority}
            rows = self._sql.all("page_of_phase_in_status", params)
        else:
            rows = self._sql.all("page_of_phase", params | {"priority": wanted.priority})
        return _listed(rows)

    def at_rank(
        self, campaign_id: str, phase: int, status: ItemStatus, *, after: int, skipped: int
    ) -> ListedItem | None:
        """The item that follows after a place and so many others in this status."""
        params = {"campaign_id": campaign_id, "phase": phase, "status": status.value, "after": after}
        return next(iter(_listed(self._sql.all("item_phase_at_rank", params | {"skipped": skipped}))), None)

    def last_change(self, campaign_id: str) -> datetime | None:
        """When an item of the campaign last changed; None if it has no items."""
        row = self._sql.one("last_change_of_items", {"campaign_id": campaign_id})
        return None if row is None or row[0] is None else from_micros(row[0])


def _listed(rows: Sequence[Row]) -> list[ListedItem]:
    return [
        ListedItem(
            at=item_phase_from_row(row[:ITEM_PHASE_COLUMNS]),
            id=row[ITEM_PHASE_COLUMNS],
            name=row[ITEM_PHASE_COLUMNS + 1],
        )
        for row in rows
    ]
