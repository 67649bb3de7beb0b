"""Rows of tasks, runs, checkpoints, boots and events."""

from __future__ import annotations

import msgspec

from holdfast.core.checkpoint import Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.claim import Boot, Carried
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import KeyLost
from holdfast.core.events import Event, EventKind
from holdfast.core.ids import BootId
from holdfast.core.payload import digest_of
from holdfast.core.run import Queue, RunRecord
from holdfast.core.seal_mode import SEALED
from holdfast.core.task import NotifyPolicy, Progress, RuntimeName, Task
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.store.contract import Row
from holdfast.store.rows.reading import (
    Params,
    encode,
    json_of,
    mend_with,
    micros_of,
    moment_of,
    read_failure,
    read_origin,
    reads,
)
from holdfast.store.sealing import CLOSED, MARK, Sealing

_progress = msgspec.json.Decoder(Progress).decode
_facts = msgspec.json.Decoder(dict[str, object]).decode
_names = msgspec.json.Decoder(tuple[str, ...]).decode

# Text to statuses: much faster than calling the enumeration, and rows are read all the time.
_RUNTIMES = {one.value: one for one in RuntimeName}
_POLICIES = {one.value: one for one in NotifyPolicy}
_TASK_STATUSES = {one.value: one for one in TaskStatus}
_RUN_STATUSES = {one.value: one for one in RunStatus}
_QUEUES = {one.value: one for one in Queue}


@reads(
    "task",
    mend_with({2: RuntimeName, 11: NotifyPolicy, 14: TaskStatus}, (6, 17, 20), (12, 21, 23, 24, 25, 26)),
)
def task_from_row(row: Row, sealing: Sealing = CLOSED) -> Task:
    """The task; `is_damaged` when its bytes do not match its digest, and `is_sealed` when no key opens it:
    one bad row must not keep the others from being shown."""
    arguments, result, is_sealed = row[5], row[18], False
    if arguments[:1] == MARK or (result is not None and result[:1] == MARK):
        try:
            arguments = sealing.open(arguments, "tasks.arguments", row[0])
            result = sealing.maybe_open(result, "tasks.result", row[0])
        except KeyLost:
            arguments, result, is_sealed = SEALED, None if result is None else SEALED, True
    return Task(
        id=row[0],
        owner=row[1],
        runtime=_RUNTIMES[row[2]],
        name=row[3],
        goal=row[4],
        arguments=arguments,
        origin=None if row[6] is None else read_origin(row[6]),
        session_key=row[7],
        parent_task_id=row[8],
        flow_id=row[9],
        dedup_key=row[10],
        notify=_POLICIES[row[11]],
        created_at=from_micros(row[12]),
        is_damaged=digest_of(*row[:13]) != row[13]
        or (row[18] is not None and digest_of(row[0], row[18]) != row[19]),
        status=_TASK_STATUSES[row[14]],
        priority=row[15],
        waits_on=row[16],
        progress=None if row[17] is None else _progress(row[17]),
        result=result,
        is_sealed=is_sealed,
        failure=None if row[20] is None else read_failure(row[20]),
        cancel_requested_at=moment_of(row[21]),
        cancel_reason=row[22],
        updated_at=from_micros(row[23]),
        started_at=moment_of(row[24]),
        ended_at=moment_of(row[25]),
        cleanup_after=moment_of(row[26]),
        campaign_id=row[27],
    )


