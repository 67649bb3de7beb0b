"""Effects since a milestone: a restore needs a decision, and the new tasks do what was decided."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.campaign import Campaign, Phase
from holdfast.core.effect import Effect
from holdfast.core.errors import EffectsInTheWay, Refused
from holdfast.core.retention import DEFAULT_RETENTION, RetentionLimits
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.campaigns.changes import retrying_items
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.ledger.retention import NEEDED_FOR, DueTasks, Pruner, find_due
from holdfast.engine.program.campaign_restore import (
    RestoreProgress,
    beginning_restore,
    restore_campaign,
    undoing_chunk,
)
from holdfast.testing import Crashed, FailingStore, memory_store
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.campaigns.campaign_world import a_spec, begun, campaign_of, fill, items, recount, rows_of
from tests.engine.stage import Stage
from tests.engine.tables import execute


class PayingCampaign:
    """A campaign whose items pay in a turn, and a milestone before all of it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.paid: list[str] = []
        self.raises: Exception | None = None

    @classmethod
    async def open(cls, stage: Stage, count: int = 2) -> PayingCampaign:
        shop = cls(stage)

        @hf.opaque
        async def pay(what: str) -> str:
            if shop.raises is not None:
                raise shop.raises
            shop.paid.append(what)
            return f"receipt {len(shop.paid)} for {what}"

        @hf.task
        async def buy(run: hf.Run, item: hf.Item) -> str:
            deposit, rest = await run.step(pay, f"deposit of {item.id}"), ""
            async for turn in run.turns(max=1):
                rest = await turn.step(pay, f"rest of {item.id}")
            return f"{deposit} / {rest}"

        shop.campaign = await begun(
            stage.store, stage.clock, a_spec(Phase(name="purchase", task="buy"), concurrency=10), items(count)
        )
        shop.campaigns = Campaigns(stage.store, stage.clock)
        shop.milestone = await shop.campaigns.milestone("before", "rd-os")
        await stage.open(buy)
        return shop

    campaign: Campaign
    campaigns: Campaigns
    milestone: Any

    async def go(self) -> None:
        await fill(self.stage.store, self.stage.clock, self.campaign)
        await self.stage.settle()
        await fill(self.stage.store, self.stage.clock, self.campaign)
        await self.stage.store.read(lambda tx: recount(tx, self.campaign))

    async def results(self) -> list[str]:
        rows = await rows_of(self.stage.store, self.campaign)
        return [
            str(await self.stage.holdfast.handle(str(one.task_id)).result()) for one in rows if one.task_id
        ]

    async def restore(self, **options: Any) -> RestoreProgress:
        return await restore_campaign(
            self.stage.store, self.stage.clock, self.milestone.id, patience_s=0, **options
        )


async def test_without_a_decision_nothing_is_undone(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage)
    await shop.go()

    with pytest.raises(EffectsInTheWay, match="say --effects keep, compensate or acknowledge") as raised:
        await shop.restore()

    assert len(raised.value.effects) == 4
    assert (await campaign_of(stage.store, shop.campaign.id)).status is CampaignStatus.DONE
    assert (await shop.campaigns.plan_restore(shop.milestone.id)).effects == {("opaque", "done"): 4}


async def test_effects_that_are_kept_are_found_by_the_new_tasks(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage)
    await shop.go()
    first, paid = await shop.results(), list(shop.paid)

    progress = await shop.restore(effects="keep")
    await shop.go()

    assert (progress.is_over, progress.restore.undone) == (True, 2)
    assert shop.paid == paid
    assert await shop.results() == first
    assert (await campaign_of(stage.store, shop.campaign.id)).status is CampaignStatus.DONE
    rows = await rows_of(stage.store, shop.campaign)
    assert [one.attempt for one in rows] == [2, 2]


