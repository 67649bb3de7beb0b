"""The snapshot of a milestone: seed 002's six keys, from its checkpoint and the items as they are now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.campaign import Campaign, agent_id, role_of
from holdfast.core.campaign_checkpoint import CampaignCheckpoint, Places, pack_places
from holdfast.core.errors import RowDamaged
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.recovery_document import named_phase
from holdfast.store import Tx
from holdfast.store.item_changes import ChangedItem

# How many items a snapshot names in each list; its summary counts the rest.
MOST_ITEMS = 10_000
_PAGE = 1000
_AGENTS = {ItemStatus.RUNNING: "active", ItemStatus.PAUSED: "paused", ItemStatus.FAILED: "error"}


class SnapshotItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item in one phase."""

    repo_id: str
    status: str
    progress_percent: int
    started_at: datetime | None
    completed_at: datetime | None
    result: Any
    error_message: str | None


class SnapshotStagedItem(SnapshotItem, frozen=True, kw_only=True):
    """The same with the stage that the item is in."""

    phase: str | None


class SnapshotAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of an item in one phase."""

    agent_id: str
    type: str
    assigned_repo_id: str
    status: str
    last_heartbeat: datetime | None


class MilestoneSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`checkpoints/<id>/snapshot.json`: which items were done at the milestone; of the others, what they did
    when the file was written."""

    milestone: str
    timestamp: datetime
    analysis_state: list[SnapshotItem]
    migration_state: list[SnapshotStagedItem]
    agent_state: list[SnapshotAgent]
    progress_summary: Any


def read_snapshot(campaign: Campaign, saved: CampaignCheckpoint, tx: Tx) -> MilestoneSnapshot:
    """The document of one milestone. Its size is bounded; the checkpoint itself knows every item."""
    rows = {number: _items(tx, campaign, saved, number) for number in range(len(campaign.spec.phases))}
    analysis = rows.get(named_phase(campaign, "analysis", 0), [])
    migration = rows.get(named_phase(campaign, "migration", 1), [])
    return MilestoneSnapshot(
        milestone=saved.name,
        timestamp=saved.created_at.replace(microsecond=0),
        analysis_state=[SnapshotItem(**_item(one)) for one in analysis],
        migration_state=[SnapshotStagedItem(**_item(one), phase=one.at.stage) for one in migration],
        agent_state=[_agent(campaign, one) for number in rows for one in rows[number]],
        progress_summary=_summary(saved),
    )


def _items(tx: Tx, campaign: Campaign, saved: CampaignCheckpoint, number: int) -> list[ChangedItem]:
    try:
        done = tx.campaign_checkpoints.places(saved.id, number) or Places(pack_places((), 0))
    except RowDamaged:
        return []
    found: list[ChangedItem] = []
    after, last = -1, min(saved.items, MOST_ITEMS) - 1
    while after < last:
        page = tx.item_changes.in_order(campaign.id, number, after=after, limit=min(_PAGE, last - after))
        if not page:
            break
        found += [_as_it_was(one, is_done=one.at.place in done) for one in page if one.at.place <= last]
        after = page[-1].at.place
    return found


def _as_it_was(one: ChangedItem, *, is_done: bool) -> ChangedItem:
    """What ended after the milestone had not ended then."""
    if is_done == (one.at.status is ItemStatus.DONE):
        return one
    if is_done:
        at = msgspec.structs.replace(one.at, status=ItemStatus.DONE, percent=100, error=None)
    else:
        at = msgspec.structs.replace(
            one.at, status=ItemStatus.RUNNING, percent=0, summary=None, ended_at=None
        )
    return msgspec.structs.replace(one, at=at)


def _item(one: ChangedItem) -> dict[str, Any]:
    at = one.at
    return {
        "repo_id": one.item_id,
        "status": at.status.value,
        "progress_percent": at.percent,
        "started_at": _seconds(at.started_at),
        "completed_at": _seconds(at.ended_at),
        "result": None if at.summary is None else _plain(at.summary),
        "error_message": at.error,
    }


def _agent(campaign: Campaign, one: ChangedItem) -> SnapshotAgent:
    phase = campaign.spec.phases[one.at.phase]
    return SnapshotAgent(
        agent_id=agent_id(one.item_id, phase),
        type=role_of(phase),
        assigned_repo_id=one.item_id,
        status=_AGENTS.get(one.at.status, "idle"),
        last_heartbeat=_seconds(one.at.updated_at if one.at.started_at is not None else None),
    )


def _summary(saved: CampaignCheckpoint) -> Any:
    found = _plain(saved.summary)
    return found | {"items": saved.items} if isinstance(found, dict) else found


def _plain(document: bytes) -> Any:
    try:
        return msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _seconds(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)
