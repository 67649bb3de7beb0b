"""StepLineView: one step of a task, in the journal or of a finished turn, as far as it is kept."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.program_records import FinishedTurn, KeptStep, TurnSummary
from holdfast.core.seal_mode import SEALED
from holdfast.core.step import Step, shown_occurrence
from holdfast.views.payloads import FailureView, PayloadView, failure_in
from holdfast.views.text import bounded, one_line

SEALED_TEXT = "[sealed]"


class StepLineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One step of a task: of a finished turn, or in the journal."""

    # `main:12` for a step of a turn; empty for one outside turns.
    scope: str
    name: str
    # `2` for the second call of that name in its scope, or the id of the call.
    occurrence: str
    run_id: str
    # For a step of a finished turn: when the turn ended.
    ended_at: datetime
    duration_ms: float
    # Of the result.
    size_bytes: int
    # True if its turn has committed: then a long result may be gone.
    is_finished: bool
    # How the arguments begin, redacted; empty for a step without arguments, or of an older release.
    arguments: str
    # How the result begins, or `failed: ...`.
    preview: str
    # False if the ledger no longer has the whole result.
    is_kept: bool
    # True if the arguments or the result are sealed and the key is not here.
    is_sealed: bool = False
    # The result, redacted; null if it is not kept, too long to show, or was not asked for (`full`).
    result: Any = None
    failure: FailureView | None = None

    @classmethod
    def of_step(cls, step: Step, result: bytes) -> StepLineView:
        failure, payload = failure_in(result), PayloadView.of(result)
        return cls(
            scope=one_line(step.scope),
            name=one_line(step.name),
            occurrence=one_line(shown_occurrence(step.occurrence)),
            run_id=one_line(step.run_id),
            ended_at=step.ended_at,
            duration_ms=(step.ended_us - step.started_us) / 1000,
            size_bytes=len(result),
            is_finished=False,
            arguments=bounded(step.arguments),
            preview=_failed(failure) if failure else payload.preview,
            is_kept=True,
            is_sealed=payload.is_sealed,
            result=None if failure or payload.is_sealed else payload.value,
            failure=failure,
        )

    @classmethod
    def of_summary(
        cls,
        turn: FinishedTurn,
        step: TurnSummary,
        kept: KeptStep | None = None,
        outcome: bytes | None = None,
        *,
        is_sealed: bool = False,
    ) -> StepLineView:
        """From what a finished turn keeps; the outcome is that of its effect. `is_sealed`: what the turn has
        kept cannot be opened here."""
        kept, has_sealed_outcome = kept or KeptStep(), outcome is SEALED
        if has_sealed_outcome:
            outcome = None
        preview = step.preview or kept.preview
        whole = outcome or kept.result
        if whole is None and len(preview.encode()) == step.size_bytes:
            whole = preview.encode()  # a short result is whole in its preview
        failure = None if whole is None else failure_in(whole)
        payload = None if whole is None else PayloadView.of(whole)
        is_lost = is_sealed and not preview
        if failure is not None:
            preview = _failed(failure)
        elif payload is not None and not step.preview:
            preview = payload.preview
        return cls(
            scope=one_line(f"{turn.loop}:{turn.turn}{step.inside}"),
            name=one_line(step.name),
            occurrence=one_line(shown_occurrence(step.occurrence)),
            run_id=one_line(turn.run_id),
            ended_at=turn.ended_at,
            duration_ms=step.duration_us / 1000,
            size_bytes=step.size_bytes,
            is_finished=True,
            arguments=SEALED_TEXT if is_lost else bounded(step.arguments or kept.arguments),
            preview=SEALED_TEXT if is_lost else bounded(preview),
            is_kept=whole is not None or step.is_kept or step.is_effect,
            is_sealed=is_lost or has_sealed_outcome or (is_sealed and step.is_kept),
            result=payload.value if payload is not None and failure is None else None,
            failure=failure,
        )

    @classmethod
    def of_sealed(cls, turn: FinishedTurn) -> StepLineView:
        """For a turn that an older release sealed whole, without its key: only their number is known."""
        return cls(
            scope=one_line(f"{turn.loop}:{turn.turn}"),
            name=f"[{turn.sealed_steps} sealed]",
            occurrence="1",
            run_id=one_line(turn.run_id),
            ended_at=turn.ended_at,
            duration_ms=(turn.ended_at - turn.began_at).total_seconds() * 1000,
            size_bytes=0,
            is_finished=True,
            arguments=SEALED_TEXT,
            preview=SEALED_TEXT,
            is_kept=False,
            is_sealed=True,
        )


def _failed(failure: FailureView) -> str:
    return f"failed: {failure.kind}: {failure.message}"


class StepPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of the steps of a task: those of finished turns by loop and turn, then those in the journal."""

    task_id: str
    steps: list[StepLineView] = []
    # For `--after`: the next page; null at the end.
    next_page_token: str | None = None
    # Damaged parts, one sentence each; empty if there are none.
    problems: list[str] = []
