"""RunView and StepView: the runs of a task, and their steps in the journal."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.projection import ProjectedStatus
from holdfast.core.run import RunRecord
from holdfast.core.step import Step, shown_occurrence
from holdfast.core.transitions import RunStatus
from holdfast.views.payloads import FailureView, PayloadView, failure_in
from holdfast.views.text import maybe_line, one_line


class RunView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run of a task. The token of its claim is never shown."""

    id: str
    task_id: str
    number: int
    status: str
    resumes_run_id: str | None
    checkpoint_id: str | None
    claimed_by: str | None
    fence: int
    lease_until: datetime | None
    beat_at: datetime | None
    queue: str
    due_at: datetime
    waits_on: str | None
    is_alone: bool
    idle_attempts: int
    failure: FailureView | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    is_damaged: bool

    def shown_as(self, projected: ProjectedStatus | None) -> RunView:
        """The same run; if it is the running one and its worker is gone, as its next rescue will leave it."""
        if projected is None or self.status != RunStatus.RUNNING.value:
            return self
        return msgspec.structs.replace(self, status=projected.run_status.value)

    @classmethod
    def of(cls, run: RunRecord) -> RunView:
        return cls(
            id=one_line(run.id),
            task_id=one_line(run.task_id),
            number=run.number,
            status=run.status.value,
            resumes_run_id=maybe_line(run.resumes_run_id),
            checkpoint_id=maybe_line(run.checkpoint_id),
            claimed_by=maybe_line(run.claimed_by),
            fence=run.fence,
            lease_until=run.lease_until,
            beat_at=run.beat_at,
            queue=run.queue.value,
            due_at=run.due_at,
            waits_on=maybe_line(run.waits_on),
            is_alone=run.is_alone,
            idle_attempts=run.idle_attempts,
            failure=FailureView.maybe(run.failure),
            created_at=run.created_at,
            updated_at=run.updated_at,
            started_at=run.started_at,
            ended_at=run.ended_at,
            is_damaged=run.is_damaged,
        )


class StepView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One saved step: its run, its time, and a preview of its result or failure."""

    name: str
    scope: str
    occurrence: str
    run_id: str
    started_at: datetime
    ended_at: datetime
    preview: str
    failure: FailureView | None = None

    @classmethod
    def of(cls, step: Step, result: bytes) -> StepView:
        failure = failure_in(result)
        shown = f"failed: {failure.kind}: {failure.message}" if failure else PayloadView.of(result).preview
        return cls(
            name=one_line(step.name),
            scope=one_line(step.scope),
            occurrence=one_line(shown_occurrence(step.occurrence)),
            run_id=one_line(step.run_id),
            started_at=step.started_at,
            ended_at=step.ended_at,
            preview=one_line(shown),
            failure=failure,
        )
