"""What a person may have to act on in a campaign: a pause, what failed, tasks without a living worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from holdfast.core.campaign import Campaign
from holdfast.core.message import plain_line
from holdfast.core.progress import ItemCounts
from holdfast.core.projection import is_gone
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.report import living_boots
from holdfast.store import Tx
from holdfast.store.boot_proofs import NO_PROOFS, BootProofs

_MAX_REASON_CHARS = 120
_ALIVE = (CampaignStatus.DRAFT, CampaignStatus.RUNNING, CampaignStatus.PAUSED)


def campaign_issues(
    tx: Tx,
    campaign: Campaign,
    counts: Sequence[ItemCounts],
    *,
    now: datetime,
    proofs: BootProofs = NO_PROOFS,
) -> list[str]:
    """One sentence each, with the command that helps; `counts` are those of each phase. With `proofs`, a
    process that has died on this machine is known at once, else when its leases have lapsed."""
    name = campaign.name
    issues = []
    restore = tx.campaign_restores.open_of(campaign.id)
    if restore is not None:
        finish = f"holdfast checkpoints restore {restore.checkpoint_id} --apply"
        issues.append(f"a restore to {restore.checkpoint_id} is not finished: {finish}")
    elif campaign.status is CampaignStatus.PAUSED:
        reason = plain_line(campaign.reason or "no reason given", _MAX_REASON_CHARS)
        issues.append(f"paused ({reason}): holdfast campaign resume {name}")
    if campaign.status is CampaignStatus.DRAFT:
        issues.append(f"not started: holdfast campaign start {name}")
    issues += _failed(campaign, counts)
    issues += _not_carried(tx, campaign, now, proofs)
    issues += [
        f"no worker knows the task {task}: holdfast worker MODULE (the module of {task})"
        for task in unknown_tasks(tx, campaign, proofs)
    ]
    return issues


def _not_carried(tx: Tx, campaign: Campaign, now: datetime, proofs: BootProofs) -> Iterator[str]:
    """The items whose process is gone and that no other process has taken over yet."""
    gone = []
    for boot_id, carried in tx.campaign_agents.carriers(campaign.id).items():
        boot = tx.boots.get(boot_id)
        is_alive = boot is not None and proofs.is_alive(boot)
        has_died = boot is not None and proofs.has_died(boot)
        if is_gone(carried, is_alive=is_alive, has_died=has_died, now=now):
            gone.append(carried)
    if gone:
        items = sum(one.runs for one in gone)
        what = "running item" if items == 1 else f"{items:,} running items"
        heard = max((one.heard_at for one in gone if one.heard_at is not None), default=None)
        since = "" if heard is None else f" since {heard:%Y-%m-%d %H:%M:%S} UTC"
        yield f"no process carries its {what}{since}: holdfast worker MODULE"


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


def unknown_tasks(tx: Tx, campaign: Campaign, proofs: BootProofs = NO_PROOFS) -> list[str]:
    """The tasks of a campaign that has not ended which no living process of this ledger can run."""
    if campaign.status not in _ALIVE:
        return []
    known: set[str] = set()
    for boot in living_boots(tx, proofs):
        if boot.task_names is None:  # any task, or it did not tell
            return []
        known.update(boot.task_names)
    return [task for task in dict.fromkeys(phase.task for phase in campaign.spec.phases) if task not in known]
