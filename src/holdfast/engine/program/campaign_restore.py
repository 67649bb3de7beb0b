"""Restores a campaign to a milestone: what was not done then starts anew; nothing is deleted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeAlias

import msgspec

from holdfast.core.campaign import Campaign, ItemPhase
from holdfast.core.campaign_checkpoint import CampaignCheckpoint, CampaignRestore, Decision, Places
from holdfast.core.clock import Clock
from holdfast.core.effect import Effect
from holdfast.core.errors import BadInput, EffectsInTheWay, IllegalMove, Refused
from holdfast.core.events import EventKind
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.campaigns.creating import owned_campaign
from holdfast.engine.campaigns.item_effects import effects_of_items
from holdfast.engine.ledger.campaign_progress import count_move, moved_campaign
from holdfast.engine.ledger.ledger import cancelling
from holdfast.engine.program.effect_reviews import may_have_happened
from holdfast.engine.program.forks import HAPPENED, OPEN, Compensate, undo_effect
from holdfast.store import Store, Tx, Write
from holdfast.store.tasks import FamilyTask

DECISIONS = ("refuse", "keep", "compensate", "acknowledge")
# How many items one transaction makes pending, or asks to stop.
CHUNK = 200
# How many chunks one call does at most: the caller then calls again.
MAX_CHUNKS = 20
_SHOWN_EFFECTS = 20
_ENDED = (CampaignStatus.DONE, CampaignStatus.FAILED)
_HAVE_ENDED = (ItemStatus.DONE, ItemStatus.FAILED)
# The place, the status and the task of an item that a restore makes pending again.
Touched: TypeAlias = "tuple[int, ItemStatus, str | None]"


class UndonePhase(msgspec.Struct, frozen=True, kw_only=True):
    """How many items of one phase a restore makes pending again, by what they are now."""

    name: str
    done: int = 0
    failed: int = 0
    running: int = 0
    # They wait for a retry, or are paused.
    waiting: int = 0
    # Done at the milestone and not done now: a restore cannot bring these back.
    lost: int = 0

    @property
    def undone(self) -> int:
        return self.done + self.failed + self.running + self.waiting


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore would do; nothing is changed."""

    checkpoint: CampaignCheckpoint
    campaign: Campaign
    phases: tuple[UndonePhase, ...]
    # By class and status: how many effects the tasks of those items have, and the tasks that these started.
    effects: dict[tuple[str, str], int]
    # Some of those that happened, and of those that may have happened, in words.
    happened: tuple[str, ...] = ()
    in_doubt: tuple[str, ...] = ()
    # Some that happened in tasks that the items started: these start anew, so such effects cannot be kept.
    in_children: tuple[str, ...] = ()
    # A restore to this checkpoint that was begun and not finished.
    unfinished: CampaignRestore | None = None

    @property
    def undone(self) -> int:
        return sum(phase.undone for phase in self.phases)


class RestoreProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a restore has come. If it is not over, the same call goes on with it."""

    restore: CampaignRestore
    campaign: Campaign
    is_over: bool
    # Items whose tasks still have to stop.
    stopping: int = 0


# --- looking


def restorable(
    tx: Tx, checkpoint_id: str, *, owner: str | None = None
) -> tuple[CampaignCheckpoint, Campaign]:
    """The checkpoint and its campaign. Raises Refused with the reason if one cannot go back to it."""
    checkpoint = tx.campaign_checkpoints.get(checkpoint_id)
    campaign = owned_campaign(tx.campaigns.get(checkpoint.campaign_id), owner)
    other = f"choose another one: holdfast checkpoints list --campaign {campaign.name} --kind milestone"
    if checkpoint.is_damaged:
        raise Refused(f"{checkpoint.id} is damaged: its record does not match its digest; {other}")
    if not checkpoint.recoverable:
        raise Refused(
            f"{checkpoint.id} is a {checkpoint.kind.value} checkpoint, which holds only counts; {other}"
        )
    return checkpoint, campaign


def places_then(tx: Tx, checkpoint: CampaignCheckpoint, phase: int) -> Places:
    """Which items were done in one phase. Raises RowDamaged, Refused."""
    found = tx.campaign_checkpoints.places(checkpoint.id, phase)
    if found is None:
        raise Refused(f"{checkpoint.id} has no record of phase {phase}, so it cannot be restored")
    return found


def plan_restore(tx: Tx, checkpoint_id: str, *, owner: str | None = None) -> RestorePlan:
    """What a restore would undo, item-phase by item-phase, in bounded memory. Raises Refused, RowDamaged."""
    checkpoint, campaign = restorable(tx, checkpoint_id, owner=owner)
    seen = _SeenEffects()
    phases = []
    for number, phase in enumerate(campaign.spec.phases):
        then = places_then(tx, checkpoint, number)
        counts: Counter[str] = Counter()
        rows = _touched(tx, campaign, number, then, counts)
        while chunk := list(islice(rows, CHUNK)):
            seen.look(tx, chunk)
        phases.append(_undone_phase(phase.name, counts, then))
    return RestorePlan(
        checkpoint=checkpoint,
        campaign=campaign,
        phases=tuple(phases),
        effects=dict(seen.counts),
        happened=tuple(seen.happened),
        in_doubt=tuple(seen.in_doubt),
        in_children=tuple(seen.in_children),
        unfinished=tx.campaign_restores.open_of(campaign.id),
    )


class _SeenEffects:
    """The effects of the items of a plan: counted, and some of them in words."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.happened: list[str] = []
        self.in_doubt: list[str] = []
        self.in_children: list[str] = []

    def look(self, tx: Tx, chunk: Sequence[Touched]) -> None:
        seen = effects_of_items(tx, {task_id for _, _, task_id in chunk if task_id is not None})
        # A restore stops these first, and that settles what is open.
        living = {task_id for _, status, task_id in chunk if status not in _HAVE_ENDED}
        _add(self.in_doubt, map(_shown_gone, seen.gone))
        for root_id, effect in seen.found:
            self.counts[effect.effect_class.value, effect.status.value] += 1
            if effect.status in HAPPENED:
                _add(self.happened, [_shown(effect)])
                _add(self.in_children, [_shown(effect)] if effect.task_id != root_id else [])
            elif _is_in_doubt(effect) and root_id not in living:
                _add(self.in_doubt, [_shown(effect)])


def _add(shown: list[str], more: Iterable[str]) -> None:
    shown += islice(more, _SHOWN_EFFECTS - len(shown))


def _touched(
    tx: Tx, campaign: Campaign, phase: int, then: Places, counts: Counter[str], *, after: int = -1
) -> Iterator[Touched]:
    """The items to undo; counts them by status, and under `still` those that were done then and are now."""
    for place, status, task_id in tx.campaign_restores.touched(campaign.id, phase, after=after):
        if place not in then:
            counts[status] += 1
            yield place, status, task_id
        elif status is ItemStatus.DONE:
            counts["still"] += 1


def changed_since(tx: Tx, checkpoint: CampaignCheckpoint, campaign: Campaign) -> list[UndonePhase]:
    """The same without effects: how many item-phases have changed since the checkpoint."""
    phases = []
    for number, phase in enumerate(campaign.spec.phases):
        then = places_then(tx, checkpoint, number)
        counts: Counter[str] = Counter()
        for _ in _touched(tx, campaign, number, then, counts):
            pass
        phases.append(_undone_phase(phase.name, counts, then))
    return phases


def _undone_phase(name: str, counts: Counter[str], then: Places) -> UndonePhase:
    return UndonePhase(
        name=name,
        done=counts[ItemStatus.DONE],
        failed=counts[ItemStatus.FAILED],
        running=counts[ItemStatus.RUNNING],
        waiting=counts[ItemStatus.PENDING] + counts[ItemStatus.PAUSED],
        lost=len(then) - counts["still"],
    )


def _is_in_doubt(effect: Effect) -> bool:
    return effect.status in OPEN or may_have_happened(effect)


