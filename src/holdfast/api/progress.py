"""The progress of campaigns for the API and the CLI: whole, as documents, by groups, and as a sample."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.campaigns import (
    CampaignText,
    campaign_owner,
    phase_number,
    reached_campaign,
)
from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.params import NameText, PageSize, PageToken, Params
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.documents import (
    ContextDocument,
    PhaseDocument,
    last_checkpoint,
    read_context,
    read_phase_document,
)
from holdfast.engine.campaigns.drill_down import groups_of, kind_named, new_seed, sample_of
from holdfast.engine.campaigns.finding import newest_campaign
from holdfast.engine.campaigns.issues import issues_of
from holdfast.engine.campaigns.report import progress_of
from holdfast.engine.campaigns.trouble import campaign_issues
from holdfast.views.campaigns import ItemPhaseView
from holdfast.views.progress import CampaignProgressView, GroupPageView, GroupView, SampleView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.campaign import Campaign
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

MOST_SAMPLED = 100


class GroupKind(StrEnum):
    """What a drill-down counts items by."""

    PRIORITY = "priority"
    CATEGORY = "category"
    BATCH = "batch"


class CampaignProgressAsked(Params, frozen=True, kw_only=True):
    """A campaign, by default the newest one that runs; and a phase, by default the current one."""

    campaign: CampaignText | None = None
    phase: NameText | None = None


class GroupsAsked(Params, frozen=True, kw_only=True):
    """A page of the batches, priorities or categories of one phase."""

    campaign: CampaignText | None = None
    phase: NameText | None = None
    by: GroupKind = GroupKind.BATCH
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class BatchesAsked(Params, frozen=True, kw_only=True):
    """A page of the batches of one phase."""

    campaign: CampaignText
    phase: NameText | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class SampleAsked(Params, frozen=True, kw_only=True):
    """Some items of one phase by chance; with a seed, the same ones again."""

    campaign: CampaignText | None = None
    phase: NameText | None = None
    # By default items in any status.
    status: ItemStatus | None = None
    size: Annotated[int, msgspec.Meta(ge=1, le=MOST_SAMPLED)] = 5
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


def shown_campaign(tx: Tx, name: str | None, reach: Reach = EVERYTHING) -> Campaign:
    """The named campaign; without a name the newest one that runs. Raises NotFound, NoCampaign."""
    if name is not None:
        return reached_campaign(tx, name, reach)
    return newest_campaign(tx, owner=campaign_owner(reach))


def read_progress(
    tx: Tx, asked: CampaignProgressAsked, *, projection: Projection, reach: Reach = EVERYTHING
) -> CampaignProgressView:
    """All phases, or one of them."""
    now = projection.now
    campaign = shown_campaign(tx, asked.campaign, reach)
    if asked.phase is not None:
        campaign.spec.number_of(asked.phase)
    progress = progress_of(tx, campaign, now=now, proofs=projection.proofs)
    return CampaignProgressView.of(
        progress,
        at=now,
        phase=asked.phase,
        issues=[
            *issues_of(tx, campaign.id),
            *campaign_issues(
                tx,
                campaign,
                [phase.counts for phase in progress.phases],
                now=now,
                proofs=projection.proofs,
            ),
        ],
        last_checkpoint=last_checkpoint(tx, campaign),
    )


def read_context_document(
    tx: Tx, asked: CampaignProgressAsked, *, projection: Projection, reach: Reach = EVERYTHING
) -> ContextDocument:
    campaign = shown_campaign(tx, asked.campaign, reach)
    return read_context(tx, campaign, now=projection.now, phase=asked.phase, proofs=projection.proofs)


def read_phase(
    tx: Tx, asked: CampaignProgressAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> PhaseDocument:
    campaign = shown_campaign(tx, asked.campaign, reach)
    return read_phase_document(tx, campaign, now=now, phase=asked.phase)


# --- drill-down


def read_batches(tx: Tx, asked: BatchesAsked, *, reach: Reach = EVERYTHING) -> GroupPageView:
    return read_groups(
        tx,
        GroupsAsked(
            campaign=asked.campaign, phase=asked.phase, limit=asked.limit, page_token=asked.page_token
        ),
        reach=reach,
    )


def read_groups(tx: Tx, asked: GroupsAsked, *, reach: Reach = EVERYTHING) -> GroupPageView:
    """From the kept counts, in the order of the names."""
    campaign = shown_campaign(tx, asked.campaign, reach)
    number = phase_number(tx, campaign, asked.phase)
    by = kind_named(asked.by.value)
    groups, token = groups_of(tx, campaign, number, by, token=asked.page_token, limit=asked.limit)
    return GroupPageView(
        campaign_id=one_line(campaign.id),
        campaign=one_line(campaign.name),
        phase=one_line(campaign.spec.phases[number].name),
        by=asked.by.value,
        groups=[GroupView.of(name, counts) for name, counts in groups],
        next_page_token=token,
    )


def read_sample(tx: Tx, asked: SampleAsked, *, reach: Reach = EVERYTHING) -> SampleView:
    """Each item in the status is as likely as any other."""
    campaign = shown_campaign(tx, asked.campaign, reach)
    number = phase_number(tx, campaign, asked.phase)
    seed = new_seed() if asked.seed is None else asked.seed
    found, total = sample_of(tx, campaign, number, asked.status, size=asked.size, seed=seed)
    phase = campaign.spec.phases[number]
    return SampleView(
        campaign_id=one_line(campaign.id),
        campaign=one_line(campaign.name),
        phase=one_line(phase.name),
        status=None if asked.status is None else asked.status.value,
        seed=seed,
        of=total,
        items=[ItemPhaseView.listed(one, phase) for one in found],
    )
