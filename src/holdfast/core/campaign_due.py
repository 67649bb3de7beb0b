"""Which checkpoints of a campaign are due: after items, a batch, a phase, the end, or some time; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.campaign import Campaign, batch_name
from holdfast.core.campaign_checkpoint import CampaignCheckpointKind, CampaignMarks, CampaignSave
from holdfast.core.clock import to_micros
from holdfast.core.progress import ItemCounts
from holdfast.core.transitions import CampaignStatus

_ENDED = (CampaignStatus.DONE, CampaignStatus.FAILED)


class DueCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint to save now."""

    kind: CampaignCheckpointKind
    name: str
    phase: int | None = None
    batch: int | None = None


def due_checkpoints(
    campaign: Campaign,
    counts: Sequence[ItemCounts],
    save: CampaignSave,
    *,
    complete: Collection[tuple[int, int, int]],
    now: datetime,
) -> tuple[list[DueCheckpoint], CampaignMarks]:
    """The checkpoints to save, in order, and what is covered after them. `counts` are those of each phase;
    `complete` are the batches (phase, number, size) of recently done items that have nothing left to do."""
    marks = save.marks
    due: list[DueCheckpoint] = []
    due += _after_items(campaign, counts, marks, complete)
    due += _after_phases(campaign, counts, marks)
    due += _at_end(campaign, marks)
    if not due and save.wanted is not None:
        due.append(DueCheckpoint(kind=CampaignCheckpointKind.PERIODIC, name=save.wanted))
    if not due and shape_of(counts) != marks.counts and _is_time(campaign, save, now):
        due.append(DueCheckpoint(kind=CampaignCheckpointKind.PERIODIC, name="periodic"))
    return due, marks_after(campaign, counts, complete)


def shape_of(counts: Sequence[ItemCounts]) -> tuple[tuple[int, int, int, int, int], ...]:
    return tuple((one.total, one.running, one.paused, one.done, one.failed) for one in counts)


def marks_after(
    campaign: Campaign, counts: Sequence[ItemCounts], complete: Collection[tuple[int, int, int]]
) -> CampaignMarks:
    """What the checkpoints of a campaign cover once those that are due now are saved."""
    has_ended = campaign.status in _ENDED and campaign.ended_at is not None
    return CampaignMarks(
        counts=shape_of(counts),
        done=sum(one.done for one in counts),
        over={number: (one.total, one.failed) for number, one in enumerate(counts) if _is_over(one)},
        batches=tuple(sorted(complete)),
        ended_us=to_micros(campaign.ended_at) if has_ended and campaign.ended_at is not None else None,
    )


def _is_over(counts: ItemCounts) -> bool:
    return bool(counts.total) and not (counts.pending or counts.running or counts.paused)


def _after_items(
    campaign: Campaign,
    counts: Sequence[ItemCounts],
    marks: CampaignMarks,
    complete: Collection[tuple[int, int, int]],
) -> list[DueCheckpoint]:
    """One for all batches that became complete, named for the last of them; else one for every N items."""
    new = sorted(set(complete) - set(marks.batches))
    if new:
        phase, batch, _ = new[-1]
        name = batch_name(batch)
        return [DueCheckpoint(kind=CampaignCheckpointKind.BATCH, name=name, phase=phase, batch=batch)]
    done = sum(one.done for one in counts)
    if done - marks.done < campaign.spec.checkpoint_every_items:
        return []
    return [DueCheckpoint(kind=CampaignCheckpointKind.BATCH, name=f"items-{done}")]


def _after_phases(
    campaign: Campaign, counts: Sequence[ItemCounts], marks: CampaignMarks
) -> list[DueCheckpoint]:
    return [
        DueCheckpoint(
            kind=CampaignCheckpointKind.MILESTONE,
            name=f"{campaign.spec.phases[number].name}-{'ended' if one.failed else 'complete'}",
            phase=number,
        )
        for number, one in enumerate(counts)
        if _is_over(one) and marks.over.get(number) != (one.total, one.failed)
    ]


def _at_end(campaign: Campaign, marks: CampaignMarks) -> list[DueCheckpoint]:
    if campaign.status not in _ENDED or campaign.ended_at is None:
        return []
    if marks.ended_us == to_micros(campaign.ended_at):
        return []
    name = "campaign-complete" if campaign.status is CampaignStatus.DONE else "campaign-ended"
    return [DueCheckpoint(kind=CampaignCheckpointKind.MILESTONE, name=name)]


def _is_time(campaign: Campaign, save: CampaignSave, now: datetime) -> bool:
    """Whether the last one is old enough. A clock that jumped, back or forth, makes one due, not many."""
    last = save.updated_at if save.number else (campaign.started_at or campaign.created_at)
    return abs(now - last) >= timedelta(seconds=campaign.spec.checkpoint_every_s)
