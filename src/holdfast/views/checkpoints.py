"""CheckpointView, which has a published JSON Schema, and its shorter form for lists."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from holdfast.core.checkpoint import Checkpoint, CheckpointDocument, CheckpointKind, ResumeReason
from holdfast.core.errors import CheckpointUnreadable
from holdfast.core.plan import Plan
from holdfast.core.task import Task
from holdfast.core.transitions import CheckpointStatus
from holdfast.views.payloads import FailureView
from holdfast.views.text import clean_json, maybe_line, one_line

VIEW_VERSION = 1


class PlanItemView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    title: str
    is_done: bool


class PlanView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The ordered steps of a task, with those that are done and the next one."""

    items: list[PlanItemView]
    last_completed: str | None
    next_step: str | None

    @classmethod
    def of(cls, plan: Plan) -> PlanView:
        return cls(
            items=[
                PlanItemView(id=one_line(item.id), title=one_line(item.title), is_done=item.is_done)
                for item in plan.items
            ],
            last_completed=maybe_line(plan.cursor.last_completed),
            next_step=maybe_line(plan.cursor.next_step),
        )


class CheckpointLineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A checkpoint in a list: everything except its document."""

    id: str
    status: CheckpointStatus | None
    kind: CheckpointKind
    reason: ResumeReason
    task_id: str
    run_id: str
    resumed_run_id: str | None
    retry_of: str | None
    attempts: int
    diagnostic: FailureView | None
    created_at: datetime
    updated_at: datetime
    is_damaged: bool
    # Of its task, in a list of the checkpoints of several tasks; null for a task that was pruned.
    task_name: str | None = None
    goal: str | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint, task: Task | None = None) -> CheckpointLineView:
        return cls(
            id=one_line(checkpoint.id),
            status=checkpoint.status,
            kind=checkpoint.kind,
            reason=checkpoint.reason,
            task_id=one_line(checkpoint.task_id),
            run_id=one_line(checkpoint.run_id),
            resumed_run_id=maybe_line(checkpoint.resumed_run_id),
            retry_of=maybe_line(checkpoint.retry_of),
            attempts=checkpoint.attempts,
            diagnostic=FailureView.maybe(checkpoint.diagnostic),
            created_at=checkpoint.created_at,
            updated_at=checkpoint.updated_at,
            is_damaged=checkpoint.is_damaged,
            task_name=None if task is None else one_line(task.name),
            goal=None if task is None else one_line(task.goal),
        )


class CheckpointPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of checkpoints, newest first, with the number in each status."""

    checkpoints: list[CheckpointLineView] = []
    counts: dict[str, int] = {}
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A checkpoint in full: what was saved, and how it was resumed. The resumer's token is never shown."""

    schema: Literal["holdfast.checkpoint-view"] = "holdfast.checkpoint-view"
    version: Literal[1] = 1
    id: str
    task_id: str
    run_id: str
    kind: CheckpointKind
    reason: ResumeReason
    # Null for kinds that are never claimed.
    status: CheckpointStatus | None
    priority: int
    has_token: bool
    claimed_by: str | None
    lease_until: datetime | None
    attempts: int
    resumed_run_id: str | None
    retry_of: str | None
    diagnostic: FailureView | None
    created_at: datetime
    updated_at: datetime
    is_damaged: bool
    # Why the document is unusable; null if it is usable.
    problem: str | None
    document: CheckpointDocument | None
    # Whether `checkpoints retry` can retry it; always false unless it is failed_resume.
    can_retry: bool = False
    # For failed_resume: what to do, with the command; else null.
    advice: str | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> CheckpointView:
        """From a checkpoint whose document is loaded. The caller adds the remedy for a failed resume."""
        document, problem = _read(checkpoint)
        return cls(
            id=one_line(checkpoint.id),
            task_id=one_line(checkpoint.task_id),
            run_id=one_line(checkpoint.run_id),
            kind=checkpoint.kind,
            reason=checkpoint.reason,
            status=checkpoint.status,
            priority=checkpoint.priority,
            has_token=checkpoint.token is not None,
            claimed_by=maybe_line(checkpoint.claimed_by),
            lease_until=checkpoint.lease_until,
            attempts=checkpoint.attempts,
            resumed_run_id=maybe_line(checkpoint.resumed_run_id),
            retry_of=maybe_line(checkpoint.retry_of),
            diagnostic=FailureView.maybe(checkpoint.diagnostic),
            created_at=checkpoint.created_at,
            updated_at=checkpoint.updated_at,
            is_damaged=checkpoint.is_damaged,
            problem=problem,
            document=document,
        )


class PrunedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The checkpoints that were deleted, or would be."""

    is_dry_run: bool
    older_than: datetime
    count: int
    checkpoint_ids: list[str]


def _read(checkpoint: Checkpoint) -> tuple[CheckpointDocument | None, str | None]:
    try:
        document = checkpoint.read_document()
        shown = clean_json(msgspec.to_builtins(document))
        return msgspec.convert(shown, CheckpointDocument), None
    except CheckpointUnreadable as error:
        return None, one_line(error.problem, 1000)
    except msgspec.ValidationError as error:
        return None, one_line(f"its document cannot be shown: {error}", 1000)


def checkpoint_view_json_schema() -> dict[str, object]:
    """The published JSON Schema of `holdfast checkpoints show --json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"holdfast.checkpoint-view v{VIEW_VERSION}",
        **msgspec.json.schema(CheckpointView),
    }
