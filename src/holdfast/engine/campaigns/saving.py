"""Saves campaigns as a whole: finds which checkpoints are due, and writes each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.campaign import Campaign
from holdfast.core.campaign_checkpoint import (
    KEPT,
    CampaignCheckpoint,
    CampaignCheckpointKind,
    CampaignMarks,
    CampaignSave,
    check_milestone_name,
    pack_places,
)
from holdfast.core.campaign_due import DueCheckpoint, due_checkpoints, marks_after
from holdfast.core.events import EventKind
from holdfast.core.progress import CountKind, ItemCounts, batch_key, counts_of, noun_of, total_of
from holdfast.core.redaction import redact_json
from holdfast.engine.campaigns.report import counts_by
from holdfast.store import Tx, Write

# Looking back so far finds items whose transactions committed late.
_LATE = timedelta(minutes=1)
# How many of the items that were done last are looked at to find batches that became complete.
_RECENT = 500
_AUTOMATIC = (CampaignCheckpointKind.BATCH, CampaignCheckpointKind.PERIODIC)


class PreparedCheckpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints from one snapshot of the ledger; they are written if no other process was first."""

    campaign: Campaign
    # What was covered when they were prepared.
    before: CampaignSave
    marks: CampaignMarks
    due: list[DueCheckpoint]
    summary: bytes
    # By phase; empty if no milestone is among them.
    places: list[bytes]
    at: datetime


def prepared_checkpoints(tx: Tx, campaign_id: str, *, now: datetime) -> PreparedCheckpoints | None:
    """The checkpoints that are due; None if none is. Read it in a transaction of its own: a milestone of a
    million items takes a second, in which no writer should have to wait."""
    campaign = tx.campaigns.get(campaign_id)
    save = _save_of(tx, campaign, now)
    counts = phase_counts(tx, campaign)
    complete = _complete_batches(tx, campaign, save, now)
    due, marks = due_checkpoints(campaign, counts, save, complete=complete, now=now)
    if not due:
        return None
    return _prepared(tx, campaign, save, counts, due, marks, now)


def prepared_milestone(
    tx: Tx, campaign: Campaign, name: str, *, now: datetime, phase: int | None = None
) -> PreparedCheckpoints:
    """A milestone with this name, whatever else is due. Raises BadInput."""
    due = DueCheckpoint(kind=CampaignCheckpointKind.MILESTONE, name=check_milestone_name(name), phase=phase)
    save = _save_of(tx, campaign, now)
    # What is due stays due: a named milestone covers only the time that has passed.
    counts = phase_counts(tx, campaign)
    marks = msgspec.structs.replace(save.marks, counts=marks_after(campaign, counts, ()).counts)
    return _prepared(tx, campaign, save, counts, [due], marks, now)


def saving(prepared: PreparedCheckpoints) -> Write[list[CampaignCheckpoint] | None]:
    """The write that stores prepared checkpoints; None if another process was first: then look again."""

    def save(tx: Tx) -> list[CampaignCheckpoint] | None:
        campaign, at = prepared.campaign, prepared.at
        before = tx.campaign_saves.lock(campaign.id, now=at)
        if (before.number, before.checkpoint_id) != (prepared.before.number, prepared.before.checkpoint_id):
            return None
        saved: list[CampaignCheckpoint] = []
        for number, due in enumerate(prepared.due, before.number + 1):
            is_milestone = due.kind is CampaignCheckpointKind.MILESTONE
            checkpoint = CampaignCheckpoint(
                id="",
                campaign_id=campaign.id,
                number=number,
                kind=due.kind,
                name=due.name,
                phase=due.phase,
                batch=due.batch,
                items=campaign.items,
                recoverable=is_milestone,
                summary=prepared.summary,
                created_at=at,
            )
            saved.append(tx.campaign_checkpoints.create(checkpoint, prepared.places if is_milestone else ()))
        tx.campaign_saves.set(
            CampaignSave(
                campaign_id=campaign.id,
                number=saved[-1].number,
                checkpoint_id=saved[-1].id,
                marks=prepared.marks,
                # What was asked for since then is still wanted.
                wanted=None if before.wanted == prepared.before.wanted else before.wanted,
                updated_at=at,
            )
        )
        for kind in _AUTOMATIC:
            tx.campaign_checkpoints.prune_surplus(campaign.id, kind, kept=KEPT)
        for one in saved:
            tx.emit(
                EventKind.CAMPAIGN_SAVED,
                campaign.id,
                at=at,
                name=campaign.name,
                checkpoint=one.id,
                checkpoint_kind=one.kind.value,
            )
        tx.hint("campaign_checkpoints")
        return saved

    return save


def phase_counts(tx: Tx, campaign: Campaign) -> list[ItemCounts]:
    """The counts of each phase, from the kept ones."""
    return [
        total_of(list(counts_by(tx, campaign, number, CountKind.PRIORITY).values()))
        for number in range(len(campaign.spec.phases))
    ]


def summary_of(campaign: Campaign, counts: Sequence[ItemCounts]) -> bytes:
    """A small plain document of the counts, without secrets; its size does not grow with the items."""
    phases = [
        {"phase": phase.name} | shown_counts(one)
        for phase, one in zip(campaign.spec.phases, counts, strict=True)
    ]
    document = {
        "campaign": campaign.name,
        "status": campaign.status.value,
        "items": campaign.items,
        "overall": shown_counts(total_of(list(counts))),
        "phases": phases,
    }
    return redact_json(msgspec.json.encode(document))


def shown_counts(counts: ItemCounts) -> dict[str, int | float]:
    return {
        "total": counts.total,
        "done": counts.done,
        "in_progress": counts.running,
        "paused": counts.paused,
        "pending": counts.pending,
        "failed": counts.failed,
        "percent": counts.percent,
    }


def _save_of(tx: Tx, campaign: Campaign, now: datetime) -> CampaignSave:
    found = tx.campaign_saves.get(campaign.id)
    return CampaignSave(campaign_id=campaign.id, updated_at=now) if found is None else found


def _prepared(
    tx: Tx,
    campaign: Campaign,
    save: CampaignSave,
    counts: Sequence[ItemCounts],
    due: list[DueCheckpoint],
    marks: CampaignMarks,
    now: datetime,
) -> PreparedCheckpoints:
    places: list[bytes] = []
    if any(one.kind is CampaignCheckpointKind.MILESTONE for one in due):
        places = [
            pack_places(tx.campaign_checkpoints.done_places(campaign.id, number), campaign.items)
            for number in range(len(campaign.spec.phases))
        ]
    return PreparedCheckpoints(
        campaign=campaign,
        before=save,
        marks=marks,
        due=due,
        summary=summary_of(campaign, counts),
        places=places,
        at=now,
    )


def _complete_batches(
    tx: Tx, campaign: Campaign, save: CampaignSave, now: datetime
) -> set[tuple[int, int, int]]:
    """The batches of recently done items that have nothing left to do. Those that an earlier checkpoint
    covered are among them as long as they are recent, so that none is found twice."""
    since = min(save.updated_at, now) - _LATE
    recent = tx.campaign_checkpoints.batches_done_since(campaign.id, since, limit=_RECENT)
    sizes = {pair: _size_if_complete(tx, campaign, *pair) for pair in {(one[0], one[1]) for one in recent}}
    return {(phase, batch, size) for (phase, batch), size in sizes.items() if size}


def _size_if_complete(tx: Tx, campaign: Campaign, phase: int, batch: int) -> int:
    counts = counts_of(tx.events.counts(noun_of(campaign.id, phase, CountKind.BATCH, batch_key(batch))))
    return counts.total if counts.total == counts.done else 0
