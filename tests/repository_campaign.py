"""The campaign of seed 002: 400 repositories, of which 150 are analysed and 50 are being analysed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from holdfast.core.campaign import Campaign, CampaignSpec, Item, ItemPhase, Phase
from holdfast.core.task import Failure
from holdfast.core.transitions import ItemStatus, TaskStatus
from holdfast.engine.campaigns.changes import starting_campaign
from holdfast.engine.campaigns.creating import NewCampaign, adding_items, creating_campaign
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.ledger.campaign_progress import ItemChange, settle_items
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock

BEGUN = datetime(2026, 2, 28, 10, 0, tzinfo=UTC)
ANALYSIS = Phase(name="analysis", task="analyse")
MIGRATION = Phase(name="migration", task="migrate", stages=("prep", "transfer", "integrate", "validate"))
# How many items of each priority there are, and how many of them are done.
SIZES = {"P0": (50, 50), "P1": (100, 80), "P2": (150, 20), "P3": (100, 0)}
# The dashboard's queries, word for word.
OVERALL = """SELECT
COUNT(*) as total,
SUM(CASE WHEN status = 'done' THEN 1 ELSE 0 END) as done,
SUM(CASE WHEN status = 'running' THEN 1 ELSE 0 END) as running,
SUM(CASE WHEN status = 'pending' THEN 1 ELSE 0 END) as pending,
ROUND(100.0 * SUM(CASE WHEN status = 'done' THEN 1 ELSE 0 END) / COUNT(*), 2) as percent
FROM analysis_state;"""
BY_PRIORITY = """SELECT
r.priority,
COUNT(*) as total,
SUM(CASE WHEN a.status = 'done' THEN 1 ELSE 0 END) as done,
ROUND(100.0 * SUM(CASE WHEN a.status = 'done' THEN 1 ELSE 0 END) / COUNT(*), 2) as percent
FROM repos r
JOIN analysis_state a ON r.repo_id = a.repo_id
GROUP BY r.priority;"""
AGENT_HEALTH = """SELECT
status,
COUNT(*) as count,
MAX(last_heartbeat) as last_activity
FROM agents
GROUP BY status;"""
RECENT_FAILURES = """SELECT
repo_id,
error_message,
updated_at
FROM analysis_state
WHERE status = 'failed'
ORDER BY updated_at DESC
LIMIT 10;"""
RESULT = {
    "lines_of_code": 652000,
    "dependencies": 127,
    "test_coverage": 78.5,
    "last_commit": "2026-02-28",
    "merge_recommendation": "P0-migrate",
}


def seed_items() -> list[Item]:
    priorities = [priority for priority, (total, _) in SIZES.items() for _ in range(total)]
    return [
        Item(
            id=f"repo-{number:03d}",
            name="pingcap/tidb" if number == 1 else f"pingcap/repo-{number}",
            priority=priority,
            category="product" if number % 2 else "tool",
        )
        for number, priority in enumerate(priorities, 1)
    ]


def begin(
    store: Store,
    clock: FakeClock,
    items: Sequence[Item],
    *,
    name: str = "rd-os",
    phases: Sequence[Phase] = (ANALYSIS, MIGRATION),
    concurrency: int = 200,
) -> Campaign:
    """A running campaign, of which as many items have started as its limit allows."""
    spec = CampaignSpec(phases=tuple(phases), concurrency=concurrency)
    campaign = store.write_now(creating_campaign(NewCampaign(name=name, spec=spec), now=clock.now()))
    store.write_now(adding_items(campaign.id, list(items), now=clock.now()))
    store.write_now(starting_campaign(campaign.id, now=clock.now()))
    return start(store, clock, campaign)


def start(store: Store, clock: FakeClock, campaign: Campaign) -> Campaign:
    """Start what can start."""
    store.write_now(starting_items(campaign.id, now=clock.now()))
    return store.read_now(lambda tx: tx.campaigns.get(campaign.id))


def end(
    store: Store,
    clock: FakeClock,
    campaign: Campaign,
    places: Sequence[int],
    *,
    phase: int = 0,
    result: object = RESULT,
    failure: Failure | None = None,
) -> None:
    """The tasks of these items end, all in one write."""
    rows = store.read_now(_rows_at(campaign, phase, places))
    changes = [
        ItemChange(
            task_id=row.task_id,
            at=clock.now(),
            status=TaskStatus.SUCCEEDED if failure is None else TaskStatus.FAILED,
            result=msgspec.json.encode(result) if failure is None else None,
            failure=failure,
        )
        for row in rows
        if row.task_id is not None
    ]
    store.write_now(lambda tx: settle_items(tx, campaign.id, changes))


def _rows_at(campaign: Campaign, phase: int, places: Sequence[int]) -> Callable[[Tx], list[ItemPhase]]:
    wanted = set(places)
    return lambda tx: [
        one
        for one in tx.item_phases.page(campaign.id, phase, status=ItemStatus.RUNNING, limit=10_000)
        if one.place in wanted
    ]


def seed_campaign(store: Store, clock: FakeClock) -> Campaign:
    """150 of 400 done, 50 running, 200 pending."""
    clock.set(BEGUN)
    campaign = begin(store, clock, seed_items())
    clock.advance(minutes=15)
    first = 0
    done: list[int] = []
    for total, ended in SIZES.values():
        done += range(first, first + ended)
        first += total
    end(store, clock, campaign, done)
    return campaign