def _shown(effect: Effect) -> str:
    return f"{effect.name} of {effect.task_id} ({effect.id})"


def _shown_gone(task_id: str) -> str:
    return f"{task_id}, which is no longer in the ledger"


# --- restoring


async def restore_campaign(
    store: Store,
    clock: Clock,
    checkpoint_id: str,
    *,
    effects: Decision = "refuse",
    compensate: Compensate | None = None,
    owner: str | None = None,
    max_chunks: int = MAX_CHUNKS,
    patience_s: float = 1.0,
) -> RestoreProgress:
    """Begin a restore, or go on with it, for a bounded number of chunks; each is one transaction.

    The campaign is paused until the restore is over, also if the process dies: the same call goes on then.
    A call after which it is not over has undone something, or has waited for tasks to stop. Raises
    EffectsInTheWay if effects happened since and the caller did not say what becomes of them, or if the
    outcome of one is unknown; Refused if one cannot go back to this checkpoint, or if the restore began with
    compensate and this call has no function for it.
    """
    check_decision(effects, compensate)
    begun = await store.read(lambda tx: _unfinished(tx, checkpoint_id, owner))
    if begun is None:
        plan = await store.read(lambda tx: plan_restore(tx, checkpoint_id, owner=owner))
        check_effects(plan, effects)
        if not plan.undone:
            return _nothing_to_undo(plan, clock.now())
    restore, campaign = await store.write(
        beginning_restore(checkpoint_id, effects=effects, now=clock.now(), owner=owner)
    )
    _check_function(restore, campaign, is_given=compensate is not None)
    left = await _stop_running(store, clock, restore, campaign, patience_s)
    if left:
        return RestoreProgress(restore=restore, campaign=campaign, is_over=False, stopping=left)
    for _ in range(max_chunks):
        undone = await _undo_compensated(store, restore, campaign, compensate)
        progress = await store.write(undoing_chunk(restore, compensated=undone, now=clock.now()))
        if progress.stopping:
            await store.wait_for("campaigns", patience_s)
        if progress.is_over or progress.stopping:
            return progress
        restore = progress.restore
    return RestoreProgress(restore=restore, campaign=campaign, is_over=False)


def _check_function(restore: CampaignRestore, campaign: Campaign, *, is_given: bool) -> None:
    if restore.effects == "compensate" and not is_given:
        command = f"holdfast checkpoints restore {restore.checkpoint_id} --apply --effects"
        raise Refused(
            f"the restore of {campaign.name} to {restore.checkpoint_id} began with compensate, so it needs "
            f"the function that undoes an effect: {command} compensate --compensate MODULE:FUNCTION; or "
            f"decide otherwise for what is left: {command} keep, or {command} acknowledge"
        )


def check_decision(effects: object, compensate: Compensate | None) -> None:
    """Raises BadInput."""
    if effects not in DECISIONS:
        raise BadInput("effects", f"one of {', '.join(DECISIONS)} is needed")
    if (compensate is not None) != (effects == "compensate"):
        raise BadInput(
            "compensate",
            'a function that undoes one effect goes with effects="compensate": the arguments of effects are '
            "not stored, so only you know how",
        )


def check_effects(plan: RestorePlan, effects: Decision) -> None:
    """Raises EffectsInTheWay unless the decision covers what the plan has found."""
    if effects == "acknowledge":
        return
    if plan.in_doubt:
        raise EffectsInTheWay(plan.campaign.name, list(plan.in_doubt), _IN_DOUBT)
    if plan.happened and effects == "refuse":
        raise EffectsInTheWay(plan.campaign.name, list(plan.happened), _HAPPENED)
    if plan.in_children and effects == "keep":
        raise EffectsInTheWay(plan.campaign.name, list(plan.in_children), _IN_CHILDREN)


_IN_DOUBT = (
    "the outcome is unknown; settle it first: holdfast reviews list; or, if it is in no review, because it "
    "raised or its task is gone: --effects acknowledge"
)
_HAPPENED = "say --effects keep, compensate or acknowledge"
_IN_CHILDREN = (
    "the items started these tasks and start them anew, so their effects cannot be kept; say --effects "
    "compensate or acknowledge"
)


