"""Creates, finishes, cancels and reads tasks: the calls of programs that start tasks."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput, ClaimLost, NotFound, NotYours, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.ids import TaskId, check_id, new_run_id, new_task_id
from holdfast.core.payload import (
    MAX_GOAL_BYTES,
    check_code_name,
    check_name,
    check_number,
    check_text,
    decode_payload,
    encode_payload,
)
from holdfast.core.redaction import redact, redact_name
from holdfast.core.run import TASK_STATUS_OF, Queue, RunOutcome, RunRecord
from holdfast.core.task import (
    DEFAULT_PRIORITY,
    LOWEST_PRIORITY,
    Failure,
    NotifyPolicy,
    Origin,
    Progress,
    RuntimeName,
    Task,
)
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.engine.ledger.inputs import check_choice, check_claim, check_moment
from holdfast.engine.ledger.updates import may_be_told, tell_requester
from holdfast.store import Store, Tx, Write
from holdfast.store.blobs import Packed, pack_beside
from holdfast.store.tasks import LAST, KeyedRequest

DEFAULT_RETENTION = timedelta(days=30)
MAX_PAGE = 1000
_WAYS_TO_FAIL = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED, RunStatus.LOST})


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task to create. The same `key` again, for the same owner, finds the first task."""

    name: str
    goal: str
    owner: str = "system"
    arguments: object = {}
    runtime: RuntimeName = RuntimeName.PYTHON
    origin: Origin | None = None
    session_key: str | None = None
    parent_task_id: str | None = None
    flow_id: str | None = None
    key: str | None = None
    notify: NotifyPolicy = NotifyPolicy.DONE_ONLY
    priority: int = DEFAULT_PRIORITY
    due_at: datetime | None = None
    # Whether the caller has set the goal. Then a task with the same key and another goal is a conflict. A
    # generated goal may differ from release to release, so it is not compared.
    has_own_goal: bool = True


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The run has ended as asked, now or in an earlier call whose answer was lost."""

    task: Task


class AlreadyEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The task had ended before, so the call changed nothing."""

    task: Task


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """No worker ran the task, so it has ended. Of work that others execute, the record has ended."""

    task: Task


class CancelRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The task runs. A worker stops its program at its next call; work that others execute is stopped by its
    runtime, or by its producer at its next call."""

    task: Task


FinishOutcome = Finished | AlreadyEnded
CancelOutcome = Cancelled | CancelRequested | AlreadyEnded


class Ledger:
    """The durable record of tasks and the calls that change it."""

    def __init__(self, store: Store, clock: Clock, *, retention: timedelta = DEFAULT_RETENTION) -> None:
        self._store = store
        self._clock = clock
        self._retention = retention

    async def create(self, new: NewTask) -> Task:
        """The task, durable when this returns. If the key is taken, the first task with that key."""
        return (await self.create_many([new]))[0]

    async def create_many(self, new: list[NewTask]) -> list[Task]:
        """Create all tasks in one commit, or none."""
        return await self._store.write(creating(new, now=self._clock.now()))

    async def get(self, task_id: str, *, owner: str | None = None) -> Task:
        """The task with its arguments and result. Raises NotYours for the task of another owner."""
        check_id("task", task_id)

        def read(tx: Tx) -> Task:
            return opened(tx, owned(tx.tasks.get(task_id), owner))

        return await self._store.read(read)

    async def page(
        self,
        *,
        statuses: tuple[TaskStatus, ...] = (),
        owner: str | None = None,
        before: str = LAST,
        limit: int = 50,
    ) -> list[Task]:
        """Newest first; the id of the last one is the page token of the next page."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        if before != LAST:
            check_id("before", before)
        if not isinstance(statuses, (tuple, list)):
            raise BadInput("statuses", f"a tuple of them is needed, not {type(statuses).__name__}")
        wanted = tuple(check_choice("status", status, TaskStatus) for status in statuses)
        return await self._store.read(
            lambda tx: tx.tasks.page(statuses=wanted, owner=owner, before=before, limit=limit)
        )

    async def runs(self, task_id: str) -> list[RunRecord]:
        """The lineage of a task, first to last."""
        check_id("task", task_id)
        found = await self._store.read(lambda tx: tx.runs.of_task(task_id))
        if not found:
            raise NotFound("task", task_id)
        return found

    async def finish(self, claim: Claim, result: object = None) -> FinishOutcome:
        """End the run with success. Raises ClaimLost if another worker holds it now."""
        check_claim(claim)
        packed = await pack_beside(encode_payload("result", result), self._store.sealing)
        return await self._end(claim, RunStatus.SUCCEEDED, packed=packed)

    async def fail(
        self, claim: Claim, failure: Failure, *, status: RunStatus = RunStatus.FAILED
    ) -> FinishOutcome:
        """End the run without success: it failed, timed out, was cancelled or is lost."""
        check_claim(claim)
        status = check_choice("status", status, RunStatus)
        if status not in _WAYS_TO_FAIL:
            raise BadInput("status", f"{status.value} is not a way to fail")
        return await self._end(claim, status, failure=checked_failure(failure))

    async def progress(self, claim: Claim, progress: Progress) -> None:
        """Save the progress of the task, for people to see."""
        check_claim(claim)
        checked, now = checked_progress(progress), self._clock.now()

        def save_progress(tx: Tx) -> None:
            if not tx.tasks.save_progress(claim.task_id, claim.run_id, claim.fence, checked, now=now):
                raise ClaimLost(claim.run_id, claim.fence)

        await self._store.write(save_progress)

    async def cancel(self, task_id: str, *, reason: str, owner: str | None = None) -> CancelOutcome:
        """Request the end of a task. The request is permanent; the task ends at once if no worker runs it."""
        return await self._store.write(
            cancelling(task_id, reason=reason, owner=owner, now=self._clock.now(), retention=self._retention)
        )

    async def _end(
        self,
        claim: Claim,
        status: RunStatus,
        *,
        packed: Packed | None = None,
        failure: Failure | None = None,
    ) -> FinishOutcome:
        now = self._clock.now()

        def end(tx: Tx) -> FinishOutcome:
            run = tx.runs.end(claim.run_id, claim.fence, status, failure=failure, now=now)
            if run is None:
                return why_not_ended(tx, claim, status, packed, now=now)
            result = None if packed is None else tx.blobs.keep(claim.task_id, packed)
            outcome = RunOutcome(status=status, result=result, failure=failure)
            end_task(tx, run, outcome, now=now, retention=self._retention)
            return Finished(task=tx.tasks.look(claim.task_id))

        return await self._store.write(end)


def creating(new: list[NewTask], *, now: datetime) -> Write[list[Task]]:
    """The write that creates tasks, each with its first run. Everything is checked before it is returned."""
    if not isinstance(new, (list, tuple)) or not all(isinstance(one, NewTask) for one in new):
        raise BadInput("tasks", "a list of new tasks is needed")
    prepared = [prepare(one, now) for one in new]

    are_many = len(prepared) > 1 and all(task.dedup_key is None for task, _ in prepared)

    def create(tx: Tx) -> list[Task]:
        # If the first task exists, this write runs again after its own commit, and all of them exist.
        if are_many and not tx.tasks.get_many([prepared[0][0].id]):
            return _create_all(tx, prepared, now)
        return [
            create_prepared(tx, *ready, now, _asked(one))[0] for one, ready in zip(new, prepared, strict=True)
        ]

    return create


def _create_all(tx: Tx, prepared: list[tuple[Task, RunRecord]], now: datetime) -> list[Task]:
    """Create tasks that cannot exist yet and have no key, in a few statements."""
    tasks = [task for task, _ in prepared]
    tx.tasks.create_many(tasks)
    tx.runs.create_many([run for _, run in prepared])
    for task in tasks:
        _tell_of_new(tx, task, now)
    return tasks


def _asked(new: NewTask) -> KeyedRequest:
    return KeyedRequest(goal=new.goal if new.has_own_goal else None, key=new.key)


def create_prepared(
    tx: Tx, task: Task, run: RunRecord, now: datetime, asked: KeyedRequest | None = None
) -> tuple[Task, bool]:
    """The task that has this id or key now, and whether it was created here."""
    kept, is_new = tx.tasks.create(task, asked)
    if is_new:
        tx.runs.create(run)
        _tell_of_new(tx, task, now)
    return kept, is_new


def _tell_of_new(tx: Tx, task: Task, now: datetime) -> None:
    tx.emit(EventKind.TASK_CREATED, task.id, at=now, task_id=task.id, name=task.name, owner=task.owner)
    tx.hint("runs")


