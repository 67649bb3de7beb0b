"""What a restart would have to go on with: seed 002's `get_recovery_state`, a page at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.campaign import Campaign, agent_id, role_of
from holdfast.core.errors import BadInput
from holdfast.core.message import plain_line
from holdfast.core.transitions import ItemStatus
from holdfast.store import Tx
from holdfast.store.item_changes import ChangedItem

_MAX_ERROR_CHARS = 500
_NOT_DONE = (ItemStatus.PENDING, ItemStatus.RUNNING, ItemStatus.PAUSED, ItemStatus.FAILED)
# The seed's words for agents; those of pending items and of items that are done are idle.
_AGENT_STATUS = {
    ItemStatus.RUNNING: "active",
    ItemStatus.PAUSED: "paused",
    ItemStatus.FAILED: "error",
}


class UnfinishedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item that is not done in a phase, as a row of the view of that phase."""

    repo_id: str
    status: str
    progress_percent: int
    started_at: datetime | None
    completed_at: datetime | None
    result_json: str | None
    error_message: str | None
    updated_at: datetime
    checkpoint_id: str | None
    campaign_id: str


class StagedItem(UnfinishedItem, frozen=True, kw_only=True):
    """The same with the stage that the item is in."""

    phase: str | None


class BusyAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that is not idle, as a row of the view of agents."""

    agent_id: str
    type: str
    assigned_repo_id: str
    status: str
    last_heartbeat: datetime | None
    updated_at: datetime
    checkpoint_id: str | None
    campaign_id: str


class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of the campaign, as a row of the view of checkpoints."""

    checkpoint_id: str
    checkpoint_type: str
    created_at: datetime
    state_snapshot: str
    recoverable: bool
    campaign_id: str


class RecoveryDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a restart would have to go on with, a page at a time; the last page has no page token."""

    analysis: list[UnfinishedItem]
    migration: list[StagedItem]
    agents: list[BusyAgent]
    latest_checkpoint: LastCheckpoint | None
    next_page_token: str | None = msgspec.field(default=None, name="nextPageToken")


def recovery_document(tx: Tx, campaign: Campaign, *, after: int = -1, limit: int = 100) -> RecoveryDocument:
    """The items after a place that are not done and the agents that are not idle.

    A page ends at the same item in all lists, so that the pages together are the whole. At most `limit` rows
    of each phase are read, whatever the size of the campaign.
    """
    numbers = range(len(campaign.spec.phases))
    read = {number: _not_done(tx, campaign.id, number, after, limit + 1) for number in numbers}
    # The first item that does not fit into one of the lists is not on this page in any of them.
    ends = [rows[limit].at.place for rows in read.values() if len(rows) > limit]
    end = min(ends, default=None)
    shown = {
        number: [one for one in rows if end is None or one.at.place < end] for number, rows in read.items()
    }
    tasks = [str(one.at.task_id) for rows in shown.values() for one in rows if one.at.task_id is not None]
    saved = tx.item_changes.checkpoints_of_tasks(tasks) if tasks else {}
    analysis, migration = named_phase(campaign, "analysis", 0), named_phase(campaign, "migration", 1)
    return RecoveryDocument(
        analysis=[UnfinishedItem(**_row(one, saved)) for one in shown.get(analysis, ())],
        migration=[StagedItem(**_row(one, saved), phase=one.at.stage) for one in shown.get(migration, ())],
        agents=_agents(tx, campaign, [one for rows in shown.values() for one in rows], saved),
        latest_checkpoint=_latest(tx, campaign),
        next_page_token=None if end is None else str(end - 1),
    )


def place_after(page_token: str | None) -> int:
    """The place after which a page begins; -1 for the first one. Raises BadInput."""
    if page_token is None:
        return -1
    if not isinstance(page_token, str) or not re.fullmatch("[0-9]{1,9}", page_token):
        raise BadInput("page_token", "pass the next_page_token of the previous page as it is")
    return int(page_token)


def named_phase(campaign: Campaign, name: str, otherwise: int) -> int:
    """The number of the phase that the seed's document calls so."""
    names = [phase.name for phase in campaign.spec.phases]
    return names.index(name) if name in names else otherwise


def _not_done(tx: Tx, campaign_id: str, phase: int, after: int, limit: int) -> list[ChangedItem]:
    found: list[ChangedItem] = []
    for status in _NOT_DONE:
        found += tx.item_changes.in_status(campaign_id, phase, status, after=after, limit=limit)
    found.sort(key=lambda one: one.at.place)
    return found[:limit]


def _row(one: ChangedItem, saved: dict[str, str]) -> dict[str, Any]:
    at = one.at
    return {
        "repo_id": one.item_id,
        "status": at.status.value,
        "progress_percent": at.percent,
        "started_at": at.started_at,
        "completed_at": at.ended_at,
        "result_json": None if at.summary is None else at.summary.decode("utf-8", "replace"),
        "error_message": None if at.error is None else plain_line(at.error, _MAX_ERROR_CHARS),
        "updated_at": at.updated_at,
        "checkpoint_id": saved.get(str(at.task_id)),
        "campaign_id": at.campaign_id,
    }


def _agents(
    tx: Tx, campaign: Campaign, rows: Sequence[ChangedItem], saved: dict[str, str]
) -> list[BusyAgent]:
    busy = sorted(
        (one for one in rows if one.at.status in _AGENT_STATUS), key=lambda one: (one.at.place, one.at.phase)
    )
    tasks = [str(one.at.task_id) for one in busy if one.at.task_id is not None]
    runs = tx.runs.live_of_tasks(tasks) if tasks else {}
    found = []
    for one in busy:
        at, phase = one.at, campaign.spec.phases[one.at.phase]
        run = runs.get(str(at.task_id))
        beat = None if run is None else run.beat_at
        found.append(
            BusyAgent(
                agent_id=agent_id(one.item_id, phase),
                type=role_of(phase),
                assigned_repo_id=one.item_id,
                status=_AGENT_STATUS[at.status],
                last_heartbeat=at.updated_at if beat is None else max(beat, at.updated_at),
                updated_at=at.updated_at,
                checkpoint_id=saved.get(str(at.task_id)),
                campaign_id=at.campaign_id,
            )
        )
    return found


def _latest(tx: Tx, campaign: Campaign) -> LastCheckpoint | None:
    last = tx.campaign_checkpoints.latest(campaign.id)
    if last is None:
        return None
    return LastCheckpoint(
        checkpoint_id=last.id,
        checkpoint_type=last.kind.value,
        created_at=last.created_at,
        state_snapshot=last.summary.decode("utf-8", "replace"),
        recoverable=last.recoverable,
        campaign_id=campaign.id,
    )
