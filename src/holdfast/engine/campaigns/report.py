"""How far a campaign is: counts by priority, category and batch, rate and time left, from the kept counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from holdfast.core.campaign import Campaign, ItemPhase
from holdfast.core.claim import Boot
from holdfast.core.progress import (
    CountKind,
    ItemCounts,
    Rate,
    Tally,
    batch_key,
    counts_of,
    noun_of,
    rate_of,
    span_of,
    total_of,
)
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.store import Tx
from holdfast.store.boot_proofs import NO_PROOFS, BootProofs

# The rate is that of the last hour.
_RATE_WINDOW = timedelta(minutes=65)
# How many categories a report has; a drill-down reads the others by pages.
MOST_CATEGORIES = 50
_MOST_PRIORITIES = 10
_ALL = 200_000


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One batch in one phase: its number, the priority of its items, and their counts."""

    number: int
    counts: ItemCounts
    priority: str | None = None


class PhaseProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the items are in one phase."""

    number: int
    name: str
    counts: ItemCounts
    by_priority: dict[str, ItemCounts]
    # By the names of the categories; '' are items without one. The first ones, if there are many.
    by_category: dict[str, ItemCounts]
    has_more_categories: bool = False
    rate: Rate
    # The batch of the most urgent item that runs, and the one of the next item to start.
    current: BatchProgress | None = None
    following: BatchProgress | None = None


class CampaignProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a campaign is, in each phase."""

    campaign: Campaign
    phases: tuple[PhaseProgress, ...]

    @property
    def counts(self) -> ItemCounts:
        """All item-phases together."""
        return total_of([phase.counts for phase in self.phases])

    @property
    def current(self) -> PhaseProgress:
        """The phase that people want to see; see `current_phase`."""
        return self.phases[_current(self.campaign, [phase.counts for phase in self.phases])]


def progress_of(
    tx: Tx, campaign: Campaign, *, now: datetime, proofs: BootProofs = NO_PROOFS
) -> CampaignProgress:
    """Read from the counts: what it costs does not grow with the number of items."""
    by_priority, living = counts_of_phases(tx, campaign), living_boots(tx, proofs)
    phases = tuple(
        phase_progress(tx, campaign, number, by_priority, living, now=now)
        for number in range(len(by_priority))
    )
    return CampaignProgress(campaign=campaign, phases=phases)


def counts_by(
    tx: Tx, campaign: Campaign, phase: int, by: CountKind, *, after: str | None = None, limit: int = _ALL
) -> dict[str, ItemCounts]:
    """The counts of one phase by priority or category, or by the key of a batch, in the order of the names;
    the last name is the page token of the next page."""
    # No name has a control character, so this follows the name itself and comes before every longer one.
    first = "" if after is None else f"{after}\x01"
    found = tx.campaigns.counts_under(
        noun_of(campaign.id, phase, by, ""), after=first, limit=limit * len(Tally)
    )
    return {name: counts_of(tallies) for name, tallies in islice(found.items(), limit)}


def phase_counts(tx: Tx, campaign: Campaign, phase: int) -> dict[str, ItemCounts]:
    """The counts of one phase by priority; their total is that of the phase."""
    return counts_by(tx, campaign, phase, CountKind.PRIORITY, limit=_MOST_PRIORITIES)


def counts_of_phases(tx: Tx, campaign: Campaign) -> list[dict[str, ItemCounts]]:
    """The counts of each phase by priority."""
    return [phase_counts(tx, campaign, number) for number in range(len(campaign.spec.phases))]


def totals_of(by_priority: Sequence[Mapping[str, ItemCounts]]) -> list[ItemCounts]:
    """The counts of each phase."""
    return [total_of(list(one.values())) for one in by_priority]


def current_phase(tx: Tx, campaign: Campaign) -> int:
    """The number of the first phase in which items run or will start. If there is none, of the first one in
    which not all items are done; if all are done, of the last one."""
    return _current(campaign, totals_of(counts_of_phases(tx, campaign)))