def prepare(new: NewTask, now: datetime) -> tuple[Task, RunRecord]:
    """A new task and its first run. The write that stores the task packs its arguments. Raises BadInput."""
    task_id = new_task_id(now)
    due_at = now if new.due_at is None else check_moment("due_at", new.due_at)
    name = _checked_task_name(new.name)
    priority = check_number("priority", new.priority, low=0, high=LOWEST_PRIORITY)
    task = Task(
        id=task_id,
        owner=check_name("owner", new.owner),
        runtime=check_choice("runtime", new.runtime, RuntimeName),
        name=name,
        goal=check_text("goal", new.goal, max_bytes=MAX_GOAL_BYTES),
        arguments=encode_payload("arguments", new.arguments),
        origin=_checked_origin(new.origin),
        session_key=None if new.session_key is None else check_name("session_key", new.session_key),
        parent_task_id=None
        if new.parent_task_id is None
        else TaskId(check_id("parent_task_id", new.parent_task_id)),
        flow_id=None if new.flow_id is None else check_id("flow_id", new.flow_id),
        dedup_key=None if new.key is None else check_name("key", new.key),
        notify=check_choice("notify", new.notify, NotifyPolicy),
        created_at=now,
        updated_at=now,
        priority=priority,
    )
    if not task.runtime.is_executed_here:
        queue = Queue.PRODUCER
    else:
        queue = Queue.READY if due_at <= now else Queue.LATER
    run = RunRecord(
        id=new_run_id(now),
        task_id=task_id,
        task_name=name,
        number=1,
        created_at=now,
        updated_at=now,
        priority=priority,
        due_at=due_at,
        queue=queue,
    )
    return task, run


def _checked_task_name(name: object) -> str:
    """The name as the worker declares it, unredacted, so that it matches. A name with a secret is refused."""
    checked = check_code_name("name", name)
    if redact_name(checked) != checked:
        raise BadInput("name", "it holds a secret of this process; name the task otherwise")
    return checked


def _checked_origin(origin: object) -> Origin | None:
    if origin is None:
        return None
    if not isinstance(origin, Origin):
        raise BadInput("origin", f"an origin is needed, not {type(origin).__name__}")
    return origin.checked()


def cancelling(
    task_id: str,
    *,
    reason: str,
    owner: str | None,
    now: datetime,
    retention: timedelta = DEFAULT_RETENTION,
    ends_recorded: bool = False,
) -> Write[CancelOutcome]:
    """The write that cancels: it records the request, and ends the task if no worker runs it.

    Of running work that others execute, it records the request only, and a `Stopper` asks the runtimes. With
    `ends_recorded` they were asked, and the record ends.
    """
    check_id("task", task_id)
    reason = check_text("reason", reason)

    def cancel(tx: Tx) -> CancelOutcome:
        task = owned(tx.tasks.lock(task_id), owner)
        if task.has_ended:
            # If it ended at this very moment, this write has committed before and its answer was lost.
            is_ours = task.status is TaskStatus.CANCELLED and task.ended_at == now
            return Cancelled(task=task) if is_ours else AlreadyEnded(task=task)
        if tx.tasks.request_cancel(task_id, reason, now=now):
            tx.emit(EventKind.TASK_CANCEL_REQUESTED, task_id, at=now, task_id=task_id, reason=reason)
        run = tx.runs.live_of_task(task_id)
        failure = Failure(kind="cancelled", message=reason)
        if run is not None and run.status is RunStatus.RUNNING:
            if ends_recorded and run.queue is Queue.PRODUCER:
                end_recorded_run(tx, run, RunStatus.CANCELLED, failure, now=now, retention=retention)
                return Cancelled(task=tx.tasks.look(task_id))
            tx.hint("cancels")
            return CancelRequested(task=tx.tasks.look(task_id))
        if run is not None and not cancel_idle_run(tx, run, failure, now=now, retention=retention):
            return CancelRequested(task=tx.tasks.look(task_id))
        if run is None:
            _end_without_run(tx, task, failure, now=now, retention=retention)
        return Cancelled(task=tx.tasks.look(task_id))

    return cancel


