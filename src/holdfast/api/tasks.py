"""Tasks for the API and the CLI: show, retry and fork; lists, changes and waits have files of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec

from holdfast.api.contract import EVERYTHING, Caller, GatewayDoor, Reach
from holdfast.api.pages import place_of
from holdfast.api.params import NameText, PageSize, PageToken, Params, TargetText
from holdfast.core.errors import BadInput, HoldfastError, KeyConflict, NotFound, RowDamaged, StoreUnavailable
from holdfast.core.ids import new_run_id
from holdfast.core.message import CRON_CHANNEL
from holdfast.core.plan import Cursor
from holdfast.core.task import Task as TaskRecord
from holdfast.core.task_filter import TaskFilter
from holdfast.core.transitions import TaskStatus, WakeStatus
from holdfast.store.tasks import LAST
from holdfast.upkeep.projection import project_tasks
from holdfast.views.checkpoints import CheckpointLineView, PlanView
from holdfast.views.effects import EffectView
from holdfast.views.payloads import PayloadView
from holdfast.views.programs import ArtifactView, ChildView, ListView, LoopView, NoteView, ValueView
from holdfast.views.questions import QuestionView
from holdfast.views.recorded_facts import LateReportView, RecordedFactsView
from holdfast.views.runs import RunView, StepView
from holdfast.views.tasks import (
    FiringView,
    ForkedView,
    NotRetriedView,
    RetriedPageView,
    RetriedView,
    TaskDetailView,
    TaskView,
)
from holdfast.views.text import one_line
from holdfast.views.waits import WaitView, kind_of, queued_wait
from holdfast.views.wakes import ResumePacketView, TaskDocumentView, WakeView, trail_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.core.effect import Effect
    from holdfast.core.program_records import Question
    from holdfast.core.task import Task
    from holdfast.store.contract import Store, Write
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

T = TypeVar("T")

LATEST_STEPS = 10
# At most this many runs, steps, children and so on are shown of one task.
SHOWN_AT_MOST = 20
SHOWN_WAKES = 100
# A wait without a due time is stored with one in the year 9999.
NEVER_YEAR = 9999


async def show(gateway: GatewayDoor, asked: TaskAsked, caller: Caller) -> TaskDetailView:
    now, reach, projection = gateway.clock.now(), caller.reach, gateway.projection()
    return await gateway.store.read(
        lambda tx: read_detail(tx, reach.resolve(tx, asked.task_id), now, reach, projection)
    )


def read_detail(
    tx: Tx,
    task_id: str,
    now: datetime,
    reach: Reach = EVERYTHING,
    projection: Projection | None = None,
) -> TaskDetailView:
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
    shown = project_tasks(tx, [task], projection).get(task_id)
    view = TaskDetailView(
        task=TaskView.of(task).shown_as(shown),
        arguments=_payload(tx, task.arguments, problems),
        result=None if task.result is None else _payload(tx, task.result, problems),
        plan=None,
        runs=[],
        checkpoints=[],
        steps_saved=0,
        latest_steps=[],
        cleanup_after=task.cleanup_after,
        more=more,
        problems=problems,
    )

    def newest(what: str, found: list[T]) -> list[T]:
        if len(found) > SHOWN_AT_MOST:
            more.append(what)
        return found[:SHOWN_AT_MOST][::-1]

    def read_recorded() -> dict[str, object]:
        details = tx.recorded.get(task_id)
        if details is None:
            return {}
        late = details.late_report
        if late is None:
            return {"recorded": RecordedFactsView.of(details, None)}
        result = None if late.result is None else _payload(tx, late.result, problems)
        return {"recorded": RecordedFactsView.of(details, LateReportView.of(late, result))}

    def read_delivery() -> dict[str, object]:
        owed = tx.deliveries.of_task(task_id)
        return {"delivery_status": owed[-1].status.value} if owed else {}

    def read_firing() -> dict[str, object]:
        if task.origin is None or task.origin.channel != CRON_CHANNEL:
            return {}
        from holdfast.engine.schedules.firing import firing_of

        firing = firing_of(tx, task)
        return {"firing": None if firing is None else FiringView.of(firing)}

    def read_runs() -> dict[str, object]:
        return {"runs": [RunView.of(run).shown_as(shown) for run in tx.runs.of_task(task_id)]}

    def read_checkpoints() -> dict[str, object]:
        found = tx.checkpoints.page(task_id=task_id, limit=100)
        return {"checkpoints": [CheckpointLineView.of(one) for one in reversed(found)]}

    def read_trail() -> dict[str, object]:
        runs, saved = tx.runs.of_task(task_id), tx.checkpoints.page(task_id=task_id, limit=SHOWN_WAKES)
        found = tx.wakes.page(task_id=task_id, limit=SHOWN_WAKES)
        plan = tx.journal.plans([task_id]).get(task_id, (None, None))[1]
        head = tx.journal.heads([task_id]).get(task_id)
        last = None if head is None else head.last_step
        # The run that waits for its wake does not know its own cycle; the wake does.
        cycles = found[0].attempt - 1 if found and found[0].status is WakeStatus.PENDING else None
        return {
            "wakes": [WakeView.of(one) for one in found],
            "trail": trail_of(task, runs, saved, found),
            "document": TaskDocumentView.of(
                task,
                plan=plan,
                cursor=Cursor(last_completed=last) if plan is None else plan.cursor,
                artifacts=[one.path or one.name for one in tx.journal.artifacts([task_id]).get(task_id, ())],
                retry_count=(runs[-1].idle_attempts if runs else 0) if cycles is None else cycles,
            ),
        }

    def read_packet() -> dict[str, object]:
        newest = next((one for one in tx.checkpoints.page(task_id=task_id) if one.status is not None), None)
        if newest is None:
            return {}
        document = msgspec.structs.replace(newest, document=tx.blobs.open(newest.document)).read_document()
        return {"resume_packet": ResumePacketView.of(document.packet)}

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

    def read_left_behind() -> dict[str, object]:
        notes = tx.journal.notes([task_id]).get(task_id, [])
        artifacts = tx.journal.artifacts([task_id]).get(task_id, [])
        return {
            "notes": [NoteView.of(note) for note in newest("notes", notes[::-1])],
            "artifacts": [ArtifactView.of(one) for one in newest("artifacts", artifacts[::-1])],
        }

    for part in (
        lambda: {"waits_for": read_wait(tx, task, now, reach)},
        read_recorded,
        read_delivery,
        read_firing,
        read_runs,
        read_checkpoints,
        read_trail,
        read_packet,
        read_plan,
        read_journal,
        read_memory,
        read_effects,
        read_questions,
        read_children,
        read_left_behind,
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
    kind, subject = kind_of(task.waits_on)
    wake = tx.wakes.find(subject) if kind == "wake" else None
    until = until if wake is None else wake.due_at
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


# --- parameters of methods and commands


class TaskAsked(Params, frozen=True, kw_only=True):
    """One task, by its id, a unique prefix of that, a run id, a key or a session key."""

    task_id: TargetText


# --- retry


class RetryAsked(Params, frozen=True, kw_only=True):
    """Retry a task that ended without success; a cancelled one only with `cancelled`."""

    task_id: TargetText
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
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


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
    """Retry the tasks of one page; see `retry_several`."""
    if "cancelled" in asked.status and not asked.cancelled:
        raise BadInput("status", "to retry cancelled tasks, also set `cancelled` (--cancelled)")
    found, token = store.read_now(lambda tx: _to_retry(tx, asked, reach))
    retried, refused = retry_several(store, found, cancelled=asked.cancelled, reach=reach)
    return RetriedPageView(count=len(retried), task_ids=retried, refused=refused, next_page_token=token)


def retry_several(
    store: Store, task_ids: Sequence[str], *, cancelled: bool = False, reach: Reach = EVERYTHING
) -> tuple[list[str], list[NotRetriedView]]:
    """Which tasks are retried, and which were refused: each in a write of its own, so that a refusal stops no
    other. Raises StoreUnavailable."""
    retried: list[str] = []
    refused: list[NotRetriedView] = []
    for task_id in task_ids:
        one = RetryAsked(task_id=task_id, cancelled=cancelled)
        try:
            store.write_now(retrying_one(one, now=store.clock.now(), reach=reach))
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            refused.append(NotRetriedView(task_id=task_id, code=error.code, why=one_line(str(error), 1000)))
        else:
            retried.append(task_id)
    return retried, refused


def _to_retry(tx: Tx, asked: RetryPageAsked, reach: Reach) -> tuple[list[str], str | None]:
    """The ids of a page, and where the next one begins."""
    wanted = TaskFilter(
        statuses=tuple(TaskStatus(status) for status in asked.status),
        names=None if asked.name is None else frozenset({asked.name}),
        owner=asked.owner,
    )
    place = LAST
    if asked.page_token is not None:
        place = place_of("task", asked.page_token, lambda token: reach.resolve_id(tx, token))
    found = tx.tasks.find(wanted, reach=reach.filter, before=place, limit=asked.limit)
    return [task.id for task in found.tasks], found.next_before


# --- fork


class ForkAsked(Params, frozen=True, kw_only=True):
    """A new task with the history of this one, up to the end of a turn."""

    task_id: TargetText
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
