"""Rows of recorded tasks: the facts of work that others execute."""

from __future__ import annotations

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.payload import digest_of
from holdfast.core.recorded import LateReport, RecordedDetails, ScopeKind, TerminalOutcome
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, micros_of, moment_of, reads
from holdfast.store.sealing import Sealing

# Only the result inside is sealed: without the ledger's key the rest of the report can still be read.
_LATE = "recorded_tasks.late_report"
_late_from_json = msgspec.json.Decoder(LateReport).decode


@reads("recorded task")
def recorded_from_row(row: Row, sealing: Sealing) -> RecordedDetails:
    if digest_of(*row[:8]) != row[8]:
        raise RowDamaged("recorded task", row[0])
    return RecordedDetails(
        task_id=row[0],
        scope=ScopeKind(row[1]),
        source_id=row[2],
        agent_id=row[3],
        child_session_key=row[4],
        reference=row[5],
        beat_timeout_s=row[6],
        created_at=from_micros(row[7]),
        progress_summary=row[9],
        terminal_summary=row[10],
        terminal_outcome=None if row[11] is None else TerminalOutcome(row[11]),
        tool_use_count=row[12],
        last_tool_name=row[13],
        last_event_at=from_micros(row[14]),
        alive_until=moment_of(row[15]),
        late_report=_late_from_row(row[16], row[0], sealing),
        dropped_reports=row[17],
    )


def _late_from_row(stored: bytes | None, task_id: str, sealing: Sealing) -> LateReport | None:
    if stored is None:
        return None
    late = _late_from_json(stored)
    return msgspec.structs.replace(late, result=sealing.maybe_open(late.result, _LATE, task_id))


def row_from_late(late: LateReport, task_id: str, sealing: Sealing) -> bytes:
    sealed = sealing.maybe(late.result, _LATE, task_id)
    return msgspec.json.encode(msgspec.structs.replace(late, result=sealed))


def row_from_recorded(details: RecordedDetails, sealing: Sealing) -> Params:
    row: Params = {
        "task_id": details.task_id,
        "scope": details.scope.value,
        "source_id": details.source_id,
        "agent_id": details.agent_id,
        "child_session_key": details.child_session_key,
        "reference": details.reference,
        "beat_timeout_s": details.beat_timeout_s,
        "created_at": to_micros(details.created_at),
    }
    return row | {
        "digest": digest_of(*row.values()),
        "progress_summary": details.progress_summary,
        "terminal_summary": details.terminal_summary,
        "terminal_outcome": None if details.terminal_outcome is None else details.terminal_outcome.value,
        "tool_use_count": details.tool_use_count,
        "last_tool_name": details.last_tool_name,
        "last_event_at": to_micros(details.last_event_at),
        "alive_until": micros_of(details.alive_until),
        "late_report": None
        if details.late_report is None
        else row_from_late(details.late_report, details.task_id, sealing),
        "dropped_reports": details.dropped_reports,
    }
