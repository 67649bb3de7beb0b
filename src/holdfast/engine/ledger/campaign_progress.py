"""Moves an item of a campaign as its task ends or is reopened, in the transaction that changes the task.

Tasks are locked first, then items in phases in a fixed order, just before the commit, so that two
transactions cannot deadlock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.campaign import Campaign, ItemPhase, ItemProgress, action_of
from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.ids import TaskId
from holdfast.core.progress import TALLY_OF, CountKind, Tally, batch_key, noun_of, span_of
from holdfast.core.redaction import redact_json
from holdfast.core.step import Step
from holdfast.core.task import Failure
from holdfast.core.transitions import CampaignStatus, ItemStatus, TaskStatus
from holdfast.engine.ledger.item_slots import take_free
from holdfast.store import Tx

# The largest document of a result that an item keeps, in bytes; its task has the whole result.
MAX_SUMMARY_BYTES = 2048
MAX_ERROR_CHARS = 500
# A campaign is saved when it moves, under these names.
_DRAFT, _RUNNING, _PAUSED, _DONE, _FAILED = CampaignStatus
_SAVED_AS = {
    (_DRAFT, _RUNNING): "started",
    (_RUNNING, _PAUSED): "paused",
    (_PAUSED, _RUNNING): "resumed",
    (_RUNNING, _DONE): "done",
    (_RUNNING, _FAILED): "failed",
    (_DONE, _RUNNING): "reopened",
    (_FAILED, _RUNNING): "reopened",
}
# Items whose task an operator may reopen.
_STILL = (ItemStatus.FAILED, ItemStatus.PAUSED)


class ItemChange(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the task of an item: it goes on, it has ended, or without either it was reopened."""

    task_id: TaskId
    at: datetime
    news: ItemProgress | None = None
    status: TaskStatus | None = None
    result: bytes | None = None
    failure: Failure | None = None
    last_step: Step | None = None


def settle_items(tx: Tx, campaign_id: str, changes: list[ItemChange]) -> None:
    """Move the items whose tasks changed, free their slots, and count.

    A campaign that is gone or damaged keeps no task from ending.
    """
    now = changes[-1].at
    news: dict[str, ItemProgress] = {}
    last: dict[TaskId, ItemChange] = {}
    for change in changes:
        if change.news is None:
            last[change.task_id] = change
        else:
            before = news.get(change.task_id)
            news[change.task_id] = change.news if before is None else before.then(change.news)
    if news:
        tx.item_phases.note(news, now=now)
    if last:
        _settle(tx, campaign_id, last, now)


def _settle(tx: Tx, campaign_id: str, last: dict[TaskId, ItemChange], now: datetime) -> None:
    campaign = _campaign_to_reopen(tx, campaign_id, last, now)
    rows = tx.item_phases.of_tasks(list(last))
    reopened: list[ItemPhase] = []
    ended: list[tuple[ItemPhase, ItemPhase]] = []
    for before in rows:
        assert before.task_id is not None
        change = last[before.task_id]
        if change.status is None:
            reopened.append(before)
        elif before.status is ItemStatus.PENDING and change.status is TaskStatus.SUCCEEDED:
            # It was paused and is to go on, but its task came to its end instead of stopping.
            tx.item_phases.start([before], now=now)
            ended.append((before, _ended(before, change)))
        elif before.status is ItemStatus.PAUSED and change.status is TaskStatus.CANCELLED:
            pass  # it has stopped, as was asked
        elif before.status in (ItemStatus.RUNNING, ItemStatus.PAUSED):
            ended.append((before, _ended(before, change)))
    tx.slots.release([task_id for task_id, change in last.items() if change.status is not None])
    if reopened and campaign is not None:
        _reopen(tx, campaign, reopened, now)
    if ended:
        tx.item_phases.end([after for _, after in ended], now=now)
        for before, after in ended:
            count_move(tx, before, after.status, now=now)
        _meet_needs(tx, campaign_id, [after for _, after in ended], now)
    tx.hint("campaigns")


def _campaign_to_reopen(
    tx: Tx, campaign_id: str, last: dict[TaskId, ItemChange], now: datetime
) -> Campaign | None:
    """The campaign, locked before its items, if an operator reopened the task of an item that had ended."""
    opened = [task_id for task_id, change in last.items() if change.status is None]
    if not opened or not any(one.status in _STILL for one in tx.item_phases.look_of_tasks(opened)):
        return None
    return _campaign(tx, campaign_id, now, is_locked=True)


