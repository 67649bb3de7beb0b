"""The writes of a producer: each is one transaction, and the same call again gives the same answer.

No worker may take over recorded work, so the lease of its run never lapses. Instead `alive_until` in its
details says how long the last sign of life counts; after that, upkeep asks the runtime.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.errors import BadInput, NotFound, NotYours, OwnerMissing, ParentMissing, RunIdTaken
from holdfast.core.events import EventKind
from holdfast.core.flow import TaskChangeKind
from holdfast.core.ids import BootId, RunId, check_id, new_flow_id
from holdfast.core.payload import check_name, check_number, check_text
from holdfast.core.recorded import (
    DEFAULT_BEAT_TIMEOUT_S,
    MAX_BEAT_TIMEOUT_S,
    UNRECORDED_FACT,
    LateReport,
    RecordedDetails,
    RecordedWork,
    ReportProblem,
    ScopeKind,
    TerminalOutcome,
    UnrecordedWork,
    unregistered_holder,
)
from holdfast.core.run import Queue, RunOutcome, RunRecord
from holdfast.core.task import DEFAULT_PRIORITY, Failure, NotifyPolicy, Origin, Progress, RuntimeName, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.ledger.flows import mirror_of
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.ledger.ledger import (
    DEFAULT_RETENTION,
    AlreadyEnded,
    Finished,
    FinishOutcome,
    NewTask,
    checked_failure,
    checked_progress,
    create_prepared,
    end_task,
    owned,
    prepare,
    tell_flow,
)
from holdfast.store import Tx, Write
from holdfast.store.blobs import Packed
from holdfast.store.recorded import SignOfLife
from holdfast.store.tasks import KeyedRequest

# Requesters want to hear how subagents and ACP sessions end; the others have their own output.
_QUIET = frozenset({RuntimeName.CRON, RuntimeName.CLI, RuntimeName.MEDIA})
# Runtimes whose work in a session gets a flow of its own, unless it has one.
_WITH_FLOW = frozenset({RuntimeName.ACP, RuntimeName.SUBAGENT})
_MAX_TOOL_USES = 2**53
# A write that runs again after its own commit does so at once: its event is among the last of the feed.
_RECENT = 200


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Work that a producer executes and wants recorded. The same run id, or the same key of the same owner,
    finds the first record."""

    name: str
    goal: str
    runtime: RuntimeName | str
    owner: str | None = None
    # The producer's own id of the run; without it Holdfast makes one.
    run_id: str | None = None
    arguments: object = {}
    origin: Origin | None = None
    # The session that asked for the work.
    session_key: str | None = None
    child_session_key: str | None = None
    parent_task_id: str | None = None
    flow_id: str | None = None
    key: str | None = None
    # None: the default of the runtime.
    notify: NotifyPolicy | str | None = None
    scope: ScopeKind | str = ScopeKind.SYSTEM
    agent_id: str | None = None
    source_id: str | None = None
    reference: str | None = None
    beat_timeout_s: int = DEFAULT_BEAT_TIMEOUT_S
    priority: int = DEFAULT_PRIORITY


class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """The call is recorded, and the work goes on. If a cancel was requested, the producer should stop it."""

    work: RecordedWork

    @property
    def is_cancel_requested(self) -> bool:
        return self.work.task.cancel_requested_at is not None


NoteOutcome = Noted | AlreadyEnded


def recording(
    new: NewRecord, *, is_running: bool, now: datetime, holder: BootId | None = None
) -> Write[RecordedWork]:
    """The write that creates the record, queued or already running. Raises OwnerMissing, ParentMissing,
    RunIdTaken, NotFound for a flow or a parent task that does not exist, and NotYours for one of another
    owner."""
    task, run, details = _prepare(new, now)
    flow = None
    if _gets_flow(task, details):
        flow = mirror_of(task, new_flow_id(now), now=now)
        task = msgspec.structs.replace(task, flow_id=flow.id)
    asked = KeyedRequest(goal=new.goal, key=new.key)

    def record(tx: Tx) -> RecordedWork:
        first = tx.runs.get_many([run.id]).get(run.id)
        if first is not None:
            return _same_as_before(tx, first, task)
        _check_family(tx, task)
        kept, is_new = create_prepared(tx, task, run, now, asked, flow=flow)
        if is_new:
            tx.recorded.create(details)
            if is_running:
                begin(tx, RecordedWork(task=kept, run=run, details=details), now=now, holder=holder)
        return find(tx, kept.id)

    return record


