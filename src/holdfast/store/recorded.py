"""Reads and writes of recorded tasks: the facts of work that others execute."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.errors import HoldfastError
from holdfast.core.recorded import LateReport, RecordedDetails, TerminalOutcome
from holdfast.store.rows.reading import Params
from holdfast.store.rows.recorded import recorded_from_row, row_from_late, row_from_recorded

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class SignOfLife(msgspec.Struct, frozen=True, kw_only=True):
    """What the work said of itself; None leaves the last word as it is."""

    progress_summary: str | None = None
    last_tool_name: str | None = None
    tool_use_count: int = 0


class RecordedTable:
    def __init__(self, tx: Tx) -> None:
        self._sql = tx.statements
        self._sealing = tx.sealing

    def create(self, details: RecordedDetails) -> bool:
        """False when the task has its facts already."""
        return self._sql.one("insert_recorded_task", row_from_recorded(details, self._sealing)) is not None

    def create_many(self, details: Sequence[RecordedDetails]) -> None:
        """The same for several tasks that the caller has just created."""
        rows = [row_from_recorded(one, self._sealing) for one in details]
        self._sql.many("insert_recorded_task", rows)

    def get(self, task_id: str) -> RecordedDetails | None:
        return self.get_many([task_id]).get(task_id)

    def get_many(self, task_ids: Sequence[str]) -> dict[str, RecordedDetails]:
        found = self._sql.all("get_recorded_tasks", {"ids": self._sql.pack(task_ids)})
        return {row[0]: recorded_from_row(row, self._sealing) for row in found}

    def readable(self, task_ids: Sequence[str]) -> dict[str, RecordedDetails]:
        """The same without damaged rows: one of them must not hide the others in a list."""
        found: dict[str, RecordedDetails] = {}
        for row in self._sql.all("get_recorded_tasks", {"ids": self._sql.pack(task_ids)}):
            with contextlib.suppress(HoldfastError):
                found[row[0]] = recorded_from_row(row, self._sealing)
        return found

    def note_life(self, task_id: str, sign: SignOfLife, *, alive_until: datetime, now: datetime) -> bool:
        """False when the task has no such facts."""
        params = {
            "task_id": task_id,
            "alive_until": to_micros(alive_until),
            "now": to_micros(now),
            "progress_summary": sign.progress_summary,
            "last_tool_name": sign.last_tool_name,
            "tool_use_count": sign.tool_use_count,
        }
        return self._sql.one("note_life", params) is not None

    def note_end(
        self, task_id: str, *, summary: str | None, outcome: TerminalOutcome | None, now: datetime
    ) -> bool:
        params = {
            "task_id": task_id,
            "now": to_micros(now),
            "terminal_summary": summary,
            "terminal_outcome": None if outcome is None else outcome.value,
        }
        return self._sql.one("note_end_of_recorded", params) is not None

    def keep_late(self, task_id: str, late: LateReport, *, now: datetime) -> bool:
        """False when an earlier late report of the same run is kept, or the task has no such facts. After a
        retry, the report of the new run replaces that of the run before."""
        found = self.get(task_id)
        if found is None or (found.late_report is not None and found.late_report.run_id == late.run_id):
            return False
        params = {
            "task_id": task_id,
            "now": to_micros(now),
            "late_report": row_from_late(late, task_id, self._sealing),
        }
        return self._sql.one("keep_late_report", params) is not None

    def note_dropped(self, task_id: str, total: int) -> bool:
        """False when as many are known already."""
        return self._sql.one("note_dropped_reports", {"task_id": task_id, "total": total}) is not None

    def with_late_reports(self, *, limit: int) -> list[RecordedDetails]:
        """Work whose producer said something else after the end, newest first."""
        return self._page("recorded_tasks_with_late_reports", {"limit": limit})

    def with_drops(self, *, limit: int) -> list[RecordedDetails]:
        """Work of which the ledger did not get some reports, newest first."""
        return self._page("recorded_tasks_with_drops", {"limit": limit})

    def silent(self, *, now: datetime, limit: int) -> list[RecordedDetails]:
        """Work whose last sign of life no longer counts, longest silent first."""
        return self._page("silent_recorded_tasks", {"now": to_micros(now), "limit": limit})

    def of_child(self, child_session_key: str, *, limit: int) -> list[RecordedDetails]:
        """The work of one child session."""
        params = {"child_session_key": child_session_key, "limit": limit}
        return self._page("recorded_tasks_of_child", params)

    def _page(self, query: str, params: Params) -> list[RecordedDetails]:
        return [recorded_from_row(row, self._sealing) for row in self._sql.all(query, params)]
