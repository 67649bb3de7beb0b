"""Tasks for the API and the CLI: list, show, cancel, retry and fork."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec

from holdfast.api.contract import EVERYTHING, Caller, GatewayDoor, Reach
from holdfast.api.params import IdText, NameText, PageSize, Params, ShortText
from holdfast.core.errors import BadInput, HoldfastError, KeyConflict, NotFound, RowDamaged, StoreUnavailable
from holdfast.core.ids import is_whole_id, new_run_id
from holdfast.core.message import CRON_CHANNEL
from holdfast.core.task import Task as TaskRecord
from holdfast.core.transitions import TaskStatus
from holdfast.store.tasks import LAST
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.effects import EffectView
from holdfast.views.payloads import PayloadView
from holdfast.views.programs import ChildView, ListView, LoopView, ValueView
from holdfast.views.questions import QuestionView
from holdfast.views.runs import RunView, StepView
from holdfast.views.tasks import (
    CancelView,
    FiringView,
    ForkedView,
    NotRetriedView,
    ResultView,
    RetriedPageView,
    RetriedView,
    TaskDetailView,
    TaskPageView,
    TaskView,
    WaitedView,
)
from holdfast.views.text import one_line
from holdfast.views.waits import WaitView, kind_of, queued_wait

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.effect import Effect
    from holdfast.core.program_records import Question
    from holdfast.core.task import Task
    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx

T = TypeVar("T")

LATEST_STEPS = 10
# At most this many runs, steps, children and so on are shown of one task.
SHOWN_AT_MOST = 20
MAX_WAIT_MS = 25_000
# One call of a retry reads at most this many tasks, even if few match.
LOOKED_AT = 5000
_BATCH = 500
_LOOK_EVERY_S = 1.0
# A wait without a due time is stored with one in the year 9999.
NEVER_YEAR = 9999

_OUTCOMES = {
    "Cancelled": "cancelled",
    "CancelRequested": "cancel_requested",
    "AlreadyEnded": "already_ended",
}


class ResultAsked(Params, frozen=True, kw_only=True):
    """The outcome of one task; can wait for its end."""

    task_id: IdText
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0


async def result(gateway: GatewayDoor, asked: ResultAsked, caller: Caller) -> ResultView:
    """The result, for callers that may write. Raises RowDamaged if the stored result is damaged."""
    from holdfast.engine.ledger.ledger import opened

    task_id = await gateway.store.read(lambda tx: caller.reach.resolve(tx, asked.task_id))
    give_up_at = time.monotonic() + asked.wait_ms / 1000
    while True:
        view = await gateway.store.read(lambda tx: ResultView.of(opened(tx, tx.tasks.get(task_id))))
        left = give_up_at - time.monotonic()
        if view.has_ended or left <= 0:
            return view
        await gateway.store.wait_for("events", min(left, _LOOK_EVERY_S))


def read_page(
    tx: Tx,
    *,
    statuses: tuple[TaskStatus, ...],
    reach: Reach = EVERYTHING,
    before: str | None,
    limit: int,
) -> TaskPageView:
    end = LAST if before is None else place_of("task", before, partial(reach.resolve, tx))
    found = reach.page(tx, statuses=statuses, before=end, limit=limit + 1)
    return TaskPageView(
        tasks=[TaskView.of(task) for task in found[:limit]],
        counts=tx.events.counts("task"),
        next_page_token=found[limit - 1].id if len(found) > limit else None,
    )


def read_asked_page(tx: Tx, asked: TasksAsked, *, reach: Reach) -> TaskPageView:
    """A page of tasks; a limited caller sees only tasks that it may reach."""
    if reach.owner is not None and asked.owner not in (None, reach.owner):
        return TaskPageView(tasks=[], counts={}, next_page_token=None)
    wanted = reach if asked.owner is None else msgspec.structs.replace(reach, owner=asked.owner)
    page = read_page(tx, statuses=asked.status, reach=wanted, before=asked.before, limit=asked.limit)
    # Do not show a limited caller how many other tasks there are.
    return msgspec.structs.replace(page, counts={}) if reach.is_bound else page


def place_of(prefix: str, token: str, resolve: Callable[[str], str]) -> str:
    """Where a page begins. The last record of the previous page may have been pruned meanwhile.

    Raises BadInput for a token that is no id: otherwise it would silently show the first or the last page.
    """
    try:
        return resolve(token)
    except NotFound:
        if is_whole_id(prefix, token):
            return token
        why = f"{token!r:.80} is not a page token of this list; copy the one printed under the previous page"
        raise BadInput("page token", why) from None


async def show(gateway: GatewayDoor, asked: TaskAsked, caller: Caller) -> TaskDetailView:
    now, reach = gateway.clock.now(), caller.reach
    return await gateway.store.read(lambda tx: read_detail(tx, reach.resolve(tx, asked.task_id), now, reach))


def read_detail(tx: Tx, task_id: str, now: datetime, reach: Reach = EVERYTHING) -> TaskDetailView:
    """Everything about a task; a damaged part is reported without hiding the others.

    Of long lists only the newest entries are read, and `more` names those lists.
    """
    problems: list[str] = []
    more: list[str] = []
    task = tx.tasks.look(task_id)
    try:
        task.checked()
    except RowDamaged as damage:
        problems.append(str(damage))
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

    def read_firing() -> dict[str, object]:
        if task.origin is None or task.origin.channel != CRON_CHANNEL:
            return {}
        firing = tx.firings.of_message((task.dedup_key or "").removeprefix("message:"))
        return {"firing": None if firing is None else FiringView.of(firing)}

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
        found = [child for child in found if reach.covers(child.owner, child.name)]
        return {"children": [ChildView.of(child) for child in newest("children", found)]}

    for part in (
        lambda: {"waits_for": read_wait(tx, task, now, reach)},
        read_firing,
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


def read_wait(tx: Tx, task: Task, now: datetime, reach: Reach = EVERYTHING) -> WaitView | None:
    """What the task waits for, with details of the question, the effect or the child."""
    if task.waits_on is None and task.status is not TaskStatus.QUEUED:
        return None
    run = tx.runs.live_of_task(task.id)
    if task.waits_on is None:
        return None if run is None else queued_wait(task, run, now)
    until = None if run is None or run.waits_on is None or run.due_at.year >= NEVER_YEAR else run.due_at
    try:
        about = _waited_for(tx, *kind_of(task.waits_on))
    except HoldfastError:  # damaged or pruned: only its id is known
        about = None
    if isinstance(about, TaskRecord) and not reach.covers(about.owner, about.name):
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


# --- parameters of methods and commands


class TasksAsked(Params, frozen=True, kw_only=True):
    """Which tasks, newest first."""

    status: tuple[TaskStatus, ...] = ()
    owner: NameText | None = None
    limit: PageSize = 50
    # The `next_page_token` of the previous page.
    before: IdText | None = None


class TaskAsked(Params, frozen=True, kw_only=True):
    """One task, by its id or a unique prefix."""

    task_id: IdText


class CancelAsked(Params, frozen=True, kw_only=True):
    """Cancel one task, with a reason."""

    task_id: IdText
    reason: ShortText = "cancelled by an operator"


def cancelling_task(
    asked: CancelAsked, *, now: datetime, reach: Reach = EVERYTHING, cannot_stop: str | None = None
) -> Write[CancelView]:
    """The write that cancels a task. `cannot_stop` is why the runtime of recorded work cannot stop it."""
    from holdfast.engine.ledger.ledger import cancelling
    from holdfast.engine.producers.stopping import requesting

    def cancel(tx: Tx) -> CancelView:
        task_id = reach.resolve(tx, asked.task_id)
        if cannot_stop is not None:
            kept = requesting(task_id, reason=asked.reason, why=cannot_stop, now=now)(tx)
            return CancelView(outcome="cancel_requested", task=TaskView.of(kept.task))
        outcome = cancelling(task_id, reason=asked.reason, owner=None, now=now)(tx)
        return CancelView(outcome=_OUTCOMES[type(outcome).__name__], task=TaskView.of(outcome.task))

    return cancel


# --- retry


class RetryAsked(Params, frozen=True, kw_only=True):
    """Retry a task that ended without success; a cancelled one only with `cancelled`."""

    task_id: IdText
    cancelled: bool = False


class RetryPageAsked(Params, frozen=True, kw_only=True):
    """Retry several tasks, newest first: those in these statuses, optionally of one name or owner."""

    status: Annotated[
        tuple[Literal["failed", "timed_out", "lost", "cancelled"], ...], msgspec.Meta(min_length=1)
    ]
    name: NameText | None = None
    owner: NameText | None = None
    cancelled: bool = False
    limit: PageSize = 50
    # The `next_page_token` of the previous page.
    before: IdText | None = None


def retrying_one(asked: RetryAsked, *, now: datetime, reach: Reach = EVERYTHING) -> Write[RetriedView]:
    """The write of an operator's retry."""
    from holdfast.engine.recovery.operator_retry import absent, retrying_task

    # Create the id outside the write, so that the write is idempotent.
    run_id = new_run_id(now)

    def retry(tx: Tx) -> RetriedView:
        try:
            task_id = reach.resolve(tx, asked.task_id)
        except NotFound:
            if reach.is_bound:  # do not tell a limited caller which tasks were pruned
                raise
            raise absent(tx, asked.task_id, owner=None) from None
        write = retrying_task(task_id, now=now, may_be_cancelled=asked.cancelled, run_id=run_id)
        done = write(tx)
        return RetriedView(task=TaskView.of(done.task), run_id=done.run_id)

    return retry


