"""The two documents about one phase: a small one for an agent's context, and one for the files of progress.

Their names are those of the seed's documents, in its spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.core.campaign import Campaign, batch_name
from holdfast.core.message import plain_line
from holdfast.core.progress import ItemCounts, Rate
from holdfast.engine.campaigns.issues import issues_of
from holdfast.engine.campaigns.report import (
    BatchProgress,
    PhaseProgress,
    counts_of_phases,
    current_phase,
    has_open,
    living_boots,
    phase_progress,
    totals_of,
)
from holdfast.engine.campaigns.trouble import campaign_issues
from holdfast.store import Tx
from holdfast.store.boot_proofs import NO_PROOFS, BootProofs
from holdfast.store.campaign_pages import ItemFilter

# The largest context document, also indented, whatever the number of items and the length of names.
MAX_CONTEXT_BYTES = 2048
# What is left for issues, each in quotes, with an indent and a comma.
_ISSUES_BYTES = 900
_MAX_ISSUE_CHARS = 160
_MOST_ISSUES = 8
_MAX_ID_CHARS = 160
# How many items of the current batch a phase document names.
MOST_NAMED_ITEMS = 20


class ContextCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many items of the phase are in which state. Those that are paused count as in progress."""

    total: int
    done: int
    in_progress: int
    pending: int
    failed: int
    percent: float


class ContextDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Where a campaign is, small enough for the context of a model: at most 2 KB."""

    phase: str
    overall: ContextCounts
    # Such as {"P0": "100% done ✅"}.
    by_priority: dict[str, str]
    # Such as `P1 batch-009 (8/10 done)`; null if nothing runs.
    current_focus: str | None
    # Such as `P1 batch-010 (10 items)`; null if nothing waits that could start.
    next_up: str | None
    # Null unless the campaign runs and items of the phase still run or will start.
    eta: datetime | None
    issues: list[str]
    last_checkpoint: str | None


class PhaseSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How many items of the phase are in which state."""

    total_repos: int
    analyzed: int
    in_progress: int
    pending: int
    failed: int
    progress_percent: float


class PriorityProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The items of one priority. As in the seed's document, those in progress count as pending here."""

    total: int
    analyzed: int
    pending: int


class CurrentBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The batch of the most urgent item that runs."""

    batch_id: str
    # The ids of its items; after the first 20, an ellipsis stands for the others.
    repos: list[str]
    started_at: datetime | None
    estimated_complete: datetime | None


class PhaseRate(msgspec.Struct, frozen=True, kw_only=True):
    """How quickly items are done, over the last hour."""

    repos_per_hour: float
    estimated_completion: datetime | None


class PhaseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How far one phase is, as `progress/<phase>-progress.json`."""

    phase: str
    started_at: datetime | None
    updated_at: datetime | None
    summary: PhaseSummary
    by_priority: dict[str, PriorityProgress]
    current_batch: CurrentBatch | None
    rate: PhaseRate


# --- reading them


def read_context(
    tx: Tx,
    campaign: Campaign,
    *,
    now: datetime,
    phase: str | None = None,
    issues: Sequence[str] = (),
    proofs: BootProofs = NO_PROOFS,
) -> ContextDocument:
    """The context document of one phase, by default of the current one. The number of its reads does not grow
    with the number of items. Raised alerts come first, and `issues` after those of the campaign itself."""
    number = current_phase(tx, campaign) if phase is None else campaign.spec.number_of(phase)
    by_priority, living = counts_of_phases(tx, campaign), living_boots(tx, proofs)
    found = phase_progress(tx, campaign, number, by_priority, living, now=now, most_categories=0)
    own_issues = campaign_issues(tx, campaign, totals_of(by_priority), now=now, proofs=proofs)
    return context_of(
        found,
        has_ended=campaign.ended_at is not None,
        issues=[*issues_of(tx, campaign.id), *own_issues, *issues],
        last_checkpoint=last_checkpoint(tx, campaign),
    )


def read_phase_document(
    tx: Tx, campaign: Campaign, *, now: datetime, phase: str | None = None
) -> PhaseDocument:
    """The document of one phase, by default of the current one."""
    number = current_phase(tx, campaign) if phase is None else campaign.spec.number_of(phase)
    found = phase_progress(
        tx, campaign, number, counts_of_phases(tx, campaign), living_boots(tx), now=now, most_categories=0
    )
    first = tx.campaign_pages.items(campaign.id, number, ItemFilter(), limit=1)
    batch = None if found.current is None else _current_batch(tx, campaign, found, found.current, now)
    starts = [one.at.started_at for one in first] + ([] if batch is None else [batch.started_at])
    counts = found.counts
    return PhaseDocument(
        phase=plain_line(found.name, _MAX_ID_CHARS),
        started_at=_seconds(min((one for one in starts if one is not None), default=None)),
        updated_at=_seconds(tx.campaign_pages.last_change(campaign.id) or campaign.updated_at),
        summary=PhaseSummary(
            total_repos=counts.total,
            analyzed=counts.done,
            in_progress=counts.running + counts.paused,
            pending=counts.pending,
            failed=counts.failed,
            progress_percent=counts.percent,
        ),
        by_priority={
            plain_line(name, 10): PriorityProgress(
                total=one.total, analyzed=one.done, pending=one.total - one.done - one.failed
            )
            for name, one in sorted(found.by_priority.items())
        },
        current_batch=batch,
        rate=PhaseRate(
            repos_per_hour=found.rate.per_hour,
            estimated_completion=_seconds(found.rate.eta),
        ),
    )


