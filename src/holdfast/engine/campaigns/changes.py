"""The writes of an operator: start, pause and resume a campaign or some items, and retry what failed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.campaign import Campaign, ItemPhase
from holdfast.core.errors import BadInput, IllegalMove, NotFound, Refused
from holdfast.core.ids import check_id
from holdfast.core.payload import check_text
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.campaigns.creating import owned_campaign
from holdfast.engine.ledger.campaign_progress import count_move, moved_campaign
from holdfast.engine.ledger.ledger import cancelling
from holdfast.store import Tx, Write

# How many failed or paused items one write makes pending.
BATCH = 500
# How many tasks one write asks to stop.
STOP_BATCH = 100
_ENDED = (CampaignStatus.DONE, CampaignStatus.FAILED)


class RetriedItems(msgspec.Struct, frozen=True, kw_only=True):
    """How many items are to be started again. With `has_more` the same call makes more of them pending."""

    retried: int
    has_more: bool
    campaign: Campaign


def starting_campaign(campaign_id: str, *, now: datetime, owner: str | None = None) -> Write[Campaign]:
    """The write that starts a draft, or lets a paused campaign go on. A running one stays as it is."""
    check_id("campaign", campaign_id)

    def start(tx: Tx) -> Campaign:
        campaign = owned_campaign(tx.campaigns.lock(campaign_id), owner)
        if campaign.status is CampaignStatus.RUNNING:
            return campaign
        check_no_restore(tx, campaign)
        if campaign.status in _ENDED:
            raise IllegalMove(
                "campaign",
                campaign.name,
                campaign.status.value,
                f"started again; retry what failed: holdfast campaign retry {campaign.name}",
            )
        if not campaign.items:
            raise BadInput(
                "campaign",
                f"{campaign.name} has no items; add some: holdfast campaign add {campaign.name} FILE",
            )
        return moved_campaign(tx, campaign, CampaignStatus.RUNNING, now=now)

    return start


def check_no_restore(tx: Tx, campaign: Campaign) -> None:
    """Raises Refused while a restore of the campaign is under way."""
    restore = tx.campaign_restores.open_of(campaign.id)
    if restore is not None:
        raise Refused(
            f"a restore of {campaign.name} to {restore.checkpoint_id} is under way; finish it first: "
            f"holdfast checkpoints restore {restore.checkpoint_id} --apply"
        )


def stay_paused(tx: Tx, campaign: Campaign, *, now: datetime) -> None:
    """If a restore is under way, the campaign does not run again at its end."""
    restore = tx.campaign_restores.lock_open(campaign.id)
    if restore is not None and restore.goes_on:
        tx.campaign_restores.set(msgspec.structs.replace(restore, goes_on=False, updated_at=now))


def pausing_campaign(
    campaign_id: str, *, now: datetime, reason: str = "paused by an operator", owner: str | None = None
) -> Write[Campaign]:
    """The write after which no item of the campaign starts; items that run come to their end."""
    check_id("campaign", campaign_id)
    why = check_text("reason", reason)

    def pause(tx: Tx) -> Campaign:
        campaign = owned_campaign(tx.campaigns.lock(campaign_id), owner)
        if campaign.status is CampaignStatus.PAUSED:
            stay_paused(tx, campaign, now=now)
            return campaign
        if campaign.status is not CampaignStatus.RUNNING:
            raise IllegalMove("campaign", campaign.name, campaign.status.value, CampaignStatus.PAUSED.value)
        return moved_campaign(tx, campaign, CampaignStatus.PAUSED, now=now, reason=why)

    return pause


class PausedItems(msgspec.Struct, frozen=True, kw_only=True):
    """How many items were paused, and how many of their tasks are asked to stop. With `has_more` the same
    call pauses more of them."""

    paused: int
    stopping: int
    has_more: bool
    campaign: Campaign


class ResumedItems(msgspec.Struct, frozen=True, kw_only=True):
    """How many paused items go on. With `has_more` the same call lets more of them go on."""

    resumed: int
    has_more: bool
    campaign: Campaign


def pausing_items(
    campaign_id: str,
    item_ids: Sequence[str],
    *,
    now: datetime,
    phase: str | None = None,
    reason: str = "paused by an operator",
    owner: str | None = None,
) -> Write[PausedItems]:
    """The write that pauses items, in all phases that they have not done or in one of them.

    A task that runs is asked to stop at its next step, as by a cancel, and keeps all that it has saved.
    """
    check_id("campaign", campaign_id)
    _check_some(item_ids)
    why = check_text("reason", reason)

    def pause(tx: Tx) -> PausedItems:
        campaign = owned_campaign(tx.campaigns.lock(campaign_id), owner)
        _check_known(tx, campaign, item_ids)
        rows = [
            one
            for number in _numbers(campaign, phase)
            for one in tx.item_phases.look_of_items(campaign_id, number, item_ids)
        ]
        asked = _stop(tx, campaign, rows, why, now)
        locked = [
            one
            for number in _numbers(campaign, phase)
            for one in tx.item_phases.lock_of_items(campaign_id, number, item_ids)
        ]
        return _pause(tx, campaign, locked, asked, why, now=now, goes_on=False)

    return pause


def stopping_items(
    campaign_id: str, *, now: datetime, reason: str = "its campaign was paused", limit: int = STOP_BATCH
) -> Write[PausedItems]:
    """The write that asks running tasks of a paused campaign to stop, some at a time. Their items are paused,
    and go on when the campaign does."""
    check_id("campaign", campaign_id)
    why = check_text("reason", reason)

    def stop(tx: Tx) -> PausedItems:
        campaign = tx.campaigns.lock(campaign_id)
        rows: list[ItemPhase] = []
        if campaign.status is CampaignStatus.PAUSED:
            for number in range(len(campaign.spec.phases)):
                rows += tx.item_phases.page(
                    campaign_id, number, status=ItemStatus.RUNNING, limit=limit - len(rows)
                )
                if len(rows) == limit:
                    break
        asked = _stop(tx, campaign, rows, why, now)
        locked = tx.item_phases.of_tasks(asked)
        done = _pause(tx, campaign, locked, asked, why, now=now, goes_on=True)
        return msgspec.structs.replace(done, has_more=len(rows) == limit)

    return stop


def _stop(tx: Tx, campaign: Campaign, seen: Sequence[ItemPhase], why: str, now: datetime) -> list[str]:
    """Ask the tasks that run to stop, before their items are locked: tasks are locked first everywhere."""
    running = [one.task_id for one in seen if one.status is ItemStatus.RUNNING]
    asked = sorted(str(task_id) for task_id in running if task_id is not None)
    for task_id in asked:
        # A task that is gone keeps no item from being paused.
        with contextlib.suppress(NotFound):
            cancelling(task_id, reason=f"{campaign.name}: {why}"[:500], owner=None, now=now)(tx)
    return asked


def _pause(
    tx: Tx,
    campaign: Campaign,
    locked: Sequence[ItemPhase],
    asked: Sequence[str],
    why: str,
    *,
    now: datetime,
    goes_on: bool,
) -> PausedItems:
    """Pause these rows; one whose task began since it was seen is left for the next call."""
    rows = [
        one
        for one in locked
        if one.status in (ItemStatus.PENDING, ItemStatus.FAILED)
        or (one.status is ItemStatus.RUNNING and one.task_id in asked)
    ]
    tx.item_phases.pause(rows, note=why[:500], goes_on=goes_on, now=now)
    for one in rows:
        count_move(tx, one, ItemStatus.PAUSED, now=now)
    missed = any(one.status is ItemStatus.RUNNING and one.task_id not in asked for one in locked)
    if rows:
        tx.hint("campaigns")
    return PausedItems(paused=len(rows), stopping=len(asked), has_more=missed, campaign=campaign)


def resuming_items(
    campaign_id: str,
    *,
    now: datetime,
    item_ids: Sequence[str] = (),
    phase: str | None = None,
    owner: str | None = None,
) -> Write[ResumedItems]:
    """The write that lets paused items go on: the named ones, those of a phase, or all.

    Each goes on after its last saved step when it gets a slot, also if its task is still stopping now.
    """
    check_id("campaign", campaign_id)

    def resume(tx: Tx) -> ResumedItems:
        campaign = owned_campaign(tx.campaigns.lock(campaign_id), owner)
        rows = _locked(tx, campaign, ItemStatus.PAUSED, phase, item_ids)
        tx.item_phases.go_on(rows, now=now)
        for one in rows:
            count_move(tx, one, ItemStatus.PENDING, now=now)
        if rows:
            tx.hint("campaigns")
        return ResumedItems(resumed=len(rows), has_more=len(rows) == BATCH, campaign=campaign)

    return resume


def retrying_items(
    campaign_id: str,
    *,
    now: datetime,
    phase: str | None = None,
    item_ids: Sequence[str] = (),
    owner: str | None = None,
) -> Write[RetriedItems]:
    """The write that makes failed items pending: all of them, those of one phase, or the named ones.

    Each goes on after its last saved step when it gets a slot. A campaign that has ended goes on.
    """
    check_id("campaign", campaign_id)

    def retry(tx: Tx) -> RetriedItems:
        campaign = owned_campaign(tx.campaigns.lock(campaign_id), owner)
        found = _locked(tx, campaign, ItemStatus.FAILED, phase, item_ids)
        tx.item_phases.retry(found, now=now)
        for one in found:
            count_move(tx, one, ItemStatus.PENDING, now=now)
        if found and campaign.status in _ENDED:
            campaign = moved_campaign(tx, campaign, CampaignStatus.RUNNING, now=now, reason="a retry")
        if found:
            tx.hint("campaigns")
        return RetriedItems(retried=len(found), has_more=len(found) == BATCH, campaign=campaign)

    return retry


def _locked(
    tx: Tx, campaign: Campaign, status: ItemStatus, phase: str | None, item_ids: Sequence[str]
) -> list[ItemPhase]:
    """The items in this status, at most BATCH: the named ones, those of a phase, or all."""
    if item_ids:
        _check_some(item_ids)
        _check_known(tx, campaign, item_ids)
    found: list[ItemPhase] = []
    for number in _numbers(campaign, phase):
        room = BATCH - len(found)
        if item_ids:
            rows = tx.item_phases.lock_of_items(campaign.id, number, item_ids)
        else:
            rows = tx.item_phases.lock_in_status(campaign.id, number, status, limit=room)
        found += [one for one in rows if one.status is status][:room]
    return found


def _numbers(campaign: Campaign, phase: str | None) -> Sequence[int]:
    return range(len(campaign.spec.phases)) if phase is None else [campaign.spec.number_of(phase)]


def _check_some(item_ids: Sequence[str]) -> None:
    if isinstance(item_ids, str) or not item_ids or not all(isinstance(one, str) for one in item_ids):
        raise BadInput("items", "a list of their ids is needed, such as repo-001")
    if len(item_ids) > BATCH:
        raise BadInput("items", f"{len(item_ids)} at once; name at most {BATCH}, then the next ones")


def _check_known(tx: Tx, campaign: Campaign, item_ids: Sequence[str]) -> None:
    known = tx.items.by_ids(campaign.id, item_ids)
    for item_id in item_ids:
        if item_id not in known:
            raise NotFound("item", item_id, shown_by=f"campaign items {campaign.name}")
