"""The writes of an import: records of another gateway become recorded work, and may be imported again.

No update is sent because of an import: the other gateway has told its requesters, or it still will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.delivery import Delivery, DeliveryText, update_key
from holdfast.core.errors import BadInput
from holdfast.core.events import EventKind
from holdfast.core.flow import TaskChangeKind
from holdfast.core.ids import BootId, RunId, TaskId
from holdfast.core.imported import (
    ImportChange,
    ImportedKind,
    ImportedRecord,
    ImportedTask,
    ImportOutcome,
    ImportSource,
    SourceIdentity,
    imported_id,
)
from holdfast.core.message import delivery_id, plain_line, update_id
from holdfast.core.payload import (
    MAX_GOAL_BYTES,
    check_code_name,
    check_name,
    check_number,
    check_text,
    encode_payload,
)
from holdfast.core.recorded import (
    LateReport,
    RecordedDetails,
    RecordedWork,
    ReportProblem,
    TerminalOutcome,
    unregistered_holder,
)
from holdfast.core.run import Queue, RunOutcome, RunRecord
from holdfast.core.task import DEFAULT_PRIORITY, Failure, NotifyPolicy, Task
from holdfast.core.transitions import DeliveryStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.engine.ledger.inputs import check_moment
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, tell_flow
from holdfast.engine.producers.flow_imports import note_imported
from holdfast.engine.producers.writes import begin
from holdfast.store import Tx, Write
from holdfast.store.recorded import SignOfLife

# Work that runs in another gateway reports nothing here. A later import tells how it ended; if none does
# within this time, the sweep declares the work lost.
IMPORT_AGAIN_WITHIN = timedelta(days=1)
MAX_BATCH = 1000
_STATUSES = frozenset(
    {
        TaskStatus.QUEUED,
        TaskStatus.RUNNING,
        TaskStatus.SUCCEEDED,
        TaskStatus.FAILED,
        TaskStatus.TIMED_OUT,
        TaskStatus.CANCELLED,
        TaskStatus.LOST,
    }
)
# What may still be sent is not imported as such: an import sends nothing.
_SETTLED = frozenset(
    {
        DeliveryStatus.DELIVERED,
        DeliveryStatus.SESSION_QUEUED,
        DeliveryStatus.FAILED,
        DeliveryStatus.PARENT_MISSING,
        DeliveryStatus.DISMISSED,
    }
)
_MAX_TITLE = 120
_MAX_DETAIL = 500


class PreparedTask(msgspec.Struct, frozen=True, kw_only=True):
    """The records that one imported task becomes, if it is new here."""

    imported: ImportedTask
    task: Task
    run: RunRecord
    details: RecordedDetails
    delivery: Delivery | None
    record: ImportedRecord


def prepare_import(
    imported: ImportedTask,
    *,
    source: ImportSource,
    batch_id: str,
    now: datetime,
    retention: timedelta = DEFAULT_RETENTION,
) -> PreparedTask:
    """What is to be stored, checked. Raises BadInput, PayloadTooLarge."""
    source_id = check_name("task_id", imported.source_id)
    created_at = check_moment("created_at", imported.created_at)
    task_id = TaskId(imported_id("task", source, source_id, created_at))
    run_id = RunId(imported_id("run", source, source_id, created_at))
    if imported.runtime.is_executed_here:
        raise BadInput("runtime", f"Holdfast itself executes {imported.runtime.value} tasks")
    if imported.status not in _STATUSES:
        raise BadInput("status", f"{imported.status.value} is not a status of imported work")
    if imported.has_ended != (imported.ended_at is not None):
        raise BadInput("ended_at", "work has the time of its end if, and only if, it has ended")
    failure = _failure_of(imported)
    updated_at = max(
        moment
        for moment in (created_at, imported.started_at, imported.ended_at, imported.last_event_at)
        if moment is not None
    )
    is_running = imported.status is TaskStatus.RUNNING
    run_status = RunStatus(imported.status.value)
    started_at = imported.started_at or (created_at if is_running else None)
    name = check_code_name("name", imported.name)
    keep_until = now + retention
    task = Task(
        id=task_id,
        owner=check_name("owner_key", imported.owner),
        runtime=imported.runtime,
        name=name,
        goal=check_text("task", imported.goal, max_bytes=MAX_GOAL_BYTES),
        arguments=encode_payload("row", {source.value: imported.rest}),
        origin=None if imported.origin is None else imported.origin.checked(),
        session_key=_maybe_name("requester_session_key", imported.session_key),
        parent_task_id=None if imported.parent is None else TaskId(_id_of("task", source, imported.parent)),
        flow_id=None if imported.flow is None else _id_of("flow", source, imported.flow),
        # The other gateway tells the requester how its work ends. The policy is set when the work has ended.
        notify=imported.notify if imported.has_ended else NotifyPolicy.SILENT,
        created_at=created_at,
        status=imported.status,
        priority=DEFAULT_PRIORITY,
        result=b"null" if imported.status is TaskStatus.SUCCEEDED else None,
        failure=failure,
        updated_at=updated_at,
        started_at=started_at,
        ended_at=imported.ended_at,
        # An operator who imports old work wants to look at it: its retention begins now.
        cleanup_after=_later(imported.cleanup_after, keep_until) if imported.has_ended else None,
    )
    run = RunRecord(
        id=run_id,
        task_id=task_id,
        task_name=name,
        number=1,
        created_at=created_at,
        status=run_status,
        priority=DEFAULT_PRIORITY,
        due_at=created_at,
        queue=Queue.PRODUCER,
        claimed_by=_holder(imported) if is_running else None,
        claim_token=run_id if is_running else None,
        fence=0 if imported.status is TaskStatus.QUEUED else 1,
        lease_until=NEVER if is_running else None,
        failure=failure,
        updated_at=updated_at,
        started_at=started_at,
        ended_at=imported.ended_at,
    )
    details = RecordedDetails(
        task_id=task_id,
        scope=imported.scope,
        source_id=_maybe_name("source_id", imported.work_id),
        agent_id=_maybe_name("agent_id", imported.agent_id),
        child_session_key=_maybe_name("child_session_key", imported.child_session_key),
        beat_timeout_s=int(IMPORT_AGAIN_WITHIN.total_seconds()),
        created_at=created_at,
        progress_summary=_maybe_text("progress_summary", imported.progress_summary),
        terminal_summary=_maybe_text("terminal_summary", imported.terminal_summary)
        if imported.has_ended
        else None,
        terminal_outcome=imported.terminal_outcome if imported.has_ended else None,
        tool_use_count=check_number("tool_use_count", imported.tool_use_count, low=0, high=2**53),
        last_tool_name=_maybe_name("last_tool_name", imported.last_tool_name),
        last_event_at=imported.last_event_at or updated_at,
        alive_until=now + IMPORT_AGAIN_WITHIN if is_running else None,
    )
    return PreparedTask(
        imported=imported,
        task=task,
        run=run,
        details=details,
        delivery=_delivery_of(imported, task, run),
        record=ImportedRecord(
            source=source,
            noun=ImportedKind.TASK,
            source_id=source_id,
            record_id=task_id,
            source_run_id=_maybe_name("run_id", imported.source_run_id),
            imported_at=now,
            first_batch_id=batch_id,
            row_digest=imported.digest,
            batch_id=batch_id,
        ),
    )


def taking_over(
    prepared: Sequence[PreparedTask], *, source: ImportSource, batch_id: str, now: datetime
) -> Write[list[ImportOutcome]]:
    """The write of one batch: new rows become records, and records get what their rows tell beyond them.

    If it runs again after its own commit, the batch id in the records tells it so.
    """
    _check_batch(prepared)

    def take_over(tx: Tx) -> list[ImportOutcome]:
        known = tx.imports.get_many(source, ImportedKind.TASK, [one.record.source_id for one in prepared])
        missing = [one for one in prepared if one.record.source_id not in known]
        if missing:
            tx.imports.add([one.record for one in missing])
            # Another import may have added some of them at the same time.
            kept = tx.imports.get_many(source, ImportedKind.TASK, [one.record.source_id for one in missing])
            new = [one for one in missing if kept[one.record.source_id].batch_id == batch_id]
            _create(tx, _relinked(tx, source, new))
            known |= kept
        taken = [_take(tx, one, known[one.record.source_id], batch_id=batch_id, now=now) for one in prepared]
        _tell_followers(tx, taken, source, batch_id, now)
        return taken

    return take_over


def previewing(
    prepared: Sequence[PreparedTask], *, source: ImportSource
) -> Callable[[Tx], list[ImportOutcome]]:
    """What the write would answer, without a change."""
    _check_batch(prepared)

    def preview(tx: Tx) -> list[ImportOutcome]:
        known = tx.imports.get_many(source, ImportedKind.TASK, [one.record.source_id for one in prepared])
        found: list[ImportOutcome] = []
        for one in prepared:
            record = known.get(one.record.source_id)
            if record is None:
                found.append(_taken(one, ImportChange.CREATED, one.record.record_id))
            elif record.row_digest == one.record.row_digest:
                found.append(_taken(one, ImportChange.UNCHANGED, record.record_id))
            else:
                task = tx.tasks.get_many([record.record_id]).get(record.record_id)
                details = tx.recorded.get(record.record_id)
                found.append(_decided(one, record, task, details))
        return found

    return preview


def _check_batch(prepared: Sequence[PreparedTask]) -> None:
    ids = [one.record.source_id for one in prepared]
    if len(ids) > MAX_BATCH:
        raise BadInput("tasks", f"one batch has at most {MAX_BATCH} of them")
    if len(set(ids)) != len(ids):
        raise BadInput("tasks", "two of them have the same id")


# --- new records


def _relinked(tx: Tx, source: ImportSource, new: Sequence[PreparedTask]) -> list[PreparedTask]:
    """The tasks with the parents and flows that they have in this ledger. An earlier import may have seen
    another time of creation, and so have made another id. Flows are imported first, so one that is missing
    was left out."""
    parents = {one.imported.parent.source_id for one in new if one.imported.parent is not None}
    flows = {one.imported.flow.source_id for one in new if one.imported.flow is not None}
    of_tasks = tx.imports.get_many(source, ImportedKind.TASK, sorted(parents)) if parents else {}
    of_flows = tx.imports.get_many(source, ImportedKind.FLOW, sorted(flows)) if flows else {}
    found = []
    for one in new:
        parent, flow = one.imported.parent, one.imported.flow
        links: dict[str, object] = {}
        if parent is not None and parent.source_id in of_tasks:
            links["parent_task_id"] = of_tasks[parent.source_id].record_id
        if flow is not None:
            record = of_flows.get(flow.source_id)
            is_here = record is not None and record.expires_at is None
            links["flow_id"] = record.record_id if record is not None and is_here else None
        task = msgspec.structs.replace(one.task, **links) if links else one.task
        found.append(msgspec.structs.replace(one, task=task))
    return found


def _create(tx: Tx, new: Sequence[PreparedTask]) -> None:
    if not new:
        return
    tx.tasks.create_many([one.task for one in new])
    tx.runs.create_many([one.run for one in new])
    tx.recorded.create_many([one.details for one in new])
    tx.deliveries.create_many([one.delivery for one in new if one.delivery is not None])
    for one in new:
        if one.task.flow_id is not None:
            note_imported(tx, one.task.flow_id, one.task.status)


# --- records that exist


def _take(
    tx: Tx, one: PreparedTask, record: ImportedRecord, *, batch_id: str, now: datetime
) -> ImportOutcome:
    if record.batch_id == batch_id:  # this write, now or before
        change = ImportChange.CREATED if record.first_batch_id == batch_id else ImportChange.ADVANCED
        return _taken(one, change, record.record_id)
    if record.row_digest == one.record.row_digest:
        return _taken(one, ImportChange.UNCHANGED, record.record_id)
    if record.expires_at is not None or record.record_id not in tx.tasks.get_many([record.record_id]):
        return _decided(one, record, None, None)
    task = tx.tasks.lock(record.record_id)
    details = tx.recorded.get(task.id)
    decided = _decided(one, record, task, details)
    if decided.change is ImportChange.IGNORED and one.imported.has_ended:
        _keep_late(tx, one, task, now=now)
    if decided.change is ImportChange.ADVANCED:
        _advance(tx, one, task, now=now)
        tx.imports.renew(msgspec.structs.replace(record, row_digest=one.record.row_digest, batch_id=batch_id))
    return decided


def _decided(
    one: PreparedTask, record: ImportedRecord, task: Task | None, details: RecordedDetails | None
) -> ImportOutcome:
    """Whether the row tells more than the record."""
    told = one.imported
    if task is None:
        why = "its record was imported before and deleted here by retention"
        return _taken(one, ImportChange.UNCHANGED, record.record_id, why)
    if task.has_ended:
        if told.status is task.status:
            return _taken(one, ImportChange.UNCHANGED, task.id)
        why = f"it has ended here as {task.status.value}, and is {told.status.value} there"
        return _taken(one, ImportChange.IGNORED, task.id, why)
    is_new_status = told.has_ended or (told.status is TaskStatus.RUNNING and task.status is TaskStatus.QUEUED)
    has_moved = (
        told.last_event_at is not None and details is not None and told.last_event_at > details.last_event_at
    )
    if is_new_status or has_moved:
        return _taken(one, ImportChange.ADVANCED, task.id)
    return _taken(one, ImportChange.UNCHANGED, task.id)


def _advance(tx: Tx, one: PreparedTask, task: Task, *, now: datetime) -> None:
    """Bring the record to the state that the row tells, at the times that the row tells."""
    told = one.imported
    run = tx.runs.live_of_task(task.id)
    if run is None:
        return
    run = tx.runs.lock(run.id)
    work = RecordedWork(task=task, run=run, details=tx.recorded.get(task.id))
    if told.status is not TaskStatus.QUEUED:
        started_at = told.started_at or told.created_at
        work = begin(tx, work, now=started_at, holder=_holder(told))
    sign = SignOfLife(
        progress_summary=one.details.progress_summary,
        last_tool_name=one.details.last_tool_name,
        tool_use_count=one.details.tool_use_count,
    )
    if not told.has_ended:
        last_event_at = told.last_event_at or now
        tx.recorded.note_life(task.id, sign, alive_until=now + IMPORT_AGAIN_WITHIN, now=last_event_at)
        return
    assert told.ended_at is not None
    tx.recorded.note_life(task.id, sign, alive_until=now, now=told.ended_at)
    tx.tasks.set_notify(task.id, told.notify, now=told.ended_at)
    status = RunStatus(told.status.value)
    failure = one.task.failure
    tx.runs.end(work.run.id, work.run.fence, status, failure=failure, now=told.ended_at)
    tx.recorded.note_end(
        task.id,
        summary=one.details.terminal_summary,
        outcome=one.details.terminal_outcome,
        now=told.ended_at,
    )
    outcome = RunOutcome(status=status, result=one.task.result, failure=failure)
    assert one.task.cleanup_after is not None
    tx.tasks.end(
        tx.tasks.look(task.id), told.status, outcome, now=told.ended_at, cleanup_after=one.task.cleanup_after
    )
    tx.emit(EventKind.RUN_ENDED, work.run.id, at=now, task_id=task.id, status=status.value)
    tx.emit(EventKind.TASK_ENDED, task.id, at=now, task_id=task.id, status=told.status.value)
    is_blocked = one.details.terminal_outcome is TerminalOutcome.BLOCKED
    tell_flow(tx, task, TaskChangeKind.ENDED, now=now, status=told.status, is_blocked=is_blocked)
    if one.delivery is not None:
        key = update_key(task.id, work.run.id, told.status)
        tx.deliveries.create(
            msgspec.structs.replace(
                one.delivery, id=delivery_id(update_id(key)), task_id=task.id, idempotency_key=key
            )
        )


def _keep_late(tx: Tx, one: PreparedTask, task: Task, *, now: datetime) -> None:
    """The record says otherwise, and stays so; what the other gateway says is kept as evidence, once."""
    run = tx.runs.last_of_task(task.id)
    late = LateReport(
        at=now,
        run_id=run.id,
        status=RunStatus(one.imported.status.value),
        summary=one.details.terminal_summary,
        failure=one.task.failure,
    )
    if tx.recorded.keep_late(task.id, late, now=now):
        tx.count("report", ReportProblem.LATE, 1)
        tx.emit(
            EventKind.UPDATE_IGNORED,
            run.id,
            at=now,
            task_id=task.id,
            asked=one.imported.status.value,
            status=task.status.value,
        )


def _tell_followers(
    tx: Tx, taken: Sequence[ImportOutcome], source: ImportSource, batch_id: str, now: datetime
) -> None:
    """One event for the batch: an import of years of work must not drown what happens now."""
    created = sum(one.change is ImportChange.CREATED for one in taken)
    advanced = sum(one.change is ImportChange.ADVANCED for one in taken)
    if created or advanced:
        tx.emit(
            EventKind.RECORDS_IMPORTED,
            batch_id,
            at=now,
            source=source.value,
            noun=ImportedKind.TASK.value,
            created=created,
            advanced=advanced,
        )


# --- parts of a record


def _taken(one: PreparedTask, change: ImportChange, record_id: str, why: str | None = None) -> ImportOutcome:
    return ImportOutcome(source_id=one.record.source_id, change=change, record_id=record_id, why=why)


def _holder(imported: ImportedTask) -> BootId:
    return unregistered_holder(imported.runtime)


def _id_of(prefix: str, source: ImportSource, link: SourceIdentity) -> str:
    return imported_id(prefix, source, check_name("link", link.source_id), link.created_at)


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)


def _maybe_name(field: str, value: str | None) -> str | None:
    return None if value is None else check_name(field, value)


def _maybe_text(field: str, value: str | None) -> str | None:
    return None if value is None else check_text(field, value)


def _failure_of(imported: ImportedTask) -> Failure | None:
    if not imported.has_ended or imported.status is TaskStatus.SUCCEEDED:
        return None
    told = imported.error or imported.terminal_summary or imported.status.value
    return Failure(kind=imported.status.value, message=check_text("error", told))


def _delivery_of(imported: ImportedTask, task: Task, run: RunRecord) -> Delivery | None:
    """What became of the update about the end. With its key, no other update about it can be owed."""
    if imported.delivery is None or not imported.has_ended:
        return None
    if imported.delivery not in _SETTLED:
        raise BadInput("delivery", f"an import cannot owe a message: {imported.delivery.value}")
    assert imported.ended_at is not None
    key = update_key(task.id, run.id, imported.status)
    told = imported.terminal_summary or imported.error or ""
    text = f"“{plain_line(task.goal, _MAX_TITLE)}” {imported.status.value}"
    detail = plain_line(told, _MAX_DETAIL)
    why = imported.delivery_why
    return Delivery(
        id=delivery_id(update_id(key)),
        task_id=task.id,
        idempotency_key=key,
        origin=task.origin,
        message=msgspec.json.encode(DeliveryText(text=f"{text}: {detail}" if detail else text)),
        created_at=imported.ended_at,
        status=imported.delivery,
        due_at=imported.ended_at,
        failure=None if why is None else Failure(kind="imported", message=check_text("delivery_why", why)),
        updated_at=imported.ended_at,
    )