def _prepare(new: NewRecord, now: datetime) -> tuple[Task, RunRecord, RecordedDetails]:
    if not isinstance(new, NewRecord):
        raise BadInput("record", f"a new record is needed, not {type(new).__name__}")
    if new.owner is None or (isinstance(new.owner, str) and not new.owner.strip()):
        raise OwnerMissing
    runtime = check_choice("runtime", new.runtime, RuntimeName)
    if runtime.is_executed_here:
        why = f"Holdfast itself executes {runtime.value} tasks; start them with `holdfast.start`"
        raise BadInput("runtime", why)
    scope = check_choice("scope", new.scope, ScopeKind)
    if new.session_key is None and new.parent_task_id is None:
        if new.child_session_key is not None:
            raise ParentMissing(
                "child_session_key", "give the session_key or the parent_task_id that started it"
            )
        if scope is ScopeKind.SESSION:
            raise ParentMissing("scope", "work of a session needs its session_key; or use the scope `system`")
    notify = new.notify
    if notify is None:
        notify = NotifyPolicy.SILENT if runtime in _QUIET else NotifyPolicy.DONE_ONLY
    task, run = prepare(
        NewTask(
            name=new.name,
            goal=new.goal,
            owner=new.owner,
            arguments=new.arguments,
            runtime=runtime,
            origin=new.origin,
            session_key=new.session_key,
            parent_task_id=new.parent_task_id,
            flow_id=new.flow_id,
            key=new.key,
            notify=check_choice("notify", notify, NotifyPolicy),
            priority=new.priority,
        ),
        now,
    )
    if new.run_id is not None:
        run = msgspec.structs.replace(run, id=RunId(check_id("run_id", new.run_id)))
    details = RecordedDetails(
        task_id=task.id,
        scope=scope,
        source_id=_maybe_name("source_id", new.source_id),
        agent_id=_maybe_name("agent_id", new.agent_id),
        child_session_key=_maybe_name("child_session_key", new.child_session_key),
        reference=_maybe_name("reference", new.reference),
        beat_timeout_s=check_number("beat_timeout_s", new.beat_timeout_s, low=1, high=MAX_BEAT_TIMEOUT_S),
        created_at=now,
        last_event_at=now,
    )
    return task, run, details


def _gets_flow(task: Task, details: RecordedDetails) -> bool:
    """Whether the work gets a one-task flow: that of a session whose end its requester hears."""
    return (
        task.flow_id is None
        and task.runtime in _WITH_FLOW
        and details.scope is ScopeKind.SESSION
        and task.notify is not NotifyPolicy.SILENT
    )


def _maybe_name(field: str, value: str | None) -> str | None:
    return None if value is None else check_name(field, value)


def _same_as_before(tx: Tx, run: RunRecord, asked: Task) -> RecordedWork:
    """The work of a run id that exists: the producer repeats its call, or took another task's id."""
    work = find(tx, run.id)
    if work.task.owner != asked.owner:
        raise NotYours("run", run.id, asked.owner)
    found = (work.task.name, work.task.runtime, work.task.goal)
    if found != (asked.name, asked.runtime, asked.goal):
        raise RunIdTaken(run.id)
    return work


def _check_family(tx: Tx, task: Task) -> None:
    """The parent task exists, and has the same owner. Raises NotFound, NotYours."""
    if task.parent_task_id is not None:
        owned(tx.tasks.look(task.parent_task_id), task.owner)


def find(tx: Tx, target: str) -> RecordedWork:
    """The recorded work with this run id or task id. Raises NotFound, and BadInput for a worker's task."""
    check_id("run", target)
    run = tx.runs.get_many([target]).get(target)
    if run is None:
        if target not in tx.tasks.get_many([target]):
            raise NotFound("run", target)
        run = tx.runs.live_of_task(target) or tx.runs.last_of_task(target)
    if run.queue is not Queue.PRODUCER:
        raise BadInput(
            "run", f"{target} is executed by a worker of Holdfast; no producer may report about it"
        )
    return RecordedWork(task=tx.tasks.look(run.task_id), run=run, details=tx.recorded.get(run.task_id))


def lock(tx: Tx, target: str, owner: str | None = None) -> RecordedWork:
    """The same, locked until this transaction ends. Raises NotYours."""
    seen = find(tx, target)
    task = owned(tx.tasks.lock(seen.task.id), owner)
    return msgspec.structs.replace(seen, task=task, run=tx.runs.lock(seen.run.id))