def _unfinished(tx: Tx, checkpoint_id: str, owner: str | None) -> CampaignRestore | None:
    _, campaign = restorable(tx, checkpoint_id, owner=owner)
    return tx.campaign_restores.open_of(campaign.id)


def _nothing_to_undo(plan: RestorePlan, now: datetime) -> RestoreProgress:
    restore = CampaignRestore(
        campaign_id=plan.campaign.id,
        number=0,
        checkpoint_id=plan.checkpoint.id,
        effects="refuse",
        goes_on=False,
        started_at=now,
        updated_at=now,
        ended_at=now,
    )
    return RestoreProgress(restore=restore, campaign=plan.campaign, is_over=True)


def beginning_restore(
    checkpoint_id: str, *, effects: Decision, now: datetime, owner: str | None = None
) -> Write[tuple[CampaignRestore, Campaign]]:
    """The write that pauses the campaign and records the restore; again, it finds the one that it began."""

    def begin(tx: Tx) -> tuple[CampaignRestore, Campaign]:
        _, campaign = restorable(tx, checkpoint_id, owner=owner)
        campaign = tx.campaigns.lock(campaign.id)
        # An operator may have pruned it before the lock.
        checkpoint, _ = restorable(tx, checkpoint_id)
        found = tx.campaign_restores.lock_open(campaign.id)
        if found is not None and found.checkpoint_id != checkpoint.id:
            raise Refused(
                f"a restore of {campaign.name} to {found.checkpoint_id} is under way; finish it first: "
                f"holdfast checkpoints restore {found.checkpoint_id} --apply"
            )
        if found is not None:
            if effects not in ("refuse", found.effects):
                found = msgspec.structs.replace(found, effects=effects, updated_at=now)
                tx.campaign_restores.set(found)
            return found, campaign
        if campaign.status is CampaignStatus.DRAFT:
            raise IllegalMove(
                "campaign", campaign.name, campaign.status.value, "restored: nothing has started"
            )
        restore = CampaignRestore(
            campaign_id=campaign.id,
            number=tx.campaign_restores.last_number(campaign.id) + 1,
            checkpoint_id=checkpoint.id,
            effects=effects,
            goes_on=campaign.status is not CampaignStatus.PAUSED,
            started_at=now,
            updated_at=now,
        )
        tx.campaign_restores.create(restore)
        why = f"restoring {checkpoint.id}"
        if campaign.status in _ENDED:
            campaign = moved_campaign(tx, campaign, CampaignStatus.RUNNING, now=now, reason=why)
        if campaign.status is CampaignStatus.RUNNING:
            campaign = moved_campaign(tx, campaign, CampaignStatus.PAUSED, now=now, reason=why)
        tx.emit(
            EventKind.RESTORE_STARTED,
            campaign.id,
            at=now,
            name=campaign.name,
            checkpoint=checkpoint.id,
            effects=effects,
        )
        return restore, campaign

    return begin


async def _stop_running(
    store: Store, clock: Clock, restore: CampaignRestore, campaign: Campaign, patience_s: float
) -> int:
    """Cancel the tasks of items that were not done then; how many have not stopped yet."""
    why = f"{campaign.name} is restored to {restore.checkpoint_id}"
    asked: set[str] = set()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        living = await store.read(lambda tx: _living(tx, restore, campaign))
        ids = {one.task_id for one in living}
        # The end of a task stops those that it started. They are not asked before it: it could notice.
        new = [one.task_id for one in living if one.parent_id not in ids and one.task_id not in asked]
        asked.update(new)
        await asyncio.gather(
            *(store.write(cancelling(one, reason=why, owner=None, now=clock.now())) for one in new)
        )
        if not living:
            return 0
        if not new and loop.time() >= deadline:
            return _items_of(living)
        if not new:
            await store.wait_for("campaigns", min(0.2, patience_s))