def _reopen(tx: Tx, campaign: Campaign, rows: Sequence[ItemPhase], now: datetime) -> None:
    """The tasks of these items go on, by an operator's own command: also while the campaign is paused, and
    without a slot if none is free. A campaign that had ended goes on."""
    for before in rows:
        if before.status in _STILL:
            tx.item_phases.reopen(before, now=now)
            count_move(tx, before, ItemStatus.RUNNING, now=now)
            take_free(tx, campaign, before)
    if campaign.status in (CampaignStatus.DONE, CampaignStatus.FAILED):
        moved_campaign(tx, campaign, CampaignStatus.RUNNING, now=now, reason="a task of it was retried")


def moved_campaign(
    tx: Tx, campaign: Campaign, to: CampaignStatus, *, now: datetime, reason: str | None = None
) -> Campaign:
    """The campaign in its new status; counts it and tells of it. Raises IllegalMove."""
    moved = tx.campaigns.move(campaign.id, to, now=now, reason=reason)
    tx.moved("campaign", campaign.status, to)
    tx.emit(
        EventKind.CAMPAIGN_MOVED,
        campaign.id,
        at=now,
        name=campaign.name,
        status=to.value,
        before=campaign.status.value,
        reason=reason,
    )
    tx.campaign_saves.want(campaign.id, _SAVED_AS[campaign.status, to], now=now)
    tx.hint("campaigns")
    return moved


def _ended(before: ItemPhase, change: ItemChange) -> ItemPhase:
    last = change.last_step
    if last is not None and (before.last_action_at is None or before.last_action_at <= last.ended_at):
        before = msgspec.structs.replace(
            before, last_action=action_of(last.name), last_action_at=last.ended_at
        )
    if change.status is TaskStatus.SUCCEEDED:
        summary = summary_of(change.result)
        return msgspec.structs.replace(before, status=ItemStatus.DONE, summary=summary, error=None)
    failure = change.failure
    why = "" if failure is None else f"{failure.kind}: {failure.message}"
    error = (why or str(change.status))[:MAX_ERROR_CHARS]
    return msgspec.structs.replace(before, status=ItemStatus.FAILED, summary=None, error=error)


def summary_of(result: bytes | None) -> bytes | None:
    """A small redacted document of a result. A large or sealed one is only measured: the task has it."""
    if result is None:
        return None
    if not result.startswith(b"\x00") and len(result) <= MAX_SUMMARY_BYTES:
        try:
            if isinstance(msgspec.json.decode(result), dict):
                return redact_json(result)
        except msgspec.DecodeError:
            return None
        return redact_json(b'{"value":' + result + b"}")
    return msgspec.json.encode({"bytes": len(result)})


def count_move(tx: Tx, before: ItemPhase, to: ItemStatus, *, now: datetime) -> None:
    """Count that an item moved in one phase: in its batch, its priority and its category."""
    was, becomes = TALLY_OF[before.status], TALLY_OF[to]
    for noun in _nouns(before):
        tx.moved(noun, was, becomes)
    if to is ItemStatus.DONE:
        span = noun_of(before.campaign_id, before.phase, CountKind.SPAN, span_of(now))
        tx.count(span, Tally.DONE, 1)


def count_new(tx: Tx, rows: Sequence[ItemPhase]) -> None:
    """Count new items. Rows of one batch share their counts, so each count changes once for all of them."""
    alike = Counter((one.campaign_id, one.phase, one.batch, one.priority, one.category) for one in rows)
    first = {(one.campaign_id, one.phase, one.batch, one.priority, one.category): one for one in rows}
    for key, number in alike.items():
        for noun in _nouns(first[key]):
            tx.count(noun, Tally.TOTAL, number)


def _nouns(one: ItemPhase) -> tuple[str, str, str]:
    campaign_id, phase = one.campaign_id, one.phase
    return (
        noun_of(campaign_id, phase, CountKind.BATCH, batch_key(one.batch)),
        noun_of(campaign_id, phase, CountKind.PRIORITY, one.priority),
        noun_of(campaign_id, phase, CountKind.CATEGORY, one.category or ""),
    )


def _meet_needs(tx: Tx, campaign_id: str, ended: Sequence[ItemPhase], now: datetime) -> None:
    """Let the next phases of items that are done become startable."""
    done = [one for one in ended if one.status is ItemStatus.DONE]
    campaign = _campaign(tx, campaign_id, now) if done else None
    if campaign is None:
        return
    for number in range(len(campaign.spec.phases)):
        places = [one.place for one in done if one.phase == number]
        if not places:
            continue
        for dependent in campaign.spec.dependents_of(number):
            tx.item_phases.meet_needs(campaign_id, dependent, places, now=now)


def _campaign(tx: Tx, campaign_id: str, now: datetime, *, is_locked: bool = False) -> Campaign | None:
    try:
        return tx.campaigns.lock(campaign_id) if is_locked else tx.campaigns.get(campaign_id)
    except NotFound:
        return None
    except RowDamaged as damage:
        tx.emit(EventKind.UPDATE_IGNORED, campaign_id, at=now, asked="campaign", status=damage.code)
        return None
