"""The methods of campaigns and of their progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from holdfast.api import campaign_changes, campaigns, progress
from holdfast.api.contract import READ, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, P, audited, calls, reads_own, run_write, shows_own, writes_own
from holdfast.engine.campaigns.documents import ContextDocument, PhaseDocument
from holdfast.engine.campaigns.recovery_document import RecoveryDocument
from holdfast.views.campaigns import (
    CampaignChangedView,
    CampaignCreatedView,
    CampaignDetailView,
    CampaignPageView,
    ItemDetailView,
    ItemPageView,
    ItemsAddedView,
    ItemsRetriedView,
)
from holdfast.views.progress import CampaignProgressView, GroupPageView, SampleView

D = TypeVar("D", bound=msgspec.Struct)


async def _retry(
    gateway: GatewayDoor, asked: campaign_changes.ItemsRetryAsked, caller: Caller
) -> ItemsRetriedView:
    write = campaign_changes.retrying
    view = await run_write(gateway, "campaigns.retry", write, asked, caller, reach=caller.reach)
    rest = partial(
        campaign_changes.retry_rest,
        gateway.store,
        asked,
        view,
        now=gateway.clock.now(),
        reach=caller.reach,
    )
    # In a thread: many writes must not block the event loop.
    return await asyncio.to_thread(rest)


async def _create(
    gateway: GatewayDoor, asked: campaign_changes.CampaignCreateAsked, caller: Caller
) -> CampaignCreatedView:
    write, policy = campaign_changes.creating, gateway.config.policies.concurrency
    return await run_write(
        gateway, "campaigns.create", write, asked, caller, reach=caller.reach, policy=policy
    )


def _tells_now(name: str, params: type[P], answer: type[D], read: Callable[..., D], summary: str) -> Method:
    """A read that compares with the present moment, of what the caller may reach."""

    async def call(gateway: GatewayDoor, asked: P, caller: Caller) -> D:
        now = gateway.clock.now()
        return await gateway.store.read(lambda tx: read(tx, asked, now=now, reach=caller.reach))

    return calls(name, READ, params, answer, call, summary, is_owned=True)


CAMPAIGN_METHODS: list[Method] = [
    reads_own(
        "campaigns.list",
        campaigns.CampaignsAsked,
        CampaignPageView,
        campaigns.read_campaigns,
        "Campaigns, newest first, with how far each is.",
    ),
    shows_own(
        "campaigns.get",
        campaigns.CampaignAsked,
        CampaignDetailView,
        campaigns.read_campaign,
        "One campaign: its limits, and its phases with their counts.",
    ),
    reads_own(
        "campaigns.items",
        campaigns.ItemsAsked,
        ItemPageView,
        campaigns.read_items,
        "The items of one phase, by status, priority, category or batch.",
    ),
    reads_own(
        "campaigns.item",
        campaigns.ItemAsked,
        ItemDetailView,
        campaigns.read_item,
        "One item through all phases.",
    ),
    reads_own(
        "campaigns.recovery",
        campaigns.RecoveryAsked,
        RecoveryDocument,
        campaigns.read_recovery,
        "What a restart would have to go on with: items not done, agents not idle, the last checkpoint.",
    ),
    reads_own(
        "campaigns.batches",
        progress.BatchesAsked,
        GroupPageView,
        progress.read_batches,
        "The batches of one phase with their counts.",
    ),
    audited(
        "campaigns.create",
        campaign_changes.CampaignCreateAsked,
        CampaignCreatedView,
        _create,
        "Create a campaign without items; the same call again finds it.",
        is_owned=True,
    ),
    writes_own(
        "campaigns.add",
        campaign_changes.ItemsAddAsked,
        ItemsAddedView,
        campaign_changes.adding,
        "Add at most 1,000 items, also while it runs; the same call again adds only what is missing.",
    ),
    writes_own(
        "campaigns.start",
        campaign_changes.CampaignStartAsked,
        CampaignChangedView,
        campaign_changes.starting,
        "Start a campaign: workers that know its tasks run its items.",
    ),
    writes_own(
        "campaigns.pause",
        campaign_changes.CampaignPauseAsked,
        CampaignChangedView,
        campaign_changes.pausing,
        "Start no more items; those that run come to their end.",
    ),
    writes_own(
        "campaigns.resume",
        campaign_changes.CampaignStartAsked,
        CampaignChangedView,
        campaign_changes.starting,
        "Let a paused campaign go on.",
    ),
    audited(
        "campaigns.retry",
        campaign_changes.ItemsRetryAsked,
        ItemsRetriedView,
        _retry,
        "Let failed items start again, each after its last saved step.",
        is_owned=True,
    ),
    shows_own(
        "progress.get",
        progress.CampaignProgressAsked,
        CampaignProgressView,
        progress.read_progress,
        "How far a campaign is, in all phases or in one: counts, rate and time left.",
    ),
    shows_own(
        "progress.context",
        progress.CampaignProgressAsked,
        ContextDocument,
        progress.read_context_document,
        "The same in at most 2 KB, for the context of a model.",
    ),
    _tells_now(
        "progress.phase",
        progress.CampaignProgressAsked,
        PhaseDocument,
        progress.read_phase,
        "One phase as the files of progress have it.",
    ),
    reads_own(
        "progress.batches",
        progress.GroupsAsked,
        GroupPageView,
        progress.read_groups,
        "The counts of one phase by batch, priority or category.",
    ),
    reads_own(
        "progress.sample",
        progress.SampleAsked,
        SampleView,
        progress.read_sample,
        "Some items of one phase by chance, with their details.",
    ),
]
