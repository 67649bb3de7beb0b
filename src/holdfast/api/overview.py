"""ledger.overview: counts of what a person may have to look at, for one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.api.alerts import count_raised
from holdfast.api.campaigns import all_counts
from holdfast.api.checkpoints import count_failed_resumes
from holdfast.api.contract import Caller, GatewayDoor
from holdfast.api.params import Nothing
from holdfast.api.questions import read_page as read_questions
from holdfast.core.errors import HoldfastError
from holdfast.core.snapshot import OwnerSnapshot, status_counts, status_line
from holdfast.core.transitions import CampaignStatus, FlowStatus, TaskStatus, is_terminal
from holdfast.engine.clocks.jump_facts import FACT, jump_in_words, jumped_by
from holdfast.views.campaigns import CampaignLineView
from holdfast.views.gateway import RestartView
from holdfast.views.status import OldestView, OverviewView
from holdfast.views.text import one_line
from holdfast.views.waits import kind_of, waits_for_person, why_queued

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.clock import Clock
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

COUNTED_AT_MOST = 100
NAMED_AT_MOST = 10
CAMPAIGNS_NAMED = 3
FAILED = (TaskStatus.FAILED, TaskStatus.TIMED_OUT, TaskStatus.LOST)
WAITING = (TaskStatus.QUEUED, TaskStatus.WAITING, TaskStatus.NEEDS_REVIEW, TaskStatus.PAUSED)
A_DAY = timedelta(days=1)
_ENDED = tuple(status for status in TaskStatus if is_terminal(status))


async def overview(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> OverviewView:  # noqa: ARG001 - a method
    projection = gateway.projection()
    return await gateway.store.read(lambda tx: read_overview(tx, gateway.clock, projection))


def read_overview(tx: Tx, clock: Clock, projection: Projection) -> OverviewView:
    now = clock.now()
    newest = tx.restarts.page(1)
    busy = tx.sessions.busy(limit=COUNTED_AT_MOST)
    tasks = tx.tasks.get_many([one.task_id for one in busy if one.task_id is not None])
    counts = _shown_counts(tx.events.counts("task"), projection.uncarried(tx))
    return OverviewView(
        line=_line(tx, counts, now),
        tasks=counts,
        waiting=_waiting(tx, now),
        oldest_waiting=_oldest(tx),
        messages_wait_for=[
            one_line(name) for name in tx.sessions.waiting_agents(limit=COUNTED_AT_MOST)[:NAMED_AT_MOST]
        ],
        clock_problem=_clock_problem(tx, clock),
        busy_sessions=len(busy),
        sessions_waiting_for_person=sum(waits_for_person(task.waits_on) for task in tasks.values()),
        open_reviews=_at_most(lambda: len(tx.effects.reviews(limit=COUNTED_AT_MOST, after=""))),
        open_questions=_at_most(lambda: _asked(tx)),
        failed_deliveries=_at_most(lambda: len(tx.deliveries.failed(limit=COUNTED_AT_MOST))),
        owed_deliveries=_at_most(lambda: len(tx.deliveries.owed(limit=COUNTED_AT_MOST))),
        failed_resumes=count_failed_resumes(tx, at_most=COUNTED_AT_MOST),
        blocked_flows=tx.events.counts("flow").get(FlowStatus.BLOCKED.value, 0),
        raised_alerts=count_raised(tx),
        tasks_failed_in_last_day=_failed_since(tx, now - A_DAY),
        running_campaigns=_running_campaigns(tx),
        campaigns=tx.events.counts("campaign"),
        last_restart=RestartView.of(newest[0]) if newest else None,
    )


def _shown_counts(counts: dict[str, int], uncarried: int) -> dict[str, int]:
    """Running tasks whose process is gone read as paused, as in every list."""
    moved = min(uncarried, counts.get(TaskStatus.RUNNING.value, 0))
    if not moved:
        return counts
    shown = Counter(counts)
    shown[TaskStatus.RUNNING.value] -= moved
    shown[TaskStatus.PAUSED.value] += moved
    return dict(+shown)


def _running_campaigns(tx: Tx) -> list[CampaignLineView]:
    """The newest ones; none if a record is damaged, which `holdfast doctor` reports."""
    try:
        found = tx.campaign_pages.page(status=CampaignStatus.RUNNING, limit=CAMPAIGNS_NAMED)
        return [CampaignLineView.of(one, all_counts(tx, one)) for one in found]
    except HoldfastError:
        return []


def _line(tx: Tx, counts: dict[str, int], now: datetime) -> str:
    """All active tasks, and the one that ended last, among the newest."""
    by_status = {status: counts.get(status.value, 0) for status in TaskStatus}
    recent = OwnerSnapshot.of(tx.tasks.page(statuses=_ENDED, limit=COUNTED_AT_MOST), now)
    last = next(iter((*recent.ended, *recent.failed)), None)
    return status_line(status_counts(by_status), last, now)


def _asked(tx: Tx) -> int:
    """Open questions of tasks that have not ended, as in `questions list`."""
    return len(read_questions(tx, after="", limit=COUNTED_AT_MOST).questions)


def _waiting(tx: Tx, now: datetime) -> dict[str, int]:
    """How many tasks wait for what, counted among the newest tasks of each status."""
    kinds: Counter[str] = Counter()
    for status in WAITING[1:]:
        found = tx.tasks.page(statuses=(status,), limit=COUNTED_AT_MOST)
        kinds.update(one_line(kind_of(task.waits_on)[0], 40) for task in found if task.waits_on is not None)
    queued = tx.tasks.page(statuses=(TaskStatus.QUEUED,), limit=COUNTED_AT_MOST)
    runs = tx.runs.live_of_tasks([task.id for task in queued])
    for task in queued:
        run = runs.get(task.id)
        kind = None if run is None else why_queued(run, now)
        if kind is not None:
            kinds[kind] += 1
    return dict(kinds)


def _oldest(tx: Tx) -> OldestView | None:
    """None, too, if its record is damaged, which `holdfast doctor` reports."""
    try:
        found = [task for status in WAITING if (task := tx.tasks.oldest(status)) is not None]
    except HoldfastError:
        return None
    oldest = min(found, key=lambda task: task.id, default=None)
    if oldest is None:
        return None
    return OldestView(
        task_id=one_line(oldest.id),
        name=one_line(oldest.name),
        status=oldest.status.value,
        waits_for=None if oldest.waits_on is None else one_line(kind_of(oldest.waits_on)[0], 40),
        created_at=oldest.created_at,
    )


def _clock_problem(tx: Tx, clock: Clock) -> str | None:
    """A clock jump, for SQLite only; for PostgreSQL each gateway watches the server's clock itself."""
    ahead = jumped_by(tx.boots.fact(FACT), clock)
    return None if ahead is None else jump_in_words(ahead)


def _failed_since(tx: Tx, moment: datetime) -> int:
    """How many of the newest failed tasks failed since then."""
    found = tx.tasks.page(statuses=FAILED, limit=COUNTED_AT_MOST)
    return sum(task.ended_at is not None and task.ended_at >= moment for task in found)


def _at_most(count: Callable[[], int]) -> int:
    """The count; 0 if a record is damaged, which `holdfast doctor` reports."""
    try:
        return count()
    except HoldfastError:
        return 0
