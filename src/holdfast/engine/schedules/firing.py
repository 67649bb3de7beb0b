"""The writes that fire a schedule: each occurrence with its message or task, once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import BadInput, IllegalMove, NotFound
from holdfast.core.events import EventKind
from holdfast.core.ids import FiringId, new_firing_id
from holdfast.core.jumps import TOLERANCE
from holdfast.core.message import CRON_CHANNEL, Message
from holdfast.core.run import RunRecord
from holdfast.core.schedule import Firing, FiringReason, occurrence_id
from holdfast.core.schedule_spec import COMMAND_TASK, OverlapPolicy, Schedule
from holdfast.core.task import NotifyPolicy, Origin, RuntimeName, Task
from holdfast.core.transitions import FiringStatus, MessageStatus, TaskStatus
from holdfast.engine.conversation.transcripts import new_message, post, tell_fired, withdraw
from holdfast.engine.ledger.ledger import NewTask, cancelling, create_prepared, prepare
from holdfast.engine.schedules.due import DueOccurrences
from holdfast.store import Tx, Write

# How many firings of one schedule may wait for the one before them.
MAX_WAITING = 100
# A task's key begins with it; the firing's id follows.
KEY_PREFIX = "firing:"


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did."""

    fired: int = 0
    missed: int = 0


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A firing with what it creates; made before the write, which may run twice."""

    firing: Firing
    message: Message | None = None
    work: tuple[Task, RunRecord] | None = None


def firing_due(before: Schedule, due: DueOccurrences, *, now: datetime) -> Write[Fired]:
    """The write that settles the occurrences of a schedule up to now. If another gateway was quicker, or the
    schedule was changed, it does nothing."""
    missed = [_missed(before, at, why, now) for at, why in due.misses]
    prepared = [_prepare(before, at, now) for at in due.fires]

    def fire(tx: Tx) -> Fired:
        if not tx.schedules.advance(due.schedule, before=before.since_at):
            return _done_before(tx, missed, prepared)
        fired = 0
        count = sum(_miss(tx, one, now) for one in missed)
        for one in prepared:
            stored = _fire(tx, before, one, now)
            fired += stored is not None and stored.status is not FiringStatus.MISSED
            count += stored is not None and stored.status is FiringStatus.MISSED
        return Fired(fired=fired, missed=count)

    return fire


def firing_now(
    before: Schedule, *, now: datetime, request_id: str | None = None
) -> Write[tuple[Firing | None, str | None]]:
    """The write that fires a schedule because a caller asked for it: the firing, or why there is none.

    The same request id again gives the first firing.
    """
    # Planned occurrences are on whole seconds, so a moment between two seconds is never one of them.
    at = now if now.microsecond else now.replace(microsecond=1)
    prepared = _prepare(before, at, now, cause=FiringReason.REQUESTED, request_id=request_id)

    def fire(tx: Tx) -> tuple[Firing | None, str | None]:
        schedule = tx.schedules.lock(before.name)
        if schedule is None or not prepared.firing.is_of(schedule):
            raise NotFound("schedule", before.name)
        try:
            known = tx.firings.get(prepared.firing.id)
        except NotFound:
            pass
        else:
            return known, None
        ahead = _ahead(tx, schedule)
        if ahead and schedule.spec.overlap is OverlapPolicy.SKIP:
            return None, ahead[0].id
        return _fire(tx, schedule, prepared, now), None

    return fire


def starting(waiting: Firing, before: Schedule | None, *, now: datetime) -> Write[bool]:
    """The write that starts a firing that waited, if the one before it has ended and its schedule is on."""
    work = None if before is None or before.spec.agent is not None else _work(before, waiting, now)

    def start(tx: Tx) -> bool:
        schedule = tx.schedules.lock(waiting.schedule)
        if not waiting.is_of(schedule):
            schedule = None
        firing = tx.firings.get(waiting.id)
        if firing.task_id is not None or firing.status is not FiringStatus.DUE:
            return work is not None and firing.task_id == work[0].id
        if schedule is None or work is None:
            tx.firings.move(
                firing.id, FiringStatus.MISSED, now=now, why="its schedule was removed or changed"
            )
            return False
        others = [one for one in _ahead(tx, schedule) if one.id != firing.id]
        if not firing.is_in_the_way(schedule) or any(
            one.task_id or one.message_id or one.occurrence_at < firing.occurrence_at for one in others
        ):
            return False
        if tx.firings.start(firing.id, work[0].id, now=now) is None:
            return False
        create_prepared(tx, *work, now)
        return True

    return start


def firing_of(tx: Tx, task: Task) -> Firing | None:
    """The firing that a task carries out: it posted the task's message, or made the task itself."""
    key = task.dedup_key or ""
    if key.startswith(KEY_PREFIX):
        try:
            return tx.firings.get(key.removeprefix(KEY_PREFIX))
        except NotFound:  # retention has removed it
            return None
    return tx.firings.of_message(key.removeprefix("message:"))


