"""Reads the rows of OpenClaw's task tables in the words of this ledger.

Known are the tables of the releases 2026.3 to 2026.9: columns were added over time, so every column but the
task's id may be missing. Times are milliseconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.core.clock import EPOCH
from holdfast.core.errors import BadInput
from holdfast.core.imported import ActivePolicy, ImportedTask, SourceOrigin
from holdfast.core.payload import MAX_GOAL_BYTES, MAX_NAME_CHARS, MAX_TEXT_BYTES
from holdfast.core.recorded import ScopeKind, TerminalOutcome
from holdfast.core.task import NotifyPolicy, RuntimeName
from holdfast.core.transitions import DeliveryStatus, TaskStatus, is_terminal
from holdfast.integrations.openclaw_values import Row, RowReader, cleaned_name, read_moment, shown

_RUNTIMES: Final = frozenset({RuntimeName.SUBAGENT, RuntimeName.ACP, RuntimeName.CRON, RuntimeName.CLI})
_STATUSES: Final = frozenset({"queued", "running", "succeeded", "failed", "timed_out", "cancelled", "lost"})
_DELIVERIES: Final = frozenset(
    {"pending", "delivered", "session_queued", "failed", "parent_missing", "not_applicable", "dismissed"}
)
_KIND: Final = re.compile(r"[a-z][a-z0-9_.-]{0,59}")
_NEVER_TOLD: Final = (
    "OpenClaw had not told its requester when the task was imported; an import sends no message"
)

_NOTIFIED: Final = "last_notified_event_at"

# The columns whose values have a place of their own in the ledger. Everything else is kept beside the task.
MAPPED: Final = frozenset(
    {
        "task_id",
        "run_id",
        "runtime",
        "source_id",
        "owner_key",
        "scope_kind",
        "requester_session_key",
        "child_session_key",
        "agent_id",
        "task",
        "notify_policy",
        "created_at",
        "started_at",
        "ended_at",
        "last_event_at",
        "error",
        "progress_summary",
        "terminal_summary",
        "terminal_outcome",
        "tool_use_count",
        "last_tool_name",
    }
)
# All columns of the known releases.
KNOWN: Final = MAPPED | {
    "task_kind",
    "parent_flow_id",
    "parent_task_id",
    "requester_agent_id",
    "execution_owner_host",
    "execution_owner_pid",
    "execution_owner_start_identity",
    "label",
    "status",
    "delivery_status",
    "cleanup_after",
    "detail_json",
}


class KnownFamily(msgspec.Struct, frozen=True, kw_only=True):
    """When the parents and the flows of some tasks were created, by id; those that exist."""

    tasks: Mapping[str, datetime] = {}
    flows: Mapping[str, datetime] = {}


class ReadTask(msgspec.Struct, frozen=True, kw_only=True):
    """One row, and what was changed to make it fit: each remark names the column."""

    task: ImportedTask
    remarks: list[str]
    # Whether the requester had not been told yet.
    was_owed: bool = False


def read_task(
    row: Row, told: Row | None, links: KnownFamily, *, active: ActivePolicy, now: datetime
) -> ReadTask:
    """The task of a row of task_runs with its row of task_delivery_state. Raises BadInput, which names the
    column, for a row without which the task would be another one."""
    return _TaskReader(row, told, links, active, now).read()


class _TaskReader(RowReader):
    def __init__(
        self, row: Row, told: Row | None, links: KnownFamily, active: ActivePolicy, now: datetime
    ) -> None:
        super().__init__(row, now)
        self._told = {} if told is None else told
        self._links = links
        self._active = active

    def read(self) -> ReadTask:
        task_id = self._id("task_id")
        created_at = read_moment(self._row, "created_at", now=self._now)
        if created_at is None:
            raise BadInput("created_at", "is missing")
        runtime, name = self._runtime()
        owner, scope = self._owner(runtime, task_id)
        status, error = self._status()
        ended_at = self._ended_at(status, created_at)
        delivery, why = self._delivery(status)
        task = ImportedTask(
            source_id=task_id,
            source_run_id=self._name("run_id"),
            runtime=runtime,
            name=name,
            goal=self._text("task", MAX_GOAL_BYTES) or "(no text)",
            owner=owner,
            status=status,
            scope=scope,
            notify=self._choice("notify_policy", NotifyPolicy, NotifyPolicy.SILENT) or NotifyPolicy.SILENT,
            origin=self._origin(),
            session_key=None if scope is ScopeKind.SYSTEM else self._name("requester_session_key") or owner,
            child_session_key=self._name("child_session_key"),
            agent_id=self._name("agent_id"),
            work_id=self._name("source_id"),
            parent=self._link("parent_task_id", self._links.tasks),
            flow=self._link("parent_flow_id", self._links.flows),
            created_at=created_at,
            started_at=read_moment(self._row, "started_at", now=self._now),
            ended_at=ended_at,
            last_event_at=self._moment("last_event_at"),
            cleanup_after=self._cleanup_after(),
            error=error,
            progress_summary=self._text("progress_summary", MAX_TEXT_BYTES),
            terminal_summary=self._text("terminal_summary", MAX_TEXT_BYTES),
            terminal_outcome=self._choice("terminal_outcome", TerminalOutcome, None),
            tool_use_count=self._count("tool_use_count"),
            last_tool_name=self._name("last_tool_name"),
            delivery=delivery,
            delivery_why=why,
        )
        was_owed = self._row.get("delivery_status") == "pending" and is_terminal(status)
        also = {column: value for column, value in self._row.items() if column not in MAPPED}
        found = {"task_id": task_id, "run_id": self._row.get("run_id")} | also | self._rest
        rest = self._kept(found | {_NOTIFIED: self._told.get(_NOTIFIED)})
        return ReadTask(
            task=msgspec.structs.replace(task, rest=rest), remarks=self.remarks, was_owed=was_owed
        )

    # --- columns with a meaning of their own

    def _runtime(self) -> tuple[RuntimeName, str]:
        value = self._row.get("runtime")
        runtime = RuntimeName.CLI
        if value in _RUNTIMES:
            runtime = RuntimeName(str(value))
        else:
            self._keep("runtime", value, f"{shown(value)} is not a runtime here; recorded as cli")
        kind = self._row.get("task_kind")
        if isinstance(kind, str) and _KIND.fullmatch(kind):
            return runtime, f"openclaw.{kind}"
        return runtime, f"openclaw.{runtime.value}"

    def _owner(self, runtime: RuntimeName, task_id: str) -> tuple[str, ScopeKind]:
        """Releases before 2026.4 had the session of the requester only."""
        owner = self._name("owner_key") or self._name("requester_session_key")
        if owner is None:
            owner = f"system:{runtime.value}:{self._name('source_id') or task_id}"[:MAX_NAME_CHARS]
        is_system = self._row.get("scope_kind") == "system" or owner.startswith("system:")
        return owner, ScopeKind.SYSTEM if is_system else ScopeKind.SESSION

    def _status(self) -> tuple[TaskStatus, str | None]:
        value = self._row.get("status")
        if value not in _STATUSES:
            raise BadInput("status", f"{shown(value)} is not a status that this release knows")
        status, error = TaskStatus(str(value)), self._text("error", MAX_TEXT_BYTES)
        if is_terminal(status) or self._active is not ActivePolicy.LOST:
            return status, error
        self._rest["status"] = value
        return TaskStatus.LOST, f"it was {status.value} in OpenClaw when it was imported with --active lost"

    def _ended_at(self, status: TaskStatus, created_at: datetime) -> datetime | None:
        ended_at = read_moment(self._row, "ended_at", now=self._now)
        if not is_terminal(status):
            if ended_at is not None:
                self._keep(
                    "ended_at", self._row.get("ended_at"), f"ignored, because the task is {status.value}"
                )
            return None
        if ended_at is not None:
            return ended_at
        # Its last known time: the end itself was not recorded.
        return (
            self._moment("last_event_at") or read_moment(self._row, "started_at", now=self._now) or created_at
        )

    def _delivery(self, status: TaskStatus) -> tuple[DeliveryStatus | None, str | None]:
        value = self._row.get("delivery_status")
        if value not in _DELIVERIES:
            if value is not None:
                self._keep("delivery_status", value, f"{shown(value)} is not known; no delivery is recorded")
            return None, None
        if not is_terminal(status) or value == "not_applicable":
            return None, None
        if value == "pending":
            return DeliveryStatus.DISMISSED, _NEVER_TOLD
        if value == "failed":
            return DeliveryStatus.FAILED, "OpenClaw could not deliver the update"
        if value == "parent_missing":
            return DeliveryStatus.PARENT_MISSING, "OpenClaw knew no session to tell"
        return DeliveryStatus(str(value)), None

    def _origin(self) -> SourceOrigin | None:
        text = self._told.get("requester_origin_json")
        if text is None:
            return None
        try:
            found = msgspec.json.decode(text) if isinstance(text, str) else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._keep("requester_origin_json", text, "it is not a JSON object; no origin is recorded")
            return None
        self._rest["requester_origin"] = found
        if not isinstance(found.get("channel"), str) or not found["channel"].strip():
            return None
        names = {
            ours: cleaned_name(str(found[theirs]))
            for ours, theirs in (("peer", "to"), ("account_id", "accountId"), ("thread", "threadId"))
            if isinstance(found.get(theirs), (str, int)) and str(found[theirs]).strip()
        }
        return SourceOrigin(channel=cleaned_name(found["channel"]), **names)

    def _cleanup_after(self) -> datetime | None:
        # OpenClaw's retention may end years ahead.
        value = self._row.get("cleanup_after")
        if isinstance(value, int) and 0 <= value <= 4_102_444_800_000:
            return EPOCH + timedelta(milliseconds=value)
        if value is not None:
            self._keep("cleanup_after", value, f"{shown(value)} is not a time; ignored")
        return None
