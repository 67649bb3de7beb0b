"""What a person may have to act on in a campaign: a pause, failed items, tasks that no worker knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.core.campaign import Campaign
from holdfast.core.message import plain_line
from holdfast.core.progress import ItemCounts
from holdfast.core.transitions import CampaignStatus
from holdfast.store import Tx

_MAX_REASON_CHARS = 120
_ALIVE = (CampaignStatus.DRAFT, CampaignStatus.RUNNING, CampaignStatus.PAUSED)


def campaign_issues(tx: Tx, campaign: Campaign, counts: Sequence[ItemCounts]) -> list[str]:
    """One sentence each, with the command that helps; `counts` are those of each phase."""
    name = campaign.name
    issues = []
    if campaign.status is CampaignStatus.PAUSED:
        reason = plain_line(campaign.reason or "no reason given", _MAX_REASON_CHARS)
        issues.append(f"paused ({reason}): holdfast campaign resume {name}")
    if campaign.status is CampaignStatus.DRAFT:
        issues.append(f"not started: holdfast campaign start {name}")
    issues += _failed(campaign, counts)
    issues += [
        f"no worker knows the task {task}: holdfast worker MODULE (the module of {task})"
        for task in unknown_tasks(tx, campaign)
    ]
    return issues


def _failed(campaign: Campaign, counts: Sequence[ItemCounts]) -> Iterator[str]:
    """What failed, and what waits for it in later phases."""
    failed = sum(one.failed for one in counts)
    if failed:
        ended = "ended as failed, " if campaign.status is CampaignStatus.FAILED else ""
        yield f"{ended}{_items(failed)} failed: holdfast campaign retry {campaign.name}"
    for number, phase in enumerate(campaign.spec.phases):
        held = sum(counts[need].failed for need in campaign.spec.all_needs_of(number))
        waiting = min(held, counts[number].pending)
        if waiting:
            yield f"{_items(waiting)} cannot start in {phase.name}: a phase before it failed"


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count:,} items"


def unknown_tasks(tx: Tx, campaign: Campaign) -> list[str]:
    """The tasks of a campaign that has not ended which no process of this ledger can run."""
    if campaign.status not in _ALIVE:
        return []
    known: set[str] = set()
    for boot in tx.boots.alive():
        if boot.task_names is None:  # any task, or it did not tell
            return []
        known.update(boot.task_names)
    return [task for task in dict.fromkeys(phase.task for phase in campaign.spec.phases) if task not in known]