def settling(firing_ids: Sequence[str], *, now: datetime) -> Write[None]:
    """The write that ends firings whose task has ended."""

    def settle(tx: Tx) -> None:
        for one in sorted(firing_ids):
            _settle(tx, tx.firings.get(one), now)

    return settle


def _settle(tx: Tx, firing: Firing, now: datetime) -> bool:
    if firing.task_id is None or firing.message_id is not None or firing.status not in _OPEN:
        return False
    task = tx.tasks.get_many([firing.task_id]).get(firing.task_id)
    if task is not None and not task.has_ended:
        return False
    if task is not None and task.status is TaskStatus.SUCCEEDED:
        to, why = FiringStatus.DONE, None
    else:
        to, why = (
            FiringStatus.FAILED,
            "its task is gone" if task is None else f"its task is {task.status.value}",
        )
    with contextlib.suppress(IllegalMove):  # another gateway was quicker
        tx.firings.move(firing.id, to, now=now, why=why)
    tx.hint("schedules")
    return True


_OPEN = (FiringStatus.DUE, FiringStatus.RUNNING, FiringStatus.REQUEUED)


# --- one occurrence


def _fire(tx: Tx, schedule: Schedule, one: _Prepared, now: datetime) -> Firing | None:
    """Store the firing and what it creates; None if the occurrence was fired before."""
    firing = one.firing
    before = tx.firings.find(firing)
    if before is not None and _is_premature(before, now):
        tx.firings.delete([before.id])
    elif before is not None:
        return before if before.id == firing.id else None
    ahead = _ahead(tx, schedule)
    why = _why_not(schedule, ahead)
    if why is not None:
        skipped = msgspec.structs.replace(firing, status=FiringStatus.MISSED, message_id=None, why=why)
        return skipped if _miss(tx, skipped, now) else None
    if schedule.spec.overlap is OverlapPolicy.REPLACE:
        for other in tx.firings.open_of(schedule, limit=MAX_WAITING + 1):
            _replace(tx, other, firing, now)
        ahead = _ahead(tx, schedule)
    if one.work is not None and not ahead:
        firing = msgspec.structs.replace(firing, status=FiringStatus.RUNNING, task_id=one.work[0].id)
    if tx.firings.create(firing).id != firing.id:
        return None  # another gateway was quicker
    if one.message is not None:
        post(tx, one.message)
    elif one.work is not None and not ahead:
        create_prepared(tx, *one.work, now)
    else:
        tx.hint("schedules")
    tell_fired(tx, firing, now)
    return firing


def _ahead(tx: Tx, schedule: Schedule) -> list[Firing]:
    """The open firings that a new one waits for, oldest first."""
    return [one for one in tx.firings.open_of(schedule, limit=2 * MAX_WAITING) if one.is_in_the_way(schedule)]


def _why_not(schedule: Schedule, ahead: Sequence[Firing]) -> str | None:
    if ahead and schedule.spec.overlap is OverlapPolicy.SKIP:
        return f"{ahead[0].id} had not ended: overlap = skip"
    if len(ahead) > MAX_WAITING and schedule.spec.overlap is OverlapPolicy.QUEUE:
        return f"{MAX_WAITING} firings waited already"
    return None


def _replace(tx: Tx, other: Firing, by: Firing, now: datetime) -> None:
    """Cancel a firing that has not ended, in the write that stores the next one."""
    reason = f"replaced by the next firing of its schedule, {by.id}"
    if other.message_id is not None and tx.messages.get(other.message_id).status is MessageStatus.QUEUED:
        withdraw(tx, other.message_id, now=now)
    elif other.task_id is not None:
        cancelling(other.task_id, owner=None, reason=reason, now=now)(tx)
        _settle(tx, tx.firings.get(other.id), now)
    elif other.message_id is None and other.status is FiringStatus.DUE:
        tx.firings.move(other.id, FiringStatus.MISSED, now=now, why=reason)


