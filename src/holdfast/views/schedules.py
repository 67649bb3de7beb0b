"""ScheduleView: a schedule and its firings in the format of OpenClaw's protocol; times are milliseconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.core.clock import to_micros
from holdfast.core.schedule import Firing
from holdfast.core.schedule_spec import Schedule, ScheduleSpec
from holdfast.core.task import Task
from holdfast.core.transitions import FiringStatus
from holdfast.views.text import bounded, clean, maybe_line, one_line

MAX_PROMPT_CHARS = 4000

OutcomeText: TypeAlias = Literal["ok", "error", "skipped"]

# How a firing ended, in the words of the protocol; a firing that has not ended is not here.
OUTCOMES: dict[FiringStatus, OutcomeText] = {
    FiringStatus.DONE: "ok",
    FiringStatus.FAILED: "error",
    FiringStatus.MISSED: "skipped",
}


class AtView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="at"):
    """Once, at one moment."""

    at: str


class EveryView(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="kind",
    tag="every",
    omit_defaults=True,
):
    """At a fixed interval, counted from the anchor."""

    every_ms: int
    anchor_ms: int | None = None


class CronView(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="kind",
    tag="cron",
    omit_defaults=True,
):
    """By a cron expression in a time zone; `staggerMs` is the largest jitter."""

    expr: str
    tz: str | None = None
    stagger_ms: int | None = None


class PromptView(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="agentTurn"
):
    """The prompt for an agent."""

    message: str


class CommandView(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="kind",
    tag="command",
    omit_defaults=True,
):
    """A command, as a list of words."""

    argv: list[str]
    cwd: str | None = None
    timeout_seconds: float | None = None


class TaskTargetView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="task"):
    """A task with its arguments; this kind is Holdfast's own."""

    task: str
    arguments: dict[str, Any] = {}


class ScheduleTimesView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When it fires next, and how the last firing ended."""

    next_run_at_ms: int | None = None
    # Since when its present firing runs.
    running_at_ms: int | None = None
    last_run_at_ms: int | None = None
    last_run_status: OutcomeText | None = None
    last_error: str | None = None


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One schedule; what it does not have is left out."""

    id: str
    # Its title, if it has one; else its id.
    name: str
    enabled: bool
    created_at_ms: int
    updated_at_ms: int
    # To be named in an edit: it is refused if another one came first.
    config_revision: str
    schedule: AtView | EveryView | CronView
    session_target: str
    wake_mode: str
    payload: PromptView | CommandView | TaskTargetView
    # In the protocol: `state`.
    times: ScheduleTimesView = msgspec.field(name="state")
    description: str | None = None
    agent_id: str | None = None
    session_key: str | None = None
    next_run_at_ms: int | None = None
    last_run_at_ms: int | None = None
    last_run_status: OutcomeText | None = None
    last_run_error: str | None = None
    # Holdfast's own fields: where it is declared (`settings` or `runtime`), and its policies.
    source: str | None = None
    owned_by: str | None = None
    is_paused: bool = False
    # Whether it was to fire once and has fired.
    is_over: bool = False
    tz: str | None = None
    missed: str | None = None
    max_missed: int | None = None
    overlap: str | None = None
    jitter_ms: int | None = None
    retry: bool | None = None
    # Why it does not fire, although it is due: no gateway that runs has its agent or task.
    problem: str | None = None
    # The last firing, and the task that carries or carried it out.
    last_firing_id: str | None = None
    last_task_id: str | None = None

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        last: Firing | None = None,
        task: Task | None = None,
        *,
        problem: str | None = None,
    ) -> ScheduleView:
        spec = schedule.spec
        times = times_of(last, task, schedule.next_at)
        return cls(
            id=one_line(schedule.name),
            name=one_line(spec.title or schedule.name),
            enabled=schedule.is_on and not schedule.is_over,
            created_at_ms=_millis(schedule.created_at),
            updated_at_ms=_millis(schedule.updated_at),
            config_revision=str(schedule.revision),
            schedule=_times(spec),
            session_target=f"session:{spec.session_key}" if spec.session_key else "isolated",
            wake_mode="now",
            payload=_target(spec),
            times=times,
            description=None if spec.description is None else bounded(spec.description, MAX_PROMPT_CHARS),
            agent_id=spec.agent,
            session_key=spec.session_key or None,
            next_run_at_ms=times.next_run_at_ms,
            last_run_at_ms=times.last_run_at_ms,
            last_run_status=times.last_run_status,
            last_run_error=times.last_error,
            source=schedule.source.value,
            owned_by=one_line(schedule.owner),
            is_paused=schedule.is_paused,
            is_over=schedule.is_over,
            tz=spec.tz,
            missed=spec.missed.value,
            max_missed=spec.max_missed,
            overlap=spec.overlap.value,
            jitter_ms=spec.jitter_s * 1000 or None,
            retry=spec.retry,
            problem=maybe_line(problem),
            last_firing_id=None if last is None else last.id,
            last_task_id=None if last is None else last.task_id,
        )


class SchedulePageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of schedules."""

    # In the protocol: `jobs`.
    schedules: list[ScheduleView] = msgspec.field(name="jobs", default_factory=list)
    total: int = 0
    offset: int = 0
    limit: int = 0
    has_more: bool = False
    # Null at the end.
    next_offset: int | None = None
    # For `--page`: the next page in the order of names; null at the end.
    next_page_token: str | None = None
    # Changes with each change of a schedule: pages with the same one belong together.
    snapshot_revision: str = ""


class ScheduleStatusView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether schedules fire, how many there are, and when the next one is due."""

    enabled: bool
    store_path: str
    # In the protocol: `jobs`.
    count: int = msgspec.field(name="jobs")
    # Null if nothing is due.
    next_wake_at_ms: int | None = None


class ScheduleRemovedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A schedule was removed; its history stays."""

    ok: bool
    removed: bool
    id: str


class ScheduleRunView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether a schedule was fired now, and why not."""

    ok: bool
    ran: bool
    enqueued: bool = False
    # The firing, which is in the history.
    run_id: str | None = None
    task_id: str | None = None
    # `already-running`, `not-due` or `disabled`.
    reason: str | None = None


class FiringEntryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One firing of a schedule, with its task."""

    # When it ended or changed last, and its schedule; `jobId` in the protocol.
    ts: int
    schedule: str = msgspec.field(name="jobId")
    action: str
    status: OutcomeText | None = None
    error: str | None = None
    session_key: str | None = None
    run_id: str | None = None
    run_at_ms: int | None = None
    duration_ms: int | None = None
    schedule_title: str | None = msgspec.field(name="jobName", default=None)
    # Holdfast's own fields.
    firing_status: str | None = None
    task_id: str | None = None
    is_retry: bool = False
    # `planned` or `requested`.
    cause: str | None = None

    @classmethod
    def of(cls, firing: Firing, task: Task | None) -> FiringEntryView:
        status, why = outcome_of(firing, task)
        started = None if task is None else task.started_at or task.created_at
        ended = None if task is None else task.ended_at
        return cls(
            ts=_millis(ended or firing.updated_at),
            schedule=one_line(firing.schedule),
            action="finished" if status is not None else "started",
            status=status,
            error=why,
            session_key=firing.session_key or None,
            run_id=firing.id,
            run_at_ms=_millis(firing.occurrence_at),
            duration_ms=None if started is None or ended is None else _millis(ended) - _millis(started),
            schedule_title=one_line(firing.schedule),
            firing_status=firing.status.value,
            task_id=firing.task_id,
            is_retry=firing.is_retry,
            cause=firing.cause.value,
        )


class FiringPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of firings, latest first."""

    entries: list[FiringEntryView] = []
    total: int = 0
    offset: int = 0
    limit: int = 0
    has_more: bool = False
    next_offset: int | None = None
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


def outcome_of(firing: Firing, task: Task | None) -> tuple[OutcomeText | None, str | None]:
    """How it ended, and why not well. A task that has ended counts before the service has noted it."""
    status = OUTCOMES.get(firing.status)
    if status is None and task is not None and task.has_ended:
        status = "ok" if task.status.value == "succeeded" else "error"
    if status in (None, "ok"):
        return status, None
    failure = None if task is None else task.failure
    why = firing.why if failure is None else failure.message
    return status, None if why is None else one_line(why, 300)


def times_of(last: Firing | None, task: Task | None, next_at: datetime | None) -> ScheduleTimesView:
    if last is None:
        return ScheduleTimesView(next_run_at_ms=maybe_millis(next_at))
    status, why = outcome_of(last, task)
    return ScheduleTimesView(
        next_run_at_ms=maybe_millis(next_at),
        running_at_ms=None if status is not None else _millis(last.updated_at),
        last_run_at_ms=_millis(last.occurrence_at),
        last_run_status=status,
        last_error=why,
    )


def _times(spec: ScheduleSpec) -> AtView | EveryView | CronView:
    if spec.at is not None:
        return AtView(at=f"{spec.at:%Y-%m-%dT%H:%M:%S}Z")
    if spec.every_s is not None:
        return EveryView(every_ms=spec.every_s * 1000, anchor_ms=maybe_millis(spec.anchor_at))
    return CronView(expr=one_line(spec.cron or ""), tz=spec.tz, stagger_ms=spec.jitter_s * 1000 or None)


def _target(spec: ScheduleSpec) -> PromptView | CommandView | TaskTargetView:
    if spec.agent is not None:
        return PromptView(message=bounded(spec.prompt or "", MAX_PROMPT_CHARS))
    if spec.task is None:
        # As one command: whether a word is a secret depends on the flag before it.
        argv = [clean(str(one)) for one in _redacted({"argv": list(spec.command)})["argv"]]
        directory = None if spec.directory is None else clean(spec.directory)
        return CommandView(argv=argv, cwd=directory, timeout_seconds=spec.timeout_s)
    return TaskTargetView(task=spec.task, arguments=_redacted(spec.arguments))


def _redacted(arguments: dict[str, Any]) -> dict[str, Any]:
    from holdfast.core.redaction import redact_json

    shown: dict[str, Any] = msgspec.json.decode(redact_json(msgspec.json.encode(arguments)))
    return shown


def _millis(moment: datetime) -> int:
    return to_micros(moment) // 1000


def maybe_millis(moment: datetime | None) -> int | None:
    return None if moment is None else _millis(moment)
