"""Any operations in any order, with kills between them: the kept counts equal a full recount."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.campaign import Campaign, CampaignSpec, Item, Phase
from holdfast.core.errors import HoldfastError
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.store import Store
from holdfast.testing import FakeClock, memory_store
from tests.engine.campaigns.campaign_world import CampaignWorker, a_spec, campaign_of, recount, rows_of
from tests.engine.parts import Parts

pytestmark = pytest.mark.slow

ORDERS = (
    "take", "take", "take", "finish", "finish", "finish", "fail", "die", "add", "pause", "stop", "start",
    "pause_items", "resume_items", "retry", "retry_item", "cancel", "retry_task",
)  # fmt: skip


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_kept_counts_equal_a_full_recount_after_any_operations(seed: int) -> None:
    asyncio.run(Play(random.Random(seed)).go(memory_store(), 40))


def test_kept_counts_equal_a_full_recount_on_each_database(store: Store, seed: int) -> None:
    asyncio.run(Play(random.Random(seed)).go(store, 60))


class Play:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.added = 0

    async def go(self, store: Store, orders: int) -> None:
        self.store = store
        self.clock = store.clock if isinstance(store.clock, FakeClock) else FakeClock()
        self.campaigns = Campaigns(store, self.clock)
        spec = self._spec()
        await self.campaigns.create("rd-os", spec, self._items(6))
        self.campaign = await self.campaigns.start("rd-os")
        self.worker = CampaignWorker(await Parts.begin(store, self.clock), self.campaign)
        done = []
        for _ in range(orders):
            order = self.chance.choice(ORDERS)
            done.append(order)
            self.clock.advance(seconds=1)
            # What is not allowed now changes nothing.
            with contextlib.suppress(HoldfastError):
                await getattr(self, order)()
            try:
                await store.read(lambda tx: recount(tx, self.campaign))
            except AssertionError as error:
                error.add_note(f"after {done}")
                raise
        await self.to_the_end()

    def _spec(self) -> CampaignSpec:
        waits = self.chance.random() < 0.3
        limit = self.chance.choice([None, 1, 3])
        return a_spec(
            Phase(name="scan", task="scan"),
            Phase(name="build", task="build", concurrency=limit),
            Phase(name="ship", task="ship", needs=("scan", "build"), waits_for_all=waits),
            concurrency=self.chance.randint(1, 5),
            batch_size=2,
        )

    def _items(self, count: int) -> list[Item]:
        self.added += count
        return [
            Item(id=f"i{n}", priority=f"P{n % 3}", category=self.chance.choice([None, "tool", "web"]))
            for n in range(self.added - count, self.added)
        ]

    def _some(self) -> list[str]:
        return [f"i{n}" for n in self.chance.sample(range(self.added), min(3, self.added))]

    async def _a_task(self) -> str:
        rows = [row for row in await rows_of(self.store, self.campaign) if row.task_id is not None]
        return str(self.chance.choice(rows).task_id) if rows else "task_none"

    async def take(self) -> None:
        await self.worker.take()

    async def _end(self, *, well: bool) -> None:
        if not self.worker.held:
            return
        name = self.chance.choice(sorted(self.worker.held))
        task = await self.worker.parts.ledger.get(self.worker.held[name].task.id)
        if task.cancel_requested_at is not None and self.chance.random() < 0.7:
            await self.worker.stopped(name)
        elif well:
            await self.worker.finish(name)
        else:
            await self.worker.fail(name)

    async def finish(self) -> None:
        await self._end(well=True)

    async def fail(self) -> None:
        await self._end(well=False)

    async def die(self) -> None:
        """The process dies, and another one takes over when its leases have lapsed."""
        self.clock.advance(hours=1)
        parts = await Parts.begin(self.store, self.clock)
        await parts.rescuer.rescue_lapsed()
        await parts.resumer.resume_all(concurrency=1)
        self.worker = CampaignWorker(parts, self.campaign)

    async def add(self) -> None:
        await self.campaigns.add("rd-os", self._items(self.chance.randint(1, 3)))

    async def pause(self) -> None:
        await self.campaigns.pause("rd-os")

    async def stop(self) -> None:
        await self.campaigns.pause("rd-os", stop=True)

    async def start(self) -> None:
        await self.campaigns.start("rd-os")

    async def pause_items(self) -> None:
        await self.campaigns.pause_items("rd-os", self._some())

    async def resume_items(self) -> None:
        await self.campaigns.resume_items("rd-os")

    async def retry(self) -> None:
        await self.campaigns.retry("rd-os", phase=self.chance.choice([None, "scan", "ship"]))

    async def retry_item(self) -> None:
        await self.campaigns.retry("rd-os", items=self._some())

    async def cancel(self) -> None:
        await self.worker.parts.ledger.cancel(await self._a_task(), reason="not now")

    async def retry_task(self) -> None:
        task_id = await self._a_task()
        await self.store.write(retrying_task(task_id, now=self.clock.now(), may_be_cancelled=True))

    async def to_the_end(self) -> None:
        """Whatever happened, the campaign can be brought to its end."""
        await self.die()
        for _ in range(200):
            self.clock.advance(seconds=1)
            campaign: Campaign = await campaign_of(self.store, self.campaign.id)
            if campaign.status is CampaignStatus.DONE:
                break
            if campaign.status is not CampaignStatus.RUNNING:
                await self.campaigns.retry("rd-os")
                if campaign.status is CampaignStatus.PAUSED:
                    await self.start()
            await self.resume_items()
            await self.take()
            for _ in range(len(self.worker.held)):
                await self._end(well=True)
            await self.worker.start()
        else:
            raise AssertionError("the campaign does not end")
        await self.store.read(lambda tx: recount(tx, self.campaign))
