"""Reads and writes of flows, guarded by revision."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from holdfast.core.errors import RevisionMismatch
from holdfast.core.flow import Flow
from holdfast.store.records import Records
from holdfast.store.rows.talk import flow_from_row, row_from_flow


class Flows(Records[Flow]):
    noun = "flow"
    from_row = staticmethod(flow_from_row)
    to_row = staticmethod(row_from_flow)

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> Flow:
        """Raises RevisionMismatch when the flow moved on since `revision` was read."""
        found = self.get(record_id).revision
        revision = guards.get("revision", found)
        if revision != found:
            raise RevisionMismatch(record_id, int(str(revision)), found)
        return super().move(record_id, to, now=now, revision=revision)
