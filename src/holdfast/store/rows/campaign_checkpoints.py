"""Rows of checkpoints of campaigns, of what they have covered, and of restores."""

from __future__ import annotations

import msgspec

from holdfast.core.campaign_checkpoint import (
    CampaignCheckpoint,
    CampaignCheckpointKind,
    CampaignMarks,
    CampaignRestore,
    CampaignSave,
    Decision,
    Places,
)
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.payload import digest_of
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, encode, mend_with, micros_of, moment_of, reads

_marks = msgspec.json.Decoder(CampaignMarks).decode


@reads("checkpoint", mend_with({3: CampaignCheckpointKind}, (5, 6), (10,)))
def campaign_checkpoint_from_row(row: Row) -> CampaignCheckpoint:
    """The checkpoint; `is_damaged` instead of an exception, so that the others are still listed."""
    return CampaignCheckpoint(
        id=row[0],
        campaign_id=row[1],
        number=row[2],
        kind=CampaignCheckpointKind(row[3]),
        name=row[4],
        phase=row[5],
        batch=row[6],
        items=row[7],
        recoverable=bool(row[8]),
        summary=row[9],
        created_at=from_micros(row[10]),
        is_damaged=digest_of(*row[:11]) != row[11],
    )


def row_from_campaign_checkpoint(checkpoint: CampaignCheckpoint) -> Params:
    row: Params = {
        "id": checkpoint.id,
        "campaign_id": checkpoint.campaign_id,
        "number": checkpoint.number,
        "kind": checkpoint.kind.value,
        "name": checkpoint.name,
        "phase": checkpoint.phase,
        "batch": checkpoint.batch,
        "items": checkpoint.items,
        "recoverable": int(checkpoint.recoverable),
        "summary": checkpoint.summary,
        "created_at": to_micros(checkpoint.created_at),
    }
    return row | {"digest": digest_of(*row.values())}


@reads("checkpoint")
def places_from_row(row: Row) -> Places:
    """Which items were done in one phase."""
    if digest_of(*row[:3]) != row[3]:
        raise RowDamaged("checkpoint", row[0])
    return Places(row[2])


@reads("campaign save")
def campaign_save_from_row(row: Row) -> CampaignSave:
    return CampaignSave(
        campaign_id=row[0],
        number=row[1],
        checkpoint_id=row[2],
        marks=_marks(row[3]),
        wanted=row[4],
        updated_at=from_micros(row[5]),
    )


def row_from_campaign_save(save: CampaignSave) -> Params:
    return {
        "campaign_id": save.campaign_id,
        "number": save.number,
        "checkpoint_id": save.checkpoint_id,
        "marks": encode(save.marks),
        "wanted": save.wanted,
        "updated_at": to_micros(save.updated_at),
    }


@reads("restore")
def campaign_restore_from_row(row: Row) -> CampaignRestore:
    return CampaignRestore(
        campaign_id=row[0],
        number=row[1],
        checkpoint_id=row[2],
        effects=msgspec.convert(row[3], Decision),
        goes_on=bool(row[4]),
        phase=row[5],
        place=row[6],
        undone=row[7],
        started_at=from_micros(row[8]),
        updated_at=from_micros(row[9]),
        ended_at=moment_of(row[10]),
    )


def row_from_campaign_restore(restore: CampaignRestore) -> Params:
    return {
        "campaign_id": restore.campaign_id,
        "number": restore.number,
        "checkpoint_id": restore.checkpoint_id,
        "effects": restore.effects,
        "goes_on": int(restore.goes_on),
        "phase": restore.phase,
        "place": restore.place,
        "undone": restore.undone,
        "started_at": to_micros(restore.started_at),
        "updated_at": to_micros(restore.updated_at),
        "ended_at": micros_of(restore.ended_at),
    }
