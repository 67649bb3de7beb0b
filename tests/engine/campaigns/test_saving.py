"""Campaigns are saved as a whole: each trigger once, also with several services and after kills."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from holdfast.core.campaign import Campaign, Phase
from holdfast.core.campaign_checkpoint import KEPT, CampaignCheckpoint, CampaignCheckpointKind
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.changes import pausing_campaign, retrying_items, starting_campaign
from holdfast.engine.campaigns.creating import adding_items
from holdfast.engine.campaigns.saving import prepared_checkpoints, prepared_milestone, saving
from holdfast.progress.saver import CampaignSaver
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock
from tests.engine.campaigns.campaign_world import CampaignWorker, a_spec, begun, campaign_of, items, recount
from tests.engine.parts import Parts
from tests.engine.tables import execute

BATCH, MILESTONE, PERIODIC = CampaignCheckpointKind
ONE = (Phase(name="analysis", task="analyse"),)


async def saved_by(store: Store, clock: FakeClock) -> list[str]:
    """The names of what one pass of the service saves."""
    return [one.name for one in await CampaignSaver(store, clock).run_once()]


async def all_of(store: Store, campaign: Campaign) -> list[CampaignCheckpoint]:
    """Oldest first."""
    found = await store.read(lambda tx: tx.campaign_checkpoints.page(campaign.id, limit=1000))
    return found[::-1]


async def begin(parts: Parts, count: int, *phases: Phase, **changes: Any) -> tuple[Campaign, CampaignWorker]:
    campaign = await begun(parts.store, parts.clock, a_spec(*(phases or ONE), **changes), items(count))
    return campaign, CampaignWorker(parts, campaign)


async def finish(worker: CampaignWorker, count: int) -> None:
    for name in sorted(await worker.take())[:count]:
        await worker.finish(name)


def done_in(checkpoint: CampaignCheckpoint) -> int:
    return int(msgspec.json.decode(checkpoint.summary)["overall"]["done"])


# --- triggers


async def test_a_start_a_pause_and_a_resume_are_saved(parts: Parts, clock: FakeClock) -> None:
    campaign, _ = await begin(parts, 3)
    store = parts.store
    names = await saved_by(store, clock)

    await store.write(pausing_campaign(campaign.id, now=clock.now()))
    names += await saved_by(store, clock)
    await store.write(starting_campaign(campaign.id, now=clock.now()))
    names += await saved_by(store, clock)

    assert names == ["started", "paused", "resumed"]
    assert await saved_by(store, clock) == []


async def test_every_n_items_are_saved_once(parts: Parts, clock: FakeClock) -> None:
    campaign, worker = await begin(parts, 60, batch_size=50, checkpoint_every_items=10)
    await saved_by(parts.store, clock)
    names = []
    for count in (9, 1, 5, 17, 3):
        await finish(worker, count)
        names.append(await saved_by(parts.store, clock))

    assert names == [[], ["items-10"], [], ["items-32"], []]
    last = (await all_of(parts.store, campaign))[-1]
    assert (last.kind, done_in(last), last.recoverable) == (BATCH, 32, False)


async def test_ten_items_are_the_default(parts: Parts, clock: FakeClock) -> None:
    _, worker = await begin(parts, 60, batch_size=50)
    await saved_by(parts.store, clock)

    await finish(worker, 9)
    early = await saved_by(parts.store, clock)
    await finish(worker, 1)

    assert (early, await saved_by(parts.store, clock)) == ([], ["items-10"])


async def test_a_batch_that_is_complete_is_saved_under_the_id_of_the_seed(
    parts: Parts, clock: FakeClock
) -> None:
    clock.set(datetime(2026, 2, 28, 14, 0, tzinfo=UTC))
    campaign, worker = await begin(parts, 100, concurrency=100, checkpoint_every_items=1000)
    await saved_by(parts.store, clock)

    ids = []
    held = sorted(await worker.take())
    for start in range(0, 80, 10):
        for name in held[start : start + 10]:
            await worker.finish(name)
        ids += [one.id for one in await CampaignSaver(parts.store, clock).run_once()]

    assert ids == [f"checkpoint-batch-{number:03d}-20260228-1400" for number in range(1, 9)]
    last = (await all_of(parts.store, campaign))[-1]
    assert (last.kind, last.phase, last.batch, done_in(last)) == (BATCH, 0, 8, 80)


async def test_several_batches_that_are_complete_at_once_are_saved_once(
    parts: Parts, clock: FakeClock
) -> None:
    _, worker = await begin(parts, 40, concurrency=40)
    await saved_by(parts.store, clock)

    await finish(worker, 35)

    assert await saved_by(parts.store, clock) == ["batch-003"]
    clock.advance(seconds=30)
    assert await saved_by(parts.store, clock) == []


async def test_a_phase_and_a_campaign_that_are_complete_are_milestones(
    parts: Parts, clock: FakeClock
) -> None:
    clock.set(datetime(2026, 2, 28, 16, 0, tzinfo=UTC))
    campaign = await begun(parts.store, clock, a_spec(batch_size=50, checkpoint_every_items=1000), items(3))
    worker = CampaignWorker(parts, campaign)
    await saved_by(parts.store, clock)
    held = await worker.take()
    for name in sorted(held):
        await worker.finish(name)
    first = await CampaignSaver(parts.store, clock).run_once()
    await worker.finish_all()
    await worker.start()
    rest = await CampaignSaver(parts.store, clock).run_once()

    assert [(one.name, one.kind) for one in first] == [("batch-001", BATCH), ("analysis-complete", MILESTONE)]
    assert first[1].id == "checkpoint-analysis-complete-20260228-160000"
    assert [one.name for one in rest] == ["batch-001", "migration-complete", "campaign-complete"]
    done = [
        [await places_of(parts.store, one, phase) for phase in (0, 1)] for one in (first[1], rest[1], rest[2])
    ]
    assert done == [[{0, 1, 2}, set()], [{0, 1, 2}, {0, 1, 2}], [{0, 1, 2}, {0, 1, 2}]]
    assert await saved_by(parts.store, clock) == []


async def places_of(store: Store, checkpoint: CampaignCheckpoint, phase: int) -> set[int]:
    found = await store.read(lambda tx: tx.campaign_checkpoints.places(checkpoint.id, phase))
    assert found is not None
    return set(found)


async def test_a_phase_that_ended_with_failures_is_a_milestone_and_complete_after_a_retry(
    parts: Parts, clock: FakeClock
) -> None:
    campaign, worker = await begin(parts, 2, checkpoint_every_items=1000, batch_size=2)
    await saved_by(parts.store, clock)
    held = sorted(await worker.take())
    await worker.fail(held[0])
    await worker.finish(held[1])
    await worker.start()
    names = await saved_by(parts.store, clock)
    await parts.store.write(retrying_items(campaign.id, now=clock.now()))
    names += await saved_by(parts.store, clock)
    clock.advance(seconds=1)
    await worker.finish_all()
    await worker.start()
    names += await saved_by(parts.store, clock)

    assert names == [
        "analysis-ended",
        "campaign-ended",
        "reopened",
        "batch-001",
        "analysis-complete",
        "campaign-complete",
    ]


async def test_late_items_make_a_phase_complete_again(parts: Parts, clock: FakeClock) -> None:
    campaign, worker = await begin(parts, 2)
    await worker.finish_all()
    await worker.start()
    await saved_by(parts.store, clock)
    clock.advance(seconds=1)
    await parts.store.write(adding_items(campaign.id, items(1, first=9), now=clock.now()))
    await worker.finish_all()
    await worker.start()

    assert (await campaign_of(parts.store, campaign.id)).status is CampaignStatus.DONE
    assert await saved_by(parts.store, clock) == ["batch-001", "analysis-complete", "campaign-complete"]


# --- periodic


async def test_progress_is_saved_every_so_often_and_only_if_something_changed(
    parts: Parts, clock: FakeClock
) -> None:
    _, worker = await begin(parts, 9, checkpoint_every_items=100, batch_size=50)
    await saved_by(parts.store, clock)
    names = []
    for count, seconds in ((1, 299), (0, 1), (0, 300), (0, 900), (1, 1), (0, 299)):
        await finish(worker, count)
        clock.advance(seconds=seconds)
        names.append(await saved_by(parts.store, clock))

    assert names == [[], ["periodic"], [], [], ["periodic"], []]


async def test_a_campaign_sets_its_own_time(parts: Parts, clock: FakeClock) -> None:
    _, worker = await begin(parts, 9, checkpoint_every_s=7)
    await saved_by(parts.store, clock)
    await finish(worker, 1)
    clock.advance(seconds=7)

    assert await saved_by(parts.store, clock) == ["periodic"]


@pytest.mark.parametrize("jump", [timedelta(days=400), timedelta(days=-2), timedelta(hours=-1)])
async def test_a_clock_that_jumps_makes_one_checkpoint_and_no_storm(
    parts: Parts, clock: FakeClock, jump: timedelta
) -> None:
    _, worker = await begin(parts, 50, checkpoint_every_items=100, batch_size=50)
    await saved_by(parts.store, clock)
    await finish(worker, 1)
    clock.set(clock.now() + jump)

    names = [await saved_by(parts.store, clock) for _ in range(3)]
    await finish(worker, 1)
    names.append(await saved_by(parts.store, clock))
    clock.advance(seconds=300)
    names.append(await saved_by(parts.store, clock))

    assert names == [["periodic"], [], [], [], ["periodic"]]


# --- named ones


async def test_an_operator_names_a_milestone_and_what_was_due_stays_due(
    parts: Parts, clock: FakeClock
) -> None:
    campaign, worker = await begin(parts, 20, concurrency=20)
    await saved_by(parts.store, clock)
    await finish(worker, 10)

    prepared = await parts.store.read(
        lambda tx: prepared_milestone(tx, campaign, "p0-migrated", now=clock.now())
    )
    saved = await parts.store.write(saving(prepared))
    assert saved is not None
    (named,) = saved

    assert (named.kind, named.name, done_in(named)) == (MILESTONE, "p0-migrated", 10)
    assert await places_of(parts.store, named, 0) == set(range(10))
    assert await saved_by(parts.store, clock) == ["batch-001"]


# --- retention


async def test_old_automatic_ones_are_pruned_and_milestones_stay(parts: Parts, clock: FakeClock) -> None:
    campaign, worker = await begin(parts, 70, concurrency=70, checkpoint_every_items=1, batch_size=70)
    await saved_by(parts.store, clock)
    prepared = await parts.store.read(lambda tx: prepared_milestone(tx, campaign, "early", now=clock.now()))
    await parts.store.write(saving(prepared))
    held = sorted(await worker.take())
    for name in held[:60]:
        await worker.finish(name)
        await saved_by(parts.store, clock)

    kinds = [one.kind for one in await all_of(parts.store, campaign)]
    assert (kinds.count(BATCH), kinds.count(MILESTONE), kinds.count(PERIODIC)) == (KEPT, 1, 1)


# --- races and kills


async def test_of_two_services_one_saves(parts: Parts, clock: FakeClock) -> None:
    campaign, worker = await begin(parts, 10)
    store = parts.store
    await finish(worker, 10)
    look = partial(prepared_checkpoints, campaign_id=campaign.id, now=clock.now())
    first, second = await store.read(look), await store.read(look)
    assert first is not None
    assert second is not None

    saved = await asyncio.gather(store.write(saving(first)), store.write(saving(second)))

    assert sorted(one is None for one in saved) == [False, True]
    assert [one.name for one in await all_of(store, campaign)] == ["batch-001", "analysis-complete"]
    assert await saved_by(store, clock) == []


async def test_many_services_at_once_save_each_checkpoint_once(parts: Parts, clock: FakeClock) -> None:
    campaign, worker = await begin(parts, 30, concurrency=30)
    services = [CampaignSaver(parts.store, clock) for _ in range(4)]
    held = sorted(await worker.take())
    for start in range(0, 30, 10):
        for name in held[start : start + 10]:
            await worker.finish(name)
        await asyncio.gather(*(one.run_once() for one in services))
    await worker.start()
    await asyncio.gather(*(one.run_once() for one in services))

    found = await all_of(parts.store, campaign)
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    assert [one.name for one in found] == [
        "batch-001",
        "batch-002",
        "batch-003",
        "analysis-complete",
        "campaign-complete",
    ]


async def test_a_service_that_dies_at_any_write_leaves_nothing_out_and_saves_nothing_twice(
    parts: Parts, clock: FakeClock
) -> None:
    recording = FailingStore(parts.store)
    campaign, worker = await begin(parts, 10)
    await finish(worker, 10)
    await CampaignSaver(recording, clock).run_once()
    expected = [one.name for one in await all_of(parts.store, campaign)]
    points = recording.failpoints()
    tables = ("campaign_checkpoints", "campaign_checkpoint_places", "campaign_saves")
    for point in points:
        for table in tables:
            execute(parts.store, f"DELETE FROM {table}")
        await parts.store.write(lambda tx: tx.campaign_saves.want(campaign.id, "started", now=clock.now()))

        await die_at(parts.store, clock, point)
        await saved_by(parts.store, clock)

        assert [one.name for one in await all_of(parts.store, campaign)] == expected, point
    assert len(points) > 5


async def die_at(store: Store, clock: FakeClock, point: Failpoint) -> None:
    with pytest.raises(Crashed):
        await CampaignSaver(FailingStore(store, [point]), clock).run_once()


async def test_a_damaged_campaign_does_not_keep_the_others_from_being_saved(
    parts: Parts, clock: FakeClock
) -> None:
    one = await begun(parts.store, clock, a_spec(*ONE), items(1), name="one")
    other = await begun(parts.store, clock, a_spec(*ONE), items(1), name="other")
    execute(
        parts.store, f"UPDATE campaign_saves SET marks = digest FROM campaigns WHERE campaign_id = '{one.id}'"
    )

    await CampaignSaver(parts.store, clock).run_once()

    assert [saved.name for saved in await all_of(parts.store, other)] == ["started"]


async def test_the_service_saves_what_is_due_before_it_stops(parts: Parts, clock: FakeClock) -> None:
    campaign, worker = await begin(parts, 10)
    service = CampaignSaver(parts.store, clock)
    service.stop()
    await finish(worker, 10)

    await service.run()

    assert (await all_of(parts.store, campaign))[-1].name == "analysis-complete"
    await parts.store.read(lambda tx: recount(tx, campaign))
