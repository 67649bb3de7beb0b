"""Creates, finishes, cancels and reads tasks: the calls of programs that start tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput, ClaimLost, NotFound, NotYours, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.flow import Flow, TaskChange, TaskChangeKind
from holdfast.core.ids import check_id
from holdfast.core.payload import (
    check_name,
    check_number,
    check_text,
    decode_payload,
    encode_payload,
)
from holdfast.core.plan import Cursor, Plan
from holdfast.core.redaction import redact, redact_name
from holdfast.core.retention import DEFAULT_RETENTION as DEFAULT_RETENTION
from holdfast.core.run import TASK_STATUS_OF, Queue, RunOutcome, RunRecord
from holdfast.core.session import may_be_told
from holdfast.core.step import Step
from holdfast.core.task import (
    Failure,
    Progress,
    Task,
)
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.engine.ledger.inputs import check_choice, check_claim
from holdfast.engine.ledger.new_tasks import NewTask as NewTask
from holdfast.engine.ledger.new_tasks import insert_prepared, tell_of_new
from holdfast.engine.ledger.new_tasks import prepare as prepare
from holdfast.store import Store, Tx, Write
from holdfast.store.blobs import Packed, pack_beside
from holdfast.store.tasks import LAST, KeyedRequest

MAX_PAGE = 1000
# How many tasks of a cancelled flow one write asks to stop; the rest is left to the next writes.
MOST_STOPPED = 100
_WAYS_TO_FAIL = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED, RunStatus.LOST})


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

    are_many = len(prepared) > 1 and all(
        task.dedup_key is None and task.flow_id is None for task, _ in prepared
    )

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
        tell_of_new(tx, task, now)
    return tasks


def _asked(new: NewTask) -> KeyedRequest:
    return KeyedRequest(goal=new.goal if new.has_own_goal else None, key=new.key)


def create_prepared(
    tx: Tx,
    task: Task,
    run: RunRecord,
    now: datetime,
    asked: KeyedRequest | None = None,
    *,
    flow: Flow | None = None,
) -> tuple[Task, bool]:
    """The task that has this id or key now, and whether it was created here; with its own new flow, if it has
    one. Raises what `check_joins` raises if the flow that it names may not have it."""
    kept, is_new = insert_prepared(tx, task, run, now, asked)
    if is_new and flow is not None:
        from holdfast.engine.ledger.flow_progress import insert_flow

        insert_flow(tx, flow, now=now)
    if is_new and task.flow_id is not None:
        from holdfast.engine.ledger.flow_progress import check_joins

        check_joins(tx, task)
        tell_flow(tx, task, TaskChangeKind.JOINED, now=now)
    return kept, is_new


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
    end_wakes(tx, [(task, TaskStatus.CANCELLED, failure)], now=now)
    _cancel_children(tx, task, now=now, retention=retention)
    tell_family(tx, task, now=now)
    tell_flow(tx, task, TaskChangeKind.ENDED, now=now, status=TaskStatus.CANCELLED)
    tell_campaign(tx, task, now=now, status=TaskStatus.CANCELLED, failure=failure)


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
    last_step: Step | None = None,
) -> None:
    """End the task with its last run, in the same transaction.

    A worker passes the task that came with its claim: it is usually still running, and need not be read
    again. The worker also knows the last step.
    """
    to = TASK_STATUS_OF[outcome.status]
    tx.emit(EventKind.RUN_ENDED, run.id, at=now, task_id=run.task_id, status=outcome.status.value)
    cleanup_after = now + retention
    if task is None or not tx.tasks.end_running(task.id, to, outcome, now=now, cleanup_after=cleanup_after):
        task = tx.tasks.lock(run.task_id)
        if not tx.tasks.end(task, to, outcome, now=now, cleanup_after=cleanup_after):
            return
    tx.emit(EventKind.TASK_ENDED, run.task_id, at=now, task_id=run.task_id, status=to.value)
    if may_have_wakes(run):
        end_wakes(tx, [(task, to, outcome.failure)], now=now)
    if to is not TaskStatus.SUCCEEDED:
        # Its children are of no use without it. (A task that succeeds has waited for them.)
        _cancel_children(tx, task, now=now, retention=retention)
        doubt_effects(tx, task.id, now=now)
    tell_family(tx, task, now=now)
    if task.flow_id is not None:
        is_blocked = _is_blocked(tx, task, to)
        tell_flow(tx, task, TaskChangeKind.ENDED, now=now, status=to, is_blocked=is_blocked)
    tell_campaign(
        tx, task, now=now, status=to, result=outcome.result, failure=outcome.failure, last_step=last_step
    )
    if may_be_told(task):
        from holdfast.engine.ledger.updates import tell_requester

        tell_requester(tx, task, to, run_id=run.id, now=now, result=outcome.result, failure=outcome.failure)


def tell_flow(
    tx: Tx,
    task: Task,
    kind: TaskChangeKind,
    *,
    now: datetime,
    status: TaskStatus | None = None,
    is_blocked: bool = False,
) -> None:
    """Move the flow of a task, if it has one, before this transaction commits. `status` is the end of the
    task, or the end from which it was reopened."""
    if task.flow_id is None:
        return
    change = TaskChange(
        kind=kind,
        task_id=task.id,
        at=now,
        status=status,
        is_blocked=is_blocked,
        is_executed_here=task.runtime.is_executed_here,
    )
    tx.before_commit(task.flow_id, settle_flow, change)


def tell_campaign(
    tx: Tx,
    task: Task,
    *,
    now: datetime,
    status: TaskStatus | None = None,
    result: bytes | None = None,
    failure: Failure | None = None,
    last_step: Step | None = None,
) -> None:
    """Move the item of a task, if it does one of a campaign, before this transaction commits. `status` is the
    end of the task; without it the task was reopened. `last_step` was saved last, if known."""
    if task.campaign_id is None:
        return
    from holdfast.engine.ledger.campaign_progress import ItemChange, settle_items  # few scripts have any

    change = ItemChange(
        task_id=task.id, at=now, status=status, result=result, failure=failure, last_step=last_step
    )
    tx.before_commit(task.campaign_id, settle_items, change)


def tell_item_progress(
    tx: Tx,
    task: Task,
    *,
    now: datetime,
    plan: Plan | None = None,
    progress: Progress | None = None,
    last_action: str | None = None,
    note: str | None = None,
) -> None:
    """Keep how far the task of an item is; costs a task without a campaign one comparison."""
    if task.campaign_id is None:
        return
    from holdfast.core.campaign import ItemProgress, action_of, stage_progress
    from holdfast.engine.ledger.campaign_progress import ItemChange, settle_items

    news = ItemProgress() if plan is None else stage_progress(plan)
    if last_action is not None:
        news = news.then(ItemProgress(last_action=action_of(last_action), last_action_at=now))
    if progress is not None:
        news = news.then(ItemProgress(progress=progress))
    if note is not None:
        news = news.then(ItemProgress(note=note))
    tx.before_commit(task.campaign_id, settle_items, ItemChange(task_id=task.id, at=now, news=news))


def settle_flow(tx: Tx, flow_id: str, changes: list[TaskChange]) -> None:
    """Move a flow as its tasks changed; if it is being cancelled, ask more of its tasks to stop."""
    from holdfast.engine.ledger.flow_progress import settle

    flow = settle(tx, flow_id, changes)
    if flow is not None and flow.cancel_requested_at is not None and not flow.has_ended:
        stop_tasks(tx, flow, tx.tasks.lock_to_stop(flow.id, limit=MOST_STOPPED), now=changes[-1].at)


def stop_tasks(tx: Tx, flow: Flow, task_ids: list[str], *, now: datetime) -> None:
    """Ask tasks of a cancelled flow to stop. Those that no worker runs end at once; then the flow is settled
    again before the commit."""
    for task_id in task_ids:
        cancelling(task_id, reason=stopped_with(flow), owner=None, now=now)(tx)


def stopped_with(flow: Flow) -> str:
    """The cancel reason of a task whose flow was cancelled."""
    return f"{flow.id}, of which it is a part, was cancelled: {flow.cancel_reason or 'no reason was given'}"


def _is_blocked(tx: Tx, task: Task, status: TaskStatus) -> bool:
    """Whether the producer of a task says that something blocks what follows."""
    if task.runtime.is_executed_here or status is not TaskStatus.SUCCEEDED:
        return False
    from holdfast.core.recorded import TerminalOutcome

    details = tx.recorded.get(task.id)
    return details is not None and details.terminal_outcome is TerminalOutcome.BLOCKED


def may_have_wakes(run: RunRecord) -> bool:
    """Whether its task may have been saved and woken: a first run that ends was not."""
    return run.number > 1 or run.status in (RunStatus.PAUSED_FOR_RESTART, RunStatus.RESUMING)


def end_wakes(tx: Tx, ended: Sequence[tuple[Task, TaskStatus, Failure | None]], *, now: datetime) -> None:
    """Part of the write that ends tasks: no wake of them fires any more, and the last cycle is reported."""
    by_id = {task.id: (task, to, failure) for task, to, failure in ended}
    for wake_id, task_id in tx.wakes.cancel_of(list(by_id), now=now):
        tx.emit(EventKind.WAKE_CANCELLED, wake_id, at=now, task_id=task_id, why="its task has ended")
    for task_id, (task, to, failure) in by_id.items():
        last = tx.wakes.page(task_id=task_id, limit=1)
        if last:
            from holdfast.core.wake_contract import report_of

            planned = tx.journal.plans([task_id]).get(task_id)
            plan = None if planned is None else planned[1]
            report = report_of(
                task,
                status=to,
                plan=plan,
                cursor=Cursor() if plan is None else plan.cursor,
                is_resumed=True,
                next_wake_at=None,
                failure=failure,
                notes="the task has ended",
            )
            facts = msgspec.to_builtins(report)
            tx.emit(EventKind.WAKE_REPORTED, last[0].id, at=now, task_id=task_id, report=facts)


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
    """Ask a person about effects that were interrupted: no run will settle them any more.

    An effect that waits for approval is withdrawn: no run will perform it any more.
    """
    for effect in tx.effects.unsettled([task_id]).get(task_id, ()):
        if effect.status is EffectStatus.UNKNOWN and effect.is_unapproved:
            tx.effects.settle(effect, EffectStatus.FAILED, outcome=effect.outcome, now=now)
        elif effect.status is EffectStatus.INTENT:
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
