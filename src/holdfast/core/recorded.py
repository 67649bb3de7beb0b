"""RecordedDetails: what the ledger knows of a task that a producer executes, beside the task itself."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import BootId, RunId, TaskId
from holdfast.core.run import RunRecord
from holdfast.core.task import Failure, RuntimeName, Task
from holdfast.core.transitions import RunStatus

# Without a sign of life for this time, nothing proves that the work goes on.
DEFAULT_BEAT_TIMEOUT_S = 300
MAX_BEAT_TIMEOUT_S = 366 * 86_400


_HOLDER = "producer:"


def unregistered_holder(runtime: RuntimeName) -> BootId:
    """Stands for the process that executes recorded work, if that process is not registered here."""
    return BootId(f"{_HOLDER}{runtime.value}")


def is_unregistered(boot_id: str) -> bool:
    """Whether this stands for a process that is not registered here: nothing tells whether it lives."""
    return boot_id.startswith(_HOLDER)


class ScopeKind(StrEnum):
    """Whether the work belongs to a session, or to the system as a whole."""

    SESSION = "session"
    SYSTEM = "system"


class TerminalOutcome(StrEnum):
    """What a success means: the work is complete, or it ended well but something blocks the next step."""

    SUCCEEDED = "succeeded"
    BLOCKED = "blocked"


class ReportProblem(StrEnum):
    """Why a report of a producer is not part of its record. The ledger counts them."""

    # It never reached the ledger.
    DROPPED = "dropped"
    # It came after the end, and says something else.
    LATE = "late"


class LateReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a producer said of work whose record had ended otherwise. It changes nothing, and is kept as
    evidence: work that was declared lost may have been done."""

    at: datetime
    run_id: RunId
    status: RunStatus
    summary: str | None = None
    failure: Failure | None = None
    # As it is stored: the JSON itself, or a reference to a large one.
    result: bytes | None = None


# The name of the ledger's fact about work of which it never got a record.
UNRECORDED_FACT = "unrecorded_work"


class UnrecordedWork(msgspec.Struct, frozen=True, kw_only=True):
    """Best-effort work of which the ledger has no record, as its producers told afterwards."""

    total: int
    # Of the last one.
    name: str
    run_id: str
    at: datetime


class RecordedDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that only recorded work has."""

    task_id: TaskId
    scope: ScopeKind
    # The id of the work in the program that executes it, such as the id of a schedule.
    source_id: str | None = None
    agent_id: str | None = None
    # The session that was started for this work.
    child_session_key: str | None = None
    # By what the runtime finds the work again, such as a process id with its start time.
    reference: str | None = None
    # How long one sign of life counts.
    beat_timeout_s: int = DEFAULT_BEAT_TIMEOUT_S
    created_at: datetime
    progress_summary: str | None = None
    terminal_summary: str | None = None
    terminal_outcome: TerminalOutcome | None = None
    tool_use_count: int = 0
    last_tool_name: str | None = None
    last_event_at: datetime
    # Until when the last sign of life counts. None before the start and after the end.
    alive_until: datetime | None = None
    # The first report after the end of the last run that disagrees with it.
    late_report: LateReport | None = None
    # How many reports of best-effort work the ledger did not get.
    dropped_reports: int = 0


class RecordedWork(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a producer executes, with its newest run and its details."""

    task: Task
    run: RunRecord
    # None for a task that was created by `ledger.create`, without a producer's facts.
    details: RecordedDetails | None = None
