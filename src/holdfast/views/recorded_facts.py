"""RecordedFactsView: what a producer said of its work, and what it said too late."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.recorded import LateReport, RecordedDetails
from holdfast.views.payloads import FailureView, PayloadView
from holdfast.views.text import maybe_line, one_line


class LateReportView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a producer reported after the record had ended otherwise. It changed nothing."""

    at: datetime
    run_id: str
    status: str
    summary: str | None
    failure: FailureView | None
    # Null unless it reported a result.
    result: PayloadView | None

    @classmethod
    def of(cls, late: LateReport, result: PayloadView | None) -> LateReportView:
        return cls(
            at=late.at,
            run_id=one_line(late.run_id),
            status=late.status.value,
            summary=maybe_line(late.summary),
            failure=FailureView.maybe(late.failure),
            result=result,
        )


class RecordedFactsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The facts that only recorded work has."""

    # `session` or `system`.
    scope: str
    source_id: str | None
    agent_id: str | None
    child_session_key: str | None
    progress_summary: str | None
    terminal_summary: str | None
    # `succeeded` or `blocked`; null unless it succeeded.
    terminal_outcome: str | None
    tool_use_count: int
    last_tool_name: str | None
    last_event_at: datetime
    # Until when the last sign of life counts; null before the start and after the end.
    alive_until: datetime | None
    # How many reports the ledger did not get.
    dropped_reports: int
    late_report: LateReportView | None

    @classmethod
    def of(cls, details: RecordedDetails, late: LateReportView | None) -> RecordedFactsView:
        return cls(
            scope=details.scope.value,
            source_id=maybe_line(details.source_id),
            agent_id=maybe_line(details.agent_id),
            child_session_key=maybe_line(details.child_session_key),
            progress_summary=maybe_line(details.progress_summary),
            terminal_summary=maybe_line(details.terminal_summary),
            terminal_outcome=None if details.terminal_outcome is None else details.terminal_outcome.value,
            tool_use_count=details.tool_use_count,
            last_tool_name=maybe_line(details.last_tool_name),
            last_event_at=details.last_event_at,
            alive_until=details.alive_until,
            dropped_reports=details.dropped_reports,
            late_report=late,
        )
