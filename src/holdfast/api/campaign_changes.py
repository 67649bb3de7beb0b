"""Changes of campaigns: create one, add items, start, pause, resume, and retry what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.api.campaigns import (
    CampaignText,
    CategoryText,
    ItemIdText,
    PriorityText,
    campaign_owner,
    reached_campaign,
)
from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.ledger import DEFAULT_OWNER, refuse_own
from holdfast.api.params import NameText, Params, ShortText
from holdfast.config.policies import ConcurrencyPolicy
from holdfast.core.campaign import (
    CHECKPOINT_EVERY_ITEMS,
    CHECKPOINT_EVERY_S,
    DEFAULT_BATCH_SIZE,
    DEFAULT_CONCURRENCY,
    DEFAULT_ITEM_PRIORITY,
    MAX_PHASES,
    MAX_STAGES,
    CampaignSpec,
    Item,
    Phase,
)
from holdfast.core.errors import BadInput
from holdfast.core.payload import MAX_GOAL_BYTES
from holdfast.core.secret import refuse_references
from holdfast.engine.campaigns.changes import (
    pausing_campaign,
    retrying_items,
    starting_campaign,
)
from holdfast.engine.campaigns.creating import MAX_CHUNK, NewCampaign, adding_items, creating_campaign
from holdfast.views.campaigns import (
    CampaignChangedView,
    CampaignCreatedView,
    CampaignView,
    ItemsAddedView,
    ItemsRetriedView,
)

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx

PAUSED_BY_OPERATOR = "paused by an operator"
# How many writes one call of `campaigns.retry` takes at most; the caller repeats it for more.
_MOST_WRITES = 20

NO_POLICY = ConcurrencyPolicy()
Whole = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


# --- create


class PhaseAsked(Params, frozen=True, kw_only=True):
    """One phase: the task with a parameter `item` that does it, and what an item must have done before."""

    name: NameText
    task: NameText
    # The second half of an agent's id; by default from the name of the phase.
    role: NameText | None = None
    stages: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=MAX_STAGES)] = ()
    # Phases before this one; by default the one just before.
    needs: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=MAX_PHASES)] | None = None
    # Whether it starts only when every item has come through those phases.
    waits_for_all: bool = False
    concurrency: Whole | None = None

    def phase(self) -> Phase:
        refuse_own("task", self.task)
        return Phase(
            name=self.name,
            task=self.task,
            role=self.role or "",
            stages=self.stages,
            needs=self.needs,
            waits_for_all=self.waits_for_all,
            concurrency=self.concurrency,
        )


class CampaignCreateAsked(Params, frozen=True, kw_only=True):
    """A new campaign without items. The same name again, with the same settings, finds the first one."""

    name: CampaignText
    phases: Annotated[tuple[PhaseAsked, ...], msgspec.Meta(max_length=MAX_PHASES)]
    goal: Annotated[str, msgspec.Meta(max_length=MAX_GOAL_BYTES)] = ""
    owner: NameText | None = None
    batch_size: Whole = DEFAULT_BATCH_SIZE
    # How many items may be in flight: in all, and on one host; by default as the policies say, else 50.
    concurrency: Whole | None = None
    host_concurrency: Whole | None = None
    checkpoint_every_items: Whole = CHECKPOINT_EVERY_ITEMS
    checkpoint_every_s: Whole = CHECKPOINT_EVERY_S


def creating(
    asked: CampaignCreateAsked,
    *,
    now: datetime,
    reach: Reach = EVERYTHING,
    policy: ConcurrencyPolicy = NO_POLICY,
) -> Write[CampaignCreatedView]:
    """The write that creates a campaign. A limited caller can only create campaigns of its owner.

    Limits that are not given come from the policy; if the campaign exists, from it, so that the same
    call finds it after the policy has changed.
    """
    owner = campaign_owner(reach)
    if owner is not None and asked.owner not in (None, owner):
        raise BadInput("owner", f"this token is limited to the owner {owner!r}; leave out the owner")
    spec = CampaignSpec(
        phases=tuple(phase.phase() for phase in asked.phases),
        goal=asked.goal,
        batch_size=asked.batch_size,
        concurrency=asked.concurrency or policy.campaign or DEFAULT_CONCURRENCY,
        host_concurrency=asked.host_concurrency or policy.host,
        checkpoint_every_items=asked.checkpoint_every_items,
        checkpoint_every_s=asked.checkpoint_every_s,
    )
    new = NewCampaign(name=asked.name, spec=spec, owner=owner or asked.owner or DEFAULT_OWNER)
    create = creating_campaign(new, now=now)

    def write(tx: Tx) -> CampaignCreatedView:
        known = tx.campaigns.find(asked.name)
        if known is None:
            return CampaignCreatedView(campaign=CampaignView.of(create(tx)), is_new=True)
        same = msgspec.structs.replace(
            spec,
            concurrency=asked.concurrency or known.spec.concurrency,
            host_concurrency=asked.host_concurrency or known.spec.host_concurrency,
        )
        find = creating_campaign(msgspec.structs.replace(new, spec=same), now=now)
        return CampaignCreatedView(campaign=CampaignView.of(find(tx)), is_new=False)

    return write


# --- add


class NewItemAsked(Params, frozen=True, kw_only=True):
    """One item, with what the user's file says of it."""

    id: ItemIdText
    name: NameText | None = None
    priority: PriorityText = DEFAULT_ITEM_PRIORITY
    category: CategoryText | None = None
    # An object of names and values.
    fields: dict[str, Any] | None = None

    def item(self) -> Item:
        refuse_references(f"fields of item {self.id}", self.fields)
        return Item(
            id=self.id,
            name=self.name or "",
            priority=self.priority,
            category=self.category,
            fields=self.fields or {},
        )