async def test_a_second_restore_sees_the_effects_that_the_first_one_kept(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage)
    await shop.go()
    paid = list(shop.paid)
    await shop.restore(effects="keep")
    await shop.go()

    with pytest.raises(EffectsInTheWay, match="say --effects keep, compensate or acknowledge") as raised:
        await shop.restore()
    assert len(raised.value.effects) == 4
    await shop.restore(effects="keep")
    await shop.go()
    first = await shop.results()
    await shop.restore(effects="keep")
    await shop.go()

    assert shop.paid == paid
    assert await shop.results() == first
    assert (await shop.campaigns.plan_restore(shop.milestone.id)).effects == {("opaque", "done"): 4}
    assert_ledger_is_whole(stage.store)


async def test_a_start_that_dies_anywhere_repeats_no_effect_that_was_kept(stage: Stage, seed: int) -> None:
    shop = await PayingCampaign.open(stage, 1)
    await shop.go()
    paid = list(shop.paid)
    await shop.restore(effects="keep")
    recording = FailingStore(stage.store)
    await fill(recording, stage.clock, shop.campaign)
    await shop.go()
    points = [one for one in recording.failpoints() if one.call == 1]
    assert len(points) > 10

    for point in random.Random(seed).sample(points, 6):
        await shop.restore(effects="keep")
        with pytest.raises(Crashed):
            await fill(FailingStore(stage.store, [point]), stage.clock, shop.campaign)
        await shop.go()

        assert shop.paid == paid, point
        with pytest.raises(EffectsInTheWay):
            await shop.restore()
    assert_ledger_is_whole(stage.store)


async def test_effects_that_were_kept_are_compensated_once_under_the_key_of_the_first_task(
    stage: Stage,
) -> None:
    shop = await PayingCampaign.open(stage, 1)
    await shop.go()
    (row,) = await rows_of(stage.store, shop.campaign)
    first = await stage.store.read(lambda tx: tx.effects.of_task(str(row.task_id)))
    await shop.restore(effects="keep")
    await shop.go()
    undone: list[tuple[str, Any]] = []

    def undo(_: Effect, result: Any) -> None:
        undone.append((hf.idempotency_key(), result))

    await shop.restore(effects="compensate", compensate=undo)

    assert sorted(undone) == sorted(
        (f"{effect.idempotency_key}-compensation", msgspec.json.decode(effect.outcome or b""))
        for effect in first
    )


async def test_an_effect_that_a_person_confirmed_is_kept_with_the_result_that_they_gave(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage, 1)
    shop.raises = TimeoutError("no answer")
    await shop.go()
    shop.raises = None
    await stage.holdfast.resolve((await stage.review()).id, "done", result="a receipt by hand")
    await shop.go()
    first = await shop.results()
    for _ in range(2):
        await shop.restore(effects="keep")
        await shop.go()

    assert await shop.results() == first
    assert first == ["a receipt by hand / receipt 1 for rest of repo-001"]
    assert len(shop.paid) == 1
    assert_ledger_is_whole(stage.store)


async def test_effects_that_are_acknowledged_may_happen_again(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage, 1)
    await shop.go()

    await shop.restore(effects="acknowledge")
    await shop.go()

    assert shop.paid == ["deposit of repo-001", "rest of repo-001"] * 2
    assert await shop.results() == ["receipt 3 for deposit of repo-001 / receipt 4 for rest of repo-001"]


async def test_effects_are_compensated_newest_first_under_a_key_of_their_own(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage)
    await shop.go()
    undone: list[tuple[str, Any, bool]] = []

    async def undo(effect: Effect, result: Any) -> None:
        key = hf.idempotency_key()
        undone.append((effect.name, result, key == f"{effect.idempotency_key}-compensation"))

    await shop.restore(effects="compensate", compensate=undo)
    assert sorted(undone) == sorted(
        ("pay", f"receipt {number} for {what}", True) for number, what in enumerate(shop.paid, 1)
    )
    await shop.go()

    assert len(shop.paid) == 8


