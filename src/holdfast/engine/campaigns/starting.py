"""The writes that start items of a campaign under its limits, and that end it when nothing is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from holdfast.core.campaign import Campaign, Item, ItemPhase, ItemRecord, urgency_of
from holdfast.core.effect import Effect
from holdfast.core.errors import Conflict, HoldfastError, KeyLost, NotFound, Refused, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.payload import decode_payload
from holdfast.core.run import RunRecord
from holdfast.core.task import NotifyPolicy, Task
from holdfast.core.transitions import CampaignStatus, ItemStatus, TaskStatus
from holdfast.engine.campaigns.item_effects import has_effects
from holdfast.engine.campaigns.kept_effects import kept_effects, put_effects
from holdfast.engine.ledger.campaign_progress import count_move, moved_campaign
from holdfast.engine.ledger.item_slots import CAMPAIGN_SCOPE, free_slots, host_scope, phase_scope
from holdfast.engine.ledger.new_tasks import NewTask, prepare, tell_of_new
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.store import Tx, Write

# How many items one write starts.
BATCH = 500
_OPEN = (ItemStatus.RUNNING, ItemStatus.PAUSED)


class StartedItems(msgspec.Struct, frozen=True, kw_only=True):
    """What one write did: how many items it started, whether more may follow at once, and whether the
    campaign may have ended."""

    started: int = 0
    has_more: bool = False
    may_have_ended: bool = False


def starting_items(
    campaign_id: str, *, now: datetime, limit: int = BATCH, host: str | None = None
) -> Write[StartedItems]:
    """The write that starts the most urgent items for which there are free slots, also on this host.

    Several processes may run it at once: each item starts once, and no limit is passed. If it runs again
    after its own commit, it fills what is free then.
    """

    def start(tx: Tx) -> StartedItems:
        campaign = tx.campaigns.share(campaign_id)
        if campaign.status is not CampaignStatus.RUNNING:
            return StartedItems()
        going_on = _go_on(tx, campaign_id, now)
        slots = tx.slots.free(campaign_id, CAMPAIGN_SCOPE, limit=limit)
        of_host: Sequence[int] | None = None
        if host is not None and campaign.spec.host_concurrency is not None:
            count = campaign.spec.host_concurrency
            of_host = free_slots(tx, campaign, host_scope(host), len(slots), count=count)
        room = len(slots) if of_host is None else len(of_host)
        chosen = _chosen(tx, campaign, room)
        if not chosen:
            return StartedItems(may_have_ended=bool(room), has_more=going_on == BATCH)
        started, failed = _start(tx, campaign, chosen, now)
        task_ids = [str(one.task_id) for one in started]
        tx.slots.take(campaign_id, CAMPAIGN_SCOPE, list(zip(slots, task_ids, strict=False)))
        if of_host is not None and host is not None:
            taken = list(zip(of_host, task_ids, strict=False))
            tx.slots.take(campaign_id, host_scope(host), taken)
        _take_phase_slots(tx, campaign, started)
        # One that failed at its start has left its slot to the next one.
        has_more = failed > 0 or len(chosen) == room == limit or going_on == BATCH
        return StartedItems(started=len(started), has_more=has_more)

    return start


def _go_on(tx: Tx, campaign_id: str, now: datetime) -> int:
    """Let the items go on that were paused with their campaign; how many did."""
    rows = tx.item_phases.lock_going_on(campaign_id, limit=BATCH)
    tx.item_phases.go_on(rows, now=now)
    for one in rows:
        count_move(tx, one, ItemStatus.PENDING, now=now)
    return len(rows)


_Startable: TypeAlias = "tuple[ItemPhase, ItemRecord | None]"


def _chosen(tx: Tx, campaign: Campaign, room: int) -> list[_Startable]:
    """The most urgent startable item-phases of all phases; of two, the one that is further on comes first."""
    if not room:
        return []
    found: list[_Startable] = []
    for number, phase in enumerate(campaign.spec.phases):
        if not is_open(tx, campaign, number):
            continue
        allowed = room
        if phase.concurrency is not None:
            allowed = len(tx.slots.free(campaign.id, phase_scope(number), limit=room))
        if allowed:
            found += tx.item_phases.startable(campaign.id, number, limit=allowed)
    found.sort(key=lambda pair: (pair[0].priority, -pair[0].phase, pair[0].batch, pair[0].place))
    return found[:room]


def is_open(tx: Tx, campaign: Campaign, number: int) -> bool:
    """Whether items may start in this phase: one that waits for all begins when the phases that it needs are
    over, and those that these need.

    Items that failed there do not hold up the others.
    """
    if not campaign.spec.phases[number].waits_for_all:
        return True
    return all(_is_over(tx, campaign, need) for need in campaign.spec.all_needs_of(number))


def _is_over(tx: Tx, campaign: Campaign, number: int) -> bool:
    """Whether nothing runs in a phase, and nothing is ready to start in it."""
    return not tx.item_phases.upcoming(campaign.id, number, limit=1) and not any(
        tx.item_phases.has(campaign.id, number, status) for status in _OPEN
    )


def _start(
    tx: Tx, campaign: Campaign, chosen: Sequence[_Startable], now: datetime
) -> tuple[list[ItemPhase], int]:
    """Create or reopen the task of each; returns the rows as they are from now on, and how many failed. An
    item whose record is damaged, or whose task cannot be created, fails, and holds up no other."""
    failed = 0
    created: list[tuple[Task, RunRecord]] = []
    keeping: list[tuple[RunRecord, list[Effect]]] = []
    started: list[ItemPhase] = []
    for before, record in chosen:
        # A restore left a note; without one this is the first start.
        note = before.note if before.task_id is None and before.attempt else None
        try:
            if before.task_id is not None:
                kept = _kept(tx, before, now)
                if kept is not None:
                    note = kept.note
                if kept is None or note is None:
                    started += [] if kept is None else [before]
                    continue
            task, run = prepare(_new_task(campaign, before, record), now)
            if before.task_id is None and before.attempt:
                effects = kept_effects(tx, before)
                if effects is not None:
                    # With fence 0 its first claim would look like that of a task whose journal is empty.
                    run = msgspec.structs.replace(run, fence=1)
                    keeping.append((run, effects))
        except HoldfastError as error:
            _fail(tx, before, error, now)
            failed += 1
            continue
        created.append((task, run))
        started.append(
            msgspec.structs.replace(
                before,
                task_id=task.id,
                attempt=before.attempt + 1,
                note=note,
                stage=next(iter(campaign.spec.phases[before.phase].stages), None),
            )
        )
        if note is not None and record is not None:
            _tell_anew(tx, campaign, started[-1], record, now)
    tx.tasks.create_many([task for task, _ in created])
    tx.runs.create_many([run for _, run in created])
    for task, _ in created:
        tell_of_new(tx, task, now)
    for run, effects in keeping:
        put_effects(tx, run, effects)
    tx.item_phases.start(started, now=now)
    for one in started:
        count_move(tx, one, ItemStatus.RUNNING, now=now)
    return started, failed


def _tell_anew(tx: Tx, campaign: Campaign, row: ItemPhase, record: ItemRecord, now: datetime) -> None:
    tx.emit(
        EventKind.ITEM_STARTED,
        campaign.id,
        at=now,
        task_id=row.task_id,
        item=record.id,
        phase=campaign.spec.phases[row.phase].name,
        attempt=row.attempt,
        note=row.note,
    )


class _Kept(msgspec.Struct, frozen=True):
    """What became of the task that an item had before: it goes on, or why the item is started anew."""

    note: str | None = None


def _kept(tx: Tx, row: ItemPhase, now: datetime) -> _Kept | None:
    """Reopen the task that an item had before, so that it goes on after its last saved step.

    None if that task, or one that it started, is still stopping: the item waits for its end. Raises Refused
    if the task cannot go on and may have had effects: a new task would repeat them.
    """
    assert row.task_id is not None
    task_id = row.task_id
    found = tx.tasks.get_many([task_id]).get(task_id)
    if found is None:
        return _anew(row, f"{task_id} is no longer in the ledger, and may have had effects")
    if not found.has_ended:
        # An operator may have reopened it meanwhile.
        return _Kept() if found.cancel_requested_at is None else None
    if not tx.journal.has_progress(task_id):
        return _Kept("started anew: nothing was saved")
    try:
        retrying_task(task_id, now=now, may_be_cancelled=True)(tx)
    except HoldfastError as error:
        if isinstance(error, Conflict) and found.status is not TaskStatus.SUCCEEDED:
            return None
        if has_effects(tx, task_id):
            return _anew(row, f"{task_id} cannot go on, and has effects: {error}")
        return _Kept(f"started anew: its task cannot go on: {error}"[:500])
    return _Kept()


def _anew(row: ItemPhase, why: str) -> _Kept:
    """What an operator orders by a retry of an item that has failed for this reason. Raises Refused if it has
    not yet."""
    told = f"{why[:400]}; a retry of this item starts it anew and does them again"
    if row.error == told:
        return _Kept(f"started anew: {why}"[:500])
    raise Refused(told)


def _new_task(campaign: Campaign, row: ItemPhase, record: ItemRecord | None) -> NewTask:
    if record is None:
        raise NotFound("item", f"at place {row.place}", shown_by=f"campaign items {campaign.name}")
    if record.is_damaged:
        raise RowDamaged("item", f"{record.id} of {campaign.name}")
    if record.is_sealed:
        raise KeyLost("item", f"{record.id} of {campaign.name}")
    phase = campaign.spec.phases[row.phase]
    item = Item(
        id=record.id,
        name=record.name,
        priority=record.priority,
        category=record.category,
        fields=decode_payload(record.contents),  # type: ignore[arg-type]
        campaign=campaign.name,
        phase=phase.name,
        stages=phase.stages,
    )
    return NewTask(
        name=phase.task,
        goal=f"{phase.name} of {record.name}"[:500],
        owner=campaign.owner,
        arguments={"item": msgspec.to_builtins(item)},
        campaign_id=campaign.id,
        notify=NotifyPolicy.SILENT,
        priority=urgency_of(record.priority),
        has_own_goal=False,
    )


def _fail(tx: Tx, row: ItemPhase, error: Exception, now: datetime) -> None:
    """An item whose task cannot be created: it runs and fails in one transaction."""
    tx.item_phases.start([row], now=now)
    after = msgspec.structs.replace(row, status=ItemStatus.FAILED, error=str(error)[:500], summary=None)
    tx.item_phases.end([after], now=now)
    count_move(tx, row, ItemStatus.FAILED, now=now)


def _take_phase_slots(tx: Tx, campaign: Campaign, started: Sequence[ItemPhase]) -> None:
    for number, phase in enumerate(campaign.spec.phases):
        mine = [str(one.task_id) for one in started if one.phase == number]
        if phase.concurrency is None or not mine:
            continue
        free = tx.slots.free(campaign.id, phase_scope(number), limit=len(mine))
        tx.slots.take(campaign.id, phase_scope(number), list(zip(free, mine, strict=False)))


def ending_campaign(campaign_id: str, *, now: datetime) -> Write[Campaign]:
    """The write that ends a campaign if nothing of it runs and nothing more can start."""

    def end(tx: Tx) -> Campaign:
        campaign = tx.campaigns.lock(campaign_id)
        numbers = range(len(campaign.spec.phases))
        if campaign.status is not CampaignStatus.RUNNING or not campaign.items:
            return campaign
        # In the order of phases: while this transaction holds the campaign, items only move on to later ones.
        if not all(_is_over(tx, campaign, number) for number in numbers):
            return campaign
        has_failed = any(tx.item_phases.has(campaign_id, number, ItemStatus.FAILED) for number in numbers)
        to = CampaignStatus.FAILED if has_failed else CampaignStatus.DONE
        reason = "some items failed" if has_failed else None
        # The caller took `now` before it waited for the lock, and an item may have ended meanwhile.
        at = max(now, tx.campaign_pages.last_change(campaign_id) or now)
        return moved_campaign(tx, campaign, to, now=at, reason=reason)

    return end