def begin(tx: Tx, work: RecordedWork, *, now: datetime, holder: BootId | None = None) -> RecordedWork:
    """Move queued work to running. `holder` is the boot of the process that executes it, if that process has
    one: its death then ends the record at once."""
    run = tx.runs.claim(
        work.run.id,
        boot_id=holder or unregistered_holder(work.task.runtime),
        token=work.run.id,
        now=now,
        lease=NEVER - now,
        status=work.run.status,
    )
    if run is None:  # it runs, or has ended
        return work
    tx.tasks.move(tx.tasks.lock(run.task_id), TaskStatus.RUNNING, now=now)
    tell_flow(tx, work.task, TaskChangeKind.BEGAN, now=now)
    tx.emit(EventKind.RUN_CLAIMED, run.id, at=now, task_id=run.task_id, fence=run.fence)
    note_life(tx, work, SignOfLife(), now=now)
    return msgspec.structs.replace(work, run=run, task=tx.tasks.look(run.task_id))


def note_life(tx: Tx, work: RecordedWork, sign: SignOfLife, *, now: datetime) -> None:
    timeout_s = DEFAULT_BEAT_TIMEOUT_S if work.details is None else work.details.beat_timeout_s
    tx.recorded.note_life(work.task.id, sign, alive_until=now + timedelta(seconds=timeout_s), now=now)


def starting(
    target: str, *, now: datetime, owner: str | None = None, holder: BootId | None = None
) -> Write[NoteOutcome]:
    """The write that starts queued work; running work stays as it is."""

    def start(tx: Tx) -> NoteOutcome:
        work = lock(tx, target, owner)
        if work.run.has_ended:
            return _ignored(tx, work, RunStatus.RUNNING, now=now)
        begin(tx, work, now=now, holder=holder)
        return Noted(work=find(tx, work.run.id))

    return start


def beating(target: str, *, now: datetime, owner: str | None = None) -> Write[NoteOutcome]:
    """The write of a sign of life. Late beats of ended work are no news, so no event is written."""

    def beat(tx: Tx) -> NoteOutcome:
        work = lock(tx, target, owner)
        if work.run.has_ended:
            return AlreadyEnded(task=work.task)
        note_life(tx, begin(tx, work, now=now), SignOfLife(), now=now)
        return Noted(work=find(tx, work.run.id))

    return beat


def progressing(
    target: str,
    *,
    progress: Progress | None = None,
    summary: str | None = None,
    tool: str | None = None,
    tool_uses: int = 0,
    now: datetime,
    owner: str | None = None,
) -> Write[NoteOutcome]:
    """The write of progress: counts, a sentence, and the tool in use. It is a sign of life, too, and starts
    queued work: the call that started it may have been lost."""
    counts = None if progress is None else checked_progress(progress)
    sign = SignOfLife(
        progress_summary=None if summary is None else check_text("summary", summary),
        last_tool_name=_maybe_name("tool", tool),
        tool_use_count=check_number("tool_uses", tool_uses, low=0, high=_MAX_TOOL_USES),
    )

    def save(tx: Tx) -> NoteOutcome:
        work = lock(tx, target, owner)
        if work.run.has_ended:
            return _ignored(tx, work, RunStatus.RUNNING, now=now)
        work = begin(tx, work, now=now)
        if counts is not None:
            tx.tasks.save_progress(work.task.id, work.run.id, work.run.fence, counts, now=now)
        note_life(tx, work, sign, now=now)
        return Noted(work=find(tx, work.run.id))

    return save


def noting_drops(target: str, total: int, *, now: datetime) -> Write[None]:
    """The write that reports were lost; `total` counts from the beginning of the work."""
    total = check_number("total", total, low=1, high=2**53)

    def note(tx: Tx) -> None:
        work = lock(tx, target)
        details = tx.recorded.get(work.task.id)
        if details is not None and tx.recorded.note_dropped(work.task.id, total):
            tx.count("report", ReportProblem.DROPPED, total - details.dropped_reports)
            tx.emit(EventKind.RECORDS_DROPPED, work.run.id, at=now, task_id=work.task.id, total=total)

    return note


def noting_unrecorded(name: str, run_id: str, count: int, *, now: datetime) -> Write[None]:
    """The write that some work was executed and never recorded; this run was the last of it. An audit reads
    the fact."""
    name, run_id = check_name("name", name), check_id("run_id", run_id)
    count = check_number("count", count, low=1, high=2**53)

    def note(tx: Tx) -> None:
        new = UnrecordedWork(total=count, name=name, run_id=run_id, at=now)
        tx.boots.add_fact(UNRECORDED_FACT, _as_fact(msgspec.structs.replace(new, total=0, run_id="")))
        while True:  # until no other process has changed it meanwhile
            found = tx.boots.fact(UNRECORDED_FACT)
            assert found is not None, "it was just added"
            known = msgspec.json.decode(found, type=UnrecordedWork)
            if known.run_id == run_id:
                return  # this write has committed before
            sum_of_both = msgspec.structs.replace(new, total=known.total + count)
            if tx.boots.replace_fact(UNRECORDED_FACT, found, _as_fact(sum_of_both)):
                break
        tx.count("report", ReportProblem.DROPPED, count)
        tx.emit(EventKind.RECORDS_DROPPED, run_id, at=now, total=count)

    return note


