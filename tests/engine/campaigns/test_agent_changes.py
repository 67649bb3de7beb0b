"""One agent of a campaign is paused, goes on, and is restarted: its saved steps never run again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.agent import AgentStatus, CampaignAgent
from holdfast.core.campaign import Campaign, Phase
from holdfast.core.clock import Clock
from holdfast.core.errors import Conflict, NotFound, NotYours
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus, ItemStatus, RunStatus
from holdfast.engine.campaigns.agent_changes import (
    AgentRestartRequest,
    pausing_agent,
    restarting_agent,
    resuming_agent,
)
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.client.campaigns import Campaigns
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.builders import an_effect
from tests.engine.campaigns.campaign_world import (
    CampaignWorker,
    a_spec,
    begun,
    fill,
    items,
    recount,
    rows_of,
    statuses,
)
from tests.engine.parts import Parts
from tests.engine.stage import Stage
from tests.engine.workers import GateAndNotes, carrying, note_step, soon, until_run

ONE = Phase(name="analysis", task="analyse")
AGENT = "repo-001-analyzer"
FIRST = "repo-001/analysis"
CHANGES = {"pause": pausing_agent, "resume": resuming_agent, "restart": restarting_agent}


async def change(store: Store, clock: Clock, what: str, agent: str = AGENT, **more: Any) -> CampaignAgent:
    (campaign,) = await store.read(lambda tx: tx.campaigns.page())
    return await store.write(CHANGES[what](campaign.id, agent, now=clock.now(), **more))


async def worker_of(parts: Parts, count: int, **changes: Any) -> CampaignWorker:
    campaign = await begun(parts.store, parts.clock, a_spec(ONE, **changes), items(count))
    return CampaignWorker(parts, campaign)


async def check(store: Store, campaign: Campaign) -> None:
    await store.read(lambda tx: recount(tx, campaign))


async def runs_of(store: Store, task_id: str) -> list[RunStatus]:
    return [run.status for run in await store.read(lambda tx: tx.runs.of_task(task_id))]


async def taken(store: Store, campaign: Campaign) -> int:
    return await store.read(lambda tx: tx.slots.taken(campaign.id, "campaign"))


async def saved(worker: CampaignWorker, name: str = FIRST) -> str:
    """Its task has saved a step; returns the task's id."""
    claimed = worker.held[name]
    await worker.parts.journal.save_step(claimed.claim, "scan", "done")
    return claimed.task.id


async def test_a_paused_agent_frees_its_slot_and_stays_paused(parts: Parts, others: Parts) -> None:
    worker = await worker_of(parts, 3, concurrency=1)
    await worker.take()
    task_id = await saved(worker)

    agent = await change(parts.store, parts.clock, "pause")
    await worker.stopped(FIRST)
    free = await taken(parts.store, worker.campaign)
    # A process that starts now rescues and resumes what it finds.
    await others.recover()
    await worker.take()

    assert agent.status is AgentStatus.PAUSED
    assert free == 0
    assert (await statuses(parts.store, worker.campaign))[FIRST] == "paused"
    assert "repo-002/analysis" in worker.held
    assert await runs_of(parts.store, task_id) == [RunStatus.CANCELLED]
    await check(parts.store, worker.campaign)


