"""RecordedView: work that others execute, as its producer sees it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.recorded import RecordedWork
from holdfast.views.tasks import TaskView
from holdfast.views.text import maybe_line, one_line


class RecordedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to a producer's call: what became of it, and the record as it is now."""

    # recorded, noted, finished, cancelled, not_supported, cancel_requested or already_ended
    outcome: str
    run_id: str
    task: TaskView
    # The producer should stop the work.
    is_cancel_requested: bool
    scope: str | None = None
    source_id: str | None = None
    agent_id: str | None = None
    child_session_key: str | None = None
    progress_summary: str | None = None
    terminal_summary: str | None = None
    terminal_outcome: str | None = None
    tool_use_count: int = 0
    last_tool_name: str | None = None
    last_event_at: datetime | None = None
    # Until when the last sign of life counts.
    alive_until: datetime | None = None
    reason: str | None = None

    @classmethod
    def of(cls, work: RecordedWork, outcome: str, *, reason: str | None = None) -> RecordedView:
        details = work.details
        view = cls(
            outcome=outcome,
            run_id=one_line(work.run.id),
            task=TaskView.of(work.task),
            is_cancel_requested=work.task.cancel_requested_at is not None,
            reason=maybe_line(reason),
        )
        if details is None:
            return view
        return msgspec.structs.replace(
            view,
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
        )
