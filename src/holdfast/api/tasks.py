"""Tasks for every door: a page of them, one in full, cancel; and the same as OpenClaw's clients read them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.api.params import IdText, NameText, PageSize, Params, ShortText
from holdfast.core.errors import BadInput, HoldfastError, NotFound, RowDamaged
from holdfast.core.ids import is_whole_id
from holdfast.core.transitions import TaskStatus
from holdfast.store.tasks import LAST
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.effects import EffectView
from holdfast.views.payloads import PayloadView
from holdfast.views.programs import ChildView, ListView, LoopView, ValueView
from holdfast.views.questions import QuestionView
from holdfast.views.runs import RunView, StepView
from holdfast.views.tasks import CancelView, TaskDetailView, TaskPageView, TaskView, WaitedView
from holdfast.views.text import one_line
from holdfast.views.waits import WaitView, kind_of

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.effect import Effect
    from holdfast.core.scope import Question
    from holdfast.core.task import Task
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

T = TypeVar("T")

LATEST_STEPS = 10
# Of anything that a task may have thousands of, one that is shown has so many at most.
SHOWN_AT_MOST = 20
# A wait without a due time has one in the year 9999.
NEVER_YEAR = 9999

_OUTCOMES = {
    "Cancelled": "cancelled",
    "CancelRequested": "cancel_requested",
    "AlreadyEnded": "already_ended",
}


def read_page(
    tx: Tx, *, statuses: tuple[TaskStatus, ...], owner: str | None, before: str | None, limit: int
) -> TaskPageView:
    end = LAST if before is None else place_of("task", before, partial(tx.tasks.resolve, owner=owner))
    found = tx.tasks.page(statuses=statuses, owner=owner, before=end, limit=limit + 1)
    return TaskPageView(
        tasks=[TaskView.of(task) for task in found[:limit]],
        counts=tx.events.counts("task"),
        next_page_token=found[limit - 1].id if len(found) > limit else None,
    )


def read_asked_page(tx: Tx, asked: TasksAsked, *, owner: str | None) -> TaskPageView:
    """The page that was asked for. Whoever is bound to an owner hears of that one's tasks alone."""
    if owner is None:
        return read_page(tx, statuses=asked.status, owner=asked.owner, before=asked.before, limit=asked.limit)
    if asked.owner not in (None, owner):
        return TaskPageView(tasks=[], counts={}, next_page_token=None)
    page = read_page(tx, statuses=asked.status, owner=owner, before=asked.before, limit=asked.limit)
    # How many others there are is not theirs to know.
    return msgspec.structs.replace(page, counts={})


def place_of(prefix: str, token: str, resolve: Callable[[str], str]) -> str:
    """Where a page begins. The record that the last page ended with may have been pruned meanwhile.

    Raises BadInput for what never was an id: the page of nobody would look like the first, or the last.
    """
    try:
        return resolve(token)
    except NotFound:
        if is_whole_id(prefix, token):
            return token
        why = f"{token!r:.80} is no place in this list; give the token under the page before, as it is"
        raise BadInput("page token", why) from None


