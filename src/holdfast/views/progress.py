"""CampaignProgressView: how far a campaign is, by phase, priority, category and batch, with rate and ETA.

The two documents of a phase, for an agent's context and for files, are in engine/campaigns/documents.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.campaign import batch_name
from holdfast.core.progress import ItemCounts, Rate
from holdfast.engine.campaigns.report import BatchProgress, CampaignProgress, PhaseProgress
from holdfast.views.campaigns import CampaignView, ItemPhaseView
from holdfast.views.text import one_line


class ItemCountsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many items are in which state, and how much of them is done."""

    total: int
    done: int
    running: int
    paused: int
    pending: int
    failed: int
    percent: float

    @classmethod
    def of(cls, counts: ItemCounts) -> ItemCountsView:
        return cls(
            total=counts.total,
            done=counts.done,
            running=counts.running,
            paused=counts.paused,
            pending=counts.pending,
            failed=counts.failed,
            percent=counts.percent,
        )


class RateView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How quickly items are done, and when the rest will be: most likely, at best and at worst."""

    per_hour: float
    left: int
    # Null if the campaign does not run, if no item was done in the last hour, or if nothing is left.
    eta: datetime | None
    eta_low: datetime | None
    eta_high: datetime | None

    @classmethod
    def of(cls, rate: Rate) -> RateView:
        return cls(
            per_hour=rate.per_hour,
            left=rate.left,
            eta=rate.eta,
            eta_low=rate.eta_low,
            eta_high=rate.eta_high,
        )


class BatchView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One batch in one phase."""

    id: str
    number: int
    # Null in a list of batches, which is read from the counts.
    priority: str | None
    counts: ItemCountsView

    @classmethod
    def maybe(cls, batch: BatchProgress | None) -> BatchView | None:
        return None if batch is None else cls.of(batch)

    @classmethod
    def of(cls, batch: BatchProgress) -> BatchView:
        return cls(
            id=batch_name(batch.number),
            number=batch.number,
            priority=None if batch.priority is None else one_line(batch.priority, 10),
            counts=ItemCountsView.of(batch.counts),
        )


class GroupView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The items of one priority, category or batch in one phase."""

    # The priority, the category (empty for items without one) or the id of the batch.
    name: str
    counts: ItemCountsView

    @classmethod
    def of(cls, name: str, counts: ItemCounts) -> GroupView:
        return cls(name=one_line(name), counts=ItemCountsView.of(counts))


class GroupPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of the priorities, categories or batches of one phase."""

    campaign_id: str | None = None
    campaign: str | None = None
    phase: str | None = None
    # `priority`, `category` or `batch`.
    by: str
    groups: list[GroupView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class PhaseProgressView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far the items are in one phase."""

    name: str
    counts: ItemCountsView
    by_priority: list[GroupView]
    # The first ones by name.
    by_category: list[GroupView]
    has_more_categories: bool
    # The batch of the most urgent item that runs, and the one of the next item to start.
    current_batch: BatchView | None
    next_batch: BatchView | None
    rate: RateView

    @classmethod
    def of(cls, phase: PhaseProgress) -> PhaseProgressView:
        return cls(
            name=one_line(phase.name),
            counts=ItemCountsView.of(phase.counts),
            by_priority=[GroupView.of(name, one) for name, one in sorted(phase.by_priority.items())],
            by_category=[GroupView.of(name, one) for name, one in sorted(phase.by_category.items())],
            has_more_categories=phase.has_more_categories,
            current_batch=BatchView.maybe(phase.current),
            next_batch=BatchView.maybe(phase.following),
            rate=RateView.of(phase.rate),
        )


class CampaignProgressView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a campaign is; null fields if there is none."""

    campaign: CampaignView | None = None
    # All items in all phases together.
    counts: ItemCountsView | None = None
    # The first phase in which items run or will start; else the first in which not all are done.
    current_phase: str | None = None
    phases: list[PhaseProgressView] = []
    # What a person may have to act on, one sentence each.
    issues: list[str] = []
    last_checkpoint: str | None = None
    at: datetime | None = None

    @classmethod
    def of(
        cls,
        progress: CampaignProgress,
        *,
        at: datetime,
        phase: str | None = None,
        issues: Sequence[str] = (),
        last_checkpoint: str | None = None,
    ) -> CampaignProgressView:
        """With a `phase`, only that one."""
        return cls(
            campaign=CampaignView.of(progress.campaign),
            counts=ItemCountsView.of(progress.counts),
            current_phase=one_line(progress.current.name),
            phases=[PhaseProgressView.of(one) for one in progress.phases if phase in (None, one.name)],
            issues=[one_line(issue, 400) for issue in issues],
            last_checkpoint=None if last_checkpoint is None else one_line(last_checkpoint),
            at=at,
        )


class SampleView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A random sample of the items of one phase in one status, each with its details."""

    campaign_id: str | None = None
    campaign: str | None = None
    phase: str | None = None
    # Null for items in any status.
    status: str | None = None
    # The same seed gives the same sample while no item changes.
    seed: int | None = None
    # How many items the sample was drawn from.
    of: int = 0
    items: list[ItemPhaseView] = []
