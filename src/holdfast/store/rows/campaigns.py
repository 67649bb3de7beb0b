"""Rows of campaigns, of their items, and of items in phases."""

from __future__ import annotations

import msgspec

from holdfast.core.campaign import (
    Campaign,
    CampaignSpec,
    ItemPhase,
    ItemProgress,
    ItemRecord,
    Phase,
    percent_of,
    role_of,
)
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import KeyLost, RowDamaged
from holdfast.core.payload import digest_of
from holdfast.core.seal_mode import SEALED
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, encode, mend_with, micros_of, moment_of, reads
from holdfast.store.sealing import CLOSED, Sealing

_spec = msgspec.json.Decoder(CampaignSpec).decode
_open_batches = msgspec.json.Decoder(dict[str, tuple[int, int]]).decode
# How many columns item_phases has.
ITEM_PHASE_COLUMNS = 25
_ITEM_STATUSES = {one.value: one for one in ItemStatus}


@reads("campaign")
def campaign_from_row(row: Row) -> Campaign:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("campaign", row[0])
    return Campaign(
        id=row[0],
        name=row[1],
        owner=row[2],
        spec=_spec(row[3]),
        created_at=from_micros(row[4]),
        status=CampaignStatus(row[6]),
        items=row[7],
        batches=row[8],
        open_batches=_open_batches(row[9]),
        reason=row[10],
        updated_at=from_micros(row[11]),
        started_at=moment_of(row[12]),
        ended_at=moment_of(row[13]),
        ran_since=moment_of(row[14]),
    )


def row_from_campaign(campaign: Campaign) -> Params:
    row: Params = {
        "id": campaign.id,
        "name": campaign.name,
        "owner": campaign.owner,
        "spec": encode(campaign.spec),
        "created_at": to_micros(campaign.created_at),
    }
    return row | {
        "digest": digest_of(*row.values()),
        "status": campaign.status.value,
        "items": campaign.items,
        "batches": campaign.batches,
        "open_batches": encode(campaign.open_batches),
        "reason": campaign.reason,
        "updated_at": to_micros(campaign.updated_at),
        "started_at": micros_of(campaign.started_at),
        "ended_at": micros_of(campaign.ended_at),
        "ran_since": micros_of(campaign.ran_since),
    }


@reads("item", mend_with({}, (), (8,)))
def item_from_row(row: Row, sealing: Sealing = CLOSED) -> ItemRecord:
    """The item; `is_damaged` instead of an exception, because one bad item must not stop the others."""
    contents, is_sealed = row[7], False
    try:
        contents = sealing.open(contents, "campaign_items.contents", row[0], str(row[1]))
    except KeyLost:
        contents, is_sealed = SEALED, True
    return ItemRecord(
        campaign_id=row[0],
        place=row[1],
        id=row[2],
        name=row[3],
        priority=row[4],
        category=row[5],
        batch=row[6],
        contents=contents,
        created_at=from_micros(row[8]),
        is_damaged=digest_of(*row[:9]) != row[9],
        is_sealed=is_sealed,
    )


def row_from_item(item: ItemRecord, sealing: Sealing) -> Params:
    row: Params = {
        "campaign_id": item.campaign_id,
        "place": item.place,
        "item_id": item.id,
        "name": item.name,
        "priority": item.priority,
        "category": item.category,
        "batch": item.batch,
        "contents": sealing.seal(item.contents, "campaign_items.contents", item.campaign_id, str(item.place)),
        "created_at": to_micros(item.created_at),
    }
    return row | {"digest": digest_of(*row.values())}


@reads("item phase")
def item_phase_from_row(row: Row) -> ItemPhase:
    return ItemPhase(
        campaign_id=row[0],
        phase=row[1],
        place=row[2],
        priority=row[3],
        category=row[4],
        batch=row[5],
        status=_ITEM_STATUSES[row[6]],
        unmet=row[7],
        attempt=row[8],
        task_id=row[9],
        summary=row[10],
        error=row[11],
        note=row[12],
        updated_at=from_micros(row[13]),
        started_at=moment_of(row[14]),
        ended_at=moment_of(row[15]),
        stage=row[16],
        percent=row[17],
        subtask=row[18],
        items_total=row[19],
        items_done=row[20],
        items_failed=row[21],
        last_action=row[22],
        last_action_at=moment_of(row[23]),
        goes_on=bool(row[24]),
    )


def row_from_item_phase(one: ItemPhase) -> Params:
    """What a new one is stored as; the rest of its columns is empty until it starts."""
    return {
        "campaign_id": one.campaign_id,
        "phase": one.phase,
        "place": one.place,
        "priority": one.priority,
        "category": one.category,
        "batch": one.batch,
        "status": one.status.value,
        "unmet": one.unmet,
        "updated_at": to_micros(one.updated_at),
    }


def row_from_phase(campaign_id: str, number: int, phase: Phase) -> Params:
    return {
        "campaign_id": campaign_id,
        "number": number,
        "name": phase.name,
        "role": role_of(phase),
        "task": phase.task,
        "stages": encode(phase.stages).decode(),
    }


def row_from_item_progress(task_id: str, news: ItemProgress) -> Params:
    progress = news.progress
    own = None if progress is None else percent_of(progress)
    return {
        "task_id": task_id,
        "stage": news.stage,
        "own_percent": own,
        "percent": news.percent,
        "subtask": None if progress is None else progress.subtask,
        "items_total": None if progress is None else progress.total,
        "items_done": None if progress is None else progress.done,
        "items_failed": None if progress is None else progress.failed,
        "last_action": news.last_action,
        "last_action_at": micros_of(news.last_action_at),
        "note": news.note,
    }