def read_detail(tx: Tx, task_id: str) -> TaskDetailView:
    """Everything that can be read; a damaged part is named and does not hide the others.

    Of what may be endless only the newest is read, and `more` says so.
    """
    problems: list[str] = []
    more: list[str] = []
    task = tx.tasks.look(task_id)
    if task.is_damaged:
        problems.append(str(RowDamaged("task", task_id)))
    view = TaskDetailView(
        task=TaskView.of(task),
        arguments=_payload(tx, task.arguments, problems),
        result=None if task.result is None else _payload(tx, task.result, problems),
        plan=None,
        runs=[],
        checkpoints=[],
        steps_saved=0,
        latest_steps=[],
        more=more,
        problems=problems,
    )

    def newest(what: str, found: list[T]) -> list[T]:
        if len(found) > SHOWN_AT_MOST:
            more.append(what)
        return found[:SHOWN_AT_MOST][::-1]

    def read_runs() -> dict[str, object]:
        return {"runs": [RunView.of(run) for run in tx.runs.of_task(task_id)]}

    def read_checkpoints() -> dict[str, object]:
        found = tx.checkpoints.page(task_id=task_id, limit=100)
        return {"checkpoints": [CheckpointLineView.of(one) for one in reversed(found)]}

    def read_plan() -> dict[str, object]:
        plans = tx.journal.plans([task_id])
        return {"plan": PlanView.of(plans[task_id][1]) if task_id in plans else None}

    def read_journal() -> dict[str, object]:
        heads = tx.journal.heads([task_id])
        found = tx.journal.newest_steps(task_id, limit=LATEST_STEPS)
        return {
            "steps_saved": heads[task_id].steps_saved if task_id in heads else 0,
            "latest_steps": [StepView.of(step, tx.blobs.open(step.result)) for step in reversed(found)],
        }

    def read_memory() -> dict[str, object]:
        loops = tx.turns.loops([task_id]).get(task_id, {})
        values = tx.lists.values([task_id]).get(task_id, {})
        lengths = tx.lists.lengths(task_id)
        return {
            "loops": [LoopView.of(loop) for loop in loops.values()],
            "lists": [ListView(name=one_line(name), length=length) for name, length in lengths.items()],
            "values": [ValueView.of(value) for value in values.values()],
        }

    def read_effects() -> dict[str, object]:
        found = tx.effects.newest_of_task(task_id, limit=SHOWN_AT_MOST + 1)
        return {"effects": [EffectView.of(effect) for effect in newest("effects", found)]}

    def read_questions() -> dict[str, object]:
        found = [] if task.has_ended else tx.questions.open_of_task(task_id, limit=SHOWN_AT_MOST)
        return {"questions": [QuestionView.of(question, task) for question in found]}

    def read_children() -> dict[str, object]:
        found = tx.tasks.newest_children(task_id, limit=SHOWN_AT_MOST + 1)
        return {"children": [ChildView.of(child) for child in newest("children", found)]}

    for part in (
        lambda: {"waits_for": read_wait(tx, task)},
        read_runs,
        read_checkpoints,
        read_plan,
        read_journal,
        read_memory,
        read_effects,
        read_questions,
        read_children,
    ):
        try:
            view = msgspec.structs.replace(view, **part())
        except HoldfastError as error:
            problems.append(one_line(str(error)))
    return view


def read_wait(tx: Tx, task: Task) -> WaitView | None:
    """What it waits for, with the question, the effect or the child looked up."""
    if task.waits_on is None:
        return None
    run = tx.runs.live_of_task(task.id)
    until = None if run is None or run.waits_on is None or run.due_at.year >= NEVER_YEAR else run.due_at
    try:
        about = _waited_for(tx, *kind_of(task.waits_on))
    except HoldfastError:  # damaged or gone: its id is all there is to say
        about = None
    return WaitView.of(task, about, until=until)


def _waited_for(tx: Tx, kind: str, subject: str) -> Question | Effect | Task | None:
    match kind:
        case "answer":
            return tx.questions.get(subject)
        case "review":
            return tx.effects.get(subject)
        case "child":
            return tx.tasks.look(subject)
        case _:
            return None


def _payload(tx: Tx, stored: bytes, problems: list[str]) -> PayloadView | None:
    try:
        return PayloadView.of(tx.blobs.open(stored))
    except HoldfastError as error:
        problems.append(one_line(str(error)))
        return None


def look_at(tx: Tx, task_id: str) -> WaitedView:
    task = tx.tasks.look(task_id)
    result = None if task.result is None else PayloadView.of(tx.blobs.open(task.result))
    return WaitedView(has_ended=task.has_ended, task=TaskView.of(task), result=result)


# --- what methods and commands ask


class TasksAsked(Params, frozen=True, kw_only=True):
    """Which tasks, newest first."""

    status: tuple[TaskStatus, ...] = ()
    owner: NameText | None = None
    limit: PageSize = 50
    # The `next_page_token` of the page before.
    before: IdText | None = None


class TaskAsked(Params, frozen=True, kw_only=True):
    """One task, by its id or a beginning of it that fits only one."""

    task_id: IdText


class CancelAsked(Params, frozen=True, kw_only=True):
    """The end of one task, and why."""

    task_id: IdText
    reason: ShortText = "cancelled by an operator"


def cancelling_task(asked: CancelAsked, *, now: datetime, owner: str | None = None) -> Write[CancelView]:
    """The write that cancels, with what it did as its answer."""
    from holdfast.engine.ledger import cancelling

    def cancel(tx: Tx) -> CancelView:
        task_id = tx.tasks.resolve(asked.task_id, owner=owner)
        outcome = cancelling(task_id, reason=asked.reason, owner=None, now=now)(tx)
        return CancelView(outcome=_OUTCOMES[type(outcome).__name__], task=TaskView.of(outcome.task))

    return cancel
