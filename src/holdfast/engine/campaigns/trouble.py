"""What a person may have to act on in a campaign: a pause, failed items, tasks that no worker knows."""

from __future__ import annotations

from holdfast.core.campaign import Campaign
from holdfast.core.message import plain_line
from holdfast.core.progress import ItemCounts
from holdfast.core.transitions import CampaignStatus
from holdfast.store import Tx

_MAX_REASON_CHARS = 120
_ALIVE = (CampaignStatus.DRAFT, CampaignStatus.RUNNING, CampaignStatus.PAUSED)


def campaign_issues(tx: Tx, campaign: Campaign, counts: ItemCounts) -> list[str]:
    """One sentence each, with the command that helps; `counts` are those of the phases that are shown."""
    name = campaign.name
    issues = []
    if campaign.status is CampaignStatus.PAUSED:
        reason = plain_line(campaign.reason or "no reason given", _MAX_REASON_CHARS)
        issues.append(f"paused ({reason}): holdfast campaign resume {name}")
    if campaign.status is CampaignStatus.DRAFT:
        issues.append(f"not started: holdfast campaign start {name}")
    if counts.failed:
        what = "1 item failed" if counts.failed == 1 else f"{counts.failed} items failed"
        issues.append(f"{what}: holdfast campaign retry {name}")
    issues += [
        f"no worker knows the task {task}: holdfast worker MODULE (the module of {task})"
        for task in unknown_tasks(tx, campaign)
    ]
    return issues


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