def _living(tx: Tx, restore: CampaignRestore, campaign: Campaign) -> list[FamilyTask]:
    """The tasks of items that were not done then, and what these have started, as far as they have not ended;
    no more than about one chunk of them."""
    checkpoint, _ = restorable(tx, restore.checkpoint_id)
    found: list[FamilyTask] = []
    for number in range(len(campaign.spec.phases)):
        then = places_then(tx, checkpoint, number)
        after = -1
        while rows := tx.campaign_restores.that_may_run(campaign.id, number, after=after, limit=CHUNK):
            found += _not_ended(tx, [task_id for place, task_id in rows if place not in then])
            after = rows[-1][0]
            if len(found) >= CHUNK:
                return found
    return found


def _not_ended(tx: Tx, task_ids: Sequence[str]) -> list[FamilyTask]:
    return [one for one in tx.tasks.families(task_ids) if not one.has_ended]


def _items_of(living: Sequence[FamilyTask]) -> int:
    """How many items have such tasks."""
    return len({one.root_id for one in living})


async def _undo_compensated(
    store: Store, restore: CampaignRestore, campaign: Campaign, compensate: Compensate | None
) -> frozenset[str] | None:
    """Undo the effects of the next chunk, the newest first. What was undone before a crash is undone again,
    under the same idempotency key. None without a function."""
    if compensate is None:
        return None
    effects = await store.read(lambda tx: _effects_of_next(tx, restore, campaign))
    happened = [effect for effect in effects if effect.status in HAPPENED]
    for effect in sorted(happened, key=lambda one: (one.updated_us, one.id), reverse=True):
        await undo_effect(effect, compensate, store.sealing)
    return frozenset(effect.id for effect in happened)


def _effects_of_next(tx: Tx, restore: CampaignRestore, campaign: Campaign) -> list[Effect]:
    checkpoint, _ = restorable(tx, restore.checkpoint_id)
    chunk, _ = _next_chunk(tx, restore, campaign, checkpoint)
    found = effects_of_items(tx, {task_id for _, _, task_id in chunk if task_id is not None})
    return [_opened(tx, effect) for effect in found.all]


def _opened(tx: Tx, effect: Effect) -> Effect:
    if effect.outcome is None:
        return effect
    return msgspec.structs.replace(effect, outcome=tx.blobs.open(effect.outcome))


def _next_chunk(
    tx: Tx, restore: CampaignRestore, campaign: Campaign, checkpoint: CampaignCheckpoint
) -> tuple[list[Touched], int]:
    """The next items to undo, all of one phase, and that phase; after the last one the number of phases."""
    after = restore.place
    for number in range(restore.phase, len(campaign.spec.phases)):
        then = places_then(tx, checkpoint, number)
        rows = _touched(tx, campaign, number, then, Counter(), after=after)
        if chunk := list(islice(rows, CHUNK)):
            return chunk, number
        after = -1
    return [], len(campaign.spec.phases)


def undoing_chunk(
    begun: CampaignRestore, *, compensated: frozenset[str] | None = None, now: datetime
) -> Write[RestoreProgress]:
    """The write that makes the next items pending again, and ends the restore after the last ones.

    If a task of one runs again, it says so and changes nothing. Raises EffectsInTheWay, and Refused if the
    decision is to compensate and nothing was.
    """

    def undo(tx: Tx) -> RestoreProgress:
        campaign = tx.campaigns.lock(begun.campaign_id)
        restore = tx.campaign_restores.lock_open(campaign.id)
        if restore is None or restore.number != begun.number:
            # Another process ended it, or this write in a commit whose answer was lost.
            ended = tx.campaign_restores.get(campaign.id, begun.number)
            return RestoreProgress(restore=ended, campaign=campaign, is_over=True)
        checkpoint, _ = restorable(tx, restore.checkpoint_id)
        chunk, phase = _next_chunk(tx, restore, campaign, checkpoint)
        if not chunk:
            return _end(tx, restore, campaign, now)
        rows = tx.campaign_restores.lock_at(campaign.id, phase, [place for place, _, _ in chunk])
        task_of = {place: task_id for place, _, task_id in chunk if task_id is not None}
        living = _items_of(_not_ended(tx, sorted(task_of.values())))
        kept = None if living else _decided(tx, restore, campaign, task_of.values(), compensated)
        if kept is None:
            return RestoreProgress(restore=restore, campaign=campaign, is_over=False, stopping=living)
        note = f"started anew: {checkpoint.id} was restored"
        for row in rows:
            task_id = task_of.get(row.place)
            _undo(tx, campaign, row, keep_of=task_id if task_id in kept else None, note=note, now=now)
        restore = msgspec.structs.replace(
            restore, phase=phase, place=rows[-1].place, undone=restore.undone + len(rows), updated_at=now
        )
        tx.campaign_restores.set(restore)
        return RestoreProgress(restore=restore, campaign=campaign, is_over=False)

    return undo


