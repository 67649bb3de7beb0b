"""GatewayView, ReadinessView and RestartView: the status of the process, and what a restart interrupts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from holdfast.core.hold import Hold
from holdfast.core.manifest import Interruption, InterruptionOutcome, Restart
from holdfast.views.errors import ErrorView
from holdfast.views.text import maybe_line, one_line

MAX_REASON_CHARS = 500


class Status(Protocol):
    """The status of a gateway."""

    @property
    def status(self) -> str: ...

    @property
    def boot_id(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def started_at(self) -> datetime: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def holds_resumes(self) -> bool: ...

    @property
    def why_held(self) -> str | None: ...

    @property
    def in_flight(self) -> int: ...

    @property
    def holds(self) -> Sequence[Hold]: ...

    @property
    def ledger_problem(self) -> str | None: ...

    @property
    def settings_refused(self) -> str | None: ...


class Ready(Protocol):
    """Whether a restart may begin now."""

    @property
    def is_safe(self) -> bool: ...

    @property
    def threshold(self) -> int: ...

    @property
    def interruptions(self) -> Sequence[Interruption]: ...

    @property
    def summary(self) -> str: ...


class InterruptionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One session, run, cron firing or child that a restart interrupts."""

    kind: str
    task_id: str
    title: str
    status: str
    session_key: str | None
    parent_task_id: str | None

    @classmethod
    def of(cls, found: Interruption) -> InterruptionView:
        return cls(
            kind=found.kind.value,
            task_id=one_line(found.task_id),
            title=one_line(found.title),
            status=one_line(found.status),
            session_key=maybe_line(found.session_key),
            parent_task_id=maybe_line(found.parent_task_id),
        )


class ReadinessView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a restart may begin now, and what it would interrupt."""

    is_safe: bool
    # How many may be interrupted without --force.
    threshold: int
    summary: str
    interruptions: list[InterruptionView]

    @classmethod
    def of(cls, found: Ready) -> ReadinessView:
        return cls(
            is_safe=found.is_safe,
            threshold=found.threshold,
            summary=one_line(found.summary, MAX_REASON_CHARS),
            interruptions=[InterruptionView.of(one) for one in found.interruptions],
        )


class FateView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of one interruption; fields are null until it is known."""

    kind: str
    task_id: str
    title: str
    session_key: str | None
    fate: str | None
    run_id: str | None
    why: str | None
    # True for a cron firing that was interrupted and queued again.
    is_retry: bool = False


class TriggerView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One request for a restart; several requests become one restart."""

    reason: str
    triggered_by: str
    at: datetime


class RestartView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A restart, stop, crash or refused restart: its reason, what it interrupts, and each outcome."""

    id: str
    status: str
    reason: str
    triggered_by: str
    requested_at: datetime
    updated_at: datetime
    triggers: list[TriggerView]
    interrupted: list[FateView]
    # The number of interruptions by outcome; empty until recovery is over.
    fates: dict[str, int]
    notices: int
    # Why it was refused; then `interrupted` is what it would have interrupted.
    why_blocked: str | None
    # restart, stop or crash.
    kind: str = "restart"

    @classmethod
    def of(cls, restart: Restart) -> RestartView:
        outcome = restart.outcome
        ends = {} if outcome is None else {one.task_id: one for one in outcome.recovered}
        fates = {} if outcome is None else _counted([one.fate for one in outcome.recovered])
        return cls(
            id=one_line(restart.id),
            status=restart.status.value,
            reason=one_line(restart.manifest.reason, MAX_REASON_CHARS),
            triggered_by=one_line(restart.manifest.triggered_by),
            requested_at=restart.requested_at,
            updated_at=restart.updated_at,
            triggers=[
                TriggerView(
                    reason=one_line(one.reason, MAX_REASON_CHARS),
                    triggered_by=one_line(one.triggered_by),
                    at=one.at,
                )
                for one in restart.triggers
            ],
            interrupted=[
                FateView(
                    kind=one.kind.value,
                    task_id=one_line(one.task_id),
                    title=one_line(one.title),
                    session_key=maybe_line(one.session_key),
                    fate=end.fate.value if (end := ends.get(one.task_id)) is not None else None,
                    run_id=None if end is None else maybe_line(end.run_id),
                    why=None if end is None else maybe_line(end.why, MAX_REASON_CHARS),
                    is_retry=end is not None and end.is_retry,
                )
                for one in restart.manifest.interruptions
            ],
            fates=fates,
            notices=0 if outcome is None else outcome.notices,
            why_blocked=None if outcome is None else maybe_line(outcome.why_blocked, MAX_REASON_CHARS),
            kind=restart.kind,
        )


class RestartPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Restarts, newest first."""

    restarts: list[RestartView] = []
    # For `pageToken`: the next page; null at the end.
    next_page_token: str | None = None


class RestartAnswerView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a restart was accepted; if the readiness gate refused it, what it would have interrupted."""

    is_accepted: bool
    why: str | None
    restart_id: str | None
    readiness: ReadinessView
    # Null if it was accepted; else an error with the code `not_ready` or `restart_blocked`.
    error: ErrorView | None = None


class LetResumeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many held resumes were released."""

    resumed: int


class StoppingView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The gateway drains and stops."""

    is_accepted: bool


class HoldView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why interrupted work is held, and the command that releases it."""

    why: str
    remedy: str

    @classmethod
    def of(cls, hold: Hold) -> HoldView:
        return cls(why=one_line(hold.why, MAX_REASON_CHARS), remedy=hold.remedy)


class GatewayView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Status of the gateway."""

    # starting, recovering, serving or draining.
    status: str
    is_ready: bool
    boot_id: str
    pid: int
    started_at: datetime
    # True if interrupted work is held; `why_held` says why.
    holds_resumes: bool
    why_held: str | None
    # How many runs are in flight.
    in_flight: int
    # Null also if the ledger cannot be read.
    last_restart: RestartView | None
    # Each reason why interrupted work is held; `why_held` is the first.
    holds: list[HoldView] = []
    # Why the ledger is unusable now; then `is_ready` is false. Null if it is usable.
    ledger_problem: str | None = None
    # Why this gateway refused the settings in the files. Null if it uses them.
    settings_refused: str | None = None

    @classmethod
    def of(cls, found: Status, last_restart: Restart | None) -> GatewayView:
        return cls(
            status=one_line(found.status),
            is_ready=found.is_ready,
            boot_id=one_line(found.boot_id),
            pid=found.pid,
            started_at=found.started_at,
            holds_resumes=found.holds_resumes,
            why_held=maybe_line(found.why_held, MAX_REASON_CHARS),
            in_flight=found.in_flight,
            last_restart=None if last_restart is None else RestartView.of(last_restart),
            holds=[HoldView.of(one) for one in found.holds],
            ledger_problem=maybe_line(found.ledger_problem, MAX_REASON_CHARS),
            settings_refused=maybe_line(found.settings_refused, MAX_REASON_CHARS),
        )


class ReadyView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Whether the gateway can work, for a load balancer or a process manager."""

    # starting, recovering, serving or draining.
    status: str
    # `ok`, or `away` if it cannot be read and written now.
    ledger: str
    # `applied`, or `refused` if the gateway keeps its previous settings.
    settings: str
    # `going`, or `held` if interrupted work waits for a person.
    resumes: str
    # The reasons, only for a caller with a token.
    ledger_problem: str | None = None
    settings_refused: str | None = None
    holds: list[HoldView] = []

    @classmethod
    def of(cls, found: Status, *, has_reasons: bool) -> ReadyView:
        view = cls(
            status=one_line(found.status),
            ledger="ok" if found.ledger_problem is None else "away",
            settings="applied" if found.settings_refused is None else "refused",
            resumes="held" if found.holds else "going",
        )
        if not has_reasons:
            return view
        return msgspec.structs.replace(
            view,
            ledger_problem=maybe_line(found.ledger_problem, MAX_REASON_CHARS),
            settings_refused=maybe_line(found.settings_refused, MAX_REASON_CHARS),
            holds=[HoldView.of(one) for one in found.holds],
        )


# --- in OpenClaw's format


class BlockerView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a restart is not safe: how many of one kind are in flight."""

    kind: str
    count: int
    message: str


class PreflightView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a restart is safe now, in OpenClaw's format."""

    safe: bool
    counts: dict[str, int]
    blockers: list[BlockerView]
    summary: str
    interruptions: list[InterruptionView]

    @classmethod
    def of(cls, found: Ready) -> PreflightView:
        counts = _counted([one.kind for one in found.interruptions])
        return cls(
            safe=found.is_safe,
            counts=counts | {"totalActive": len(found.interruptions)},
            blockers=[]
            if found.is_safe
            else [
                BlockerView(kind=kind, count=number, message=f"{number} of kind {kind} in flight")
                for kind, number in counts.items()
            ],
            summary=one_line(found.summary, MAX_REASON_CHARS),
            interruptions=[InterruptionView.of(one) for one in found.interruptions],
        )


class HealthView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the gateway answers, and whether it is ready."""

    ok: bool
    status: str
    is_ready: bool
    # Milliseconds.
    ts: int


def _counted(names: Sequence[str | InterruptionOutcome]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[str(name)] = counts.get(str(name), 0) + 1
    return counts
