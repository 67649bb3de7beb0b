"""Small campaigns for tests, a worker that ends their tasks as the test says, and a recount of all counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.core.campaign import Campaign, CampaignSpec, Item, ItemPhase, Phase
from holdfast.core.clock import Clock, to_micros
from holdfast.core.progress import TALLY_OF, CountKind, Tally, batch_key, noun_of, span_of
from holdfast.core.task import Failure
from holdfast.core.transitions import CampaignStatus, ItemStatus, RunStatus
from holdfast.engine.campaigns.starting import ending_campaign, starting_items
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store, Tx
from tests.engine.parts import Parts

BROKEN = Failure(kind="test", message="it broke")
TWO = (Phase(name="analysis", task="analyse"), Phase(name="migration", task="migrate"))


def a_spec(*phases: Phase, **changes: Any) -> CampaignSpec:
    return CampaignSpec(**{"phases": phases or TWO} | changes)


def items(count: int, *, priorities: Sequence[str] = ("P2",), first: int = 1) -> list[Item]:
    return [
        Item(id=f"repo-{number:03d}", priority=priorities[number % len(priorities)], category="tool")
        for number in range(first, first + count)
    ]


async def begun(
    store: Store, clock: Clock, spec: CampaignSpec, some: Iterable[Item], *, name: str = "rd-os"
) -> Campaign:
    """A campaign with items that has started."""
    campaigns = Campaigns(store, clock)
    await campaigns.create(name, spec, some)
    return await campaigns.start(name)


async def fill(store: Store, clock: Clock, campaign: Campaign) -> int:
    """Start what can start, and end the campaign if all is over; how many item-phases were started."""
    started = 0
    while True:
        done = await store.write(starting_items(campaign.id, now=clock.now()))
        started += done.started
        if done.may_have_ended:
            await store.write(ending_campaign(campaign.id, now=clock.now()))
        if not done.has_more:
            return started


class CampaignWorker:
    """Starts items, takes what is ready, and ends it when the test says so."""

    def __init__(self, parts: Parts, campaign: Campaign) -> None:
        self.parts = parts
        self.campaign = campaign
        # By item and phase, such as `repo-001/analysis`.
        self.held: dict[str, ClaimedRun] = {}

    async def start(self) -> int:
        return await fill(self.parts.store, self.parts.clock, self.campaign)

    async def take(self) -> set[str]:
        """Start and claim; the names of the item-phases that it holds now."""
        await self.start()
        while claimed := await self.parts.claims.take(1000):
            for one in claimed:
                self.held[name_of(one)] = one
        return set(self.held)

    async def finish(self, name: str, result: object = None) -> None:
        await self.parts.ledger.finish(self.held.pop(name).claim, result)

    async def fail(self, name: str) -> None:
        await self.parts.ledger.fail(self.held.pop(name).claim, BROKEN)

    async def stopped(self, name: str) -> None:
        """The worker ends a task whose cancel was requested, as it does at the next step."""
        ended = Failure(kind="cancelled", message="asked")
        await self.parts.ledger.fail(self.held.pop(name).claim, ended, status=RunStatus.CANCELLED)

    async def finish_all(self) -> int:
        """Until nothing more starts; how many item-phases were done."""
        done = 0
        while held := await self.take():
            for name in sorted(held):
                await self.finish(name)
                done += 1
        return done


def name_of(one: ClaimedRun) -> str:
    item = msgspec.json.decode(one.task.arguments)["item"]
    return f"{item['id']}/{item['phase']}"


async def campaign_of(store: Store, campaign_id: str) -> Campaign:
    return await store.read(lambda tx: tx.campaigns.get(campaign_id))


async def statuses(store: Store, campaign: Campaign) -> dict[str, str]:
    """By item and phase: its status."""
    rows, records = (
        await rows_of(store, campaign),
        await store.read(lambda tx: tx.items.page(campaign.id, limit=100_000)),
    )
    ids = {record.place: record.id for record in records}
    names = [phase.name for phase in campaign.spec.phases]
    return {f"{ids[one.place]}/{names[one.phase]}": one.status.value for one in rows}


async def rows_of(store: Store, campaign: Campaign) -> list[ItemPhase]:
    return await store.read(lambda tx: all_rows(tx, campaign))


def all_rows(tx: Tx, campaign: Campaign) -> list[ItemPhase]:
    return [
        row
        for number in range(len(campaign.spec.phases))
        for row in tx.item_phases.page(campaign.id, number, limit=2_000_000)
    ]


def recount(tx: Tx, campaign: Campaign) -> None:
    """Raises AssertionError unless all that is kept equals what a full count of the rows says: the counts of
    batches, priorities and categories, the needs that are not met, the slots that are taken, and the status
    of the campaign itself. For tests of every part, after any chaos."""
    campaign = tx.campaigns.get(campaign.id)
    rows = all_rows(tx, campaign)
    kept = {
        (noun, tally): amount
        for noun, tallies in tx.campaigns.counts_under(f"{campaign.id}/").items()
        for tally, amount in tallies.items()
        if amount and f"/{CountKind.SPAN.value}/" not in f"/{noun}"
    }
    assert kept == _counted(rows), "kept counts differ from a full recount"
    _check_spans(tx, campaign, rows)
    assert len(rows) == campaign.items * len(campaign.spec.phases)
    assert len(tx.items.page(campaign.id, limit=2_000_000)) == campaign.items
    _check_needs(campaign, rows)
    _check_slots(tx, campaign, rows)
    _check_end(campaign, rows)


def _counted(rows: Sequence[ItemPhase]) -> dict[tuple[str, str], int]:
    counted: Counter[tuple[str, str]] = Counter()
    for one in rows:
        for by, name in (
            (CountKind.BATCH, batch_key(one.batch)),
            (CountKind.PRIORITY, one.priority),
            (CountKind.CATEGORY, one.category or ""),
        ):
            noun = noun_of("", one.phase, by, name).removeprefix("/")
            counted[noun, Tally.TOTAL.value] += 1
            tally = TALLY_OF[one.status]
            if tally is not None:
                counted[noun, tally.value] += 1
    return dict(counted)


def _check_spans(tx: Tx, campaign: Campaign, rows: Sequence[ItemPhase]) -> None:
    """Ends are counted in the span in which they happened; a restore leaves them there."""
    counted: Counter[str] = Counter()
    for one in rows:
        if one.status is ItemStatus.DONE:
            assert one.ended_at is not None
            counted[noun_of(campaign.id, one.phase, CountKind.SPAN, span_of(one.ended_at))] += 1
    for noun, done in counted.items():
        assert tx.events.counts(noun).get(Tally.DONE.value, 0) >= done, noun


def _check_needs(campaign: Campaign, rows: Sequence[ItemPhase]) -> None:
    done = {(one.phase, one.place) for one in rows if one.status is ItemStatus.DONE}
    for one in rows:
        needs = campaign.spec.needs_of(one.phase)
        unmet = sum((need, one.place) not in done for need in needs)
        assert one.unmet == unmet, f"{one} waits for {unmet} phases"


def _check_slots(tx: Tx, campaign: Campaign, rows: Sequence[ItemPhase]) -> None:
    """No task holds two slots of one scope, and no task that has ended holds any; no limit is passed."""
    tasks = {one.task_id: one for one in rows if one.task_id is not None}
    scopes: dict[str, list[str]] = {}
    for scope, task_id in tx.slots.holders(campaign.id):
        scopes.setdefault(scope, []).append(task_id)
    for scope, holders in scopes.items():
        assert len(holders) == len(set(holders)), f"a task holds two slots of {scope}"
        assert set(holders) <= set(tasks), f"a slot of {scope} is held by a task that no item has"
        found = tx.tasks.get_many(holders)
        leaked = [task_id for task_id in holders if task_id not in found or found[task_id].has_ended]
        assert not leaked, f"{leaked} have ended and hold slots of {scope}"
    for number, phase in enumerate(campaign.spec.phases):
        running = [one for one in rows if one.phase == number and one.status is ItemStatus.RUNNING]
        assert len(running) <= (phase.concurrency or len(running))


def _check_end(campaign: Campaign, rows: Sequence[ItemPhase]) -> None:
    if campaign.status is CampaignStatus.DONE:
        assert all(one.status is ItemStatus.DONE for one in rows)
    if campaign.status is CampaignStatus.FAILED:
        assert not any(one.status is ItemStatus.RUNNING for one in rows)
        assert any(one.status is ItemStatus.FAILED for one in rows)
    if campaign.ended_at is not None:
        assert all(
            one.ended_at is None or to_micros(one.ended_at) <= to_micros(campaign.ended_at) for one in rows
        )
