"""Rows of a gateway's own records: firings of schedules, wakes, restarts, the audit log."""

from __future__ import annotations

import msgspec

from holdfast.core.audit import AuditEntry, AuditOutcome, Door
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.manifest import Manifest, Restart, RestartOutcome, Trigger
from holdfast.core.payload import digest_of
from holdfast.core.schedule import Firing, FiringReason, Wake, WakeReason
from holdfast.core.transitions import FiringStatus, RestartStatus, WakeStatus
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, encode, mend_with, micros_of, reads


@reads("firing")
def firing_from_row(row: Row) -> Firing:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("firing", row[0])
    return Firing(
        id=row[0],
        schedule=row[1],
        occurrence_at=from_micros(row[2]),
        session_key=row[3],
        created_at=from_micros(row[4]),
        status=FiringStatus(row[6]),
        message_id=row[7],
        task_id=row[8],
        is_retry=bool(row[9]),
        updated_at=from_micros(row[10]),
        why=row[11],
        cause=FiringReason(row[12]),
        schedule_made_at=None if row[13] is None else from_micros(row[13]),
    )


def row_from_firing(firing: Firing) -> Params:
    row: Params = {
        "id": firing.id,
        "schedule": firing.schedule,
        "occurrence_at": to_micros(firing.occurrence_at),
        "session_key": firing.session_key,
        "created_at": to_micros(firing.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": firing.status.value,
        "message_id": firing.message_id,
        "task_id": firing.task_id,
        "is_retry": int(firing.is_retry),
        "updated_at": to_micros(firing.updated_at),
        "why": firing.why,
        "cause": firing.cause.value,
        "schedule_made_at": micros_of(firing.schedule_made_at),
    }


@reads("wake", mend_with({3: WakeReason, 7: WakeStatus}, (2, 10), (5, 8, 9)))
def wake_from_row(row: Row) -> Wake:
    """The wake; `is_damaged` instead of an exception, because one bad row must not stop the others."""
    own = () if row[10] is None else (row[10],)
    return Wake(
        id=row[0],
        task_id=row[1],
        checkpoint_id=row[2],
        reason=WakeReason(row[3]),
        attempt=row[4],
        created_at=from_micros(row[5]),
        status=WakeStatus(row[7]),
        due_at=from_micros(row[8]),
        updated_at=from_micros(row[9]),
        own_reason=row[10],
        is_damaged=digest_of(*row[:6], *own) != row[6],
    )


def row_from_wake(wake: Wake) -> Params:
    row: Params = {
        "id": wake.id,
        "task_id": wake.task_id,
        "checkpoint_id": wake.checkpoint_id,
        "reason": wake.reason.value,
        "attempt": wake.attempt,
        "created_at": to_micros(wake.created_at),
    }
    own = () if wake.own_reason is None else (wake.own_reason,)
    digest = digest_of(*row.values(), *own)
    return row | {
        "digest": digest,
        "status": wake.status.value,
        "due_at": to_micros(wake.due_at),
        "updated_at": to_micros(wake.updated_at),
        "own_reason": wake.own_reason,
    }


@reads("restart")
def restart_from_row(row: Row) -> Restart:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("restart", row[0])
    return Restart(
        id=row[0],
        boot_id=row[1],
        place=row[2],
        requested_at=from_micros(row[3]),
        manifest=msgspec.json.decode(row[4], type=Manifest),
        status=RestartStatus(row[6]),
        triggers=msgspec.json.decode(row[7], type=tuple[Trigger, ...]),
        outcome=None if row[8] is None else msgspec.json.decode(row[8], type=RestartOutcome),
        recovered_by=row[9],
        updated_at=from_micros(row[10]),
    )


def row_from_restart(restart: Restart) -> Params:
    row: Params = {
        "id": restart.id,
        "boot_id": restart.boot_id,
        "place": restart.place,
        "requested_at": to_micros(restart.requested_at),
        "manifest": encode(restart.manifest),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": restart.status.value,
        "triggers": encode(restart.triggers),
        "outcome": None if restart.outcome is None else encode(restart.outcome),
        "recovered_by": restart.recovered_by,
        "updated_at": to_micros(restart.updated_at),
    }


@reads("audit entry")
def audit_entry_from_row(row: Row) -> AuditEntry:
    if digest_of(*row[:10]) != row[10]:
        raise RowDamaged("audit entry", row[0])
    return AuditEntry(
        id=row[0],
        at=from_micros(row[1]),
        who=row[2],
        door=Door(row[3]),
        address=row[4],
        action=row[5],
        subject=row[6],
        outcome=AuditOutcome(row[7]),
        why=row[8],
        times=row[9],
    )


def row_from_audit_entry(entry: AuditEntry) -> Params:
    row: Params = {
        "id": entry.id,
        "at": to_micros(entry.at),
        "who": entry.who,
        "door": entry.door.value,
        "address": entry.address,
        "action": entry.action,
        "subject": entry.subject,
        "outcome": entry.outcome.value,
        "why": entry.why,
        "times": entry.times,
    }
    return row | {"digest": digest_of(*row.values())}