async def test_a_resumed_agent_goes_on_in_the_same_task_with_one_more_run(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    await worker.take()
    task_id = await saved(worker)
    await change(parts.store, parts.clock, "pause")
    await worker.stopped(FIRST)

    await change(parts.store, parts.clock, "resume")
    await worker.take()
    await worker.finish(FIRST)

    assert await runs_of(parts.store, task_id) == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    assert (await statuses(parts.store, worker.campaign))[FIRST] == "done"
    await check(parts.store, worker.campaign)


async def test_a_restart_cancels_the_run_and_goes_on_from_what_was_saved(stage: Stage) -> None:
    done: list[str] = []
    restarted: list[str] = []

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> str:
        for name in ("scan", "map", "sum"):
            await run.step(hf.step(act, id=name), name)
            if not restarted:
                restarted.append(name)
                await change(stage.store, stage.clock, "restart")
                await change(stage.store, stage.clock, "restart")
                await stage.tell_cancelled()
        return "ok"

    @hf.opaque
    async def act(name: str) -> str:
        done.append(name)
        return name

    campaign = await begun(stage.store, stage.clock, a_spec(ONE), items(1))
    await stage.open(analyse)
    for _ in range(3):
        await fill(stage.store, stage.clock, campaign)
        await stage.settle()

    (row,) = await rows_of(stage.store, campaign)
    assert row.status is ItemStatus.DONE
    assert (row.attempt, row.note) == (1, "restarted by an operator")
    assert done == ["scan", "map", "sum"], "no effect was repeated"
    assert await runs_of(stage.store, str(row.task_id)) == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    await check(stage.store, campaign)


@pytest.mark.parametrize("later", [timedelta(seconds=1), timedelta(hours=-1)])
async def test_a_restart_that_runs_again_after_its_own_commit_restarts_once(
    parts: Parts, later: timedelta
) -> None:
    worker = await worker_of(parts, 1)
    await worker.take()
    task_id = await saved(worker)
    asked = restarting_agent(worker.campaign.id, AGENT, now=parts.clock.now())
    assert isinstance(parts.clock, FakeClock)
    parts.clock.set(parts.clock.now() + later)

    await parts.store.write(asked)
    await worker.stopped(FIRST)
    await worker.take()
    again = await parts.store.write(asked)
    await worker.finish(FIRST)

    assert again.item_status is ItemStatus.RUNNING
    assert await runs_of(parts.store, task_id) == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    await check(parts.store, worker.campaign)


async def test_an_agent_is_restarted_after_the_clock_was_set_back(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    assert isinstance(parts.clock, FakeClock)
    parts.clock.advance(hours=2)
    await worker.take()
    task_id = await saved(worker)
    parts.clock.set(parts.clock.now() - timedelta(hours=1))

    agent = await change(parts.store, parts.clock, "restart")
    asked = await parts.ledger.get(task_id)
    await worker.stopped(FIRST)
    await worker.take()
    await worker.finish(FIRST)

    assert agent.item_status is ItemStatus.PENDING
    assert asked.cancel_requested_at is not None
    assert await runs_of(parts.store, task_id) == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    await check(parts.store, worker.campaign)


async def test_a_restart_of_a_run_that_is_over_leaves_the_next_one_alone(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    await worker.take()
    task_id = await saved(worker)
    request = AgentRestartRequest(run_id=worker.held[FIRST].claim.run_id)
    await change(parts.store, parts.clock, "restart")
    await worker.stopped(FIRST)
    await worker.take()

    agent = await change(parts.store, parts.clock, "restart", request=request)

    assert agent.item_status is ItemStatus.RUNNING
    assert (await parts.ledger.get(task_id)).cancel_requested_at is None


async def waiting_on_a_child(worker: CampaignWorker) -> tuple[str, ClaimedRun]:
    """Its task has had an effect, and waits for a task that it started and that a worker runs."""
    claimed = worker.held.pop(FIRST)
    paid = an_effect(
        task_id=claimed.task.id,
        run_id=claimed.claim.run_id,
        fence=claimed.claim.fence,
        status=EffectStatus.DONE,
    )
    await worker.parts.store.write(lambda tx: tx.effects.create(paid))
    child = await worker.parts.carry(parent_task_id=claimed.task.id)
    await worker.parts.claims.wait(claimed.claim, waits_on=f"child:{child.task.id}")
    return claimed.task.id, child


@pytest.mark.parametrize("how", ["restart", "pause", "retry", "campaign"])
async def test_an_agent_waits_for_a_child_that_still_stops_and_keeps_what_it_saved(
    parts: Parts, how: str
) -> None:
    worker = await worker_of(parts, 1)
    campaigns = Campaigns(parts.store, parts.clock)
    await worker.take()
    task_id, child = await waiting_on_a_child(worker)

    if how == "restart":
        await change(parts.store, parts.clock, "restart")
    elif how == "pause":
        await change(parts.store, parts.clock, "pause")
        await change(parts.store, parts.clock, "resume")
    elif how == "retry":
        await parts.ledger.cancel(task_id, reason="try again")
        await campaigns.retry("rd-os")
    else:
        await campaigns.pause("rd-os", stop=True)
        await campaigns.start("rd-os")
    too_early = await worker.start()
    meanwhile = await statuses(parts.store, worker.campaign)
    stopped = Failure(kind="cancelled", message="asked")
    await parts.ledger.fail(child.claim, stopped, status=RunStatus.CANCELLED)
    then = await worker.start()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert (too_early, then) == (0, 1)
    assert meanwhile == {FIRST: "pending"}
    assert (row.status, row.task_id, row.attempt) == (ItemStatus.RUNNING, task_id, 1)
    assert "started anew" not in (row.note or "")
    await check(parts.store, worker.campaign)


async def test_a_failed_agent_is_restarted_and_a_done_one_is_refused(parts: Parts) -> None:
    worker = await worker_of(parts, 2)
    await worker.take()
    await saved(worker)
    await worker.fail(FIRST)
    await worker.finish("repo-002/analysis")

    await change(parts.store, parts.clock, "restart")
    await worker.take()

    assert (await statuses(parts.store, worker.campaign))[FIRST] == "running"
    for what in ("restart", "pause"):
        with pytest.raises(Conflict, match="repo-002-analyzer of rd-os is done"):
            await change(parts.store, parts.clock, what, "repo-002-analyzer")
    await check(parts.store, worker.campaign)


async def test_agents_that_are_not_there_or_not_ones_own(parts: Parts) -> None:
    worker = await worker_of(parts, 1)

    with pytest.raises(NotFound):
        await change(parts.store, parts.clock, "pause", "repo-009-analyzer")
    with pytest.raises(NotYours):
        await change(parts.store, parts.clock, "pause", owner="eve")
    with pytest.raises(NotFound):
        await parts.store.write(restarting_agent("camp_none", AGENT, now=parts.clock.now()))
    assert (await statuses(parts.store, worker.campaign))[FIRST] == "pending"


async def test_an_agent_that_ends_while_it_is_restarted_is_done(parts: Parts) -> None:
    worker = await worker_of(parts, 1)
    await worker.take()
    await change(parts.store, parts.clock, "restart")

    await worker.finish(FIRST)
    await worker.start()

    assert (await statuses(parts.store, worker.campaign))[FIRST] == "done"
    await check(parts.store, worker.campaign)


async def test_a_process_that_dies_while_its_agent_is_restarted_leaves_one_follow_up(
    parts: Parts, others: Parts
) -> None:
    worker = await worker_of(parts, 1)
    await worker.take()
    task_id = await saved(worker)
    late = worker.held[FIRST]
    await change(parts.store, parts.clock, "restart")

    await parts.life.end()
    await others.recover()
    second = CampaignWorker(others, worker.campaign)
    await second.take()
    # The frozen worker wakes up: what it says is refused.
    with pytest.raises(Exception, match="claim"):
        await parts.ledger.finish(late.claim, "late")
    await second.finish(FIRST)

    runs = await runs_of(parts.store, task_id)
    assert runs[-1] is RunStatus.SUCCEEDED
    assert runs.count(RunStatus.SUCCEEDED) == 1
    assert len(runs) == 2
    await check(parts.store, worker.campaign)


async def test_changes_and_ends_of_agents_race_and_counts_stay_right(parts: Parts, seed: int) -> None:
    chance = random.Random(seed)
    worker = await worker_of(parts, 6, concurrency=3)
    agents = [f"repo-{number:03d}-analyzer" for number in range(1, 7)]

    async def meddle() -> None:
        for _ in range(8):
            what, agent = chance.choice(list(CHANGES)), chance.choice(agents)
            with contextlib.suppress(Conflict):
                await change(parts.store, parts.clock, what, agent)

    async def work() -> None:
        for _ in range(8):
            for name in sorted(await worker.take()):
                task = await parts.ledger.get(worker.held[name].task.id)
                if task.cancel_requested_at is not None and chance.random() < 0.7:
                    await worker.stopped(name)
                elif chance.random() < 0.5:
                    await worker.finish(name)
            await check(parts.store, worker.campaign)

    await asyncio.gather(meddle(), meddle(), work())
    await Campaigns(parts.store, parts.clock).resume_items("rd-os")
    for _ in range(20):
        for name in sorted(await worker.take()):
            task = await parts.ledger.get(worker.held[name].task.id)
            await (worker.stopped(name) if task.cancel_requested_at is not None else worker.finish(name))

    assert set((await statuses(parts.store, worker.campaign)).values()) == {"done"}
    assert await taken(parts.store, worker.campaign) == 0
    await check(parts.store, worker.campaign)


async def test_a_process_that_dies_during_a_pause_leaves_the_agent_paused(
    parts: Parts, others: Parts
) -> None:
    worker = await worker_of(parts, 2, concurrency=1)
    await worker.take()
    task_id = await saved(worker)
    await change(parts.store, parts.clock, "pause")

    await parts.life.end()
    await others.recover()
    second = CampaignWorker(others, worker.campaign)
    await second.take()
    meanwhile = await statuses(parts.store, worker.campaign)
    await second.finish("repo-002/analysis")
    await change(parts.store, parts.clock, "resume")
    await second.take()
    await second.finish(FIRST)

    assert meanwhile == {FIRST: "paused", "repo-002/analysis": "running"}
    assert (await runs_of(parts.store, task_id))[-1] is RunStatus.SUCCEEDED
    await check(parts.store, worker.campaign)


async def test_a_run_that_does_not_stop_is_cut_off_after_the_grace_and_its_task_goes_on(
    store: Store, clock: FakeClock, gate: GateAndNotes, quick_force: None
) -> None:
    note = note_step(gate)
    is_first = True

    @hf.task
    async def analyse(run: hf.Run, item: hf.Item) -> str:
        nonlocal is_first
        await run.step(hf.step(note, id="before"), "before")
        if is_first:
            is_first = False
            gate.entered.set()
            while not gate.open.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
        return await run.step(hf.step(note, id="after"), "after")

    campaign = await begun(store, clock, a_spec(ONE), items(1))
    async with carrying(store, clock, analyse, grace=0.05, drain_timeout=0.2) as process:
        await fill(store, clock, campaign)
        await soon(gate.entered.wait())
        (row,) = await rows_of(store, campaign)
        task_id = str(row.task_id)
        await change(store, clock, "restart")
        await until_run(store, task_id, RunStatus.CANCELLED)
        clock.advance(seconds=1)
        await fill(store, clock, campaign)
        assert await soon(process.holdfast.handle(task_id).result()) == "after"
        gate.open.set()

    assert gate.notes == ["before", "after"]
    assert await runs_of(store, task_id) == [RunStatus.CANCELLED, RunStatus.SUCCEEDED]
    assert (await rows_of(store, campaign))[0].status is ItemStatus.DONE
