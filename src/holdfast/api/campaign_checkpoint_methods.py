"""The methods of checkpoints of campaigns: list, show, milestone, restore and prune."""

from __future__ import annotations

import asyncio
from functools import partial

from holdfast.api import campaign_checkpoints as checkpoints
from holdfast.api.checkpoints import PruneAsked, moment_of
from holdfast.api.contract import WRITE, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, acts, reads_own
from holdfast.views.campaign_checkpoints import (
    CampaignCheckpointLineView,
    CampaignCheckpointPageView,
    CampaignCheckpointView,
    CampaignPrunedView,
    MicroCheckpointPageView,
    RestorePlanView,
    RestoreProgressView,
)


async def _milestone(
    gateway: GatewayDoor, asked: checkpoints.MilestoneAsked, caller: Caller
) -> CampaignCheckpointLineView:
    save = partial(checkpoints.save_milestone, gateway.store, asked, clock=gateway.clock, reach=caller.reach)
    # In a thread: it reads all items of the campaign.
    return await asyncio.to_thread(save)


async def _restore(
    gateway: GatewayDoor, asked: checkpoints.RestoreAsked, caller: Caller
) -> RestoreProgressView:
    return await checkpoints.restore_some(gateway.store, gateway.clock, asked, reach=caller.reach)


async def _prune(
    gateway: GatewayDoor, asked: checkpoints.CampaignPruneAsked, caller: Caller
) -> CampaignPrunedView:
    moment = moment_of(PruneAsked(older_than_s=asked.older_than_s), gateway.clock.now())
    if asked.is_dry_run:
        return await gateway.store.read(
            lambda tx: checkpoints.prunable_checkpoints(tx, asked, moment, reach=caller.reach)
        )
    # In a thread: many writes must not block the event loop.
    return await asyncio.to_thread(
        checkpoints.prune_checkpoints, gateway.store, asked, moment, reach=caller.reach
    )


CAMPAIGN_CHECKPOINT_METHODS: list[Method] = [
    reads_own(
        "campaigns.checkpoints",
        checkpoints.CampaignCheckpointsAsked,
        CampaignCheckpointPageView,
        checkpoints.read_campaign_checkpoints,
        "Checkpoints of one campaign or of all, newest first.",
    ),
    reads_own(
        "campaigns.micro_checkpoints",
        checkpoints.MicroCheckpointsAsked,
        MicroCheckpointPageView,
        checkpoints.read_micro_checkpoints,
        "The steps that the items of a campaign saved last.",
    ),
    reads_own(
        "campaigns.checkpoint",
        checkpoints.CampaignCheckpointAsked,
        CampaignCheckpointView,
        checkpoints.read_campaign_checkpoint,
        "One checkpoint of a campaign: its summary, and what has changed since a milestone.",
    ),
    reads_own(
        "campaigns.restore_plan",
        checkpoints.CampaignCheckpointAsked,
        RestorePlanView,
        checkpoints.read_restore_plan,
        "What a restore to this milestone would undo; nothing is changed.",
    ),
    acts(
        "campaigns.milestone",
        WRITE,
        checkpoints.MilestoneAsked,
        CampaignCheckpointLineView,
        _milestone,
        "Save a campaign as a whole under a name, so that a restore can go back to it.",
        is_owned=True,
    ),
    acts(
        "campaigns.restore",
        WRITE,
        checkpoints.RestoreAsked,
        RestoreProgressView,
        _restore,
        "Let what was not done at a milestone start anew; repeat the call until it is over.",
        is_owned=True,
    ),
    acts(
        "campaigns.prune",
        WRITE,
        checkpoints.CampaignPruneAsked,
        CampaignPrunedView,
        _prune,
        "Delete old checkpoints of a campaign; the last one stays.",
        is_owned=True,
    ),
]
