"""The writes of an import of flows: before the tasks that name them, and again after these have moved on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import BadInput, NotFound, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.flow import MAX_DOCUMENT_BYTES, Flow, FlowMode
from holdfast.core.ids import FlowId, TaskId
from holdfast.core.imported import (
    ImportChange,
    ImportedFlow,
    ImportedKind,
    ImportedRecord,
    ImportOutcome,
    ImportSource,
    imported_id,
)
from holdfast.core.payload import (
    MAX_GOAL_BYTES,
    check_name,
    check_number,
    check_text,
    decode_payload,
    encode_payload,
)
from holdfast.core.task import Failure
from holdfast.core.transitions import FLOW_MOVES, FlowStatus, TaskStatus
from holdfast.engine.ledger.flow_progress import TASKS
from holdfast.engine.ledger.inputs import check_moment
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION
from holdfast.store import Tx, Write

MAX_BATCH = 1000
_COUNTER_OF = {
    TaskStatus.SUCCEEDED: "succeeded",
    TaskStatus.FAILED: "failed",
    TaskStatus.TIMED_OUT: "failed",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.LOST: "lost",
}


class PreparedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The record that one imported flow becomes, if it is new here."""

    imported: ImportedFlow
    flow: Flow
    record: ImportedRecord


def prepare_flow(
    imported: ImportedFlow,
    *,
    source: ImportSource,
    batch_id: str,
    now: datetime,
    retention: timedelta = DEFAULT_RETENTION,
) -> PreparedFlow:
    """What is to be stored, checked. Raises BadInput, PayloadTooLarge."""
    source_id = check_name("flow_id", imported.source_id)
    created_at = check_moment("created_at", imported.created_at)
    flow_id = FlowId(imported_id("flow", source, source_id, created_at))
    if imported.has_ended != (imported.ended_at is not None):
        raise BadInput("ended_at", "a flow has the time of its end if, and only if, it has ended")
    is_managed = imported.mode is FlowMode.MANAGED
    if is_managed != (imported.controller is not None):
        raise BadInput("controller", "a managed flow has one, and a mirrored one has none")
    controller = None if imported.controller is None else check_name("controller_id", imported.controller)
    blocker = imported.blocked_by
    blocked_by = None
    if blocker is not None:
        blocker_id = check_name("blocked_task_id", blocker.source_id)
        blocked_by = TaskId(imported_id("task", source, blocker_id, blocker.created_at))
    why = imported.blocked_why
    failure = None if why is None else Failure(kind="blocked", message=check_text("blocked_summary", why))
    requested_at = imported.cancel_requested_at
    flow = Flow(
        id=flow_id,
        owner=check_name("owner_key", imported.owner),
        mode=imported.mode,
        goal=check_text("goal", imported.goal, max_bytes=MAX_GOAL_BYTES),
        created_at=created_at,
        status=imported.status,
        revision=check_number("revision", imported.revision, low=1, high=2**53),
        current_step=None
        if imported.current_step is None
        else check_name("current_step", imported.current_step),
        contents=_document("state_json", imported.contents_json),
        waits_on=_waits_on(imported, controller, blocked_by),
        blocked_by_task_id=blocked_by,
        cancel_requested_at=requested_at,
        updated_at=check_moment("updated_at", imported.updated_at),
        ended_at=imported.ended_at,
        name=f"{source.value}.{imported.mode.value}",
        controller=controller,
        wait=None if imported.has_ended else _document("wait_json", imported.wait_json),
        failure=failure,
        cancel_reason=None if requested_at is None else f"requested in {source.value}",
        # An operator who imports old work wants to look at it: its retention begins now.
        cleanup_after=now + retention if imported.has_ended else None,
    )
    return PreparedFlow(
        imported=imported,
        flow=flow,
        record=ImportedRecord(
            source=source,
            noun=ImportedKind.FLOW,
            source_id=source_id,
            record_id=flow_id,
            imported_at=now,
            first_batch_id=batch_id,
            row_digest=imported.digest,
            batch_id=batch_id,
            rest=encode_payload("row", imported.rest | _age_of(imported), max_bytes=MAX_DOCUMENT_BYTES),
        ),
    )


def _waits_on(imported: ImportedFlow, controller: str | None, blocked_by: TaskId | None) -> str | None:
    if imported.has_ended:
        return None
    if blocked_by is not None:
        return f"task:{blocked_by}"
    return TASKS if controller is None else f"controller:{controller}"


