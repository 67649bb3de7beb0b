"""Reads and writes of flows, guarded by revision."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from holdfast.core.errors import RevisionMismatch
from holdfast.core.flow import Flow
from holdfast.store import rows
from holdfast.store.records import Records


class Flows(Records[Flow]):
    noun = "flow"
    from_row = staticmethod(rows.flow_from_row)
    to_row = staticmethod(rows.row_from_flow)

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> Flow:
        """Raises RevisionMismatch when the flow moved on since `revision` was read."""
        found = self.get(record_id).revision
        revision = guards.get("revision", found)
        if revision != found:
            raise RevisionMismatch(record_id, int(str(revision)), found)
        return super().move(record_id, to, now=now, revision=revision)