def _undo(
    tx: Tx, campaign: Campaign, row: ItemPhase, *, keep_of: str | None, note: str, now: datetime
) -> None:
    tx.campaign_restores.forget_effects(row)
    if keep_of is not None:
        tx.campaign_restores.keep_effects(row, keep_of)
    if row.status is ItemStatus.RUNNING:  # its task is gone, so nothing else ends it
        failed = msgspec.structs.replace(row, status=ItemStatus.FAILED, error="its task is gone")
        tx.item_phases.end([failed], now=now)
        count_move(tx, row, ItemStatus.FAILED, now=now)
        row = failed
    tx.campaign_restores.undo(row, note=note, now=now)
    if row.status in _HAVE_ENDED:
        count_move(tx, row, ItemStatus.PENDING, now=now)
    if row.status is ItemStatus.DONE:
        for dependent in campaign.spec.dependents_of(row.phase):
            tx.campaign_restores.add_need(row, dependent, now=now)


def _decided(
    tx: Tx,
    restore: CampaignRestore,
    campaign: Campaign,
    task_ids: Collection[str],
    compensated: frozenset[str] | None,
) -> set[str] | None:
    """The tasks whose effects are kept; None if there are effects that were not compensated yet."""
    if restore.effects == "acknowledge":
        return set()
    found = effects_of_items(tx, task_ids)
    in_doubt = [_shown(effect) for effect in found.all if _is_in_doubt(effect)]
    in_doubt += map(_shown_gone, found.gone)
    if in_doubt:
        raise EffectsInTheWay(campaign.name, in_doubt, _IN_DOUBT)
    happened = [(item, effect) for item, effect in found.found if effect.status in HAPPENED]
    if happened and restore.effects == "refuse":
        raise EffectsInTheWay(campaign.name, [_shown(effect) for _, effect in happened], _HAPPENED)
    if restore.effects == "compensate":
        # Another call may have changed the decision after this one had looked.
        _check_function(restore, campaign, is_given=compensated is not None)
        assert compensated is not None
        return set() if {effect.id for _, effect in happened} <= compensated else None
    in_children = [_shown(effect) for item, effect in happened if effect.task_id != item]
    if in_children:
        raise EffectsInTheWay(campaign.name, in_children, _IN_CHILDREN)
    return {effect.task_id for _, effect in happened}


def _end(tx: Tx, restore: CampaignRestore, campaign: Campaign, now: datetime) -> RestoreProgress:
    ended = msgspec.structs.replace(restore, ended_at=now, updated_at=now, phase=len(campaign.spec.phases))
    tx.campaign_restores.set(ended)
    if restore.goes_on and campaign.status is CampaignStatus.PAUSED:
        why = f"restored {restore.checkpoint_id}"
        campaign = moved_campaign(tx, campaign, CampaignStatus.RUNNING, now=now, reason=why)
    tx.campaign_saves.want(campaign.id, "restored", now=now)
    tx.emit(
        EventKind.RESTORE_ENDED,
        campaign.id,
        at=now,
        name=campaign.name,
        checkpoint=restore.checkpoint_id,
        undone=restore.undone,
        goes_on=restore.goes_on,
    )
    tx.hint("campaigns")
    return RestoreProgress(restore=ended, campaign=campaign, is_over=True)