def _document(field: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(field, f"it is not JSON: {error}") from error
    return encode_payload(field, value, max_bytes=MAX_DOCUMENT_BYTES)


# --- the write


def taking_over_flows(
    prepared: Sequence[PreparedFlow],
    *,
    source: ImportSource,
    batch_id: str,
    now: datetime,
    only_new: bool = False,
) -> Write[list[ImportOutcome]]:
    """The write of one batch of flows. With `only_new`, a flow that was imported before and has changed stays
    as it is for now, and the answer is that it advanced: its tasks come first."""
    _check_batch(prepared)

    def take_over(tx: Tx) -> list[ImportOutcome]:
        known = tx.imports.get_many(source, ImportedKind.FLOW, [one.record.source_id for one in prepared])
        missing = [one for one in prepared if one.record.source_id not in known]
        if missing:
            tx.imports.add([one.record for one in missing])
            # Another import may have added some of them at the same time.
            kept = tx.imports.get_many(source, ImportedKind.FLOW, [one.record.source_id for one in missing])
            for one in missing:
                if kept[one.record.source_id].batch_id == batch_id:
                    tx.flows.create(one.flow)
            known |= kept
        # Flows are locked in the order of their ids, against deadlocks.
        order = sorted(prepared, key=lambda one: known[one.record.source_id].record_id)
        taken = {
            one.record.source_id: _take(
                tx, one, known[one.record.source_id], batch_id=batch_id, now=now, only_new=only_new
            )
            for one in order
        }
        _tell_followers(tx, list(taken.values()), source, batch_id, now, only_new=only_new)
        return [taken[one.record.source_id] for one in prepared]

    return take_over


def previewing_flows(
    prepared: Sequence[PreparedFlow], *, source: ImportSource, only_new: bool = False
) -> Callable[[Tx], list[ImportOutcome]]:
    """What the write would answer, without a change."""
    _check_batch(prepared)

    def preview(tx: Tx) -> list[ImportOutcome]:
        known = tx.imports.get_many(source, ImportedKind.FLOW, [one.record.source_id for one in prepared])
        found = []
        for one in prepared:
            record = known.get(one.record.source_id)
            if record is None:
                found.append(_outcome(one, ImportChange.CREATED, one.record.record_id))
            else:
                found.append(_decided(one, record, tx.flows.find(record.record_id), only_new=only_new))
        return found

    return preview


def _check_batch(prepared: Sequence[PreparedFlow]) -> None:
    ids = [one.record.source_id for one in prepared]
    if len(ids) > MAX_BATCH:
        raise BadInput("flows", f"one batch has at most {MAX_BATCH} of them")
    if len(set(ids)) != len(ids):
        raise BadInput("flows", "two of them have the same id")


def _take(
    tx: Tx, one: PreparedFlow, record: ImportedRecord, *, batch_id: str, now: datetime, only_new: bool
) -> ImportOutcome:
    if record.batch_id == batch_id:  # this write, now or before
        change = ImportChange.CREATED if record.first_batch_id == batch_id else ImportChange.ADVANCED
        return _outcome(one, change, record.record_id)
    is_there = record.expires_at is None and tx.flows.find(record.record_id) is not None
    may_change = is_there and not only_new and record.row_digest != one.record.row_digest
    flow = tx.flows.lock(record.record_id) if may_change else tx.flows.find(record.record_id)
    decided = _decided(one, record, flow, only_new=only_new)
    if may_change and flow is not None and decided.change is ImportChange.ADVANCED:
        _advance(tx, one, flow, now=now)
        tx.imports.renew(
            msgspec.structs.replace(
                record, row_digest=one.record.row_digest, batch_id=batch_id, rest=one.record.rest
            )
        )
    return decided


def _age_of(imported: ImportedFlow) -> dict[str, Any]:
    """By what a later import knows an older state of the row: its revision there, and when it changed."""
    return {"revision": imported.revision, "updatedAt": to_micros(imported.updated_at)}


def _is_older(one: PreparedFlow, record: ImportedRecord) -> bool:
    known = {} if record.rest is None else decode_payload(record.rest)
    if not isinstance(known, dict) or "updatedAt" not in known:
        return False
    told = (one.imported.revision, to_micros(one.imported.updated_at))
    return told < (known["revision"], known["updatedAt"])


def _decided(
    one: PreparedFlow, record: ImportedRecord, flow: Flow | None, *, only_new: bool
) -> ImportOutcome:
    if record.row_digest == one.record.row_digest:
        return _outcome(one, ImportChange.UNCHANGED, record.record_id)
    if flow is None:
        why = "its record was imported before and deleted here by retention"
        return _outcome(one, ImportChange.UNCHANGED, record.record_id, why)
    if _is_older(one, record):
        return _outcome(one, ImportChange.UNCHANGED, flow.id, "a newer state of it was imported before")
    if only_new or not flow.has_ended:
        return _outcome(one, ImportChange.ADVANCED, flow.id)
    if flow.status is one.imported.status:
        return _outcome(one, ImportChange.UNCHANGED, flow.id)
    why = f"it has ended here as {flow.status.value}, and is {one.imported.status.value} there"
    return _outcome(one, ImportChange.IGNORED, flow.id, why)


def _advance(tx: Tx, one: PreparedFlow, flow: Flow, *, now: datetime) -> None:
    """Bring the flow to what its row tells."""
    told = one.flow
    blocked_by = told.blocked_by_task_id
    if flow.is_mirrored and flow.status is told.status is FlowStatus.BLOCKED:
        blocked_by = blocked_by or flow.blocked_by_task_id  # the end of a task has told it
    after = msgspec.structs.replace(
        flow,
        status=told.status,
        revision=max(flow.revision + 1, told.revision),
        current_step=told.current_step,
        contents=told.contents,
        wait=told.wait,
        waits_on=told.waits_on,
        blocked_by_task_id=blocked_by,
        failure=told.failure,
        cancel_requested_at=flow.cancel_requested_at or told.cancel_requested_at,
        cancel_reason=flow.cancel_reason or told.cancel_reason,
        updated_at=max(flow.updated_at, told.updated_at),
        ended_at=told.ended_at,
        cleanup_after=told.cleanup_after,
    )
    if after.status is not flow.status and after.status not in FLOW_MOVES[flow.status]:
        # It went on there before it came to this status, as from blocked to succeeded.
        going_on = msgspec.structs.replace(flow, status=FlowStatus.RUNNING, revision=flow.revision + 1)
        tx.flows.save(flow, going_on)
        flow, after = going_on, msgspec.structs.replace(after, revision=after.revision + 1)
    tx.flows.save(flow, after)
    if after.has_ended:
        tx.emit(
            EventKind.FLOW_ENDED,
            flow.id,
            at=now,
            status=after.status.value,
            name=flow.name,
            owner=flow.owner,
        )
    tx.hint("flows")


def _outcome(
    one: PreparedFlow, change: ImportChange, record_id: str, why: str | None = None
) -> ImportOutcome:
    return ImportOutcome(source_id=one.record.source_id, change=change, record_id=record_id, why=why)


def _tell_followers(
    tx: Tx,
    taken: Sequence[ImportOutcome],
    source: ImportSource,
    batch_id: str,
    now: datetime,
    *,
    only_new: bool,
) -> None:
    created = sum(one.change is ImportChange.CREATED for one in taken)
    advanced = 0 if only_new else sum(one.change is ImportChange.ADVANCED for one in taken)
    if created or advanced:
        tx.emit(
            EventKind.RECORDS_IMPORTED,
            batch_id,
            at=now,
            source=source.value,
            noun=ImportedKind.FLOW.value,
            created=created,
            advanced=advanced,
        )


# --- the tasks of imported flows


def note_imported(tx: Tx, flow_id: str, status: TaskStatus) -> None:
    """A task was imported with this flow. Just before the commit, the flow counts it."""
    tx.before_commit(flow_id, _count, status)


def _count(tx: Tx, flow_id: str, statuses: list[TaskStatus]) -> None:
    """The flow does not move: its own row tells its status. If that is an end, `settle` counts how the others
    of these tasks end."""
    try:
        flow = tx.flows.lock(flow_id)
    except (NotFound, RowDamaged):  # an audit and `holdfast store verify` tell
        return
    counts = {name: getattr(flow, name) for name in ("live", *_COUNTER_OF.values())}
    for status in statuses:
        counts[_COUNTER_OF.get(status, "live")] += 1
    tx.flows.save(flow, msgspec.structs.replace(flow, **counts))
