"""Reopens a task that ended without success: a follow-up run of the same task, from its own journal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import Refused, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.flow import Flow, TaskChangeKind
from holdfast.core.ids import RunId, new_run_id
from holdfast.core.run import Queue, RunRecord
from holdfast.core.step import Step
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import TaskStatus
from holdfast.engine.journal.scopes import Key, TaskHistory
from holdfast.engine.ledger.ledger import ended_with, tell_campaign, tell_flow
from holdfast.store import Tx

# A fact of a failure: the steps that made the task fail.
FAILED_STEPS = "failed_steps"
MOST_STEPS = 100
# The failure of a task that was not resumed. Only a person reopens it.
NOT_RESUMED = "failed_resume"
# The failure of a task whose journal is gone: a new run would repeat what the task has done.
PRUNED = "pruned"
# The name of a step in the journal: how many failed runs no longer count, because a person retried the task.
FORGIVEN = "retry!forgiven"
# The steps of each question of the retry ladder, and the answer that made the task fail.
_LADDER = ("ladder", "ladder!asked", "ladder!item")
_SAID_FAIL = b'"fail"'
_NOT_TO_BE_TRIED = frozenset({NOT_RESUMED, PRUNED})
_BY_ITS_WORK = frozenset({TaskStatus.FAILED, TaskStatus.TIMED_OUT})


def naming_steps(failure: Failure, keys: Iterable[Key]) -> Failure:
    """The failure with the steps that caused it: a later run of the task tries them again."""
    named = [list(key) for key in dict.fromkeys(keys)][:MOST_STEPS]
    return (
        msgspec.structs.replace(failure, facts={**failure.facts, FAILED_STEPS: named}) if named else failure
    )


def may_go_on(task: Task) -> bool:
    """Whether a retry of its parent reopens the task: only if its own work failed, not if a person cancelled
    it, if it killed its process again and again, or if retention removed it."""
    is_given_up = task.failure is not None and task.failure.kind in _NOT_TO_BE_TRIED
    is_cancelled = task.cancel_requested_at is not None
    return task.status in _BY_ITS_WORK and not is_given_up and not is_cancelled


def check_flow(tx: Tx, task: Task) -> None:
    """Raises Refused for a task of a managed flow that has ended or is to be cancelled: its cancel is sticky.
    A flow that mirrors the task follows it instead."""
    flow = _stopping_flow(tx, task)
    if flow is not None:
        state = flow.status.value if flow.has_ended else "being cancelled"
        raise Refused(
            f"{task.id} is a part of {flow.id}, which is {state}, so nothing of it goes on any more; start "
            f"the flow again under another key, or continue without it: holdfast tasks fork {task.id}"
        )


def _stopping_flow(tx: Tx, task: Task) -> Flow | None:
    """The managed flow of the task, if it has ended or is to be cancelled."""
    flow = None if task.flow_id is None else tx.flows.find(task.flow_id)
    if flow is None or flow.is_mirrored:
        return None
    return flow if flow.has_ended or flow.cancel_requested_at is not None else None


def go_on(tx: Tx, task: Task, *, now: datetime) -> None:
    """Create a follow-up run that continues from the journal and tries the failed steps again. Children that
    were cancelled only because the task ended are reopened, too."""
    run = tx.runs.last_of_task(task.id)
    after = follow_up(run, new_run_id(now), due_at=now, now=now)
    # A suspect stays one.
    after = msgspec.structs.replace(after, is_alone=run.is_alone, idle_attempts=run.idle_attempts)
    _reopen(tx, task, run, after, now=now)


def go_on_anew(tx: Tx, task: Task, run_id: RunId, *, now: datetime) -> bool:
    """The same for a person's retry: the run is no suspect, and its attempts are counted from zero.

    False unless the task has ended without success. Raises RowDamaged.
    """
    run = tx.runs.last_of_task(task.id)
    if run.is_damaged:
        raise RowDamaged("run", run.id)
    if not _reopen(tx, task, run, follow_up(run, run_id, due_at=now, now=now), now=now):
        return False
    forgive(tx, task, run, now=now)
    return True


def _reopen(tx: Tx, task: Task, run: RunRecord, after: RunRecord, *, now: datetime) -> bool:
    if not tx.tasks.go_on(task, now=now):
        return False
    tell_flow(tx, task, TaskChangeKind.REOPENED, now=now, status=task.status)
    tell_campaign(tx, task, now=now)
    if run.failure is not None:
        _forget(tx, task.id, _failed_steps(run.failure))
    tx.runs.create(after)
    tx.emit(EventKind.TASK_REOPENED, task.id, at=now, task_id=task.id, run_id=after.id)
    tx.hint("runs")
    go_on_with_children(tx, task, now=now)
    return True


def forgive(tx: Tx, task: Task, run: RunRecord, *, now: datetime) -> None:
    """Count the failures of a task from zero. `run` is the one that ended it. If a person answered the
    ladder's question with "fail", forget that answer."""
    for step in tx.journal.steps(task.id):
        if (step.scope, step.name, step.result) == ("", "ladder", _SAID_FAIL):
            for name in _LADDER:
                tx.journal.forget_idle(task.id, "", name, step.occurrence)
    micros = to_micros(now)
    note = Step(
        task_id=task.id,
        name=FORGIVEN,
        occurrence=str(run.number),
        # Not the follow-up run: a step of that run would count as its progress.
        run_id=run.id,
        seq=micros,
        result=msgspec.json.encode(tx.runs.count_failed(task.id)),
        started_us=micros,
        ended_us=micros,
    )
    tx.journal.put_step(note)


def forgiven_in(past: TaskHistory) -> int:
    """How many failed runs of the task no longer count."""
    notes = [step for step in past.within("") if step.name == FORGIVEN]
    return max((msgspec.json.decode(note.result, type=int) for note in notes), default=0)


def go_on_with_children(tx: Tx, task: Task, *, now: datetime) -> None:
    """Reopen the children that ended only because this task did, but for those whose flow has ended since."""
    for child in tx.tasks.children(task.id):
        ended_with_it = child.status is TaskStatus.CANCELLED and child.cancel_reason == ended_with(task.id)
        if ended_with_it and _stopping_flow(tx, child) is None:
            go_on(tx, tx.tasks.lock(child.id), now=now)


def _forget(tx: Tx, task_id: str, keys: list[Key]) -> None:
    if not keys:
        return
    past = TaskHistory(
        steps=tx.journal.steps(task_id), effects=tx.effects.unsettled([task_id]).get(task_id, ())
    )
    for key in keys:
        if key in past.effects and past.effects[key].is_undone:
            continue
        for one in (key, *past.beside(key)):
            tx.journal.forget_idle(task_id, *one)


def _failed_steps(failure: Failure) -> list[Key]:
    try:
        return msgspec.convert(failure.facts.get(FAILED_STEPS, []), type=list[Key])
    except msgspec.ValidationError:
        return []


def follow_up(run: RunRecord, run_id: RunId, *, due_at: datetime, now: datetime) -> RunRecord:
    """The run that continues after one that ended without success."""
    ready = Queue.READY if due_at <= now else Queue.LATER
    return RunRecord(
        id=run_id,
        task_id=run.task_id,
        task_name=run.task_name,
        number=run.number + 1,
        resumes_run_id=run.id,
        seed=run.seed,
        created_at=now,
        priority=run.priority,
        due_at=due_at,
        # A producer outside goes on with its own work.
        queue=run.queue if run.queue is Queue.PRODUCER else ready,
        updated_at=now,
    )
