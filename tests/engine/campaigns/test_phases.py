"""Phases: what needs what, phases that wait for all items, late items, and how a campaign ends."""

from __future__ import annotations

from typing import Any

from holdfast.core.campaign import Campaign, Item, Phase
from holdfast.core.events import EventKind
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.starting import ending_campaign
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store
from holdfast.store.events import START
from holdfast.testing import FakeClock
from tests.engine.campaigns.campaign_world import (
    CampaignWorker,
    a_spec,
    begun,
    campaign_of,
    items,
    recount,
    statuses,
)
from tests.engine.parts import Parts

A, B, C = (Phase(name=name, task=name) for name in ("scan", "build", "ship"))


async def worker_of(parts: Parts, *phases: Phase, count: int = 2, **changes: Any) -> CampaignWorker:
    campaign = await begun(parts.store, parts.clock, a_spec(*phases, **changes), items(count))
    return CampaignWorker(parts, campaign)


async def ends_of(store: Store, campaign: Campaign) -> list[object]:
    """The statuses to which the campaign moved, in order."""
    feed = await store.read(lambda tx: tx.events.after(START, limit=10_000))
    moves = [one for one in feed if one.kind is EventKind.CAMPAIGN_MOVED and one.subject_id == campaign.id]
    return [one.facts["status"] for one in moves]


async def test_an_item_goes_through_its_phases_one_after_another(parts: Parts) -> None:
    worker = await worker_of(parts, A, B)

    first = await worker.take()
    await worker.finish("repo-001/scan")
    second = await worker.take()

    assert first == {"repo-001/scan", "repo-002/scan"}
    assert second == {"repo-002/scan", "repo-001/build"}


async def test_a_phase_that_needs_two_waits_for_both_of_them(parts: Parts) -> None:
    join = Phase(name="ship", task="ship", needs=("scan", "build"))
    worker = await worker_of(parts, A, Phase(name="build", task="build", needs=()), join, count=1)

    first = await worker.take()
    await worker.finish("repo-001/scan")
    second = await worker.take()
    await worker.finish("repo-001/build")
    third = await worker.take()

    assert first == {"repo-001/scan", "repo-001/build"}
    assert second == {"repo-001/build"}
    assert third == {"repo-001/ship"}
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_a_phase_that_waits_for_all_begins_when_every_item_came_through(parts: Parts) -> None:
    worker = await worker_of(parts, A, Phase(name="build", task="build", waits_for_all=True))
    await worker.take()

    await worker.finish("repo-001/scan")
    one_is_open = await worker.take()
    await worker.finish("repo-002/scan")
    none_is_open = await worker.take()

    assert one_is_open == {"repo-002/scan"}
    assert none_is_open == {"repo-001/build", "repo-002/build"}


async def test_a_phase_that_waits_for_all_also_waits_for_items_in_phases_further_back(parts: Parts) -> None:
    worker = await worker_of(parts, A, B, Phase(name="ship", task="ship", waits_for_all=True))
    await worker.take()

    await worker.finish("repo-001/scan")
    await worker.take()
    await worker.finish("repo-001/build")
    held = await worker.take()

    assert held == {"repo-002/scan"}, "repo-002 has not come through build"


async def test_an_item_that_failed_does_not_hold_up_a_phase_that_waits_for_all(parts: Parts) -> None:
    worker = await worker_of(parts, A, Phase(name="build", task="build", waits_for_all=True))
    await worker.take()

    await worker.fail("repo-001/scan")
    await worker.finish("repo-002/scan")
    held = await worker.take()

    assert held == {"repo-002/build"}


async def test_a_failed_item_holds_up_only_what_needs_it_and_fails_the_campaign(parts: Parts) -> None:
    worker = await worker_of(parts, A, B)
    await worker.take()

    await worker.fail("repo-001/scan")
    await worker.finish_all()

    assert await statuses(parts.store, worker.campaign) == {
        "repo-001/scan": "failed",
        "repo-002/scan": "done",
        "repo-001/build": "pending",
        "repo-002/build": "done",
    }
    campaign = await campaign_of(parts.store, worker.campaign.id)
    assert (campaign.status, campaign.reason) == (CampaignStatus.FAILED, "some items failed")
    await parts.store.read(lambda tx: recount(tx, campaign))


async def test_a_campaign_ends_exactly_once(parts: Parts, others: Parts) -> None:
    worker = await worker_of(parts, A)
    second = CampaignWorker(others, worker.campaign)

    await worker.finish_all()
    await second.start()
    for _ in range(3):
        await parts.store.write(ending_campaign(worker.campaign.id, now=parts.clock.now()))

    assert await ends_of(parts.store, worker.campaign) == ["running", "done"]


async def test_late_items_let_a_campaign_that_has_ended_go_on(parts: Parts, clock: FakeClock) -> None:
    worker = await worker_of(parts, A)
    await worker.finish_all()
    ended = await campaign_of(parts.store, worker.campaign.id)

    clock.advance(minutes=1)
    added = await Campaigns(parts.store, parts.clock).add("rd-os", items(2, first=2))
    going_on = await campaign_of(parts.store, worker.campaign.id)
    done = await worker.finish_all()

    assert ended.status is CampaignStatus.DONE
    assert (added.added, added.known) == (1, 1)
    assert (going_on.status, going_on.ended_at) == (CampaignStatus.RUNNING, None)
    assert done == 1
    assert await ends_of(parts.store, worker.campaign) == ["running", "done", "running", "done"]
    await parts.store.read(lambda tx: recount(tx, going_on))


async def test_late_items_are_seen_by_a_phase_that_waits_for_all(parts: Parts) -> None:
    worker = await worker_of(parts, A, Phase(name="build", task="build", waits_for_all=True), count=1)
    await worker.take()

    await worker.finish("repo-001/scan")
    await Campaigns(parts.store, parts.clock).add("rd-os", items(1, first=2))
    held = await worker.take()

    assert held == {"repo-002/scan"}


async def test_urgent_items_start_first_and_items_that_are_further_on_before_others(parts: Parts) -> None:
    spec = a_spec(A, B, concurrency=1)
    some = [Item(id="late", priority="P3"), Item(id="soon", priority="P0"), Item(id="next", priority="P0")]
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, spec, some))

    order = []
    while held := await worker.take():
        (name,) = held
        order.append(name)
        await worker.finish(name)

    assert order == ["soon/scan", "soon/build", "next/scan", "next/build", "late/scan", "late/build"]