def _miss(tx: Tx, firing: Firing, now: datetime) -> bool:
    before = tx.firings.find(firing)
    if before is not None:
        return before.id == firing.id
    if tx.firings.create(firing).id != firing.id:
        return False
    tx.emit(
        EventKind.SCHEDULE_MISSED,
        firing.id,
        at=now,
        schedule=firing.schedule,
        occurrence_at=firing.occurrence_at.isoformat(),
        why=firing.why,
    )
    return True


def _done_before(tx: Tx, missed: Sequence[Firing], prepared: Sequence[_Prepared]) -> Fired:
    """What this write did when it ran before: the firings with its own ids."""

    def is_ours(firing: Firing) -> Firing | None:
        found = tx.firings.find(firing)
        return found if found is not None and found.id == firing.id else None

    ours = [found for one in prepared if (found := is_ours(one.firing)) is not None]
    skipped = sum(one.status is FiringStatus.MISSED for one in ours)
    return Fired(fired=len(ours) - skipped, missed=skipped + sum(is_ours(one) is not None for one in missed))


def _is_premature(firing: Firing, now: datetime) -> bool:
    """Whether a clock that was ahead recorded it as missed before its time."""
    return firing.status is FiringStatus.MISSED and firing.created_at > now + TOLERANCE


# --- what a firing creates


def _missed(schedule: Schedule, at: datetime, why: str, now: datetime) -> Firing:
    return Firing(
        id=new_firing_id(now),
        schedule=schedule.name,
        occurrence_at=at,
        session_key=schedule.spec.session_key,
        created_at=now,
        status=FiringStatus.MISSED,
        updated_at=now,
        why=why,
        schedule_made_at=schedule.created_at,
    )


def _prepare(
    schedule: Schedule,
    at: datetime,
    now: datetime,
    *,
    cause: FiringReason = FiringReason.PLANNED,
    request_id: str | None = None,
) -> _Prepared:
    firing = Firing(
        id=new_firing_id(now) if request_id is None else _requested_id(schedule, request_id),
        schedule=schedule.name,
        occurrence_at=at,
        session_key=schedule.spec.session_key,
        created_at=now,
        updated_at=now,
        cause=cause,
        schedule_made_at=schedule.created_at,
    )
    if schedule.spec.agent is None:
        return _Prepared(firing=firing, work=_work(schedule, firing, now))
    message = new_message(
        schedule.spec.session_key,
        schedule.spec.prompt,
        Origin(channel=CRON_CHANNEL, peer=schedule.name),
        channel_message_id=occurrence_id(schedule.name, at),
        now=now,
    )
    return _Prepared(firing=msgspec.structs.replace(firing, message_id=message.id), message=message)


def _work(schedule: Schedule, firing: Firing, now: datetime) -> tuple[Task, RunRecord]:
    """The task of one firing; its key is the firing, so it is created once."""
    spec = schedule.spec
    arguments: object = spec.arguments
    if spec.task is None:
        arguments = {"command": spec.command, "directory": spec.directory, "timeout_s": spec.timeout_s}
    when = f"{firing.occurrence_at:%Y-%m-%d %H:%M} UTC"
    return prepare(
        NewTask(
            name=spec.task_name,
            goal=f"{spec.title or spec.description or spec.target} (schedule {schedule.name}, {when})",
            owner=schedule.owner,
            arguments=arguments,
            runtime=RuntimeName.COMMAND if spec.task_name == COMMAND_TASK else RuntimeName.PYTHON,
            origin=Origin(channel=CRON_CHANNEL, peer=schedule.name),
            key=f"{KEY_PREFIX}{firing.id}",
            notify=NotifyPolicy.SILENT,
        ),
        now,
    )


def _requested_id(schedule: Schedule, request_id: str) -> FiringId:
    if not isinstance(request_id, str) or not 0 < len(request_id) <= 200:
        raise BadInput(
            "requestId", "1 to 200 characters are needed, the same for each repetition of a request"
        )
    given = msgspec.json.encode([schedule.name, to_micros(schedule.created_at), request_id])
    digest = hashlib.blake2b(given, digest_size=13).hexdigest()
    return FiringId(f"fire_{digest}")
