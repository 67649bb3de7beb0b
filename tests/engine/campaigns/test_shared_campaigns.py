"""Several processes with stores of their own share a campaign: its limits hold, also when one is cut off."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import holdfast as hf
from holdfast.core.campaign import Phase
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.aio.background import beside
from holdfast.engine.client.campaigns import Campaigns
from holdfast.progress.starter import CampaignStarter
from tests.engine.campaigns.campaign_world import a_spec, items, recount
from tests.engine.workers import Process, WatchedStore, carrying, soon, until
from tests.shared_ledgers import SharedLedger

PHASES = (
    Phase(name="analysis", task="analyse"),
    Phase(name="migration", task="analyse", concurrency=3),
)
ITEMS, LIMIT = 20, 5


class Counted:
    """How many items are in flight in all processes together."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {"analysis": 0, "migration": 0}
        self.most = dict(self.now)
        self.most_in_all = 0
        self.done: list[str] = []

    async def work(self, phase: str, item: str) -> str:
        self.now[phase] += 1
        self.most[phase] = max(self.most[phase], self.now[phase])
        self.most_in_all = max(self.most_in_all, sum(self.now.values()))
        try:
            await asyncio.sleep(0.002)
        finally:
            self.now[phase] -= 1
        self.done.append(f"{phase}/{item}")
        return item


async def test_limits_hold_for_several_gateways_of_which_one_is_cut_off(shared_ledger: SharedLedger) -> None:
    counted = Counted()

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> str:
        return await run.step(counted.work, item.phase, item.id)

    clock = shared_ledger.clock
    watched = [WatchedStore(shared_ledger.open()) for _ in range(3)]
    campaigns = Campaigns(shared_ledger.open(), clock)
    campaign = await campaigns.create("rd-os", a_spec(*PHASES, concurrency=LIMIT), items(ITEMS))
    async with AsyncExitStack() as stack:
        for one in watched:
            await stack.enter_async_context(_process(one, shared_ledger, analyse))
        await campaigns.start("rd-os")
        await until(lambda: len(counted.done) >= ITEMS // 2)
        watched[0].is_away = True
        await until(lambda: len(counted.done) >= ITEMS)
        watched[0].is_away = False
        ended = await soon(campaigns.wait("rd-os"))

    store = shared_ledger.open()
    assert ended.status is CampaignStatus.DONE
    assert len(set(counted.done)) == 2 * ITEMS
    assert counted.most_in_all <= LIMIT
    assert counted.most["migration"] <= 3
    assert await store.read(lambda tx: tx.slots.taken(campaign.id, "campaign")) == 0
    await store.read(lambda tx: recount(tx, ended))


def _process(store: WatchedStore, ledger: SharedLedger, task: hf.TaskDefinition[..., Any]) -> _Gateway:
    return _Gateway(store, ledger, task)


class _Gateway:
    """What a gateway does for a campaign: it starts items, and carries them."""

    def __init__(self, store: WatchedStore, ledger: SharedLedger, task: hf.TaskDefinition[..., Any]) -> None:
        self._parts = (store, ledger.clock, task)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Process:
        store, clock, task = self._parts
        process = await self._stack.enter_async_context(carrying(store, clock, task, capacity=4))
        starter = CampaignStarter(store, clock, host="one", every_s=0.05)
        await self._stack.enter_async_context(beside(starter))
        return process

    async def __aexit__(self, *_: object) -> None:
        self._parts[0].is_away = False
        await self._stack.aclose()
