"""Reads and writes of flows, guarded by revision."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.core.errors import RevisionMismatch
from holdfast.core.flow import Flow
from holdfast.store.contract import Row
from holdfast.store.records import Records
from holdfast.store.rows.conversation import flow_from_row, row_from_flow


class FlowTable(Records[Flow]):
    noun = "flow"

    def _read(self, row: Row) -> Flow:
        return flow_from_row(row, self._sealing)

    def _row_of(self, record: Flow) -> dict[str, Any]:
        return row_from_flow(record, self._sealing)

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> Flow:
        """Raises RevisionMismatch when the flow has changed since `revision` was read."""
        found = self.get(record_id).revision
        revision = guards.get("revision", found)
        if revision != found:
            raise RevisionMismatch(record_id, int(str(revision)), found)
        return super().move(record_id, to, now=now, revision=revision)
