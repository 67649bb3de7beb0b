"""A person's retry of a task that ended without success: one follow-up run from the last saved step."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import Conflict, IllegalMove, NotFound, Pruned, Refused
from holdfast.core.events import EventKind
from holdfast.core.ids import RunId, check_id, new_run_id
from holdfast.core.task import Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.ledger.ledger import ended_with, owned
from holdfast.engine.recovery.reopen import check_flow, forgive, go_on_anew
from holdfast.engine.recovery.resume import retrying
from holdfast.store import Tx, Write
from holdfast.store.events import START


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The reopened task, with the same id and key. `run_id` is its new run: queued, or paused if the task
    failed because it could not be resumed; the next resume takes it then."""

    task: Task
    run_id: RunId


def retrying_task(
    task_id: str,
    *,
    now: datetime,
    may_be_cancelled: bool = False,
    owner: str | None = None,
    run_id: RunId | None = None,
) -> Write[Retried]:
    """The write that reopens a task. Its attempts and its time are counted from zero, its saved steps are
    kept, and the steps that made it fail are tried again.

    Raises IllegalMove for a task that has not ended or has succeeded (so the second of two concurrent retries
    fails), Pruned if its journal is gone, Conflict while its parent runs or one of its children is still
    being stopped, and Refused for a task that cannot be retried; then the message says what to do instead.
    """
    check_id("task", task_id)
    new_id = run_id or new_run_id(now)

    def retry(tx: Tx) -> Retried:
        task = _locked(tx, task_id, owner)
        if not tx.runs.get_many([new_id]):  # else this write runs again after its own commit
            _check(tx, task.checked(), may_be_cancelled=may_be_cancelled)
            _open_again(tx, task, new_id, now)
        return Retried(task=tx.tasks.look(task_id), run_id=new_id)

    return retry


def absent(tx: Tx, task_id: str, *, owner: str | None) -> NotFound:
    """Why there is no such task: the feed may show that retention removed it."""
    position = START
    # A caller that is bound to an owner must not learn that another owner had this task.
    while owner is None and (events := tx.events.of_task(task_id, position)):
        if any(event.kind is EventKind.TASK_PRUNED for event in events):
            return Pruned(task_id)
        position = events[-1].position
    return NotFound("task", task_id)


def _locked(tx: Tx, task_id: str, owner: str | None) -> Task:
    try:
        return owned(tx.tasks.lock(task_id), owner)
    except NotFound:
        raise absent(tx, task_id, owner=owner) from None


def _check(tx: Tx, task: Task, *, may_be_cancelled: bool) -> None:
    if task.status is TaskStatus.SUCCEEDED:
        remedy = (
            f"retried: nothing of it failed; to do it otherwise: holdfast tasks fork {task.id} --at start"
        )
        raise IllegalMove("task", task.id, task.status.value, remedy)
    if not task.has_ended:
        raise IllegalMove("task", task.id, task.status.value, "retried: it goes on already")
    if task.session_key is not None and not _is_given_up(tx, task):
        raise Refused(
            f"{task.id} answered a message of the session {task.session_key}, which was told of its end and "
            f"has gone on since; send the message again: holdfast sessions send {task.session_key} TEXT"
        )
    check_flow(tx, task)
    if task.status is TaskStatus.CANCELLED and not may_be_cancelled:
        raise Refused(
            f"{task.id} was cancelled: {task.cancel_reason or 'no reason was given'}; to go on with it all "
            f"the same: holdfast tasks retry {task.id} --cancelled"
        )
    _check_family(tx, task)


def _check_family(tx: Tx, task: Task) -> None:
    parents = [] if task.parent_task_id is None else [task.parent_task_id]
    for parent in tx.tasks.get_many(parents).values():
        if not parent.has_ended:
            # The parent handles the failure: if it is retried, it reopens the child itself.
            raise Conflict(
                f"{parent.id}, which started {task.id}, is {parent.status.value} and decides about it; "
                "retry it when that one has ended"
            )
        if parent.status is TaskStatus.SUCCEEDED:
            raise Refused(
                f"{parent.id}, which started {task.id}, has succeeded without it, and nothing waits for its "
                f"result any more; start a new task from it: holdfast tasks fork {task.id} --at start"
            )
    stopping = _still_stopping(tx, task)
    if stopping is not None:
        raise Conflict(
            f"{stopping}, which was to end with {task.id}, is still being stopped; try again in a moment"
        )


def _still_stopping(tx: Tx, task: Task) -> str | None:
    """A child that a worker still runs although it must end with this task: it cannot be reopened yet."""
    for child in tx.tasks.children(task.id):
        if child.cancel_reason != ended_with(task.id):
            continue
        found = _still_stopping(tx, child) if child.has_ended else child.id
        if found is not None:
            return found
    return None


def _open_again(tx: Tx, task: Task, run_id: RunId, now: datetime) -> None:
    checkpoint_id = _failed_checkpoint(tx, task)
    if checkpoint_id is None:
        is_open = go_on_anew(tx, task, run_id, now=now)
        assert is_open, f"{task.id} is locked, and has ended without success"
        return
    forgive(tx, task, tx.runs.last_of_task(task.id), now=now)
    retrying(checkpoint_id, now=now, run_id=run_id)(tx)


def _failed_checkpoint(tx: Tx, task: Task) -> str | None:
    """The checkpoint from which the task could not be resumed. None if the task failed for another reason, or
    if the checkpoint was pruned: then the journal has everything that is needed."""
    if task.failure is None or not _is_given_up(tx, task):
        return None
    found = tx.checkpoints.find(str(task.failure.facts.get("checkpoint_id", "")))
    return None if found is None else found.id


def _is_given_up(tx: Tx, task: Task) -> bool:
    """Whether the task could not be resumed. Its run says so; its failure may be that of a child."""
    return tx.runs.last_of_task(task.id).status is RunStatus.FAILED_RESUME