def retry_page(store: Store, asked: RetryPageAsked, *, reach: Reach = EVERYTHING) -> RetriedPageView:
    """Retry each task in a write of its own, so that a refusal stops no other. Raises StoreUnavailable."""
    if "cancelled" in asked.status and not asked.cancelled:
        raise BadInput("status", "to retry cancelled tasks, also set `cancelled` (--cancelled)")
    found, token = store.read_now(lambda tx: _to_retry(tx, asked, reach))
    retried: list[str] = []
    refused: list[NotRetriedView] = []
    for task_id in found:
        one = RetryAsked(task_id=task_id, cancelled=asked.cancelled)
        try:
            store.write_now(retrying_one(one, now=store.clock.now(), reach=reach))
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            refused.append(NotRetriedView(task_id=task_id, code=error.code, why=one_line(str(error), 1000)))
        else:
            retried.append(task_id)
    return RetriedPageView(count=len(retried), task_ids=retried, refused=refused, next_page_token=token)


def _to_retry(tx: Tx, asked: RetryPageAsked, reach: Reach) -> tuple[list[str], str | None]:
    """The ids of a page, and where the next one begins. There is no index by name, so tasks are scanned."""
    if reach.owner is not None and asked.owner not in (None, reach.owner):
        return [], None
    wanted = reach if asked.owner is None else msgspec.structs.replace(reach, owner=asked.owner)
    statuses = tuple(TaskStatus(status) for status in asked.status)
    before = LAST if asked.before is None else place_of("task", asked.before, partial(reach.resolve, tx))
    found: list[str] = []
    for _ in range(LOOKED_AT // _BATCH):
        page = wanted.page(tx, statuses=statuses, before=before, limit=_BATCH)
        for task in page:
            before = task.id
            if asked.name in (None, task.name):
                found.append(task.id)
            if len(found) == asked.limit:
                return found, before
        if len(page) < _BATCH:
            return found, None
    return found, before


# --- fork


class ForkAsked(Params, frozen=True, kw_only=True):
    """A new task with the history of this one, up to the end of a turn."""

    task_id: IdText
    # `turn:12`, `<loop>:<turn>`, or `start`.
    at: NameText
    # Only a program can undo effects, so there is no "compensate" here.
    effects: Literal["refuse", "keep", "acknowledge"] = "refuse"
    key: NameText | None = None


def fork_task(store: Store, asked: ForkAsked, *, now: datetime, reach: Reach = EVERYTHING) -> ForkedView:
    """Fork a task; stored when this returns, and idempotent by its key."""
    from holdfast.engine.program.forks import fork_now

    task_id = store.read_now(lambda tx: reach.resolve(tx, asked.task_id))
    try:
        task = fork_now(store, task_id, at=asked.at, effects=asked.effects, key=asked.key, now=now)
    except KeyConflict as error:
        taken = error
        raise store.read_now(lambda tx: reach.conflict(tx, taken)) from None
    return ForkedView(
        task=TaskView.of(task), source_task_id=task_id, at=asked.at, is_new=task.created_at >= now
    )
