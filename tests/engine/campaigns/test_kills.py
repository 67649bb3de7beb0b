"""A process dies at any write of a campaign: the next one goes on, and nothing is lost or done twice."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import pytest

from holdfast.core.campaign import Item, Phase
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store, Write
from holdfast.testing import (
    Crashed,
    FailingStore,
    Failpoint,
    FakeClock,
    RepeatingStore,
    WrappingStore,
    memory_store,
)
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.campaigns.campaign_world import CampaignWorker, a_spec, all_rows, recount
from tests.engine.parts import Parts

PHASES = (
    Phase(name="analysis", task="analyse", concurrency=2),
    Phase(name="migration", task="migrate", waits_for_all=True),
)
T = TypeVar("T")
SPEC = a_spec(*PHASES, concurrency=2, host_concurrency=2)
ITEMS = [Item(id="late", priority="P3"), Item(id="soon", priority="P0"), Item(id="next", priority="P1")]
ADDED = Item(id="added", priority="P0")


class TwiceStore(WrappingStore):
    """Runs every write a second time after its own commit; its caller gets the first answer."""

    async def write(self, write: Write[T]) -> T:
        answer = await self.inner.write(write)
        await self.inner.write(write)
        return answer


class Day:
    """What operators and workers do in one life after another, until the campaign is done."""

    def __init__(self) -> None:
        # What has been done, as the world outside the ledger knows it.
        self.orders: set[str] = set()
        self.ends: Counter[str] = Counter()

    async def live(self, store: Store, clock: FakeClock) -> None:
        """One process; the one before it is dead. It asks for everything that was asked for before."""
        clock.advance(hours=1)
        parts = await Parts.begin(store, clock)
        await parts.rescuer.rescue_lapsed()
        await parts.resumer.resume_all(concurrency=1)
        campaigns = Campaigns(store, clock)
        campaign = await campaigns.create("rd-os", SPEC, ITEMS)
        if campaign.status in (CampaignStatus.DRAFT, CampaignStatus.PAUSED):
            await campaigns.start("rd-os")
        worker = CampaignWorker(parts, campaign)
        for _ in range(30):
            await worker.take()
            await self.order(campaigns)
            await worker.take()
            for name in sorted(worker.held)[:1]:
                await self.end(worker, name)
            await worker.start()
            status = (await campaigns.get("rd-os")).status
            if status is CampaignStatus.DONE and "added" in self.orders:
                return
            if status is CampaignStatus.FAILED:
                await campaigns.retry("rd-os")
            if status is CampaignStatus.PAUSED:
                await campaigns.start("rd-os")
        raise AssertionError("the campaign does not end")

    async def order(self, campaigns: Campaigns) -> None:
        """What an operator wants, once; again if it was cut off."""
        if "paused" not in self.orders:
            await campaigns.pause("rd-os", stop=True)
            self.orders.add("paused")
            await campaigns.start("rd-os")
        elif "items" not in self.orders:
            await campaigns.pause_items("rd-os", ["soon", "late"])
            self.orders.add("items")
        elif "added" not in self.orders:
            await campaigns.add("rd-os", [ADDED])
            self.orders.add("added")
        else:
            await campaigns.resume_items("rd-os")

    async def end(self, worker: CampaignWorker, name: str) -> None:
        """A task ends as the ledger wants it: stopped if it was asked to, failed once, else done."""
        held = worker.held[name]
        task = await worker.parts.ledger.get(held.task.id)
        if task.cancel_requested_at is not None:
            await worker.stopped(name)
        elif name == "next/analysis" and "failed" not in self.orders:
            self.orders.add("failed")
            await worker.fail(name)
        else:
            self.ends[name] += 1
            await worker.finish(name)


def check(store: Store, day: Day, point: object) -> None:
    with told(point):
        campaign = store.read_now(lambda tx: tx.campaigns.find("rd-os"))
        assert campaign is not None
        assert campaign.status is CampaignStatus.DONE
        store.read_now(lambda tx: recount(tx, campaign))
        rows = store.read_now(lambda tx: all_rows(tx, campaign))
        assert len(rows) == 8
        assert all(row.status is ItemStatus.DONE for row in rows)
        assert_ledger_is_whole(store)
        # A finish whose answer was lost is not sent again: the ledger knows it.
        assert set(day.ends) == {f"{one}/{phase.name}" for one in IDS for phase in PHASES}


IDS = ("late", "soon", "next", "added")


@contextlib.contextmanager
def told(point: object) -> Iterator[None]:
    """A failed check says where the process had died."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"after a death {point}")
        raise


async def lives(store: Store, clock: FakeClock, point: Failpoint) -> None:
    day = Day()
    with contextlib.suppress(Crashed, BaseExceptionGroup):
        await day.live(FailingStore(store, [point]), clock)
    campaign = store.read_now(lambda tx: tx.campaigns.find("rd-os"))
    if campaign is not None:
        with told(point):
            store.read_now(lambda tx: recount(tx, campaign))
    await day.live(store, clock)
    check(store, day, point)


async def points_of_a_day() -> list[Failpoint]:
    recorded = FailingStore(memory_store())
    await Day().live(recorded, FakeClock())
    names = {call.name for call in recorded.calls}
    assert {"create", "add", "start", "pause", "stop", "resume", "retry", "end"} <= {
        name.split(".")[-1] for name in names
    }, names
    return recorded.failpoints()


async def test_a_day_without_a_crash_ends_well() -> None:
    store, day = memory_store(), Day()

    await day.live(store, FakeClock())

    check(store, day, "nowhere")


async def test_every_write_may_run_again_after_its_own_commit() -> None:
    inner, day = memory_store(), Day()

    await day.live(TwiceStore(inner), FakeClock())

    check(inner, day, "nowhere")


async def test_what_operators_ask_for_has_the_same_answer_when_it_runs_again() -> None:
    clock = FakeClock()
    campaigns = Campaigns(RepeatingStore(memory_store(clock)), clock)

    await campaigns.create("rd-os", SPEC, ITEMS)
    await campaigns.start("rd-os")
    await campaigns.add("rd-os", [ADDED])
    await campaigns.pause("rd-os", stop=True)


async def test_a_process_that_dies_at_some_write_loses_and_doubles_nothing(seed: int) -> None:
    points = await points_of_a_day()
    assert len(points) > 300

    for point in random.Random(seed).sample(points, 5):
        await lives_in_memory(point)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["between", "inside"])
async def test_a_process_that_dies_at_any_write_loses_and_doubles_nothing(where: str, seed: int) -> None:
    points = [one for one in await points_of_a_day() if (one.where == "inside") == (where == "inside")]
    # Every kind of write is there many times, and nothing of a write is there before its end.
    step = 12 if where == "between" else 90

    for point in points[random.Random(seed).randrange(step) :: step]:
        await lives_in_memory(point)


async def lives_in_memory(point: Failpoint) -> None:
    clock = FakeClock()
    store = memory_store(clock)
    await lives(store, clock, point)
    store.close()


async def test_a_process_that_dies_between_two_writes_on_each_database(
    store: Store, clock: FakeClock, seed: int
) -> None:
    points = [one for one in await points_of_a_day() if one.where != "inside"]

    await lives(store, clock, random.Random(seed).choice(points))
