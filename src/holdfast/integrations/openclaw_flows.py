"""Reads the rows of OpenClaw's flow table in the words of this ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.flow import MAX_DOCUMENT_BYTES, FlowMode
from holdfast.core.imported import ActivePolicy, ImportedFlow
from holdfast.core.payload import MAX_GOAL_BYTES, MAX_TEXT_BYTES, encode_payload
from holdfast.core.transitions import FlowStatus, is_terminal
from holdfast.integrations.openclaw_values import Row, RowReader, read_moment, shown

_STATUSES: Final = frozenset(status.value for status in FlowStatus)
# A managed flow without the name of its controller, as the first releases wrote them.
_NO_CONTROLLER: Final = "openclaw"
# The columns whose values have a place of their own in the ledger. Everything else is kept beside the flow.
_MAPPED: Final = frozenset(
    {
        "flow_id",
        "sync_mode",
        "owner_key",
        "controller_id",
        "revision",
        "status",
        "goal",
        "current_step",
        "blocked_task_id",
        "blocked_summary",
        "state_json",
        "wait_json",
        "cancel_requested_at",
        "created_at",
        "updated_at",
        "ended_at",
    }
)
# All columns of the known releases.
KNOWN: Final = _MAPPED | {"shape", "requester_origin_json", "notify_policy"}


class ReadFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One row, and what was changed to make it fit."""

    flow: ImportedFlow
    remarks: list[str]


def read_flow(row: Row, tasks: Mapping[str, datetime], *, active: ActivePolicy, now: datetime) -> ReadFlow:
    """The flow of a row of flow_runs; `tasks` says when the blocking tasks were created. Raises BadInput."""
    reader = _FlowReader(row, now)
    return ReadFlow(flow=reader.read(tasks, active), remarks=reader.remarks)


class _FlowReader(RowReader):
    def read(self, tasks: Mapping[str, datetime], active: ActivePolicy) -> ImportedFlow:
        flow_id = self._id("flow_id")
        created_at = read_moment(self._row, "created_at", now=self._now)
        if created_at is None:
            raise BadInput("created_at", "is missing")
        mode = self._mode()
        status = self._status(active)
        has_ended = is_terminal(status)
        updated_at = self._moment("updated_at") or created_at
        ended_at = read_moment(self._row, "ended_at", now=self._now)
        why = self._text("blocked_summary", MAX_TEXT_BYTES)
        if status is FlowStatus.LOST and active is ActivePolicy.LOST and why is None:
            why = "it had not ended in OpenClaw when it was imported with --active lost"
        flow = ImportedFlow(
            source_id=flow_id,
            mode=mode,
            owner=self._name("owner_key") or f"system:flow:{flow_id}",
            goal=self._text("goal", MAX_GOAL_BYTES) or "(no text)",
            controller=(self._name("controller_id") or _NO_CONTROLLER) if mode is FlowMode.MANAGED else None,
            status=status,
            # OpenClaw counts from 0.
            revision=max(1, self._count("revision")),
            current_step=self._name("current_step"),
            contents_json=self._document("state_json"),
            wait_json=self._document("wait_json"),
            blocked_by=self._link("blocked_task_id", tasks),
            blocked_why=why,
            cancel_requested_at=self._moment("cancel_requested_at"),
            created_at=created_at,
            updated_at=updated_at,
            ended_at=(ended_at or updated_at) if has_ended else None,
        )
        also = {column: value for column, value in self._row.items() if column not in _MAPPED}
        return msgspec.structs.replace(flow, rest=self._kept({"flow_id": flow_id} | also | self._rest))

    def _mode(self) -> FlowMode:
        """The first releases had a shape instead."""
        value = self._row.get("sync_mode")
        if value in (FlowMode.MANAGED.value, FlowMode.TASK_MIRRORED.value):
            return FlowMode(str(value))
        return FlowMode.TASK_MIRRORED if self._row.get("shape") == "single_task" else FlowMode.MANAGED

    def _status(self, active: ActivePolicy) -> FlowStatus:
        value = self._row.get("status")
        if value not in _STATUSES:
            raise BadInput("status", f"{shown(value)} is not a status that this release knows")
        status = FlowStatus(str(value))
        if is_terminal(status) or active is not ActivePolicy.LOST:
            return status
        self._rest["status"] = value
        return FlowStatus.LOST

    def _document(self, column: str) -> str | None:
        """JSON text. What is none, is too long or is nested too deep, is kept beside the flow."""
        value = self._row.get(column)
        if value is None:
            return None
        if isinstance(value, str) and _is_document(column, value):
            return value
        self._keep(column, value, "it is not a JSON document of at most 256 KiB and 100 levels; kept as text")
        return None


def _is_document(column: str, text: str) -> bool:
    """Whether a flow can have this document."""
    if len(text) > MAX_DOCUMENT_BYTES:
        return False
    try:
        encode_payload(column, msgspec.json.decode(text), max_bytes=MAX_DOCUMENT_BYTES)
    except (msgspec.DecodeError, UnicodeError, RecursionError, BadInput):
        return False
    return True
