"""Rows of schedules, and of the gateways that declare them."""

from __future__ import annotations

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import KeyLost, RowDamaged
from holdfast.core.payload import digest_of
from holdfast.core.schedule_spec import Declaration, Schedule, ScheduleSource, ScheduleSpec
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, encode, micros_of, reads
from holdfast.store.sealing import CLOSED, Sealing

_read_spec = msgspec.json.Decoder(ScheduleSpec).decode
# What is known of a schedule whose key is lost: nothing, so it does not fire.
_UNREADABLE = ScheduleSpec(is_enabled=False)


@reads("schedule")
def schedule_from_row(row: Row, sealing: Sealing = CLOSED) -> Schedule:
    """The schedule; `is_sealed` when its key is lost, so that the others go on without it."""
    if digest_of(*row[:7]) != row[7]:
        raise RowDamaged("schedule", row[0])
    spec, is_sealed = _UNREADABLE, False
    try:
        spec = _read_spec(sealing.open(row[4], "schedules.spec", row[0]))
    except KeyLost:
        is_sealed = True
    return Schedule(
        name=row[0],
        source=ScheduleSource(row[1]),
        owner=row[2],
        spec=spec,
        revision=row[5],
        created_at=from_micros(row[6]),
        is_paused=bool(row[8]),
        since_at=None if row[10] is None else from_micros(row[10]),
        next_at=None if row[11] is None else from_micros(row[11]),
        due_at=None if row[12] is None else from_micros(row[12]),
        updated_at=from_micros(row[13]),
        is_sealed=is_sealed,
    )


def row_from_schedule(schedule: Schedule, sealing: Sealing) -> Params:
    row: Params = {
        "name": schedule.name,
        "source": schedule.source.value,
        "owner": schedule.owner,
        "task_name": schedule.spec.task_name,
        "spec": sealing.seal(encode(schedule.spec), "schedules.spec", schedule.name),
        "revision": schedule.revision,
        "created_at": to_micros(schedule.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "is_paused": int(schedule.is_paused),
        "is_once": int(schedule.spec.at is not None),
        "since_at": micros_of(schedule.since_at),
        "next_at": micros_of(schedule.next_at),
        "due_at": micros_of(schedule.due_at),
        "updated_at": to_micros(schedule.updated_at),
    }


@reads("schedule declaration")
def declaration_from_row(row: Row) -> Declaration:
    return Declaration(
        name=row[0],
        place=row[1],
        target=row[2],
        declared_at=from_micros(row[3]),
        seen_at=from_micros(row[4]),
    )


def row_from_declaration(declaration: Declaration) -> Params:
    return {
        "name": declaration.name,
        "place": declaration.place,
        "target": declaration.target,
        "declared_at": to_micros(declaration.declared_at),
        "seen_at": to_micros(declaration.seen_at),
    }
