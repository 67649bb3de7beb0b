"""The documents of state files: an agent, a batch, a day, an artifact, a report, a line of a log; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import msgspec

from holdfast.core.campaign import Campaign, CampaignSpec, agent_id, batch_name
from holdfast.core.events import Event
from holdfast.core.message import plain_line
from holdfast.core.progress import ItemCounts
from holdfast.core.transitions import ItemStatus
from holdfast.store.item_changes import ChangedItem

# The seed's word for an agent whose item is done; the others are the same.
_WORDS = {ItemStatus.DONE: "completed"}
_RESUMABLE = (ItemStatus.RUNNING, ItemStatus.PAUSED, ItemStatus.FAILED)
_ENDED = (ItemStatus.DONE, ItemStatus.FAILED)
# How many items of a batch its file names.
MOST_REPOS = 1000
MOST_LINES = 200
_MAX_LINE_CHARS = 300


class AgentWork(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent works on, and how far it is."""

    phase: str
    subtask: str | None
    progress_percent: int
    items_total: int
    items_completed: int
    items_failed: int


class AgentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the work ended."""

    success: bool
    output_path: str | None
    summary: Any


class AgentCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The last thing that an agent saved, and where it would go on."""

    last_action: str | None
    last_action_time: datetime | None
    can_resume: bool
    resume_point: str | None


class AgentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`agent-states/<item>.state.json`: the agent that works on an item, or worked on it last."""

    agent_id: str
    repo_name: str
    status: str
    created_at: datetime
    updated_at: datetime
    work: AgentWork
    result: AgentOutcome | None
    checkpoint: AgentCheckpoint
    errors: list[str]
    checkpoint_time: datetime


def agent_document(campaign: Campaign, one: ChangedItem) -> AgentDocument:
    at, phase = one.at, campaign.spec.phases[one.at.phase]
    can_resume = at.status in _RESUMABLE
    return AgentDocument(
        agent_id=agent_id(one.item_id, phase),
        repo_name=one.name,
        status=_WORDS.get(at.status, at.status.value),
        created_at=_seconds(at.started_at or one.created_at),
        updated_at=_seconds(at.updated_at),
        work=AgentWork(
            phase=phase.name,
            subtask=at.subtask or at.stage,
            progress_percent=at.percent,
            items_total=at.items_total or 0,
            items_completed=at.items_done or 0,
            items_failed=at.items_failed or 0,
        ),
        result=None
        if at.status not in _ENDED
        else AgentOutcome(
            success=at.status is ItemStatus.DONE,
            output_path=output_path(campaign, one),
            summary=_plain(at.summary),
        ),
        checkpoint=AgentCheckpoint(
            last_action=at.last_action,
            last_action_time=None if at.last_action_at is None else _seconds(at.last_action_at),
            can_resume=can_resume,
            resume_point=(at.stage or at.last_action) if can_resume else None,
        ),
        errors=[] if at.error is None else [at.error],
        checkpoint_time=_seconds(at.updated_at),
    )


def output_path(campaign: Campaign, one: ChangedItem) -> str | None:
    """Where the artifact of an item is, below the home; None if it has none."""
    if one.at.status is not ItemStatus.DONE or one.at.summary is None:
        return None
    names = artifact_names(campaign.spec, one.at.phase, one.item_id)
    return "/".join(("state", "campaigns", campaign.name, *names))


def artifact_names(spec: CampaignSpec, number: int, item_id: str) -> tuple[str, ...]:
    """The folders and the name of an item's artifact: `artifacts/repo-001-analysis.json`.

    Where another phase, or a report, could have the same file, the phase gets a folder of its own.
    """
    phase = spec.phases[number].name
    others = [*(one.name for one in spec.phases if one.name != phase), "report"]
    is_shared = any(
        other == phase or other.endswith(f"-{phase}") or phase.endswith(f"-{other}") for other in others
    )
    name = f"{item_id}-{phase}.json"
    return ("artifacts", phase, name) if is_shared else ("artifacts", name)


class ArtifactDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`artifacts/<item>-<phase>.json`: the small redacted document of one result."""

    repo_id: str
    name: str
    phase: str
    completed_at: datetime | None
    task_id: str | None
    result: Any


def artifact(campaign: Campaign, one: ChangedItem) -> ArtifactDocument | None:
    if output_path(campaign, one) is None:
        return None
    return ArtifactDocument(
        repo_id=one.item_id,
        name=one.name,
        phase=campaign.spec.phases[one.at.phase].name,
        completed_at=None if one.at.ended_at is None else _seconds(one.at.ended_at),
        task_id=one.at.task_id,
        result=_plain(one.at.summary),
    )


# --- batches, days, reports


class StatusCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many items are in which state."""

    total: int
    done: int
    in_progress: int
    pending: int
    paused: int
    failed: int

    @classmethod
    def of(cls, counts: ItemCounts) -> StatusCounts:
        return cls(
            total=counts.total,
            done=counts.done,
            in_progress=counts.running,
            pending=counts.pending,
            paused=counts.paused,
            failed=counts.failed,
        )


class BatchDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`progress/<batch_id>.json`."""

    batch_id: str
    priority: str | None
    phases: dict[str, StatusCounts]
    repos: list[str]


