"""Restart and its manifest: why the gateway stopped, what that interrupted, and how recovery treated it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.ids import BootId, RestartId
from holdfast.core.transitions import RestartStatus

CRASH = "crash"
# The signals that restart the gateway; others stop it.
RESTART_SIGNALS = frozenset({"SIGUSR1", "SIGHUP"})


class InterruptionKind(StrEnum):
    """The kind of work that a restart interrupts."""

    SESSION = "session"
    CRON = "cron"
    CHILD = "child"
    RUN = "run"


class Interruption(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One run in flight, described as its requester knows it."""

    kind: InterruptionKind
    task_id: str
    title: str
    status: str
    session_key: str | None = None
    parent_task_id: str | None = None


class ActiveSession(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    key: str
    status: str
    last_user_message: str | None
    active_subagents: tuple[str, ...]
    channel: str | None
    channel_target: str | None
    # Not in seed 001: which account of the channel, if it has several.
    account_id: str | None = None


class ActiveCronRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    job_id: str
    job_name: str
    started_at: str
    status: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of seed 001, field for field, followed by fields of our own."""

    timestamp: str
    reason: str
    triggered_by: str
    active_sessions: tuple[ActiveSession, ...] = ()
    active_cron_runs: tuple[ActiveCronRun, ...] = ()
    restart_id: str
    interruptions: tuple[Interruption, ...] = ()


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request for a restart. Several become one restart, which records them all."""

    reason: str
    triggered_by: str
    at: datetime
    resume_reason: ResumeReason = ResumeReason.EXPLICIT_RESTART
    # With this key the agent that asked can look up the outcome.
    key: str | None = None
    # For the session that asked: how to continue afterwards.
    session_key: str | None = None
    continuation: str | None = None


class InterruptionOutcome(StrEnum):
    """What recovery did with one interruption."""

    RESUMED = "resumed"
    QUEUED = "queued"
    TOLD = "told"
    FAILED = "failed"
    ENDED = "ended"
    CANCELLED = "cancelled"
    HELD = "held"


class Recovered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What recovery did with one interrupted run."""

    task_id: str
    fate: InterruptionOutcome
    run_id: str | None = None
    why: str | None = None
    # Whether it is a firing of a schedule that was interrupted and queued again.
    is_retry: bool = False


class RestartOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a recovery did, stored with its restart."""

    recovered: tuple[Recovered, ...] = ()
    notices: int = 0
    continuations: int = 0
    parents_told: int = 0
    why_blocked: str | None = None


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """One stop of a gateway, planned, unplanned or refused, with its manifest and its outcome."""

    id: RestartId
    boot_id: BootId
    # Identifies the gateway: several may share a ledger.
    place: str
    requested_at: datetime
    manifest: Manifest
    status: RestartStatus = RestartStatus.DRAINING
    triggers: tuple[Trigger, ...] = ()
    outcome: RestartOutcome | None = None
    recovered_by: BootId | None = None
    updated_at: datetime

    @property
    def kind(self) -> str:
        """`restart`, `stop` or `crash`; one request to stop outweighs all requests to restart."""
        if any(one.resume_reason is ResumeReason.CRASH for one in self.triggers[:1]):
            return CRASH
        ends = (one for one in self.triggers if one.resume_reason is ResumeReason.SIGNAL)
        return "stop" if any(one.reason not in RESTART_SIGNALS for one in ends) else "restart"


def system_sentence(*, restarted_at: datetime, reason: str) -> str:
    """The message to an interrupted session without a run to resume, in the words of the seed."""
    moment = restarted_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"[System] Gateway restarted at {moment}. Reason: {reason}. You were interrupted mid-task. Review "
        "conversation context and respond to any unanswered messages."
    )
