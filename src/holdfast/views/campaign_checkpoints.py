"""Checkpoints of campaigns as lines and in full, what a restore would undo, and how far one has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.campaign import Campaign, ItemPhase, batch_name
from holdfast.core.campaign_checkpoint import CampaignCheckpoint
from holdfast.engine.program.campaign_restore import RestorePlan, RestoreProgress, UndonePhase
from holdfast.views.text import clean_json, maybe_line, one_line


class CampaignCheckpointLineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A checkpoint of a campaign in a list."""

    # `checkpoint-<name>-<time>`
    id: str
    campaign: str
    campaign_id: str
    # `batch`, `milestone` or `periodic`.
    kind: str
    name: str
    # The phase and the batch that it is about, if it is about one.
    phase: str | None
    batch: str | None
    items: int
    # Item-phases: done, and all.
    done: int
    total: int
    percent: float
    # Whether `checkpoints restore` can go back to it.
    recoverable: bool
    created_at: datetime
    is_damaged: bool

    @classmethod
    def of(cls, checkpoint: CampaignCheckpoint, campaign: Campaign | None) -> CampaignCheckpointLineView:
        """The campaign is None if it cannot be read."""
        overall = summary_of(checkpoint).get("overall", {})
        return cls(
            id=one_line(checkpoint.id),
            campaign=one_line(checkpoint.campaign_id if campaign is None else campaign.name),
            campaign_id=one_line(checkpoint.campaign_id),
            kind=checkpoint.kind.value,
            name=one_line(checkpoint.name),
            phase=_phase_name(checkpoint, campaign),
            batch=None if checkpoint.batch is None else batch_name(checkpoint.batch),
            items=checkpoint.items,
            done=_number(overall, "done"),
            total=_number(overall, "total"),
            percent=_share(overall),
            recoverable=checkpoint.recoverable and not checkpoint.is_damaged,
            created_at=checkpoint.created_at,
            is_damaged=checkpoint.is_damaged,
        )


class CampaignCheckpointPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of checkpoints of campaigns, newest first."""

    checkpoints: list[CampaignCheckpointLineView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class MicroCheckpointView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The step that an item of a campaign saved last: its task goes on after it."""

    item: str
    phase: str
    # The status of the item in that phase.
    status: str
    last_action: str
    saved_at: datetime
    task_id: str | None

    @classmethod
    def of(cls, campaign: Campaign, item_id: str, one: ItemPhase) -> MicroCheckpointView:
        return cls(
            item=one_line(item_id),
            phase=one_line(campaign.spec.phases[one.phase].name),
            status=one.status.value,
            last_action=one_line(one.last_action or "-"),
            saved_at=one.last_action_at or one.updated_at,
            task_id=maybe_line(one.task_id),
        )


class MicroCheckpointPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The steps that the items of a campaign saved last, the newest first."""

    checkpoints: list[MicroCheckpointView] = []


class UndonePhaseView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many items of one phase are no longer as they were, by what they are now."""

    phase: str
    done: int
    failed: int
    running: int
    # They wait for a retry, or are paused.
    waiting: int
    # All four together: a restore makes so many pending again.
    undone: int
    # Done then and not done now: a restore cannot bring these back.
    lost: int

    @classmethod
    def of(cls, phase: UndonePhase) -> UndonePhaseView:
        return cls(
            phase=one_line(phase.name),
            done=phase.done,
            failed=phase.failed,
            running=phase.running,
            waiting=phase.waiting,
            undone=phase.undone,
            lost=phase.lost,
        )


class CampaignCheckpointView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A checkpoint of a campaign in full: its summary, and what has changed since a milestone."""

    checkpoint: CampaignCheckpointLineView
    # The counts of each phase as they were then.
    summary: dict[str, Any]
    # Of a milestone: what has changed since, in each phase; null for the other kinds.
    since: list[UndonePhaseView] | None
    # Why one cannot go back to it; null if one can.
    problem: str | None

    @classmethod
    def of(
        cls,
        checkpoint: CampaignCheckpoint,
        campaign: Campaign,
        *,
        since: Sequence[UndonePhase] | None,
        problem: str | None,
    ) -> CampaignCheckpointView:
        return cls(
            checkpoint=CampaignCheckpointLineView.of(checkpoint, campaign),
            summary=summary_of(checkpoint),
            since=None if since is None else [UndonePhaseView.of(one) for one in since],
            problem=maybe_line(problem, 500),
        )


class EffectCountView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many effects of one class are in one state."""

    effect_class: str
    status: str
    count: int


class RestorePlanView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a restore would do. Nothing is changed."""

    checkpoint: CampaignCheckpointLineView
    # All item-phases that would become pending again, as new tasks; and those of each phase.
    undone: int
    phases: list[UndonePhaseView]
    # The effects of their tasks; if some happened, `--effects` must say what becomes of them.
    effects: list[EffectCountView]
    # Some of them, in words.
    happened: list[str]
    in_doubt: list[str]
    # Some that happened in tasks that the items started; these cannot be kept.
    in_children: list[str]
    # Whether a restore to this checkpoint was begun and not finished: the same command goes on with it.
    is_unfinished: bool

    @classmethod
    def of(cls, plan: RestorePlan) -> RestorePlanView:
        unfinished = plan.unfinished
        return cls(
            checkpoint=CampaignCheckpointLineView.of(plan.checkpoint, plan.campaign),
            undone=plan.undone,
            phases=[UndonePhaseView.of(one) for one in plan.phases],
            effects=[
                EffectCountView(effect_class=effect_class, status=status, count=count)
                for (effect_class, status), count in sorted(plan.effects.items())
            ],
            happened=[one_line(one) for one in plan.happened],
            in_doubt=[one_line(one) for one in plan.in_doubt],
            in_children=[one_line(one) for one in plan.in_children],
            is_unfinished=unfinished is not None and unfinished.checkpoint_id == plan.checkpoint.id,
        )


class RestoreProgressView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a restore has come. If it is not over, the same call goes on with it."""

    checkpoint_id: str
    campaign: str
    # The status of the campaign now: paused until the restore is over.
    campaign_status: str
    is_over: bool
    undone: int
    # Items whose tasks still have to stop.
    stopping: int

    @classmethod
    def of(cls, progress: RestoreProgress) -> RestoreProgressView:
        return cls(
            checkpoint_id=one_line(progress.restore.checkpoint_id),
            campaign=one_line(progress.campaign.name),
            campaign_status=progress.campaign.status.value,
            is_over=progress.is_over,
            undone=progress.restore.undone,
            stopping=progress.stopping,
        )


class CampaignPrunedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The checkpoints of a campaign that were deleted, or would be."""

    is_dry_run: bool
    campaign: str
    older_than: datetime
    count: int
    checkpoint_ids: list[str]


def summary_of(checkpoint: CampaignCheckpoint) -> dict[str, Any]:
    """Its document, made safe to show; empty if it cannot be read."""
    try:
        document = clean_json(msgspec.json.decode(checkpoint.summary))
    except msgspec.DecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _phase_name(checkpoint: CampaignCheckpoint, campaign: Campaign | None) -> str | None:
    number = checkpoint.phase
    if number is None or campaign is None or not 0 <= number < len(campaign.spec.phases):
        return None
    return one_line(campaign.spec.phases[number].name)


def _number(document: object, key: str) -> int:
    found = document.get(key) if isinstance(document, Mapping) else None
    return found if isinstance(found, int) else 0


def _share(document: object) -> float:
    found = document.get("percent") if isinstance(document, Mapping) else None
    return float(found) if isinstance(found, (int, float)) else 0.0