async def test_a_compensation_that_fails_undoes_no_item_and_is_done_again_by_the_same_call(
    stage: Stage,
) -> None:
    shop = await PayingCampaign.open(stage)
    await shop.go()
    keys: list[str] = []

    async def undo(effect: Effect, result: Any) -> None:
        keys.append(hf.idempotency_key())
        if len(keys) == 3:
            raise Crashed

    with pytest.raises(Crashed):
        await shop.restore(effects="compensate", compensate=undo)
    assert {one.status for one in await rows_of(stage.store, shop.campaign)} == {ItemStatus.DONE}
    assert (await campaign_of(stage.store, shop.campaign.id)).status is CampaignStatus.PAUSED
    progress = await shop.restore(effects="compensate", compensate=undo)

    assert progress.is_over
    assert keys[:2] == keys[3:5]
    assert len(set(keys)) == 4


async def test_a_restore_that_began_with_compensate_does_not_go_on_without_the_function(
    stage: Stage,
) -> None:
    shop = await PayingCampaign.open(stage, 1)
    await shop.go()

    async def undo(effect: Effect, result: Any) -> None:
        raise Crashed

    with pytest.raises(Crashed):
        await shop.restore(effects="compensate", compensate=undo)
    command = f"holdfast checkpoints restore {shop.milestone.id} --apply --effects"
    with pytest.raises(Refused, match="began with compensate") as refused:
        await shop.restore()
    with pytest.raises(Refused, match="began with compensate"):
        await shop.campaigns.restore(shop.milestone.id, timeout_s=5)
    for way in ("compensate --compensate MODULE:FUNCTION", "keep", "acknowledge"):
        assert f"{command} {way}" in str(refused.value)
    # Another call decides for compensate after this one has looked.
    begun = await stage.store.read(lambda tx: tx.campaign_restores.open_of(shop.campaign.id))
    assert begun is not None
    with pytest.raises(Refused, match="began with compensate"):
        await stage.store.write(undoing_chunk(begun, now=stage.clock.now()))

    assert (await shop.restore(effects="keep")).is_over
    await shop.go()
    assert len(shop.paid) == 2


async def test_an_effect_of_unknown_outcome_must_be_settled_or_acknowledged(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage, 1)
    shop.raises = TimeoutError("no answer")
    await fill(stage.store, stage.clock, shop.campaign)
    await stage.settle()
    shop.raises = None

    # Its task waits for a review; the restore cancels it first.
    for effects in ("keep", "refuse"):
        with pytest.raises(EffectsInTheWay, match="the outcome is unknown; settle it first: holdfast"):
            await shop.restore(effects=effects)
    assert (await campaign_of(stage.store, shop.campaign.id)).status is CampaignStatus.PAUSED
    progress = await shop.restore(effects="acknowledge")
    await shop.go()

    assert (progress.is_over, progress.restore.undone) == (True, 1)
    assert shop.paid == ["deposit of repo-001", "rest of repo-001"]


async def test_kept_effects_that_are_gone_are_told_and_not_repeated_silently(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage, 1)
    await shop.go()
    await shop.restore(effects="keep")
    for table in ("runs", "effects", "tasks"):
        execute(stage.store, f"DELETE FROM {table}")
    await fill(stage.store, stage.clock, shop.campaign)

    (row,) = await rows_of(stage.store, shop.campaign)
    assert row.status is ItemStatus.FAILED
    assert row.error is not None
    assert "whose effects a restore kept, is no longer in the ledger; a retry of this item does" in row.error
    assert len(shop.paid) == 2
    with pytest.raises(EffectsInTheWay, match="is no longer in the ledger"):
        await shop.restore()
    await stage.store.write(retrying_items(shop.campaign.id, now=stage.clock.now()))
    await shop.go()
    assert len(shop.paid) == 4