def row_from_task(task: Task, sealing: Sealing) -> Params:
    result = sealing.maybe(task.result, "tasks.result", task.id)
    row: Params = {
        "id": task.id,
        "owner": task.owner,
        "runtime": task.runtime.value,
        "name": task.name,
        "goal": task.goal,
        "arguments": sealing.seal(task.arguments, "tasks.arguments", task.id),
        "origin": json_of(task.origin),
        "session_key": task.session_key,
        "parent_task_id": task.parent_task_id,
        "flow_id": task.flow_id,
        "dedup_key": task.dedup_key,
        "notify": task.notify.value,
        "created_at": to_micros(task.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": task.status.value,
        "priority": task.priority,
        "waits_on": task.waits_on,
        "progress": json_of(task.progress),
        "result": result,
        "result_digest": None if result is None else digest_of(task.id, result),
        "failure": json_of(task.failure),
        "cancel_requested_at": micros_of(task.cancel_requested_at),
        "cancel_reason": task.cancel_reason,
        "updated_at": to_micros(task.updated_at),
        "started_at": micros_of(task.started_at),
        "ended_at": micros_of(task.ended_at),
        "cleanup_after": micros_of(task.cleanup_after),
        "campaign_id": task.campaign_id,
    }


def notify_digest(row: Row, policy: NotifyPolicy) -> bytes:
    """The digest of the row of a task with this policy instead of its own."""
    return digest_of(*row[:11], policy.value, row[12])


def flow_digest(row: Row, flow_id: str) -> bytes:
    """The digest of the row of a task as part of this flow."""
    return digest_of(*row[:9], flow_id, *row[10:13])


@reads("run", mend_with({9: RunStatus, 12: Queue}, (21,), (7, 11, 18, 19, 22, 23, 24)))
def run_from_row(row: Row) -> RunRecord:
    """The run; `is_damaged` instead of an exception, because one bad row must not stop all work."""
    return RunRecord(
        id=row[0],
        task_id=row[1],
        task_name=row[2],
        number=row[3],
        resumes_run_id=row[4],
        checkpoint_id=row[5],
        seed=row[6],
        created_at=from_micros(row[7]),
        is_damaged=digest_of(*row[:8]) != row[8],
        status=_RUN_STATUSES[row[9]],
        priority=row[10],
        due_at=from_micros(row[11]),
        queue=_QUEUES[row[12]],
        is_alone=bool(row[13]),
        idle_attempts=row[14],
        claimed_by=row[15],
        claim_token=row[16],
        fence=row[17],
        lease_until=moment_of(row[18]),
        beat_at=moment_of(row[19]),
        waits_on=row[20],
        failure=None if row[21] is None else read_failure(row[21]),
        updated_at=from_micros(row[22]),
        started_at=moment_of(row[23]),
        ended_at=moment_of(row[24]),
    )


def row_from_run(run: RunRecord) -> Params:
    row: Params = {
        "id": run.id,
        "task_id": run.task_id,
        "task_name": run.task_name,
        "number": run.number,
        "resumes_run_id": run.resumes_run_id,
        "checkpoint_id": run.checkpoint_id,
        "seed": run.seed,
        "created_at": to_micros(run.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": run.status.value,
        "priority": run.priority,
        "due_at": to_micros(run.due_at),
        "queue": run.queue.value,
        "is_alone": int(run.is_alone),
        "idle_attempts": run.idle_attempts,
        "claimed_by": run.claimed_by,
        "claim_token": run.claim_token,
        "fence": run.fence,
        "lease_until": micros_of(run.lease_until),
        "beat_at": micros_of(run.beat_at),
        "waits_on": run.waits_on,
        "failure": json_of(run.failure),
        "updated_at": to_micros(run.updated_at),
        "started_at": micros_of(run.started_at),
        "ended_at": micros_of(run.ended_at),
    }


@reads("checkpoint", mend_with({3: CheckpointKind, 4: ResumeReason}, (17,), (8, 14, 18)))
def checkpoint_from_row(row: Row) -> Checkpoint:
    """The checkpoint; `is_damaged` instead of an exception, because it must still become failed_resume."""
    return Checkpoint(
        id=row[0],
        task_id=row[1],
        run_id=row[2],
        kind=CheckpointKind(row[3]),
        reason=ResumeReason(row[4]),
        schema_version=row[5],
        document=row[6],
        retry_of=row[7],
        created_at=from_micros(row[8]),
        is_damaged=digest_of(*row[:9]) != row[9],
        status=None if row[10] is None else CheckpointStatus(row[10]),
        priority=row[11],
        token=row[12],
        claimed_by=row[13],
        lease_until=moment_of(row[14]),
        attempts=row[15],
        resumed_run_id=row[16],
        diagnostic=None if row[17] is None else read_failure(row[17]),
        updated_at=from_micros(row[18]),
        wake_id=row[19],
    )


def row_from_checkpoint(checkpoint: Checkpoint) -> Params:
    row: Params = {
        "id": checkpoint.id,
        "task_id": checkpoint.task_id,
        "run_id": checkpoint.run_id,
        "kind": checkpoint.kind.value,
        "reason": checkpoint.reason.value,
        "schema_version": checkpoint.schema_version,
        "document": checkpoint.document,
        "retry_of": checkpoint.retry_of,
        "created_at": to_micros(checkpoint.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": None if checkpoint.status is None else checkpoint.status.value,
        "priority": checkpoint.priority,
        "token": checkpoint.token,
        "claimed_by": checkpoint.claimed_by,
        "lease_until": micros_of(checkpoint.lease_until),
        "attempts": checkpoint.attempts,
        "resumed_run_id": checkpoint.resumed_run_id,
        "diagnostic": json_of(checkpoint.diagnostic),
        "updated_at": to_micros(checkpoint.updated_at),
        "wake_id": checkpoint.wake_id,
    }


@reads("boot")
def boot_from_row(row: Row) -> Boot:
    return Boot(
        id=BootId(row[0]),
        host=row[1],
        pid=row[2],
        role=row[3],
        started_at=from_micros(row[4]),
        ended_at=moment_of(row[5]),
        task_names=None if row[6] is None else _names(row[6]),
    )


def carried_from_row(row: Row) -> Carried:
    return Carried(runs=int(row[1]), heard_at=moment_of(row[2]), lease_until=moment_of(row[3]))


def row_from_boot(boot: Boot) -> Params:
    return {
        "id": boot.id,
        "host": boot.host,
        "pid": boot.pid,
        "role": boot.role,
        "started_at": to_micros(boot.started_at),
        "task_names": None if boot.task_names is None else encode(boot.task_names).decode(),
    }


@reads("event")
def event_from_row(row: Row) -> Event:
    """Its position is the transaction and the sequence number: on PostgreSQL the latter is not in order."""
    return Event(
        position=f"{row[0]}.{row[1]}",
        at=from_micros(row[2]),
        kind=EventKind(row[3]),
        task_id=row[4],
        subject_id=row[5],
        facts=_facts(row[6]),
    )
