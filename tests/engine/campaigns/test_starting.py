"""The starter: races, one that was frozen, fairness between campaigns, and the recovery of the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest

from holdfast.app.campaigns import LazyCampaignStarter
from holdfast.core.campaign import Item, Phase
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.report import progress_of
from holdfast.engine.campaigns.starting import ending_campaign, starting_items
from holdfast.engine.client.campaigns import Campaigns
from holdfast.progress.starter import CampaignStarter
from holdfast.store import Store, Write
from holdfast.testing import FakeClock, WrappingStore, memory_store, name_of
from tests.conftest import Ledger
from tests.engine.campaigns.campaign_world import (
    CampaignWorker,
    a_spec,
    begun,
    campaign_of,
    items,
    recount,
    rows_of,
    statuses,
)
from tests.engine.parts import Parts
from tests.engine.tables import execute

T = TypeVar("T")
ONE = Phase(name="analysis", task="analyse")


@pytest.fixture
def quick_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def quick_store(quick_clock: FakeClock) -> Iterator[Store]:
    """In memory only, for what no database can make different."""
    store = memory_store(quick_clock)
    yield store
    store.close()


async def test_two_starters_start_each_item_once(ledger: Ledger) -> None:
    first, second = ledger.open(), ledger.open()
    campaign = await begun(first, ledger.clock, a_spec(ONE, concurrency=7), items(40))
    starters = [CampaignStarter(store, ledger.clock) for store in (first, second)]

    started = await asyncio.gather(*(starter.run_once() for starter in starters * 2))

    assert sum(started) == 7
    rows = await rows_of(first, campaign)
    assert len({row.task_id for row in rows if row.task_id is not None}) == 7
    assert (await first.read(lambda tx: tx.events.counts("task"))).get("queued") == 7
    await first.read(lambda tx: recount(tx, campaign))


async def test_two_callers_add_the_same_items_once(ledger: Ledger) -> None:
    first, second = ledger.open(), ledger.open()
    campaign = await begun(first, ledger.clock, a_spec(ONE), items(1))
    adding = [Campaigns(store, ledger.clock) for store in (first, second)]

    await asyncio.gather(*(one.add("rd-os", items(30, first=n)) for n in (1, 20) for one in adding))

    grown = await campaign_of(first, campaign.id)
    assert grown.items == 49
    await first.read(lambda tx: recount(tx, grown))


async def test_two_callers_create_the_same_campaign_once(ledger: Ledger) -> None:
    first, second = ledger.open(), ledger.open()

    made = await asyncio.gather(
        *(Campaigns(store, ledger.clock).create("rd-os", a_spec(ONE), items(9)) for store in (first, second))
    )

    assert made[0].id == made[1].id
    campaign = await campaign_of(first, made[0].id)
    assert campaign.items == 9
    assert (await first.read(lambda tx: tx.events.counts("campaign"))) == {"draft": 1}
    await first.read(lambda tx: recount(tx, campaign))


async def test_a_starter_that_was_frozen_starts_nothing_of_what_has_ended_meanwhile(parts: Parts) -> None:
    worker = CampaignWorker(
        parts, await begun(parts.store, parts.clock, a_spec(ONE, concurrency=1), items(2))
    )
    # Made before, by a process that is frozen now and wakes up late.
    late = starting_items(worker.campaign.id, now=parts.clock.now())

    await worker.finish_all()
    woken = await parts.store.write(late)

    assert woken.started == 0
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.DONE
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_a_frozen_starter_passes_no_limit_when_it_wakes_up(parts: Parts) -> None:
    worker = CampaignWorker(
        parts, await begun(parts.store, parts.clock, a_spec(ONE, concurrency=3), items(9))
    )
    late = starting_items(worker.campaign.id, now=parts.clock.now())
    await worker.take()

    woken = await parts.store.write(late)

    assert woken.started == 0
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_a_campaign_ends_no_earlier_than_its_last_item(parts: Parts, clock: FakeClock) -> None:
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, a_spec(ONE), items(1)))
    await worker.take()
    # This process takes the time, then waits for the campaign's lock while another one commits a later end.
    late = ending_campaign(worker.campaign.id, now=parts.clock.now())
    clock.advance(seconds=2)
    await worker.finish("repo-001/analysis")

    ended = await parts.store.write(late)

    assert ended.status is CampaignStatus.DONE
    assert ended.ended_at == parts.clock.now()
    await parts.store.read(lambda tx: recount(tx, ended))


class NotingStore(WrappingStore):
    """Notes which writes were made."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.writes: list[str] = []

    async def write(self, write: Write[T]) -> T:
        self.writes.append(name_of(write).partition(".")[0])
        return await self.inner.write(write)