async def test_an_item_that_could_not_start_still_has_the_effects_that_were_kept(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage, 1)
    await shop.go()
    await shop.restore(effects="keep")
    execute(stage.store, "UPDATE campaign_items SET name = name || 'x'")
    await fill(stage.store, stage.clock, shop.campaign)
    assert [one.status for one in await rows_of(stage.store, shop.campaign)] == [ItemStatus.FAILED]

    with pytest.raises(EffectsInTheWay, match="say --effects keep"):
        await shop.restore()
    await shop.restore(effects="keep")
    execute(stage.store, "UPDATE campaign_items SET name = substr(name, 1, length(name) - 1)")
    await shop.go()

    assert len(shop.paid) == 2


async def test_a_later_decision_goes_before_an_earlier_one(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage, 1)
    await shop.go()
    await shop.restore(effects="keep")
    # It has not started yet, so its next task would find the effects; after another run they are gone.
    await shop.go()
    await shop.restore(effects="acknowledge")
    await shop.go()

    assert len(shop.paid) == 4


# --- effects of the tasks that an item has started


class DelegatingCampaign(PayingCampaign):
    """A campaign whose items pay themselves, and let a grandchild of their task pay, too."""

    @classmethod
    async def open(cls, stage: Stage, count: int = 1) -> DelegatingCampaign:
        shop = cls(stage)

        @hf.opaque
        async def pay(what: str) -> str:
            shop.paid.append(what)
            return f"receipt {len(shop.paid)}"

        @hf.task
        async def pay_for(run: hf.Run, what: str) -> str:
            return await run.step(pay, what)

        @hf.task
        async def delegate(run: hf.Run, what: str) -> str:
            return await (await run.spawn(pay_for(what)))

        @hf.task
        async def buy(run: hf.Run, item: hf.Item) -> str:
            return await (await run.spawn(delegate(item.id)))

        shop.campaign = await begun(
            stage.store, stage.clock, a_spec(Phase(name="purchase", task="buy"), concurrency=10), items(count)
        )
        shop.campaigns = Campaigns(stage.store, stage.clock)
        shop.milestone = await shop.campaigns.milestone("before", "rd-os")
        await stage.open(buy, delegate, pay_for)
        return shop


async def test_effects_of_tasks_that_an_item_started_need_a_decision_too(stage: Stage) -> None:
    shop = await DelegatingCampaign.open(stage, 2)
    await shop.go()

    plan = await shop.campaigns.plan_restore(shop.milestone.id)
    with pytest.raises(EffectsInTheWay, match="say --effects keep, compensate or acknowledge"):
        await shop.restore()
    with pytest.raises(EffectsInTheWay, match="cannot be kept; say --effects compensate or acknowledge"):
        await shop.restore(effects="keep")
    await shop.go()

    assert plan.effects == {("opaque", "done"): 2}
    assert len(plan.in_children) == 2
    assert sorted(shop.paid) == ["repo-001", "repo-002"]
    assert (await campaign_of(stage.store, shop.campaign.id)).status is CampaignStatus.DONE


async def test_effects_of_tasks_that_an_item_started_are_compensated(stage: Stage) -> None:
    shop = await DelegatingCampaign.open(stage)
    await shop.go()
    undone: list[str] = []

    await shop.restore(effects="compensate", compensate=lambda _, result: undone.append(result))
    await shop.go()

    assert undone == ["receipt 1"]
    assert shop.paid == ["repo-001", "repo-001"]


async def test_an_effect_of_a_started_task_that_came_after_the_plan_is_not_kept_silently(
    stage: Stage,
) -> None:
    shop = await DelegatingCampaign.open(stage)
    # The restore begins before the first effect, so its plan has none.
    begin = beginning_restore(shop.milestone.id, effects="keep", now=stage.clock.now())
    await fill(stage.store, stage.clock, shop.campaign)
    restore, _ = await stage.store.write(begin)
    await stage.settle()

    with pytest.raises(EffectsInTheWay, match="cannot be kept"):
        await stage.store.write(undoing_chunk(restore, now=stage.clock.now()))

    assert (await shop.restore(effects="acknowledge")).is_over


# --- retention


