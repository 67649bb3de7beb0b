"""Limits of a campaign, of a phase and of a host hold in all processes together, and no slot leaks."""

from __future__ import annotations

import asyncio
import platform
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.campaign import Phase
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.claims.claims import HOST_PAUSE
from holdfast.testing import FakeClock
from tests.conftest import Ledger
from tests.engine.campaigns.campaign_world import (
    CampaignWorker,
    a_spec,
    begun,
    items,
    recount,
    rows_of,
)
from tests.engine.parts import Parts

A, B = Phase(name="scan", task="scan"), Phase(name="build", task="build")


async def running(worker: CampaignWorker) -> int:
    rows = await rows_of(worker.parts.store, worker.campaign)
    return sum(one.status is ItemStatus.RUNNING for one in rows)


async def test_no_more_items_run_than_the_campaign_allows(parts: Parts, others: Parts) -> None:
    campaign = await begun(parts.store, parts.clock, a_spec(A, concurrency=3), items(10))
    one, other = CampaignWorker(parts, campaign), CampaignWorker(others, campaign)

    await asyncio.gather(one.take(), other.take())
    first = await running(one)
    await (one if one.held else other).finish(min(one.held or other.held))
    await asyncio.gather(one.take(), other.take())

    assert (first, await running(one)) == (3, 3)
    await parts.store.read(lambda tx: recount(tx, campaign))


async def test_a_phase_has_a_limit_of_its_own(parts: Parts) -> None:
    narrow = Phase(name="build", task="build", concurrency=1)
    campaign = await begun(parts.store, parts.clock, a_spec(A, narrow, concurrency=4), items(4))
    worker = CampaignWorker(parts, campaign)
    await worker.take()

    for name in sorted(worker.held):
        await worker.finish(name)
    held = await worker.take()

    assert held == {"repo-001/build"}
    assert await worker.finish_all() == 4
    await parts.store.read(lambda tx: recount(tx, campaign))


async def test_a_slot_is_free_again_when_a_dead_workers_item_has_ended(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    campaign = await begun(parts.store, parts.clock, a_spec(A, concurrency=1), items(2))
    dead, alive = CampaignWorker(parts, campaign), CampaignWorker(others, campaign)
    await dead.take()

    before = await alive.take()
    clock.advance(hours=1)
    await others.rescuer.rescue_lapsed()
    await others.resumer.resume_all()
    await alive.finish_all()

    assert before == set()
    rows = await rows_of(parts.store, campaign)
    assert [(row.status, row.attempt) for row in rows] == [(ItemStatus.DONE, 1)] * 2
    await parts.store.read(lambda tx: recount(tx, campaign))


class Host:
    """A process on a machine of its own: its boot says so."""

    def __init__(self, parts: Parts, name: str) -> None:
        self.parts = parts
        self.name = name
        self.held: dict[str, Any] = {}

    @classmethod
    async def begin(cls, ledger: Ledger, name: str, patch: pytest.MonkeyPatch) -> Host:
        patch.setattr(platform, "node", lambda: name)
        return cls(await Parts.begin(ledger.open(), ledger.clock), name)

    async def start(self, campaign_id: str) -> int:
        write = starting_items(campaign_id, now=self.parts.clock.now(), host=self.name)
        return (await self.parts.store.write(write)).started

    async def take(self) -> int:
        await self.parts.rescuer.ready_due()
        while claimed := await self.parts.claims.take(100):
            self.held |= {one.run.id: one for one in claimed}
        return len(self.held)

    async def finish(self, count: int) -> None:
        for run_id in sorted(self.held)[:count]:
            await self.parts.ledger.finish(self.held.pop(run_id).claim, None)


async def test_one_host_runs_no_more_items_than_a_host_may(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await Host.begin(ledger, "a", monkeypatch)
    b = await Host.begin(ledger, "b", monkeypatch)
    campaign = await begun(
        a.parts.store, ledger.clock, a_spec(A, concurrency=20, host_concurrency=2), items(9)
    )

    alone = (await a.start(campaign.id), await a.take())
    both = (await b.start(campaign.id), await b.take())
    more = (await a.start(campaign.id), await b.start(campaign.id))

    assert alone == (2, 2)
    assert both == (2, 2)
    assert more == (0, 0)
    await a.parts.store.read(lambda tx: recount(tx, campaign))


async def test_a_host_leaves_what_is_too_much_for_it_to_the_others(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await Host.begin(ledger, "a", monkeypatch)
    b = await Host.begin(ledger, "b", monkeypatch)
    campaign = await begun(
        a.parts.store, ledger.clock, a_spec(A, concurrency=20, host_concurrency=2), items(9)
    )
    await a.start(campaign.id)
    await b.start(campaign.id)

    quick = await a.take()
    late = await b.take()
    ledger.clock.advance(seconds=HOST_PAUSE / timedelta(seconds=1) + 0.1)
    after = await b.take()

    assert (quick, late, after) == (2, 0, 2)
    await a.parts.store.read(lambda tx: recount(tx, campaign))
    done = 0
    for _ in range(20):
        for host in (a, b):
            done += len(host.held)
            await host.finish(2)
            await host.start(campaign.id)
        for host in (a, b):
            assert await host.take() <= 2
        ledger.clock.advance(seconds=2)
    assert done == 9
    await a.parts.store.read(lambda tx: recount(tx, campaign))


async def test_a_host_that_died_leaves_its_items_and_their_slots_to_the_others(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await Host.begin(ledger, "dead", monkeypatch)
    alive = await Host.begin(ledger, "alive", monkeypatch)
    campaign = await begun(
        dead.parts.store, ledger.clock, a_spec(A, concurrency=20, host_concurrency=2), items(4)
    )
    await dead.start(campaign.id)
    await dead.take()

    ledger.clock.advance(hours=1)
    await alive.parts.rescuer.rescue_lapsed()
    await alive.parts.resumer.resume_all(concurrency=1)
    taken = await alive.take()
    scopes = sorted(
        scope for scope, _ in alive.parts.store.read_now(lambda tx: tx.slots.holders(campaign.id))
    )
    started = await alive.start(campaign.id)
    await alive.finish(2)
    freed = await alive.start(campaign.id)

    assert (taken, started, freed) == (2, 0, 2)
    assert scopes == ["campaign", "campaign", "host:alive", "host:alive"]
    await alive.parts.store.read(lambda tx: recount(tx, campaign))


async def test_work_without_a_limit_per_host_asks_for_no_slot_of_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = await Host.begin(ledger, "a", monkeypatch)
    campaign = await begun(a.parts.store, ledger.clock, a_spec(A, concurrency=20), items(9))

    assert (await a.start(campaign.id), await a.take()) == (9, 9)
    scopes = {scope for scope, _ in await a.parts.store.read(lambda tx: tx.slots.holders(campaign.id))}
    assert scopes == {"campaign"}
