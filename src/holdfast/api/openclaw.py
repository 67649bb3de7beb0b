"""tasks.*: tasks of the ledger in the format of OpenClaw's protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.deliveries import dismiss_delivery, may_be_dismissed
from holdfast.api.params import IdText, NameText, PageToken, Params, ShortText
from holdfast.api.wire_details import summaries, summary
from holdfast.core.errors import BadInput, HoldfastError, IllegalMove, NotFound
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import (
    CheckpointStatus,
    DeliveryStatus,
    TaskStatus,
    is_terminal,
)
from holdfast.store.task_pages import LOOKED_AT, fits
from holdfast.store.tasks import LAST
from holdfast.views.wire import (
    WIRE_STATUS,
    TaskCancelled,
    TaskDismissed,
    TaskFound,
    TaskListed,
    TaskRetried,
    TasksDismissed,
    TasksRetried,
    WireStatus,
)

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.task import Task
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

# The limits of the protocol.
MAX_WIRE_PAGE = 500
_BATCH = 500
_AGE_TOKEN = re.compile(r"(\d{1,19})\.([a-z0-9_-]{1,64})")
_ID_TOKEN = re.compile(r"[a-z0-9_-]{1,64}")
_ALIVE = tuple(status for status in TaskStatus if not is_terminal(status))


class ListAsked(Params, frozen=True, kw_only=True):
    """A page of tasks, newest first, or by when they changed or ended."""

    status: WireStatus | list[WireStatus] | None = None
    agent_id: NameText | None = None
    session_key: NameText | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_WIRE_PAGE)] = 100
    cursor: PageToken | None = None
    sort_by: Literal["updatedAt", "endedAt"] | None = None


class GetAsked(Params, frozen=True, kw_only=True):
    """One task."""

    task_id: ShortText


class WireCancelAsked(Params, frozen=True, kw_only=True):
    """Cancel one task."""

    task_id: ShortText
    reason: ShortText | None = None


class SeveralAsked(Params, frozen=True, kw_only=True):
    """Up to ten tasks."""

    task_ids: Annotated[list[IdText], msgspec.Meta(min_length=1, max_length=10)]


class NoSuchTask(BadInput):
    """The protocol reports a missing task as an invalid request, with this message."""

    code = NotFound.code

    def __init__(self, task_id: str) -> None:
        super().__init__("taskId", "no such task")
        self.args = (f"task not found: {task_id}",)


def list_tasks(
    tx: Tx, asked: ListAsked, *, reach: Reach = EVERYTHING, projection: Projection | None = None
) -> TaskListed:
    wanted = TaskFilter(statuses=_statuses(asked.status), agent=asked.agent_id, session_key=asked.session_key)
    listed = _newest_first if asked.sort_by is None else _by_age
    found, token = listed(tx, asked, wanted, reach)
    return TaskListed(tasks=summaries(tx, found, projection), next_cursor=token)


def get_task(
    tx: Tx, asked: GetAsked, *, reach: Reach = EVERYTHING, projection: Projection | None = None
) -> TaskFound:
    return TaskFound(task=summary(tx, find_wire_task(tx, asked.task_id, reach), projection))


def cancelling_wire_task(
    asked: WireCancelAsked, *, now: datetime, reach: Reach = EVERYTHING, cannot_stop: str | None = None
) -> Write[TaskCancelled]:
    """The write that cancels. For a missing task the protocol expects an answer, not an error; `cannot_stop`
    is why the runtime of recorded work cannot stop it."""
    from holdfast.engine.ledger.ledger import AlreadyEnded, Cancelled, CancelRequested
    from holdfast.engine.producers.stopping import ending_stopped, requesting

    def cancel(tx: Tx) -> TaskCancelled:
        try:
            task_id = find_wire_task(tx, asked.task_id, reach).id
        except BadInput:
            return TaskCancelled(found=False, cancelled=False, reason="Task not found.")
        reason = asked.reason or "cancelled by an operator"
        if cannot_stop is not None:
            kept = requesting(task_id, reason=reason, now=now)(tx)
            if not kept.has_ended:
                shown = summary(tx, kept)
                return TaskCancelled(found=True, cancelled=False, reason=cannot_stop, task=shown)
        match ending_stopped(task_id, reason=reason, now=now)(tx):
            case Cancelled(task=task):
                return TaskCancelled(found=True, cancelled=True, task=summary(tx, task))
            case CancelRequested(task=task):
                why = "Cancel requested; its worker cancels it when the task next calls Holdfast."
                return TaskCancelled(found=True, cancelled=True, reason=why, task=summary(tx, task))
            case AlreadyEnded(task=task):
                why = f"Task has already ended as {task.status.value}."
                return TaskCancelled(found=True, cancelled=False, reason=why, task=summary(tx, task))

    return cancel


def retrying_tasks(asked: SeveralAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[TasksRetried]:
    """Retry each task from the checkpoint whose resume failed; other tasks are refused."""
    from holdfast.engine.recovery.resume import retrying

    def retry_one(tx: Tx, task_id: str) -> TaskRetried:
        try:
            task = find_wire_task(tx, task_id, reach)
            checkpoint = next(
                (
                    one
                    for one in tx.checkpoints.page(task_id=task.id, limit=20)
                    if one.status is CheckpointStatus.FAILED_RESUME
                ),
                None,
            )
            if checkpoint is None:
                raise IllegalMove("task", task.id, task.status.value, "retried: no resume of it has failed")
            retrying(checkpoint.id, now=now)(tx)
        except HoldfastError as error:
            return TaskRetried(task_id=task_id, ok=False, reason=str(error))
        again = summary(tx, tx.tasks.look(task.id))
        return TaskRetried(task_id=task_id, ok=True, duplicate_risk=False, task=again)

    def retry(tx: Tx) -> TasksRetried:
        return TasksRetried(results=[retry_one(tx, task_id) for task_id in dict.fromkeys(asked.task_ids)])

    return retry


def dismissing_tasks(
    asked: SeveralAsked, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[TasksDismissed]:
    """Drop the pending and failed deliveries of each task.

    Sent deliveries stay as they are, and one that is being sent cannot be called back.
    """

    def dismiss_one(tx: Tx, task_id: str) -> TaskDismissed:
        try:
            task = find_wire_task(tx, task_id, reach)
            _dismiss(tx, task, now)
        except HoldfastError as error:
            return TaskDismissed(task_id=task_id, ok=False, reason=str(error))
        return TaskDismissed(task_id=task_id, ok=True, task=summary(tx, task))

    def dismiss(tx: Tx) -> TasksDismissed:
        return TasksDismissed(results=[dismiss_one(tx, task_id) for task_id in dict.fromkeys(asked.task_ids)])

    return dismiss


def _dismiss(tx: Tx, task: Task, now: datetime) -> None:
    found = tx.deliveries.of_task(task.id)
    for delivery in found:
        if may_be_dismissed(delivery):
            dismiss_delivery(tx, delivery, now=now)
    if any(may_be_dismissed(one) or one.status is DeliveryStatus.DISMISSED for one in found):
        return
    status = found[-1].status.value if found else DeliveryStatus.NOT_APPLICABLE.value
    raise IllegalMove("delivery", found[-1].id if found else task.id, status, DeliveryStatus.DISMISSED.value)


def find_wire_task(tx: Tx, task_id: str, reach: Reach) -> Task:
    """The task, or the error that the protocol expects for a missing one."""
    try:
        return tx.tasks.look(reach.resolve(tx, task_id))
    except NotFound as error:
        raise NoSuchTask(task_id) from error


def _statuses(asked: str | list[WireStatus] | None) -> tuple[TaskStatus, ...]:
    """Our statuses for those of the protocol; empty for all."""
    if asked is None:
        return ()
    wanted = {asked} if isinstance(asked, str) else set(asked)
    return tuple(ours for ours, theirs in WIRE_STATUS.items() if theirs in wanted)


def _newest_first(
    tx: Tx, asked: ListAsked, wanted: TaskFilter, reach: Reach
) -> tuple[list[Task], str | None]:
    if asked.cursor is not None and not _ID_TOKEN.fullmatch(asked.cursor):
        raise _bad_token()
    found = tx.tasks.find(wanted, reach=reach.filter, before=asked.cursor or LAST, limit=asked.limit)
    return found.tasks, found.next_before


def _by_age(tx: Tx, asked: ListAsked, wanted: TaskFilter, reach: Reach) -> tuple[list[Task], str | None]:
    """By end or by last change, and the page token that goes on."""
    found: list[Task] = []
    for number, (task, token) in enumerate(_in_order(tx, asked, reach), 1):
        if fits(tx, wanted, task):
            found.append(task)
        if len(found) == asked.limit or number == LOOKED_AT:
            return found, token
    return found, None


def _in_order(tx: Tx, asked: ListAsked, reach: Reach) -> Iterator[tuple[Task, str]]:
    """Each task with the page token that continues after it."""
    if reach.is_bound:
        return _own_by_age(tx, asked, reach)
    if asked.sort_by == "endedAt":
        return _last_ended_first(tx, asked.cursor)
    return _last_changed_first(tx, asked.cursor)


def _last_ended_first(tx: Tx, token: str | None) -> Iterator[tuple[Task, str]]:
    place = _read_age(token)
    while page := tx.tasks.page_by_end(before=place, limit=_BATCH):
        for task, place in page:
            yield task, f"{place[0]}.{place[1]}"
        if len(page) < _BATCH:
            return


def _own_by_age(tx: Tx, asked: ListAsked, reach: Reach) -> Iterator[tuple[Task, str]]:
    """The tasks of a limited caller, by end or last change; of many, only the newest.

    Filtering the list of all tasks instead would put the id of another owner's task into a page token.
    """
    place = _read_age(asked.cursor)
    own = reach.page(tx, before=LAST, limit=LOOKED_AT)
    placed = [(_place_of(one), one) for one in own if one.has_ended or asked.sort_by == "updatedAt"]
    for key, task in sorted((one for one in placed if one[0] < place), key=lambda one: one[0], reverse=True):
        yield task, f"{key[0]}.{key[1]}"


def _place_of(task: Task) -> tuple[int, str]:
    """The sort key: when it ended or, while it lives, when it last changed."""
    from holdfast.core.clock import to_micros

    return to_micros(task.ended_at or task.updated_at), task.id


def _last_changed_first(tx: Tx, token: str | None) -> Iterator[tuple[Task, str]]:
    """Live and ended tasks, by their last change; an ended task no longer changes.

    There is no index of changes, because every step would have to update it. So if there are very many live
    tasks, only the newest are sorted.
    """
    from heapq import merge

    place = _read_age(token)
    alive = [(_place_of(task), task) for task in tx.tasks.page(statuses=_ALIVE, limit=LOOKED_AT)]
    alive = sorted((one for one in alive if one[0] < place), key=lambda one: one[0], reverse=True)
    ended = ((_place_of(task), task) for task, _ in _last_ended_first(tx, token))
    for key, task in merge(alive, ended, key=lambda one: one[0], reverse=True):
        yield task, f"{key[0]}.{key[1]}"


def _read_age(token: str | None) -> tuple[int, str]:
    if token is None:
        return 2**62, LAST
    found = _AGE_TOKEN.fullmatch(token)
    if found is None:
        raise _bad_token()
    return int(found[1]), found[2]


def _bad_token() -> BadInput:
    return BadInput("cursor", "not a nextCursor of this list; request the first page without a cursor")