def last_checkpoint(tx: Tx, campaign: Campaign) -> str | None:
    """The id of the campaign's newest checkpoint."""
    found = tx.campaign_checkpoints.latest(campaign.id)
    return None if found is None else found.id


# --- building them


def context_of(
    phase: PhaseProgress,
    *,
    has_ended: bool = False,
    issues: Sequence[str] = (),
    last_checkpoint: str | None = None,
) -> ContextDocument:
    """The context document, kept below its largest size. `has_ended` is about the whole campaign."""
    counts = phase.counts
    return ContextDocument(
        phase=plain_line(phase.name, 50),
        overall=ContextCounts(
            total=counts.total,
            done=counts.done,
            in_progress=counts.running + counts.paused,
            pending=counts.pending,
            failed=counts.failed,
            percent=counts.percent,
        ),
        by_priority={
            plain_line(name, 10): in_words(one, has_ended=has_ended)
            for name, one in sorted(phase.by_priority.items())
        },
        current_focus=None if phase.current is None else _focus(phase.current),
        next_up=None if phase.following is None else _next_up(phase.following),
        eta=_seconds(phase.rate.eta),
        issues=_within(issues, _ISSUES_BYTES),
        last_checkpoint=None if last_checkpoint is None else plain_line(last_checkpoint, _MAX_ID_CHARS),
    )


def in_words(counts: ItemCounts, *, has_ended: bool = False) -> str:
    """`100% done ✅`, `80% done 🏃`, `0% done ⏳`; `98% done, 2 failed ❌` if nothing is left to do, and
    `98% done, 2 not done ❌` if the campaign has ended without them."""
    # Rounded down, so that 100 means all.
    percent = 100 * counts.done // counts.total if counts.total else 0
    if counts.total and counts.done == counts.total:
        return f"{percent}% done ✅"
    if counts.failed and not has_open(counts):
        return f"{percent}% done, {counts.failed} failed ❌"
    if has_ended and counts.total:
        return f"{percent}% done, {counts.total - counts.done} not done ❌"
    is_started = counts.done or counts.failed or counts.running or counts.paused
    return f"{percent}% done {'🏃' if is_started else '⏳'}"


def _focus(batch: BatchProgress) -> str:
    return f"{_batch(batch)} ({batch.counts.done}/{batch.counts.total} done)"


def _next_up(batch: BatchProgress) -> str:
    waiting = batch.counts.pending
    return f"{_batch(batch)} ({waiting} {'item' if waiting == 1 else 'items'})"


def _batch(batch: BatchProgress) -> str:
    priority = "" if batch.priority is None else f"{plain_line(batch.priority, 10)} "
    return f"{priority}{batch_name(batch.number)}"


def _within(issues: Sequence[str], room: int) -> list[str]:
    """The issues that fit, each in one line; the last one counts those that do not."""
    found: list[str] = []
    for place, issue in enumerate(issues):
        line = plain_line(issue, _MAX_ISSUE_CHARS)
        # As it is encoded: a character may take six bytes.
        room -= len(msgspec.json.encode(line)) + len("    ,\n")
        if room < 0 or len(found) == _MOST_ISSUES:
            found.append(f"and {len(issues) - place} more")
            break
        found.append(line)
    return found


def _current_batch(
    tx: Tx, campaign: Campaign, phase: PhaseProgress, batch: BatchProgress, now: datetime
) -> CurrentBatch:
    wanted = ItemFilter(batch=batch.number)
    items = tx.campaign_pages.items(campaign.id, phase.number, wanted, limit=MOST_NAMED_ITEMS + 1)
    named = [plain_line(one.id or "?", _MAX_ID_CHARS) for one in items[:MOST_NAMED_ITEMS]]
    starts = [one.at.started_at for one in items if one.at.started_at is not None]
    return CurrentBatch(
        batch_id=batch_name(batch.number),
        repos=named if len(items) <= MOST_NAMED_ITEMS else [*named, "..."],
        started_at=_seconds(min(starts, default=None)),
        estimated_complete=_seconds(_complete_at(phase.rate, batch.counts, now)),
    )


def _complete_at(rate: Rate, counts: ItemCounts, now: datetime) -> datetime | None:
    """When the rest of a batch will be done, if the items of the phase go on at their rate."""
    left = counts.pending + counts.running + counts.paused
    hours = None if rate.eta is None else left / rate.per_hour
    # More than a century ahead is no estimate.
    return None if hours is None or hours > 876_000 else now + timedelta(hours=hours)


def _seconds(moment: datetime | None) -> datetime | None:
    """A moment without its fraction of a second, as these documents have them."""
    return None if moment is None else moment.replace(microsecond=0)
