"""Pause and resume of a campaign and of items: what runs stops at its next step and goes on from there."""

from __future__ import annotations

import holdfast as hf
from holdfast.core.campaign import Campaign, Phase
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.campaigns.campaign_world import (
    CampaignWorker,
    a_spec,
    begun,
    campaign_of,
    fill,
    items,
    recount,
    rows_of,
    statuses,
)
from tests.engine.parts import Parts
from tests.engine.stage import Stage

ONE = Phase(name="analysis", task="analyse")


async def worker_of(parts: Parts, count: int, **changes: object) -> CampaignWorker:
    campaign = await begun(parts.store, parts.clock, a_spec(ONE, **changes), items(count))
    return CampaignWorker(parts, campaign)


async def check(store: Store, campaign: Campaign) -> None:
    await store.read(lambda tx: recount(tx, campaign))


async def test_a_paused_campaign_starts_nothing_and_lets_what_runs_end(parts: Parts) -> None:
    worker = await worker_of(parts, 4, concurrency=2)
    campaigns = Campaigns(parts.store, parts.clock)
    held = await worker.take()

    await campaigns.pause("rd-os")
    for name in sorted(held):
        await worker.finish(name)
    while_paused = await worker.take()
    await campaigns.start("rd-os")
    after = await worker.take()

    assert held == {"repo-001/analysis", "repo-002/analysis"}
    assert while_paused == set()
    assert after == {"repo-003/analysis", "repo-004/analysis"}
    await check(parts.store, worker.campaign)


async def test_a_paused_campaign_whose_last_item_ends_is_not_done_before_it_goes_on(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    campaigns = Campaigns(parts.store, parts.clock)
    await worker.take()

    await campaigns.pause("rd-os")
    await worker.finish("repo-001/analysis")
    await worker.start()
    paused = await campaign_of(parts.store, worker.campaign.id)
    await campaigns.start("rd-os")
    await worker.start()

    assert paused.status is CampaignStatus.PAUSED
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.DONE


async def test_a_pause_with_stop_asks_running_tasks_to_stop_and_they_go_on_with_the_campaign(
    stage: Stage,
) -> None:
    done: list[str] = []
    paused: list[int] = []

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> str:
        for name in ("scan", "map"):
            await run.step(act, name)
            if done == ["scan"] and not paused:
                paused.append(1)
                await campaigns.pause("rd-os", stop=True)
                await stage.tell_cancelled()
        return "ok"

    async def act(name: str) -> str:
        done.append(name)
        return name

    campaigns = Campaigns(stage.store, stage.clock)
    campaign = await begun(stage.store, stage.clock, a_spec(ONE, concurrency=1), items(2))
    await stage.open(analyse)
    await fill(stage.store, stage.clock, campaign)
    await stage.settle()
    stopped = [(one.status, one.goes_on) for one in await rows_of(stage.store, campaign)]
    await check(stage.store, campaign)
    await campaigns.start("rd-os")
    for _ in range(3):
        await fill(stage.store, stage.clock, campaign)
        await stage.settle()

    assert stopped == [(ItemStatus.PAUSED, True), (ItemStatus.PENDING, False)]
    assert done == ["scan", "map", "scan", "map"], "the saved step did not run again"
    assert (await campaign_of(stage.store, campaign.id)).status is CampaignStatus.DONE
    await check(stage.store, campaign)


async def test_single_items_are_paused_whatever_they_do_and_go_on_when_asked(parts: Parts) -> None:
    worker = await worker_of(parts, 4, concurrency=2)
    campaigns = Campaigns(parts.store, parts.clock)
    await worker.take()
    await worker.fail("repo-002/analysis")
    task = worker.held["repo-001/analysis"].task

    paused = await campaigns.pause_items("rd-os", ["repo-001", "repo-002", "repo-003"])
    asked = await parts.ledger.get(task.id)
    first = await statuses(parts.store, worker.campaign)
    await worker.stopped("repo-001/analysis")
    await worker.take()
    second = await statuses(parts.store, worker.campaign)
    resumed = await campaigns.resume_items("rd-os", items=["repo-001", "repo-002"])
    await worker.finish_all()
    third = await statuses(parts.store, worker.campaign)

    assert (paused.paused, paused.stopping) == (3, 1)
    assert asked.cancel_requested_at is not None
    assert set(first.values()) == {"paused", "pending"}
    assert second["repo-004/analysis"] == "running"
    assert [second[f"repo-00{n}/analysis"] for n in (1, 2, 3)] == ["paused"] * 3
    assert resumed.resumed == 2
    assert third["repo-003/analysis"] == "paused"
    assert sorted(third.values()) == ["done", "done", "done", "paused"]
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.RUNNING
    await check(parts.store, worker.campaign)


async def test_an_item_that_ends_before_it_notices_its_pause_is_done(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    campaigns = Campaigns(parts.store, parts.clock)
    await worker.take()

    await campaigns.pause_items("rd-os", ["repo-001"])
    await worker.finish("repo-001/analysis")
    await worker.start()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert row.status is ItemStatus.DONE
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.DONE
    await check(parts.store, worker.campaign)


async def test_an_item_that_goes_on_while_its_task_still_stops_waits_for_that_end(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    campaigns = Campaigns(parts.store, parts.clock)
    await worker.take()
    task_id = worker.held["repo-001/analysis"].task.id

    await campaigns.pause_items("rd-os", ["repo-001"])
    await campaigns.resume_items("rd-os")
    too_early = await worker.start()
    await worker.stopped("repo-001/analysis")
    then = await worker.start()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert (too_early, then) == (0, 1)
    assert row.status is ItemStatus.RUNNING
    assert row.note == "started anew: nothing was saved"
    assert row.task_id != task_id
    await check(parts.store, worker.campaign)


async def test_an_item_that_is_to_go_on_and_succeeds_instead_of_stopping_is_done(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    campaigns = Campaigns(parts.store, parts.clock)
    await worker.take()

    await campaigns.pause_items("rd-os", ["repo-001"])
    await campaigns.resume_items("rd-os")
    await worker.finish("repo-001/analysis")
    await worker.start()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert (row.status, row.attempt) == (ItemStatus.DONE, 1)
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.DONE
    await check(parts.store, worker.campaign)


async def test_an_operators_cancel_of_the_task_of_an_item_fails_it_and_frees_its_slot(parts: Parts) -> None:
    worker = await worker_of(parts, 2, concurrency=1)
    await worker.start()
    (first, _) = await rows_of(parts.store, worker.campaign)

    await parts.ledger.cancel(str(first.task_id), reason="not now")
    await worker.take()

    by_item = await statuses(parts.store, worker.campaign)
    assert by_item == {"repo-001/analysis": "failed", "repo-002/analysis": "running"}
    await check(parts.store, worker.campaign)


async def test_a_pause_that_was_cut_off_after_its_first_write_is_repeated(
    store: Store, clock: FakeClock
) -> None:
    parts = await Parts.begin(store, clock)
    worker = await worker_of(parts, 3)
    campaigns = Campaigns(store, clock)
    await worker.take()
    await campaigns.pause("rd-os")

    await campaigns.pause("rd-os", stop=True)
    await campaigns.pause("rd-os", stop=True)

    assert set((await statuses(store, worker.campaign)).values()) == {"paused"}
    await check(store, worker.campaign)
