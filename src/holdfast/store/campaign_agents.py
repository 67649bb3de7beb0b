"""Reads of agents of campaigns: items in phases with the names of their items, and heartbeats."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.campaign import ItemPhase
from holdfast.core.claim import Carried
from holdfast.core.clock import from_micros
from holdfast.core.transitions import ItemStatus
from holdfast.store.contract import Row
from holdfast.store.rows.campaigns import ITEM_PHASE_COLUMNS, item_phase_from_row
from holdfast.store.rows.work import carried_from_row

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class NamedItemPhase(msgspec.Struct, frozen=True, kw_only=True):
    """An item-phase with the id and the name of its item."""

    item_phase: ItemPhase
    item_id: str
    item_name: str


class CampaignAgentTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements

    def page(
        self, campaign_id: str, phase: int, *, status: ItemStatus | None = None, after: int, limit: int
    ) -> list[NamedItemPhase]:
        """In the order of items; the place of the last one is the page token of the next page."""
        params: dict[str, object] = {
            "campaign_id": campaign_id,
            "phase": phase,
            "after": after,
            "limit": limit,
        }
        if status is None:
            rows = self._sql.all("page_of_agents", params)
        else:
            rows = self._sql.all("page_of_agents_in_status", params | {"status": status.value})
        return [_agent_row(row) for row in rows]

    def of_item(self, campaign_id: str, phase: int, item_id: str) -> NamedItemPhase | None:
        params = {"campaign_id": campaign_id, "phase": phase, "item_id": item_id}
        row = self._sql.one("agent_of_item", params)
        return None if row is None else _agent_row(row)

    def carriers(self, campaign_id: str) -> dict[str, Carried]:
        """By boot: the running runs of the campaign that it has claimed."""
        found = self._sql.all("carriers_of_campaign", {"campaign_id": campaign_id})
        return {row[0]: carried_from_row(row) for row in found}

    def oldest_heartbeat(self, campaign_id: str) -> tuple[str, datetime] | None:
        """The task, and when its claim was last renewed, of the run that was renewed longest ago."""
        row = self._sql.one("oldest_heartbeat_of_campaign", {"campaign_id": campaign_id})
        return None if row is None else (row[0], from_micros(row[1]))


def _agent_row(row: Row) -> NamedItemPhase:
    return NamedItemPhase(
        item_phase=item_phase_from_row(row[:ITEM_PHASE_COLUMNS]),
        item_id=row[ITEM_PHASE_COLUMNS],
        item_name=row[ITEM_PHASE_COLUMNS + 1],
    )