def _end_without_run(tx: Tx, task: Task, failure: Failure, *, now: datetime, retention: timedelta) -> None:
    """End a task whose runs are gone, as after damage: no worker would ever do it."""
    outcome = RunOutcome(status=RunStatus.CANCELLED, failure=failure)
    if not tx.tasks.end(task, TaskStatus.CANCELLED, outcome, now=now, cleanup_after=now + retention):
        return
    tx.emit(EventKind.TASK_ENDED, task.id, at=now, task_id=task.id, status=TaskStatus.CANCELLED.value)
    _cancel_children(tx, task, now=now, retention=retention)
    tell_family(tx, task, now=now)


def end_recorded_run(
    tx: Tx, run: RunRecord, status: RunStatus, failure: Failure, *, now: datetime, retention: timedelta
) -> bool:
    """End the record of work that others execute, which no worker would do. False if it has ended before."""
    if tx.runs.end(run.id, run.fence, status, failure=failure, now=now) is None:
        return False
    end_task(tx, run, RunOutcome(status=status, failure=failure), now=now, retention=retention)
    tx.recorded.note_end(run.task_id, summary=failure.message, outcome=None, now=now)
    return True


def cancel_idle_run(tx: Tx, run: RunRecord, failure: Failure, *, now: datetime, retention: timedelta) -> bool:
    """End a run that no worker holds, with its checkpoint and its task. False if a worker just claimed it."""
    if not tx.runs.end_idle(run, RunStatus.CANCELLED, failure=failure, now=now):
        return False
    checkpoint = tx.checkpoints.open_of_run(run.id)
    if checkpoint is not None and tx.checkpoints.set_failed(checkpoint, failure, now=now):
        tx.emit(EventKind.CHECKPOINT_FAILED, checkpoint.id, at=now, task_id=run.task_id, why=failure.kind)
    end_task(tx, run, RunOutcome(status=RunStatus.CANCELLED, failure=failure), now=now, retention=retention)
    if run.queue is Queue.PRODUCER:
        tx.recorded.note_end(run.task_id, summary=failure.message, outcome=None, now=now)
    return True


def end_task(
    tx: Tx,
    run: RunRecord,
    outcome: RunOutcome,
    *,
    now: datetime,
    retention: timedelta,
    task: Task | None = None,
) -> None:
    """End the task with its last run, in the same transaction.

    A worker passes the task that came with its claim: it is usually still running, and need not be read
    again.
    """
    to = TASK_STATUS_OF[outcome.status]
    tx.emit(EventKind.RUN_ENDED, run.id, at=now, task_id=run.task_id, status=outcome.status.value)
    cleanup_after = now + retention
    if task is None or not tx.tasks.end_running(task.id, to, outcome, now=now, cleanup_after=cleanup_after):
        task = tx.tasks.lock(run.task_id)
        if not tx.tasks.end(task, to, outcome, now=now, cleanup_after=cleanup_after):
            return
    tx.emit(EventKind.TASK_ENDED, run.task_id, at=now, task_id=run.task_id, status=to.value)
    if to is not TaskStatus.SUCCEEDED:
        # Its children are of no use without it. (A task that succeeds has waited for them.)
        _cancel_children(tx, task, now=now, retention=retention)
        doubt_effects(tx, task.id, now=now)
    tell_family(tx, task, now=now)
    if may_be_told(task):
        tell_requester(tx, task, to, run_id=run.id, now=now, result=outcome.result, failure=outcome.failure)


def tell_family(tx: Tx, task: Task, *, now: datetime) -> None:
    """Wake the parent and the session of a task that has ended."""
    if task.parent_task_id is not None:
        _wake_parent(tx, task, now=now)
    if task.session_key is not None:
        tx.hint("sessions")  # the session may take its next message


def _cancel_children(tx: Tx, parent: Task, *, now: datetime, retention: timedelta) -> None:
    for child in tx.tasks.children(parent.id, only_alive=True):
        cancelling(child.id, reason=ended_with(parent.id), owner=None, now=now, retention=retention)(tx)


def ended_with(parent_id: str) -> str:
    """The cancel reason of a child whose parent ended. If the parent is reopened, so is the child."""
    return f"{parent_id}, which started it, has ended"


def doubt_effects(tx: Tx, task_id: str, *, now: datetime) -> None:
    """Ask a person about effects that were interrupted: no run will settle them any more."""
    for effect in tx.effects.unsettled([task_id]).get(task_id, ()):
        if effect.status is EffectStatus.INTENT:
            why = "its task ended while it was being done"
            outcome = msgspec.json.encode(Failure(kind="unknown", message=why))
            tx.effects.settle(effect, EffectStatus.UNKNOWN, outcome=outcome, now=now)
            tx.emit(EventKind.EFFECT_IN_DOUBT, effect.id, at=now, task_id=task_id, step=effect.name, why=why)