def _current(campaign: Campaign, counts: Sequence[ItemCounts]) -> int:
    numbers = range(len(counts))
    going_on = (number for number in numbers if _left(campaign, counts, number))
    not_done = (number for number in numbers if counts[number].done < counts[number].total)
    return next(going_on, next(not_done, len(counts) - 1))


def has_open(counts: ItemCounts) -> bool:
    """Whether items still run or wait."""
    return bool(counts.pending or counts.running or counts.paused)


def _left(campaign: Campaign, counts: Sequence[ItemCounts], number: int) -> int:
    """How many items of a phase run or will start without the help of a person: those that failed in a phase
    before will not. An item that failed in two of several parallel phases counts twice here."""
    held = sum(counts[need].failed for need in campaign.spec.all_needs_of(number))
    return max(0, counts[number].pending - held) + counts[number].running


def living_boots(tx: Tx, proofs: BootProofs = NO_PROOFS) -> list[Boot]:
    """The processes of this ledger that may be alive: those that are not proved dead."""
    return [boot for boot in tx.boots.alive() if not proofs.has_died(boot)]


def batches_of(
    tx: Tx, campaign: Campaign, phase: int, *, after: int = 0, limit: int = 100
) -> list[BatchProgress]:
    """The batches of one phase in order; the number of the last one is the page token of the next page."""
    # At most one count for each tally of a batch.
    found = tx.campaigns.counts_under(
        noun_of(campaign.id, phase, CountKind.BATCH, ""),
        after=batch_key(after + 1),
        limit=limit * len(Tally),
    )
    batches = [BatchProgress(number=int(key), counts=counts_of(tallies)) for key, tallies in found.items()]
    return batches[:limit]


def phase_progress(
    tx: Tx,
    campaign: Campaign,
    number: int,
    by_priority: Sequence[Mapping[str, ItemCounts]],
    living: Sequence[Boot],
    *,
    now: datetime,
    most_categories: int = MOST_CATEGORIES,
) -> PhaseProgress:
    """How far the items are in one phase; `by_priority` has the counts of all phases. There is an estimate
    only while the campaign runs and a living process can do the task of the phase."""
    task = campaign.spec.phases[number].task
    able = [boot.started_at for boot in living if boot.task_names is None or task in boot.task_names]
    counts = totals_of(by_priority)
    prefix = noun_of(campaign.id, number, CountKind.SPAN, "")
    spans = tx.campaigns.counts_under(prefix, after=span_of(now - _RATE_WINDOW))
    done = {span: tallies.get(Tally.DONE.value, 0) for span, tallies in spans.items()}
    running = tx.item_phases.page(campaign.id, number, status=ItemStatus.RUNNING, limit=1)
    upcoming = tx.item_phases.upcoming(campaign.id, number, limit=1)
    rate = rate_of(
        done,
        left=_left(campaign, counts, number),
        started_at=campaign.started_at,
        # It was started or resumed, or the oldest of the processes that can do it began after a crash.
        went_on_at=max((at for at in (campaign.ran_since, min(able, default=None)) if at), default=None),
        now=now,
    )
    by_category: dict[str, ItemCounts] = {}
    if most_categories:
        by_category = counts_by(tx, campaign, number, CountKind.CATEGORY, limit=most_categories + 1)
    return PhaseProgress(
        number=number,
        name=campaign.spec.phases[number].name,
        counts=counts[number],
        by_priority=dict(by_priority[number]),
        by_category=dict(islice(by_category.items(), most_categories)),
        has_more_categories=len(by_category) > most_categories,
        rate=rate if able and campaign.status is CampaignStatus.RUNNING else rate.without_estimate(),
        current=_batch_of(tx, campaign, number, running),
        following=_batch_of(tx, campaign, number, upcoming),
    )


def _batch_of(tx: Tx, campaign: Campaign, phase: int, rows: list[ItemPhase]) -> BatchProgress | None:
    if not rows:
        return None
    noun = noun_of(campaign.id, phase, CountKind.BATCH, batch_key(rows[0].batch))
    counts = counts_of(tx.events.counts(noun))
    return BatchProgress(number=rows[0].batch, priority=rows[0].priority, counts=counts)