async def test_a_large_campaign_does_not_hold_up_a_small_one(
    quick_store: Store, quick_clock: FakeClock
) -> None:
    large = await begun(quick_store, quick_clock, a_spec(ONE, concurrency=2000), items(1200), name="large")
    quick_clock.advance(seconds=1)
    small = await begun(quick_store, quick_clock, a_spec(ONE, concurrency=5), items(5), name="small")
    order: list[tuple[str, int]] = []

    class Watched(CampaignStarter):
        async def _fill(self, campaign: object) -> object:  # type: ignore[override]
            done = await super()._fill(campaign)  # type: ignore[arg-type]
            order.append((campaign.name, done.started))  # type: ignore[attr-defined]
            return done

    started = await Watched(quick_store, quick_clock).run_once()

    assert started == 1205
    assert order == [("large", 500), ("small", 5), ("large", 500), ("large", 200)]
    assert large.id != small.id


async def test_damaged_items_fail_and_hold_up_neither_the_others_nor_the_end(parts: Parts) -> None:
    campaign = await begun(parts.store, parts.clock, a_spec(ONE, concurrency=1), items(3))
    execute(parts.store, "UPDATE campaign_items SET name = 'other' WHERE place <> 1")
    starter = CampaignStarter(parts.store, parts.clock)
    worker = CampaignWorker(parts, campaign)

    first = await starter.run_once()
    (claimed,) = await parts.claims.take(9)
    await parts.ledger.finish(claimed.claim, None)
    second = await starter.run_once()

    assert (first, second) == (1, 0)
    by_item = await statuses(parts.store, worker.campaign)
    assert by_item["repo-002/analysis"] == "done"
    assert sorted(by_item.values()) == ["done", "failed", "failed"]
    assert (await campaign_of(parts.store, campaign.id)).status is CampaignStatus.FAILED
    await parts.store.read(lambda tx: recount(tx, campaign))


async def test_items_that_become_free_together_start_in_one_transaction(
    quick_store: Store, quick_clock: FakeClock
) -> None:
    await begun(quick_store, quick_clock, a_spec(ONE, concurrency=300), items(300))
    noting = NotingStore(quick_store)

    await CampaignStarter(noting, quick_clock).run_once()

    assert noting.writes == ["starting_items"]


async def test_one_broken_campaign_does_not_stop_the_others(
    quick_store: Store, quick_clock: FakeClock
) -> None:
    broken = await begun(quick_store, quick_clock, a_spec(ONE), items(1), name="broken")
    await begun(quick_store, quick_clock, a_spec(ONE), items(2), name="whole")
    starter = CampaignStarter(quick_store, quick_clock)
    campaigns = await quick_store.read(lambda tx: tx.campaigns.in_status(CampaignStatus.RUNNING))
    starter._running_campaigns = lambda: as_answer(campaigns)  # type: ignore[method-assign]
    execute(quick_store, f"DELETE FROM campaigns WHERE id = '{broken.id}'")

    assert await starter.run_once() == 2


async def as_answer(value: T) -> T:
    return value


async def test_a_fresh_process_starts_the_items_of_a_running_campaign_at_once(
    quick_store: Store, quick_clock: FakeClock
) -> None:
    campaign = await begun(quick_store, quick_clock, a_spec(ONE), items(3))
    starter = LazyCampaignStarter(quick_store, quick_clock, host="here")

    async with asyncio.timeout(4), asyncio.TaskGroup() as group:
        running = group.create_task(starter.run())
        while "running" not in (await statuses(quick_store, campaign)).values():  # noqa: ASYNC110
            await asyncio.sleep(0)
        starter.stop()
        await running


# --- the seed's example


PRIORITIES: Sequence[tuple[str, int]] = (("P0", 50), ("P1", 100), ("P2", 150), ("P3", 100))


def the_seeds_items() -> list[Item]:
    number, found = 0, []
    for priority, count in PRIORITIES:
        for _ in range(count):
            number += 1
            found.append(Item(id=f"repo-{number:03d}", priority=priority))
    return found


async def test_a_restart_at_150_of_400_goes_on_at_150_of_400(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    campaign = await begun(parts.store, clock, a_spec(ONE, concurrency=50), the_seeds_items())
    before = CampaignWorker(parts, campaign)
    while len([one for one in (await statuses(parts.store, campaign)).values() if one == "done"]) < 150:
        for name in sorted(await before.take())[:50]:
            await before.finish(name)
    await before.take()

    at_the_crash = await parts.store.read(lambda tx: progress_of(tx, campaign, now=clock.now()))
    clock.advance(hours=1)
    await others.rescuer.rescue_lapsed()
    await others.resumer.resume_all(concurrency=1)
    after = CampaignWorker(others, campaign)
    await after.start()
    recovered = await parts.store.read(lambda tx: progress_of(tx, campaign, now=clock.now()))
    done = await after.finish_all()

    counts = at_the_crash.counts
    assert (counts.total, counts.done, counts.running, counts.pending, counts.failed) == (
        400,
        150,
        50,
        200,
        0,
    )
    assert counts.percent == 37.5
    assert recovered.counts == counts
    assert done == 250
    rows = await rows_of(parts.store, campaign)
    assert {row.attempt for row in rows} == {1}
    assert (await campaign_of(parts.store, campaign.id)).status is CampaignStatus.DONE
    await parts.store.read(lambda tx: recount(tx, campaign))
