"""What an item shows of the steps of its task: the last one, also of a program of plain steps."""

from __future__ import annotations

from datetime import timedelta

import pytest

import holdfast as hf
from holdfast.alerts.figures import campaign_figures
from holdfast.core.campaign import Campaign, ItemPhase, Phase
from holdfast.core.errors import StoreUnavailable
from holdfast.core.transitions import ItemStatus
from holdfast.engine.worker import saved_steps
from holdfast.engine.worker.saved_steps import SavedSteps
from holdfast.store import Store
from holdfast.testing import Crashed, FakeClock
from tests.engine.campaigns.campaign_world import a_spec, all_rows, begun, fill, items, recount, rows_of
from tests.engine.stage import Stage
from tests.engine.workers import GateAndNotes, WatchedStore, carrying, until

ANALYSIS = Phase(name="analysis", task="analyse")


async def survey(name: str) -> str:
    return name


@hf.opaque
async def publish(name: str) -> str:
    return name


@hf.step(pure=True)
async def weigh(name: str) -> int:
    return len(name)


def telling(stage: Stage) -> SavedSteps:
    """The service of the process on the stage."""
    return SavedSteps(stage.store, stage.clock, runs=lambda: [one.live for one in stage.executions])


async def the_row(stage: Stage, campaign: Campaign) -> ItemPhase:
    (row,) = await rows_of(stage.store, campaign)
    return row


async def begin(stage: Stage) -> Campaign:
    campaign = await begun(stage.store, stage.clock, a_spec(ANALYSIS), items(1))
    await fill(stage.store, stage.clock, campaign)
    return campaign


async def test_an_item_that_is_done_shows_the_last_step_of_its_task(stage: Stage) -> None:
    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        stage.clock.advance(minutes=1)
        await run.step(publish, item.id)

    await stage.open(analyse)
    campaign = await begin(stage)
    began_at = stage.clock.now()
    await stage.settle()
    row = await the_row(stage, campaign)

    assert row.status is ItemStatus.DONE
    assert (row.last_action, row.last_action_at) == ("publish", began_at + timedelta(minutes=1))
    await stage.store.read(lambda tx: recount(tx, campaign))


async def test_an_item_that_fails_shows_the_last_step_before(stage: Stage) -> None:
    @hf.task(attempts=1)
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(weigh, item.id)
        raise ValueError("no disk")

    await stage.open(analyse)
    campaign = await begin(stage)
    await stage.settle()
    row = await the_row(stage, campaign)

    assert (row.status, row.last_action) == (ItemStatus.FAILED, "weigh")


async def test_an_item_shows_the_steps_of_its_task_while_it_goes_on(stage: Stage) -> None:
    seen: list[tuple[str | None, float]] = []

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        for step in (survey, publish):
            stage.clock.advance(minutes=90)
            await run.step(step, item.id)
            await service.run_once()
            row = await the_row(stage, campaign)
            figures = stage.store.read_now(lambda tx: campaign_figures(tx, campaign, now=stage.clock.now()))
            seen.append((row.last_action, figures["no_progress_for_minutes"]))

    await stage.open(analyse)
    service, campaign = telling(stage), await begin(stage)
    await stage.settle()

    assert seen == [("survey", 0.0), ("publish", 0.0)]


async def test_a_task_that_saves_nothing_makes_no_progress(stage: Stage) -> None:
    told: list[int] = []

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        told.append(await service.run_once())
        before = await the_row(stage, campaign)
        stage.clock.advance(minutes=90)
        told.append(await service.run_once())
        assert await the_row(stage, campaign) == before

    await stage.open(analyse)
    service, campaign = telling(stage), await begin(stage)
    await stage.settle()

    assert told == [1, 0]


async def test_a_pure_step_shows_only_once_it_is_saved(stage: Stage) -> None:
    seen: list[str | None] = []

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        await run.step(weigh, item.id)
        await service.run_once()
        seen.append((await the_row(stage, campaign)).last_action)

    await stage.open(analyse)
    service, campaign = telling(stage), await begin(stage)
    await stage.settle()

    assert seen == ["survey"]
    assert (await the_row(stage, campaign)).last_action == "weigh"