def _wake_parent(tx: Tx, child: Task, *, now: datetime) -> None:
    """Wake the parent if it waits for this child, or for all of its children."""
    assert child.parent_task_id is not None
    run = tx.runs.live_of_task(child.parent_task_id)
    if run is None or run.waits_on not in (f"child:{child.id}", "children"):
        return
    if tx.runs.wake(run.id, now=now):
        tx.tasks.move(tx.tasks.lock(run.task_id), TaskStatus.QUEUED, now=now)
        tx.emit(EventKind.RUN_WOKEN, run.id, at=now, task_id=run.task_id)
        tx.hint("runs")


def fail_damaged(tx: Tx, run: RunRecord, damage: RowDamaged, *, now: datetime, retention: timedelta) -> None:
    """End a running run with damaged records: no program may work with data that was never written."""
    failure = Failure(kind=damage.code, message=str(damage))
    if tx.runs.end(run.id, run.fence, RunStatus.FAILED, failure=failure, now=now) is None:
        return
    # The damage may be in the id of its task.
    if tx.tasks.get_many([run.task_id]):
        outcome = RunOutcome(status=RunStatus.FAILED, failure=failure)
        end_task(tx, run, outcome, now=now, retention=retention)


def why_not_ended(
    tx: Tx, claim: Claim, status: RunStatus, packed: Packed | None, *, now: datetime
) -> FinishOutcome:
    """Why the guard refused: the same end is recorded already, the task ended in another way, or the claim is
    lost. Raises ClaimLost."""
    run, task = tx.runs.get(claim.run_id), tx.tasks.look(claim.task_id)
    is_same = packed is None or packed.stored == task.result
    if run.status is status and run.fence == claim.fence and is_same:
        return Finished(task=task)
    if run.has_ended and task.has_ended:
        tx.emit(
            EventKind.UPDATE_IGNORED,
            claim.run_id,
            at=now,
            task_id=task.id,
            asked=status.value,
            status=run.status.value,
        )
        return AlreadyEnded(task=task)
    raise ClaimLost(claim.run_id, claim.fence)


def owned(task: Task, owner: str | None) -> Task:
    """The task, if it belongs to that owner; operators have no owner. Raises NotYours."""
    if owner is not None and task.owner not in (owner, redact_name(owner)):
        raise NotYours("task", task.id, redact_name(owner))
    return task


def opened(tx: Tx, task: Task) -> Task:
    """The task with its large payloads instead of references. Raises RowDamaged."""
    task.checked()
    return msgspec.structs.replace(
        task,
        arguments=tx.blobs.open(task.arguments),
        result=None if task.result is None else tx.blobs.open(task.result),
    )


def checked_progress(progress: Progress) -> Progress:
    if not isinstance(progress, Progress):
        raise BadInput("progress", f"progress is needed, not {type(progress).__name__}")
    return msgspec.structs.replace(
        progress,
        done=check_number("progress.done", progress.done, low=0, high=2**53),
        failed=check_number("progress.failed", progress.failed, low=0, high=2**53),
        total=None
        if progress.total is None
        else check_number("progress.total", progress.total, low=0, high=2**53),
        subtask=None if progress.subtask is None else check_name("progress.subtask", progress.subtask),
    )


def checked_failure(failure: Failure) -> Failure:
    """A failure fit to be stored: redacted, bounded, plain JSON."""
    if not isinstance(failure, Failure):
        raise BadInput("failure", f"a failure is needed, not {type(failure).__name__}")
    facts = redact(decode_payload(encode_payload("failure.facts", failure.facts, max_bytes=64 * 1024)))
    if not isinstance(facts, dict):
        raise BadInput("failure.facts", "facts have names: an object is needed")
    kind = check_name("failure.kind", failure.kind)
    message = check_text("failure.message", failure.message, may_be_empty=True)
    return Failure(kind=kind, message=message if message.strip() else kind, facts=facts)


__all__ = [
    "AlreadyEnded",
    "CancelOutcome",
    "CancelRequested",
    "Cancelled",
    "FinishOutcome",
    "Finished",
    "Ledger",
    "NewTask",
    "cancelling",
    "creating",
]