AGES = DEFAULT_RETENTION.total_seconds() + 1


async def prune(stage: Stage) -> int:
    """How many tasks are gone after some passes of retention."""
    pruner = Pruner(stage.store, stage.clock)
    return sum([(await pruner.run_once()).tasks for _ in range(3)])


@pytest.mark.parametrize("kind", [PayingCampaign, DelegatingCampaign])
async def test_retention_keeps_the_tasks_of_a_campaign_that_goes_on(
    stage: Stage, kind: type[PayingCampaign]
) -> None:
    shop = await kind.open(stage, 2)
    await shop.campaigns.pause_items("rd-os", ["repo-002"])
    await shop.go()
    paid = list(shop.paid)
    stage.clock.advance(days=2)
    limits = RetentionLimits(kinds={"python": timedelta(days=1)})
    assert (await Pruner(stage.store, stage.clock, limits=limits).run_once()).tasks == 0
    stage.clock.advance(seconds=AGES)

    planned = await stage.store.read(lambda tx: find_due(tx, now=stage.clock.now(), limit=10, limits=limits))
    assert planned == DueTasks()
    assert await prune(stage) == 0
    # The next passes do not look at them again.
    assert await stage.store.read(lambda tx: tx.tasks.past_retention(now=stage.clock.now(), limit=9)) == []
    with pytest.raises(EffectsInTheWay, match="say --effects"):
        await shop.restore()
    assert shop.paid == paid


async def test_retention_removes_the_tasks_of_a_campaign_that_is_done_and_a_restore_says_so(
    stage: Stage,
) -> None:
    shop = await PayingCampaign.open(stage, 2)
    await shop.campaigns.pause_items("rd-os", ["repo-002"])
    await shop.go()
    stage.clock.advance(seconds=AGES)
    assert await prune(stage) == 0
    await shop.campaigns.resume_items("rd-os")
    await shop.go()
    assert (await campaign_of(stage.store, shop.campaign.id)).status is CampaignStatus.DONE
    stage.clock.advance(seconds=AGES)

    assert await prune(stage) == 2
    for effects in ("refuse", "keep"):
        with pytest.raises(EffectsInTheWay, match="its task is gone: --effects acknowledge") as raised:
            await shop.restore(effects=effects)
        assert all("no longer in the ledger" in one for one in raised.value.effects)
    assert len(shop.paid) == 4
    assert (await shop.restore(effects="acknowledge")).restore.undone == 2


async def test_retention_keeps_the_effects_that_a_restore_keeps_until_the_items_start(stage: Stage) -> None:
    shop = await PayingCampaign.open(stage, 2)
    await shop.go()
    await shop.restore(effects="keep")
    await shop.campaigns.pause("rd-os")
    stage.clock.advance(seconds=AGES)

    assert await prune(stage) == 0
    await shop.campaigns.start("rd-os")
    await shop.go()
    assert len(shop.paid) == 4
    assert await prune(stage) == 0
    # Now their new tasks have the effects, and nothing needs the first ones.
    stage.clock.advance(seconds=NEEDED_FOR.total_seconds())
    assert await prune(stage) == 2


async def test_a_pass_of_retention_that_dies_anywhere_keeps_what_a_campaign_needs(
    stage: Stage, seed: int
) -> None:
    shop = await PayingCampaign.open(stage, 2)
    await shop.campaigns.pause_items("rd-os", ["repo-002"])
    await shop.go()
    stage.clock.advance(seconds=AGES)
    recording = FailingStore(memory_store())
    await Pruner(recording, stage.clock).run_once()

    for point in random.Random(seed).sample(recording.failpoints(), 6):
        with pytest.raises(Crashed):
            await Pruner(FailingStore(stage.store, [point]), stage.clock).run_once()
        assert await prune(stage) == 0, point
        stage.clock.advance(seconds=NEEDED_FOR.total_seconds())
    with pytest.raises(EffectsInTheWay, match="say --effects"):
        await shop.restore()