class ItemsAddAsked(Params, frozen=True, kw_only=True):
    """At most 1,000 items. The same call again adds only what is missing."""

    campaign: CampaignText
    items: Annotated[tuple[NewItemAsked, ...], msgspec.Meta(min_length=1, max_length=MAX_CHUNK)]


def adding(asked: ItemsAddAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[ItemsAddedView]:
    items = [item.item() for item in asked.items]
    owner = campaign_owner(reach)

    def write(tx: Tx) -> ItemsAddedView:
        campaign = reached_campaign(tx, asked.campaign, reach)
        done = adding_items(campaign.id, items, now=now, owner=owner)(tx)
        return ItemsAddedView(campaign=CampaignView.of(done.campaign), added=done.added, known=done.known)

    return write


# --- start, pause, resume


class CampaignStartAsked(Params, frozen=True, kw_only=True):
    """Start a draft, or let a paused campaign go on."""

    campaign: CampaignText


class CampaignPauseAsked(Params, frozen=True, kw_only=True):
    """Start no more items; those that run come to their end."""

    campaign: CampaignText
    reason: ShortText = PAUSED_BY_OPERATOR


def starting(
    asked: CampaignStartAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[CampaignChangedView]:
    """Also the write of `campaigns.resume`: both let what is not running go on."""
    owner = campaign_owner(reach)

    def write(tx: Tx) -> CampaignChangedView:
        campaign = reached_campaign(tx, asked.campaign, reach)
        started = starting_campaign(campaign.id, now=now, owner=owner)(tx)
        return CampaignChangedView(campaign=CampaignView.of(started))

    return write


def pausing(
    asked: CampaignPauseAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[CampaignChangedView]:
    owner = campaign_owner(reach)

    def write(tx: Tx) -> CampaignChangedView:
        campaign = reached_campaign(tx, asked.campaign, reach)
        pause = pausing_campaign(campaign.id, now=now, reason=asked.reason, owner=owner)
        return CampaignChangedView(campaign=CampaignView.of(pause(tx)))

    return write


# --- retry


class ItemsRetryAsked(Params, frozen=True, kw_only=True):
    """Let failed items start again: all of them, those of one phase, or the named ones."""

    campaign: CampaignText
    phase: NameText | None = None
    item_ids: Annotated[tuple[ItemIdText, ...], msgspec.Meta(max_length=500)] = ()


def retrying(asked: ItemsRetryAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[ItemsRetriedView]:
    owner = campaign_owner(reach)

    def write(tx: Tx) -> ItemsRetriedView:
        campaign = reached_campaign(tx, asked.campaign, reach)
        retry = retrying_items(campaign.id, now=now, phase=asked.phase, item_ids=asked.item_ids, owner=owner)
        done = retry(tx)
        return ItemsRetriedView(
            campaign=CampaignView.of(done.campaign),
            retried=done.retried,
            has_more=done.has_more and not asked.item_ids,
        )

    return write


def retry_rest(
    store: Store,
    asked: ItemsRetryAsked,
    view: ItemsRetriedView,
    *,
    now: datetime,
    reach: Reach = EVERYTHING,
) -> ItemsRetriedView:
    """Some more writes of the same call; blocks, so not on an event loop."""
    for _ in range(_MOST_WRITES - 1):
        if not view.has_more:
            break
        more = store.write_now(retrying(asked, now=now, reach=reach))
        view = ItemsRetriedView(
            campaign=more.campaign, retried=view.retried + more.retried, has_more=more.has_more
        )
    return view
