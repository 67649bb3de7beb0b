"""CampaignView, a page of campaigns, one in full, and its items as lines and in full: sanitized."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.campaign import Campaign, ItemPhase, ItemRecord, Phase, agent_id, batch_name, role_of
from holdfast.core.progress import ItemCounts
from holdfast.core.transitions import ItemStatus
from holdfast.store.campaign_pages import ListedItem
from holdfast.views.payloads import PayloadView
from holdfast.views.text import bounded, maybe_line, one_line

MAX_GOAL_CHARS = 400
MAX_ERROR_CHARS = 500


class CampaignView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One campaign, in a list."""

    id: str
    name: str
    # `draft`, `running`, `paused`, `done` or `failed`.
    status: str
    owner: str
    goal: str
    phases: list[str]
    items: int
    batches: int
    # Why it was paused, or how it ended.
    reason: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, campaign: Campaign) -> CampaignView:
        return cls(
            id=one_line(campaign.id),
            name=one_line(campaign.name),
            status=campaign.status.value,
            owner=one_line(campaign.owner),
            goal=bounded(campaign.spec.goal, MAX_GOAL_CHARS),
            phases=[one_line(phase.name) for phase in campaign.spec.phases],
            items=campaign.items,
            batches=campaign.batches,
            reason=maybe_line(campaign.reason),
            created_at=campaign.created_at,
            updated_at=campaign.updated_at,
            started_at=campaign.started_at,
            ended_at=campaign.ended_at,
        )


class CampaignLineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One campaign in a list, with how far it is: items in all phases together."""

    campaign: CampaignView
    done: int
    failed: int
    total: int
    percent: float

    @classmethod
    def of(cls, campaign: Campaign, counts: ItemCounts) -> CampaignLineView:
        return cls(
            campaign=CampaignView.of(campaign),
            done=counts.done,
            failed=counts.failed,
            total=counts.total,
            percent=counts.percent,
        )


class CampaignPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of campaigns, newest first, with the number in each status."""

    count: int = 0
    campaigns: list[CampaignLineView] = []
    counts: dict[str, int] = {}
    # Damaged campaigns, one sentence each; empty if there are none.
    problems: list[str] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class PhaseView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One phase as it was created, and how many of its items are done."""

    name: str
    task: str
    role: str
    stages: list[str]
    # The phases that an item must have done before.
    needs: list[str]
    waits_for_all: bool
    concurrency: int | None
    # False if no worker that is alive knows its task.
    is_task_known: bool
    total: int
    done: int
    running: int
    paused: int
    pending: int
    failed: int
    percent: float

    @classmethod
    def of(cls, phase: Phase, counts: ItemCounts, *, needs: Sequence[str], is_task_known: bool) -> PhaseView:
        return cls(
            name=one_line(phase.name),
            task=one_line(phase.task),
            role=one_line(role_of(phase)),
            stages=[one_line(stage) for stage in phase.stages],
            needs=[one_line(need) for need in needs],
            waits_for_all=phase.waits_for_all,
            concurrency=phase.concurrency,
            is_task_known=is_task_known,
            total=counts.total,
            done=counts.done,
            running=counts.running,
            paused=counts.paused,
            pending=counts.pending,
            failed=counts.failed,
            percent=counts.percent,
        )


class CampaignDetailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One campaign in full: its limits, and its phases with their counts."""

    campaign: CampaignView
    batch_size: int
    # How many items may be in flight: in all, and on one host.
    concurrency: int
    host_concurrency: int | None
    in_flight: int
    checkpoint_every_items: int
    checkpoint_every_s: int
    phases: list[PhaseView]
    last_checkpoint: str | None = None
    # What a person may have to act on, one sentence each.
    issues: list[str] = []


class CampaignChangedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A campaign after a change."""

    campaign: CampaignView


class CampaignCreatedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A new campaign, or the one with the same name and settings."""

    campaign: CampaignView
    is_new: bool