def batch_document(
    campaign: Campaign, number: int, counts: Mapping[int, ItemCounts], repos: Sequence[tuple[str, str]]
) -> BatchDocument:
    """`repos` are the id and the priority of each item of the batch."""
    phases = campaign.spec.phases
    return BatchDocument(
        batch_id=batch_name(number),
        priority=repos[0][1] if repos else None,
        phases={phases[phase].name: StatusCounts.of(one) for phase, one in sorted(counts.items())},
        repos=[item_id for item_id, _ in repos[:MOST_REPOS]],
    )


class DayOfPhase(msgspec.Struct, frozen=True, kw_only=True):
    """What one day brought in one phase, and how much was done at its end."""

    done: int
    failed: int
    done_by_then: int
    total: int
    progress_percent: float


class DaySummary(msgspec.Struct, frozen=True, kw_only=True):
    """`progress/daily-summary/<day>.json`."""

    date: str
    campaign: str
    phases: dict[str, DayOfPhase]


def day_of_phase(counts: ItemCounts, *, done: int, failed: int, done_later: int) -> DayOfPhase:
    by_then = max(0, counts.done - done_later)
    at_end = ItemCounts(total=counts.total, done=min(by_then, counts.total))
    return DayOfPhase(
        done=done, failed=failed, done_by_then=by_then, total=counts.total, progress_percent=at_end.percent
    )


class ReportItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item in a report."""

    repo_id: str
    name: str
    priority: str
    category: str | None
    status: str
    result: Any
    error: str | None


def reported_item(one: ChangedItem) -> ReportItem:
    return ReportItem(
        repo_id=one.item_id,
        name=one.name,
        priority=one.at.priority,
        category=one.at.category,
        status=one.at.status.value,
        result=_plain(one.at.summary),
        error=one.at.error,
    )


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """`artifacts/<phase>-report.json`: the counts of a phase and its results, the first thousand of them."""

    campaign: str
    goal: str
    phase: str
    summary: StatusCounts
    by_priority: dict[str, StatusCounts]
    by_category: dict[str, StatusCounts]
    results: list[ReportItem]
    results_omitted: int


class LogDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `artifacts/<phase>-log.jsonl`: how an item ended."""

    time: datetime
    repo_id: str
    name: str
    phase: str
    status: str
    stage: str | None
    attempt: int
    error: str | None


def log_line(campaign: Campaign, one: ChangedItem) -> LogDocument | None:
    at = one.at
    if at.status not in _ENDED:
        return None
    return LogDocument(
        time=_seconds(at.ended_at or at.updated_at),
        repo_id=one.item_id,
        name=one.name,
        phase=campaign.spec.phases[at.phase].name,
        status=_WORDS.get(at.status, at.status.value),
        stage=at.stage,
        attempt=at.attempt,
        error=at.error,
    )


# --- the daily log


def day_in_words(
    summary: DaySummary,
    events: Sequence[Event],
    failures: Sequence[tuple[datetime, str, str, str]],
    *,
    earlier: Mapping[str, int],
) -> str:
    """`memory/<day>.md`. A failure is its time, item, phase and error; `earlier` counts, by phase,
    those of the day that are left out."""
    lines = [f"# {summary.date}", "", f"Campaign {summary.campaign}", ""]
    for name, one in summary.phases.items():
        lines.append(
            f"- {name}: {one.done} done and {one.failed} failed on this day; "
            f"{one.done_by_then} of {one.total} done at its end ({one.progress_percent:g} %)"
        )
    if events:
        lines += ["", "## Events", ""]
        lines += [f"- {_clock(event.at)} {event.kind.value}{_facts(event)}" for event in events[-MOST_LINES:]]
    if failures:
        lines += ["", "## Failures", ""]
        lines += [
            f"- and {count} earlier in {phase}: "
            f"holdfast campaign items {summary.campaign} --phase {phase} --status failed"
            for phase, count in earlier.items()
            if count > 0
        ]
        lines += [
            f"- {_clock(at)} {item_id} {phase}: {plain_line(error, _MAX_LINE_CHARS)}"
            for at, item_id, phase, error in failures
        ]
    return "\n".join([*lines, ""])


def _facts(event: Event) -> str:
    shown = ", ".join(f"{name}={value}" for name, value in event.facts.items() if value is not None)
    return f" {plain_line(shown, _MAX_LINE_CHARS)}" if shown else ""


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S")


def day_of(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def encoded(document: msgspec.Struct) -> bytes:
    """A document as its file: for people, with a line break at the end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _plain(summary: bytes | None) -> Any:
    if summary is None:
        return None
    try:
        return msgspec.json.decode(summary)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # damaged; `holdfast store verify` tells


def _seconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
