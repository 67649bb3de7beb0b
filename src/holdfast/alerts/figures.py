"""The figures of conditions, read from kept counts and indexes, whatever the number of items."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from holdfast.core.alert import LEDGER
from holdfast.core.campaign import Campaign
from holdfast.core.clock import from_micros
from holdfast.core.errors import HoldfastError
from holdfast.core.progress import CountKind, Tally, noun_of, rate_of, span_of, total_of
from holdfast.core.transitions import CampaignStatus, TaskStatus
from holdfast.engine.campaigns.report import counts_by
from holdfast.store import Tx

# The rate is that of the last hour.
_RATE_WINDOW = timedelta(minutes=65)
# Questions and deliveries are counted up to this number.
COUNTED_AT_MOST = 100
# When the clock last jumped ahead, in microseconds: older moments do not count as ages.
AGES_FACT = "alerts.ages_from"
Figures = dict[str, float]
T = TypeVar("T")


def minutes_since(moment: datetime | None, now: datetime, ages_from: datetime | None = None) -> float:
    """Never negative; time before `ages_from`, when the clock jumped, does not count."""
    if moment is None:
        return 0.0
    since = moment if ages_from is None else max(moment, ages_from)
    return max(0.0, (now - since) / timedelta(minutes=1))


def ages_from(tx: Tx) -> datetime | None:
    """When the clock last jumped ahead; None if it has not."""
    since = tx.boots.fact(AGES_FACT)
    return None if since is None else from_micros(int(since))


def ledger_figures(tx: Tx, *, now: datetime, ages_from: datetime | None = None) -> Figures:
    """The figures of the whole ledger."""
    tasks = tx.events.counts("task")
    questions, asked_at = _questions(tx)
    reviews = _sound(lambda: tx.effects.reviews(limit=1))
    waits = [*asked_at, *(one.updated_at for one in reviews)]
    return {
        "queued_tasks": tasks.get(TaskStatus.QUEUED.value, 0),
        "running_tasks": tasks.get(TaskStatus.RUNNING.value, 0),
        "waiting_tasks": tasks.get(TaskStatus.WAITING.value, 0),
        "oldest_queued_minutes": minutes_since(tx.alerts.oldest_ready(), now, ages_from),
        "oldest_waiting_minutes": minutes_since(min(waits, default=None), now, ages_from),
        "needs_review_count": tasks.get(TaskStatus.NEEDS_REVIEW.value, 0),
        "open_questions": questions,
        "failed_deliveries": len(_sound(lambda: tx.deliveries.failed(limit=COUNTED_AT_MOST))),
        "running_campaigns": tx.events.counts("campaign").get(CampaignStatus.RUNNING.value, 0),
    }


def campaign_figures(
    tx: Tx, campaign: Campaign, *, now: datetime, ages_from: datetime | None = None
) -> Figures:
    """The figures of one campaign: all its phases together."""
    numbers = range(len(campaign.spec.phases))
    counts = total_of(
        [total_of(list(counts_by(tx, campaign, one, CountKind.PRIORITY).values())) for one in numbers]
    )
    done: dict[str, int] = {}
    for number in numbers:
        prefix = noun_of(campaign.id, number, CountKind.SPAN, "")
        spans = tx.campaigns.counts_under(prefix, after=span_of(now - _RATE_WINDOW))
        for span, tallies in spans.items():
            done[span] = done.get(span, 0) + tallies.get(Tally.DONE.value, 0)
    rate = rate_of(done, left=counts.pending, started_at=campaign.started_at, now=now)
    # The campaign itself changes when it is started or resumed, or gets items.
    changes = [campaign.updated_at, tx.alerts.last_change(campaign.id)]
    silent = tx.alerts.unheard_runs(campaign.id, limit=1)
    ended = counts.done + counts.failed
    return {
        "total_count": counts.total,
        "done_count": counts.done,
        "failed_count": counts.failed,
        "running_count": counts.running,
        "pending_count": counts.pending,
        "paused_count": counts.paused,
        "percent": counts.percent,
        "failed_percent": round(100.0 * counts.failed / ended, 2) if ended else 0.0,
        "rate_per_hour": rate.per_hour,
        "no_progress_for_minutes": minutes_since(
            max(one for one in changes if one is not None), now, ages_from
        ),
        "agent_heartbeat_age_minutes": minutes_since(silent[0].heard_at if silent else None, now, ages_from),
        "last_checkpoint_age_minutes": minutes_since(_last_checkpoint(tx, campaign), now, ages_from),
        "running_for_minutes": minutes_since(campaign.started_at, now, ages_from),
    }


def figures_of(tx: Tx, subject: str, *, now: datetime) -> Figures:
    """The figures of the ledger, or of a running campaign as well. Raises NotFound, RowDamaged."""
    since = ages_from(tx)
    figures = ledger_figures(tx, now=now, ages_from=since)
    if subject != LEDGER:
        figures |= campaign_figures(tx, tx.campaigns.get(subject), now=now, ages_from=since)
    return figures


def _last_checkpoint(tx: Tx, campaign: Campaign) -> datetime | None:
    latest = tx.campaign_checkpoints.latest(campaign.id)
    return campaign.started_at if latest is None else latest.created_at


def _questions(tx: Tx) -> tuple[int, list[datetime]]:
    """How many are open of tasks that have not ended, and when the oldest of them was asked."""
    found = _sound(lambda: tx.questions.open_page(limit=COUNTED_AT_MOST))
    tasks = tx.tasks.get_many([one.task_id for one in found])
    asked = [one.asked_at for one in found if one.task_id in tasks and not tasks[one.task_id].has_ended]
    return len(asked), asked[:1]


def _sound(read: Callable[[], list[T]]) -> list[T]:
    """What was read; nothing if a record is damaged, which `holdfast doctor` reports."""
    try:
        return read()
    except HoldfastError:
        return []
