"""Stages of a phase: each is durable, a task goes on at its stage, and its row says where it is."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.core.campaign import Campaign, ItemPhase, Phase
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.changes import retrying_items
from holdfast.testing import Crashed
from tests.engine.campaigns.campaign_world import a_spec, begun, fill, items, recount, rows_of
from tests.engine.stage import Stage

STAGES = ("prep", "transfer", "integrate", "validate")
MIGRATION = Phase(name="migration", task="migrate", stages=STAGES)


async def the_row(stage: Stage, campaign: Campaign) -> ItemPhase:
    (row,) = await rows_of(stage.store, campaign)
    return row


async def go(stage: Stage, campaign: Campaign) -> ItemPhase:
    """Start what can start, and carry it; the row after it."""
    await fill(stage.store, stage.clock, campaign)
    await stage.settle()
    await fill(stage.store, stage.clock, campaign)
    await stage.store.read(lambda tx: recount(tx, campaign))
    return await the_row(stage, campaign)


async def act(name: str) -> str:
    return name


async def test_the_row_of_an_item_says_in_which_stage_its_task_is(stage: Stage) -> None:
    seen: list[tuple[str | None, int, str | None]] = []

    @hf.task
    async def migrate(run: hf.Run, item: hf.Item) -> str:
        async for one in run.stages(item):
            row = await the_row(stage, campaign)
            seen.append((row.stage, row.percent, row.last_action))
            await one.step(act, one.id)
        return "ok"

    campaign = await begun(stage.store, stage.clock, a_spec(MIGRATION), items(1))
    await stage.open(migrate)
    row = await go(stage, campaign)

    assert seen == [
        ("prep", 0, None),
        ("transfer", 25, "act"),
        ("integrate", 50, "act"),
        ("validate", 75, "act"),
    ]
    assert (row.status, row.stage, row.percent) == (ItemStatus.DONE, "validate", 100)


async def test_an_item_that_is_interrupted_goes_on_at_its_stage(stage: Stage) -> None:
    done: list[str] = []

    @hf.task
    async def migrate(run: hf.Run, item: hf.Item) -> str:
        async for one in run.stages(item):
            done.append(one.id)
            if done == ["prep", "transfer"]:
                raise Crashed
            await one.step(act, one.id)
        return "ok"

    campaign = await begun(stage.store, stage.clock, a_spec(MIGRATION), items(1))
    await stage.open(migrate)
    before = await go(stage, campaign)
    await stage.open(migrate)
    after = await go(stage, campaign)

    assert (before.status, before.stage, before.percent) == (ItemStatus.RUNNING, "transfer", 25)
    assert done == ["prep", "transfer", "transfer", "integrate", "validate"]
    assert (after.status, after.attempt, after.task_id) == (ItemStatus.DONE, 1, before.task_id)


async def test_an_item_that_is_retried_goes_on_at_its_stage(stage: Stage) -> None:
    done: list[str] = []

    @hf.task(attempts=1)
    async def migrate(run: hf.Run, item: hf.Item) -> str:
        async for one in run.stages(item):
            done.append(one.id)
            if done == ["prep", "transfer"]:
                raise ValueError("no disk")
            await one.step(act, one.id)
        return "ok"

    campaign = await begun(stage.store, stage.clock, a_spec(MIGRATION), items(1))
    await stage.open(migrate)
    failed = await go(stage, campaign)
    await stage.store.write(retrying_items(campaign.id, now=stage.clock.now()))
    after = await go(stage, campaign)

    assert (failed.status, failed.stage, failed.percent) == (ItemStatus.FAILED, "transfer", 25)
    assert done == ["prep", "transfer", "transfer", "integrate", "validate"]
    assert (after.status, after.task_id, after.note) == (ItemStatus.DONE, failed.task_id, None)


async def test_what_a_task_reports_of_its_progress_is_in_its_row(stage: Stage) -> None:
    seen: list[ItemPhase] = []

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        async for turn in run.turns(max=2):
            await run.progress(done=20 * turn.number, total=50, failed=1, subtask="dependency_mapping")
            await turn.step(act, "map")
            seen.append(await the_row(stage, campaign))

    campaign = await begun(stage.store, stage.clock, a_spec(Phase(name="analysis", task="analyse")), items(1))
    await stage.open(analyse)
    row = await go(stage, campaign)

    first, second = seen
    assert (first.percent, first.items_total, first.last_action) == (0, None, None)
    assert (second.percent, second.items_total, second.items_done, second.items_failed) == (40, 50, 20, 1)
    assert (second.subtask, second.last_action) == ("dependency_mapping", "act")
    assert second.last_action_at is not None
    assert (row.percent, row.items_done, row.stage) == (100, 40, None)


async def test_a_phase_without_stages_says_so(stage: Stage) -> None:
    @hf.task(attempts=1)
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        async for _ in run.stages(item):
            pytest.fail("there is no stage")

    campaign = await begun(stage.store, stage.clock, a_spec(Phase(name="analysis", task="analyse")), items(1))
    await stage.open(analyse)
    row = await go(stage, campaign)

    assert row.status is ItemStatus.FAILED
    assert row.error is not None
    assert "phase analysis has none; declare them" in row.error
