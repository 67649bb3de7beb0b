"""Checkpoints of campaigns for the API and the CLI: list, show, name a milestone, restore and prune."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from holdfast.api.campaigns import CampaignText, campaign_owner, reached_campaign
from holdfast.api.checkpoints import DEFAULT_KEPT_S, MAX_PREVIEWED
from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.pages import bad_token
from holdfast.api.params import IdText, PageSize, PageToken, Params
from holdfast.core.campaign_checkpoint import CampaignCheckpoint, CampaignCheckpointKind
from holdfast.core.errors import HoldfastError, NotFound, NotYours
from holdfast.engine.campaigns.finding import newest_campaign
from holdfast.engine.campaigns.saving import prepared_milestone, saving
from holdfast.engine.program.campaign_restore import (
    changed_since,
    plan_restore,
    restorable,
    restore_campaign,
)
from holdfast.store.campaign_checkpoints import FIRST_PAGE
from holdfast.views.campaign_checkpoints import (
    CampaignCheckpointLineView,
    CampaignCheckpointPageView,
    CampaignCheckpointView,
    CampaignPrunedView,
    MicroCheckpointPageView,
    MicroCheckpointView,
    RestorePlanView,
    RestoreProgressView,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.campaign import Campaign
    from holdfast.core.clock import Clock
    from holdfast.engine.program.forks import Compensate
    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx

# How many are deleted in one transaction.
_PRUNE_BATCH = 100

MilestoneText = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9_-]{0,25}$")]


class CampaignCheckpointsAsked(Params, frozen=True, kw_only=True):
    """A page of checkpoints, newest first: of one campaign, or of all."""

    campaign: CampaignText | None = None
    # Only with a campaign.
    kind: CampaignCheckpointKind | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class MicroCheckpointsAsked(Params, frozen=True, kw_only=True):
    """The steps that the items of a campaign saved last."""

    campaign: CampaignText
    limit: PageSize = 50


class CampaignCheckpointAsked(Params, frozen=True, kw_only=True):
    """One checkpoint of a campaign, by its id or a unique prefix of it."""

    checkpoint_id: IdText


class MilestoneAsked(Params, frozen=True, kw_only=True):
    """Save a campaign as a whole under a name; without a campaign the newest one that runs."""

    name: MilestoneText
    campaign: CampaignText | None = None


class RestoreAsked(Params, frozen=True, kw_only=True):
    """Go back to a milestone, and what becomes of effects that happened since."""

    checkpoint_id: IdText
    # Only a program can undo effects, so there is no "compensate" here.
    effects: Literal["refuse", "keep", "acknowledge"] = "refuse"


class CampaignPruneAsked(Params, frozen=True, kw_only=True):
    """Delete checkpoints of a campaign that are older than this; the last one stays."""

    campaign: CampaignText
    kind: CampaignCheckpointKind | None = None
    older_than_s: Annotated[float, msgspec.Meta(ge=0, le=1e10)] = DEFAULT_KEPT_S
    is_dry_run: bool = False


# --- list and show


def read_campaign_checkpoints(
    tx: Tx, asked: CampaignCheckpointsAsked, *, reach: Reach = EVERYTHING
) -> CampaignCheckpointPageView:
    if asked.campaign is None:
        return _page_of_all(tx, asked, reach)
    campaign = reached_campaign(tx, asked.campaign, reach)
    before = FIRST_PAGE if asked.page_token is None else _number_of(asked.page_token)
    found = tx.campaign_checkpoints.page(campaign.id, kind=asked.kind, before=before, limit=asked.limit + 1)
    shown = found[: asked.limit]
    return CampaignCheckpointPageView(
        checkpoints=[CampaignCheckpointLineView.of(one, campaign) for one in shown],
        next_page_token=str(shown[-1].number) if len(found) > asked.limit else None,
    )


def _number_of(token: str) -> int:
    if not (token.isascii() and token.isdigit() and len(token) <= 18):
        raise bad_token(token)
    return int(token)


def _page_of_all(tx: Tx, asked: CampaignCheckpointsAsked, reach: Reach) -> CampaignCheckpointPageView:
    """Those of all campaigns that the caller may reach."""
    owner = campaign_owner(reach)
    before = None if asked.page_token is None else _placed(tx, asked.page_token)
    campaigns: dict[str, Campaign | None] = {}
    shown: list[CampaignCheckpoint] = []
    while len(shown) <= asked.limit:
        page = tx.campaign_checkpoints.page_of_all(before=before, limit=asked.limit + 1)
        for one in page:
            if one.campaign_id not in campaigns:
                campaigns[one.campaign_id] = _readable(tx, one.campaign_id, owner)
            if owner is None or campaigns[one.campaign_id] is not None:
                shown.append(one)
        if len(page) <= asked.limit:
            break
        before = page[-1]
    return CampaignCheckpointPageView(
        checkpoints=[
            CampaignCheckpointLineView.of(one, campaigns[one.campaign_id]) for one in shown[: asked.limit]
        ],
        next_page_token=shown[asked.limit - 1].id if len(shown) > asked.limit else None,
    )


def _placed(tx: Tx, token: str) -> CampaignCheckpoint:
    try:
        return tx.campaign_checkpoints.get(token)
    except NotFound:
        raise bad_token(token) from None


def _readable(tx: Tx, campaign_id: str, owner: str | None) -> Campaign | None:
    try:
        return reached_campaign(tx, campaign_id, Reach(owner=owner))
    except HoldfastError:
        return None


def read_micro_checkpoints(
    tx: Tx, asked: MicroCheckpointsAsked, *, reach: Reach = EVERYTHING
) -> MicroCheckpointPageView:
    """The last saved step of each item, the newest first."""
    campaign = reached_campaign(tx, asked.campaign, reach)
    found = tx.campaign_checkpoints.last_actions(campaign.id, limit=asked.limit)
    return MicroCheckpointPageView(
        checkpoints=[MicroCheckpointView.of(campaign, item_id, one) for item_id, one in found]
    )


def read_campaign_checkpoint(
    tx: Tx, asked: CampaignCheckpointAsked, *, reach: Reach = EVERYTHING
) -> CampaignCheckpointView:
    """One checkpoint; of a milestone also how many item-phases have changed since."""
    checkpoint_id = reached_checkpoint(tx, asked.checkpoint_id, reach)
    checkpoint = tx.campaign_checkpoints.get(checkpoint_id)
    campaign = tx.campaigns.get(checkpoint.campaign_id)
    since, problem = None, None
    try:
        restorable(tx, checkpoint_id)
        since = changed_since(tx, checkpoint, campaign)
    except HoldfastError as error:
        problem = str(error)
    return CampaignCheckpointView.of(checkpoint, campaign, since=since, problem=problem)


def reached_checkpoint(tx: Tx, prefix: str, reach: Reach = EVERYTHING) -> str:
    """The id with this prefix. One of a campaign of another owner is not found, as if it did not exist; a
    limited caller gives the whole id, because a prefix could match those of others."""
    owner = campaign_owner(reach)
    checkpoint_id = prefix if owner is not None else tx.campaign_checkpoints.resolve(prefix)
    checkpoint = tx.campaign_checkpoints.get(checkpoint_id)
    try:
        reached_campaign(tx, checkpoint.campaign_id, reach)
    except (NotFound, NotYours):
        raise NotFound("checkpoint", prefix, shown_by="checkpoints list --campaigns") from None
    return checkpoint_id


# --- milestones


def save_milestone(
    store: Store, asked: MilestoneAsked, *, clock: Clock, reach: Reach = EVERYTHING
) -> CampaignCheckpointLineView:
    """Durable when this returns. It reads the whole campaign once, so run it in a thread."""
    while True:
        now = clock.now()

        def prepare(tx: Tx, now: datetime = now) -> tuple[Campaign, Write[list[CampaignCheckpoint] | None]]:
            campaign = _asked_campaign(tx, asked.campaign, reach)
            return campaign, saving(prepared_milestone(tx, campaign, asked.name, now=now))

        campaign, write = store.read_now(prepare)
        saved = store.write_now(write)
        # None: another process saved a checkpoint of this campaign at the same time.
        if saved is not None:
            return CampaignCheckpointLineView.of(saved[-1], campaign)


def _asked_campaign(tx: Tx, name: str | None, reach: Reach) -> Campaign:
    if name is None:
        return newest_campaign(tx, owner=campaign_owner(reach))
    return reached_campaign(tx, name, reach)


# --- restore


def read_restore_plan(
    tx: Tx, asked: CampaignCheckpointAsked, *, reach: Reach = EVERYTHING
) -> RestorePlanView:
    """What a restore would undo. Raises Refused if one cannot go back to this checkpoint."""
    return RestorePlanView.of(plan_restore(tx, reached_checkpoint(tx, asked.checkpoint_id, reach)))


async def restore_some(
    store: Store,
    clock: Clock,
    asked: RestoreAsked,
    *,
    compensate: Compensate | None = None,
    reach: Reach = EVERYTHING,
) -> RestoreProgressView:
    """Begin a restore, or go on with it, for a bounded time; the caller repeats it until it is over."""
    checkpoint_id = await store.read(lambda tx: reached_checkpoint(tx, asked.checkpoint_id, reach))
    progress = await restore_campaign(
        store,
        clock,
        checkpoint_id,
        effects=asked.effects if compensate is None else "compensate",
        compensate=compensate,
    )
    return RestoreProgressView.of(progress)


# --- prune


def prunable_checkpoints(
    tx: Tx, asked: CampaignPruneAsked, moment: datetime, *, reach: Reach = EVERYTHING
) -> CampaignPrunedView:
    campaign = reached_campaign(tx, asked.campaign, reach)
    ids = tx.campaign_checkpoints.to_prune(
        campaign.id, older_than=moment, kind=asked.kind, limit=MAX_PREVIEWED
    )
    return _pruned(asked, campaign, moment, ids)


def prune_checkpoints(
    store: Store, asked: CampaignPruneAsked, moment: datetime, *, reach: Reach = EVERYTHING
) -> CampaignPrunedView:
    """Delete in batches until none is left."""
    campaign = store.read_now(lambda tx: reached_campaign(tx, asked.campaign, reach))
    gone: list[str] = []
    while ids := store.write_now(_pruning(campaign.id, asked.kind, moment)):
        gone += ids
    return _pruned(asked, campaign, moment, gone)


def _pruning(
    campaign_id: str, kind: CampaignCheckpointKind | None, moment: datetime
) -> Callable[[Tx], list[str]]:
    def prune(tx: Tx) -> list[str]:
        # No restore begins, and none is saved, between the look and the deletion.
        tx.campaigns.lock(campaign_id)
        ids = tx.campaign_checkpoints.to_prune(campaign_id, older_than=moment, kind=kind, limit=_PRUNE_BATCH)
        if ids:
            tx.campaign_checkpoints.delete(ids)
        return ids

    return prune


def _pruned(
    asked: CampaignPruneAsked, campaign: Campaign, moment: datetime, ids: list[str]
) -> CampaignPrunedView:
    return CampaignPrunedView(
        is_dry_run=asked.is_dry_run,
        campaign=campaign.name,
        older_than=moment,
        count=len(ids),
        checkpoint_ids=ids,
    )