async def test_an_item_whose_task_waits_shows_its_last_step(stage: Stage) -> None:
    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        await run.ask("go on?")

    await stage.open(analyse)
    service, campaign = telling(stage), await begin(stage)
    await stage.settle()
    for one in stage.executions:
        service.left(one.live)
    stage.executions.clear()
    await service.run_once()
    row = await the_row(stage, campaign)

    assert (row.status, row.last_action) == (ItemStatus.RUNNING, "survey")
    assert await service.run_once() == 0


async def test_after_a_kill_the_replay_tells_the_step_that_was_not_told(stage: Stage) -> None:
    seen: list[str | None] = []
    lives: list[int] = []

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        lives.append(len(lives))
        if len(lives) == 1:
            raise Crashed
        await service.run_once()
        seen.append((await the_row(stage, campaign)).last_action)

    await stage.open(analyse)
    campaign = await begin(stage)
    await stage.settle()
    before = await the_row(stage, campaign)
    stage.executions.clear()
    await stage.open(analyse)
    service = telling(stage)
    await stage.settle()

    assert before.last_action is None
    assert seen == ["survey"]


async def test_a_worker_that_was_frozen_does_not_overwrite_a_newer_step(stage: Stage) -> None:
    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        if len(stage.executions) == 1:
            raise Crashed
        stage.clock.advance(minutes=1)
        await run.step(publish, item.id)
        await telling(stage).run_once()
        newer = await the_row(stage, campaign)
        await frozen.run_once()
        assert await the_row(stage, campaign) == newer

    await stage.open(analyse)
    campaign = await begin(stage)
    await stage.settle()
    frozen = telling(stage)
    old = stage.executions[0].live
    frozen.left(old)
    assert old.last_step is not None
    await stage.open(analyse)
    await stage.settle()

    assert (await the_row(stage, campaign)).status is ItemStatus.DONE


async def test_what_could_not_be_told_is_told_with_the_next_pass(stage: Stage) -> None:
    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        await run.ask("go on?")

    await stage.open(analyse)
    campaign = await begin(stage)
    await stage.settle()
    away = WatchedStore(stage.store)
    service = SavedSteps(away, stage.clock, runs=list)
    service.left(stage.executions[0].live)
    away.is_away = True
    with pytest.raises(StoreUnavailable):
        await service.run_once()
    away.is_away = False
    await service.run_once()

    assert (await the_row(stage, campaign)).last_action == "survey"


async def test_a_task_without_a_campaign_is_not_told(stage: Stage) -> None:
    told: list[int] = []

    @hf.task
    async def alone(run: hf.Run) -> None:
        await run.step(survey, "x")
        told.append(await telling(stage).run_once())

    await stage.open(alone)
    await stage.run(alone())

    assert told == [0]


async def test_a_worker_tells_the_steps_of_its_runs_every_few_seconds(
    store: Store, clock: FakeClock, gate: GateAndNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_steps, "EVERY_S", 0.01)

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        await gate.open.wait()

    def are_told() -> bool:
        rows = store.read_now(lambda tx: all_rows(tx, campaign))
        return [row.last_action for row in rows] == ["survey"] * 3

    campaign = await begun(store, clock, a_spec(ANALYSIS), items(3))
    await fill(store, clock, campaign)
    async with carrying(store, clock, analyse):
        await until(are_told)
        running = [row.status for row in await rows_of(store, campaign)]
        gate.open.set()

    assert running == [ItemStatus.RUNNING] * 3


async def test_a_worker_that_stops_tells_what_is_left(store: Store, clock: FakeClock) -> None:
    """It tells nothing by itself before: the next pass would come in some seconds."""

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> None:
        await run.step(survey, item.id)
        await run.ask("go on?")

    def are_waiting() -> bool:
        return len(store.read_now(lambda tx: tx.questions.open_page(limit=9))) == 3

    campaign = await begun(store, clock, a_spec(ANALYSIS), items(3))
    await fill(store, clock, campaign)
    async with carrying(store, clock, analyse):
        await until(are_waiting)
        before = [row.last_action for row in await rows_of(store, campaign)]

    assert before == [None] * 3
    assert [row.last_action for row in await rows_of(store, campaign)] == ["survey"] * 3