def _as_fact(work: UnrecordedWork) -> str:
    return msgspec.json.encode(work).decode()


def finishing(
    target: str,
    packed: Packed,
    *,
    summary: str | None = None,
    outcome: TerminalOutcome | str = TerminalOutcome.SUCCEEDED,
    now: datetime,
    owner: str | None = None,
    retention: timedelta = DEFAULT_RETENTION,
) -> Write[FinishOutcome]:
    """The write that ends the work with success. Work that was never started starts and ends in one write."""
    said = None if summary is None else check_text("summary", summary)
    meant = check_choice("outcome", outcome, TerminalOutcome)

    def finish(tx: Tx) -> FinishOutcome:
        work = lock(tx, target, owner)
        if work.run.has_ended:
            if work.run.status is RunStatus.SUCCEEDED and packed.stored == work.task.result:
                return Finished(task=work.task)
            late = LateReport(
                at=now,
                run_id=work.run.id,
                status=RunStatus.SUCCEEDED,
                summary=said,
                result=tx.blobs.keep(work.task.id, packed),
            )
            return _ignored(tx, work, RunStatus.SUCCEEDED, now=now, late=late)
        work = begin(tx, work, now=now)
        result = tx.blobs.keep(work.task.id, packed)
        done = RunOutcome(status=RunStatus.SUCCEEDED, result=result)
        return _end(tx, work, done, summary=said, outcome=meant, now=now, retention=retention)

    return finish


def failing(
    target: str,
    failure: Failure,
    *,
    status: RunStatus = RunStatus.FAILED,
    summary: str | None = None,
    now: datetime,
    owner: str | None = None,
    retention: timedelta = DEFAULT_RETENTION,
) -> Write[FinishOutcome]:
    """The write that ends the work without success: it failed, timed out, was cancelled or is lost."""
    checked = checked_failure(failure)
    said = checked.message if summary is None else check_text("summary", summary)

    def fail(tx: Tx) -> FinishOutcome:
        work = lock(tx, target, owner)
        if work.run.has_ended:
            if work.run.status is status and work.run.failure == checked:
                return Finished(task=work.task)
            late = None
            if work.run.status is not status:  # otherwise only the words differ
                late = LateReport(at=now, run_id=work.run.id, status=status, summary=said, failure=checked)
            return _ignored(tx, work, status, now=now, late=late)
        work = begin(tx, work, now=now)
        done = RunOutcome(status=status, failure=checked)
        return _end(tx, work, done, summary=said, outcome=None, now=now, retention=retention)

    return fail


def _end(
    tx: Tx,
    work: RecordedWork,
    done: RunOutcome,
    *,
    summary: str | None,
    outcome: TerminalOutcome | None,
    now: datetime,
    retention: timedelta,
) -> FinishOutcome:
    run = tx.runs.end(work.run.id, work.run.fence, done.status, failure=done.failure, now=now)
    assert run is not None, "the run is locked and running"
    # First, because the update about the end tells the summary.
    tx.recorded.note_end(run.task_id, summary=summary, outcome=outcome, now=now)
    end_task(tx, run, done, now=now, retention=retention)
    return Finished(task=tx.tasks.look(run.task_id))


def _ignored(
    tx: Tx, work: RecordedWork, asked: RunStatus, *, now: datetime, late: LateReport | None = None
) -> AlreadyEnded:
    """The work has ended, and an end is never changed: its requester, its parent and its followers may have
    acted on it. The event says what was asked, and the first report that disagrees is kept as evidence."""
    if late is not None and tx.recorded.keep_late(work.task.id, late, now=now):
        tx.count("report", ReportProblem.LATE, 1)
    failure = None if late is None else late.failure
    _emit_once(
        tx,
        EventKind.UPDATE_IGNORED,
        work,
        now,
        asked=asked.value,
        status=work.run.status.value,
        summary=None if late is None else late.summary,
        failure=None if failure is None else failure.message,
    )
    return AlreadyEnded(task=work.task)


def _emit_once(tx: Tx, kind: EventKind, work: RecordedWork, now: datetime, **facts: object) -> None:
    """These writes change no record that shows whether they ran before, so the event itself has to."""
    newest = [
        (event.kind, event.subject_id, event.at, event.facts) for event in tx.events.newest(limit=_RECENT)
    ]
    if (kind, work.run.id, now, facts) not in newest:
        tx.emit(kind, work.run.id, at=now, task_id=work.task.id, **facts)
