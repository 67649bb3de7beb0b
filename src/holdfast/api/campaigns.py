"""Campaigns for the API and the CLI: a page of them, one in full, its items by filters, and one item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.pages import bad_token, place_of, read_sound
from holdfast.api.params import NameText, PageSize, PageToken, Params
from holdfast.core.errors import NotFound, Refused
from holdfast.core.progress import total_of
from holdfast.core.redaction import redact_name
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.campaigns.documents import last_checkpoint
from holdfast.engine.campaigns.finding import found_campaign
from holdfast.engine.campaigns.issues import issues_of
from holdfast.engine.campaigns.recovery_document import RecoveryDocument, recovery_document
from holdfast.engine.campaigns.report import counts_of_phases, current_phase, totals_of
from holdfast.engine.campaigns.trouble import campaign_issues, unknown_tasks
from holdfast.engine.ledger.item_slots import CAMPAIGN_SCOPE
from holdfast.store.campaign_pages import ItemFilter
from holdfast.store.tasks import LAST
from holdfast.upkeep.projection import Projection
from holdfast.views.campaigns import (
    CampaignDetailView,
    CampaignLineView,
    CampaignPageView,
    CampaignView,
    ItemDetailView,
    ItemPageView,
    ItemPhaseView,
    PhaseView,
)
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.core.campaign import Campaign
    from holdfast.core.progress import ItemCounts
    from holdfast.store.transaction import Tx

# A campaign by its name, its id, or a unique prefix of the id.
CampaignText: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
ItemIdText: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
PriorityText: TypeAlias = Annotated[str, msgspec.Meta(pattern="^P[0-9]$")]
CategoryText: TypeAlias = Annotated[str, msgspec.Meta(max_length=200)]
BatchNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


# --- parameters of methods and commands


class CampaignsAsked(Params, frozen=True, kw_only=True):
    """A page of campaigns, newest first: all, or those in this status or of this owner."""

    status: CampaignStatus | None = None
    owner: NameText | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class CampaignAsked(Params, frozen=True, kw_only=True):
    """One campaign, by its name, its id or a unique prefix of that."""

    campaign: CampaignText


class ItemsAsked(Params, frozen=True, kw_only=True):
    """A page of the items of one phase, by default of the current one; all that is given must fit."""

    campaign: CampaignText
    phase: NameText | None = None
    status: ItemStatus | None = None
    priority: PriorityText | None = None
    # The empty text stands for items without a category.
    category: CategoryText | None = None
    # The number of a batch.
    batch: BatchNumber | None = None
    limit: PageSize = 100
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class RecoveryAsked(Params, frozen=True, kw_only=True):
    """A page of what a restart of a campaign would have to go on with."""

    campaign: CampaignText
    limit: PageSize = 100
    # The `next_page_token` of the previous page.
    page_token: PageToken | None = None


class ItemAsked(Params, frozen=True, kw_only=True):
    """One item of a campaign, by the id that the user gave it."""

    campaign: CampaignText
    item_id: ItemIdText


# --- what a caller may reach


def campaign_owner(reach: Reach) -> str | None:
    """The only owner whose campaigns the caller may reach. Raises Refused for a token that is limited to task
    names: a campaign has tasks of any name."""
    if reach.names is not None:
        raise Refused(
            "this token is limited to task names, and a campaign may have tasks of other names; use a token "
            "without that limit"
        )
    return reach.owner


def reached_campaign(tx: Tx, name: str, reach: Reach = EVERYTHING) -> Campaign:
    """The one campaign with this name, id or prefix. One of another owner is not found, as if it did not
    exist. Raises NotFound, AmbiguousId."""
    return found_campaign(tx, name, owner=campaign_owner(reach))


# --- a page of campaigns


def read_campaigns(tx: Tx, asked: CampaignsAsked, *, reach: Reach = EVERYTHING) -> CampaignPageView:
    """A limited caller sees only its own campaigns, and no counts of others."""
    bound = campaign_owner(reach)
    if bound is not None and asked.owner not in (None, bound):
        return CampaignPageView()
    owner = asked.owner if bound is None else redact_name(bound)
    before = LAST
    if asked.page_token is not None:
        before = place_of("camp", asked.page_token, lambda token: reached_campaign(tx, token, reach).id)
    problems: list[str] = []
    found = read_sound(
        lambda limit, place: tx.campaign_pages.page(
            owner=owner, status=asked.status, before=place, limit=limit
        ),
        after=before,
        limit=asked.limit + 1,
        problems=problems,
    )
    shown = found[: asked.limit]
    return CampaignPageView(
        count=len(shown),
        campaigns=[_line(tx, campaign) for campaign in shown],
        counts={} if reach.is_bound else tx.events.counts("campaign"),
        problems=problems,
        next_page_token=shown[-1].id if len(found) > len(shown) else None,
    )


def _line(tx: Tx, campaign: Campaign) -> CampaignLineView:
    return CampaignLineView.of(campaign, all_counts(tx, campaign))


def all_counts(tx: Tx, campaign: Campaign) -> ItemCounts:
    """The items of all phases together."""
    return total_of(totals_of(counts_of_phases(tx, campaign)))


# --- one campaign


def read_campaign(
    tx: Tx, asked: CampaignAsked, *, projection: Projection, reach: Reach = EVERYTHING
) -> CampaignDetailView:
    campaign = reached_campaign(tx, asked.campaign, reach)
    spec, proofs = campaign.spec, projection.proofs
    counts = totals_of(counts_of_phases(tx, campaign))
    unknown = unknown_tasks(tx, campaign, proofs)
    own_issues = campaign_issues(tx, campaign, counts, now=projection.now, proofs=proofs)
    issues = [*issues_of(tx, campaign.id), *own_issues]
    return CampaignDetailView(
        campaign=CampaignView.of(campaign),
        batch_size=spec.batch_size,
        concurrency=spec.concurrency,
        host_concurrency=spec.host_concurrency,
        in_flight=tx.slots.taken(campaign.id, CAMPAIGN_SCOPE),
        checkpoint_every_items=spec.checkpoint_every_items,
        checkpoint_every_s=spec.checkpoint_every_s,
        phases=[
            PhaseView.of(
                phase,
                counts[number],
                needs=[spec.phases[need].name for need in spec.needs_of(number)],
                is_task_known=phase.task not in unknown,
            )
            for number, phase in enumerate(spec.phases)
        ],
        last_checkpoint=last_checkpoint(tx, campaign),
        issues=[one_line(issue, 400) for issue in issues],
    )


# --- its items


def phase_number(tx: Tx, campaign: Campaign, phase: str | None) -> int:
    """Of the phase with this name, or of the current one. Raises BadInput."""
    return current_phase(tx, campaign) if phase is None else campaign.spec.number_of(phase)


def read_items(tx: Tx, asked: ItemsAsked, *, reach: Reach = EVERYTHING) -> ItemPageView:
    """In the order in which items were added; the page token is the number of the last item."""
    campaign = reached_campaign(tx, asked.campaign, reach)
    number = phase_number(tx, campaign, asked.phase)
    phase = campaign.spec.phases[number]
    wanted = ItemFilter(
        status=asked.status, priority=asked.priority, category=asked.category, batch=asked.batch
    )
    after = place_after(asked.page_token)
    found = tx.campaign_pages.items(campaign.id, number, wanted, after=after, limit=asked.limit + 1)
    shown = found[: asked.limit]
    return ItemPageView(
        campaign_id=one_line(campaign.id),
        campaign=one_line(campaign.name),
        phase=one_line(phase.name),
        count=len(shown),
        items=[ItemPhaseView.listed(one, phase) for one in shown],
        next_page_token=str(shown[-1].at.place) if len(found) > len(shown) else None,
    )


def place_after(token: str | None) -> int:
    """The place in the token of the previous page; -1 for the first page. Raises BadInput."""
    if token is None:
        return -1
    if not (token.isascii() and token.isdecimal() and len(token) <= 9):
        raise bad_token(token)
    return int(token)


def read_item(tx: Tx, asked: ItemAsked, *, reach: Reach = EVERYTHING) -> ItemDetailView:
    """One item through all phases."""
    campaign = reached_campaign(tx, asked.campaign, reach)
    item = tx.items.by_ids(campaign.id, [asked.item_id]).get(asked.item_id)
    if item is None:
        raise NotFound("item", asked.item_id, shown_by=f"campaign items {campaign.name}")
    return ItemDetailView.of(campaign, item, tx.item_phases.of_item(campaign.id, item.place))


def read_recovery(tx: Tx, asked: RecoveryAsked, *, reach: Reach = EVERYTHING) -> RecoveryDocument:
    """The recovery document of seed 002, in its spelling."""
    campaign = reached_campaign(tx, asked.campaign, reach)
    return recovery_document(tx, campaign, after=place_after(asked.page_token), limit=asked.limit)