class CampaignFilledView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A new campaign with its items, or the one with the same name and settings."""

    campaign: CampaignView
    is_new: bool
    added: int
    # Items that were there already with the same contents.
    known: int


class ItemsAddedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many items were added, and how many were there already with the same contents."""

    campaign: CampaignView
    added: int
    known: int


class ItemsRetriedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many failed items start again. If there are more, the same call retries the next ones."""

    campaign: CampaignView
    retried: int
    has_more: bool


class ItemPhaseView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One item in one phase."""

    # The id that the user gave the item; null if its row is damaged.
    id: str | None
    name: str | None
    phase: str
    # `pending`, `running`, `paused`, `done` or `failed`.
    status: str
    priority: str
    category: str | None
    batch: str
    agent_id: str | None
    # The stage that it is in, or was in last; null if its task has told none.
    stage: str | None
    percent: int
    # What its task reported last, and the last step that it did.
    subtask: str | None
    last_action: str | None
    # How many tasks were created for it.
    attempt: int
    # How many phases of the same item must be done before.
    unmet: int
    task_id: str | None
    # Its result, if it is small; else its size.
    summary: PayloadView | None
    error: str | None
    # Why it was started anew.
    note: str | None
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime

    @classmethod
    def of(cls, at: ItemPhase, phase: Phase, *, item_id: str | None, name: str | None) -> ItemPhaseView:
        return cls(
            id=maybe_line(item_id),
            name=maybe_line(name),
            phase=one_line(phase.name),
            status=at.status.value,
            priority=one_line(at.priority, 10),
            category=maybe_line(at.category),
            batch=batch_name(at.batch),
            agent_id=None if item_id is None else one_line(agent_id(item_id, phase)),
            stage=maybe_line(at.stage),
            percent=100 if at.status is ItemStatus.DONE else at.percent,
            subtask=maybe_line(at.subtask),
            last_action=maybe_line(at.last_action),
            attempt=at.attempt,
            unmet=at.unmet,
            task_id=maybe_line(at.task_id),
            summary=None if at.summary is None else PayloadView.of(at.summary),
            error=maybe_line(at.error, MAX_ERROR_CHARS),
            note=maybe_line(at.note, MAX_ERROR_CHARS),
            started_at=at.started_at,
            ended_at=at.ended_at,
            updated_at=at.updated_at,
        )

    @classmethod
    def listed(cls, one: ListedItem, phase: Phase) -> ItemPhaseView:
        return cls.of(one.at, phase, item_id=one.id, name=one.name)


class ItemPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of the items of a campaign in one phase, in their order."""

    campaign_id: str | None = None
    campaign: str | None = None
    phase: str | None = None
    count: int = 0
    items: list[ItemPhaseView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class ItemDetailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One item with its fields, and how it went in each phase."""

    campaign_id: str
    campaign: str
    id: str
    name: str
    priority: str
    category: str | None
    batch: str
    # Its number in the order in which items were added, from 1.
    number: int
    fields: PayloadView
    created_at: datetime
    phases: list[ItemPhaseView]
    # Damaged parts, one sentence each; empty if there are none.
    problems: list[str] = []

    @classmethod
    def of(cls, campaign: Campaign, item: ItemRecord, phases: Sequence[ItemPhase]) -> ItemDetailView:
        specs = campaign.spec.phases
        return cls(
            campaign_id=one_line(campaign.id),
            campaign=one_line(campaign.name),
            id=one_line(item.id),
            name=one_line(item.name),
            priority=one_line(item.priority, 10),
            category=maybe_line(item.category),
            batch=batch_name(item.batch),
            number=item.place + 1,
            fields=PayloadView.of(item.contents),
            created_at=item.created_at,
            phases=[
                ItemPhaseView.of(one, specs[one.phase], item_id=item.id, name=item.name)
                for one in phases
                if one.phase < len(specs)
            ],
            problems=["the item is damaged: run `holdfast store verify`"] if item.is_damaged else [],
        )
