"""Retry of failed items, and what operators and retention do to their tasks: items and counts stay right."""

from __future__ import annotations

import pytest

from holdfast.core.campaign import Phase
from holdfast.core.errors import NotFound
from holdfast.core.events import EventKind
from holdfast.core.transitions import CampaignStatus, EffectStatus, ItemStatus
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.ledger.retention import Pruner
from holdfast.engine.program.forks import fork
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.store.events import START
from holdfast.testing import FakeClock
from tests.builders import an_effect
from tests.engine.campaigns.campaign_world import (
    CampaignWorker,
    a_spec,
    begun,
    campaign_of,
    items,
    recount,
    rows_of,
    statuses,
)
from tests.engine.parts import Parts
from tests.engine.tables import execute

ONE = Phase(name="analysis", task="analyse")


async def failed(parts: Parts, count: int = 3, **changes: object) -> CampaignWorker:
    """A campaign whose items have all failed."""
    worker = CampaignWorker(
        parts, await begun(parts.store, parts.clock, a_spec(ONE, **changes), items(count))
    )
    while held := await worker.take():
        for name in sorted(held):
            await worker.fail(name)
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.FAILED
    return worker


async def test_all_failed_items_are_retried_and_the_campaign_goes_on(parts: Parts) -> None:
    worker = await failed(parts)
    campaigns = Campaigns(parts.store, parts.clock)

    done = await campaigns.retry("rd-os")
    again = await campaigns.retry("rd-os")
    await worker.finish_all()

    assert (done.retried, done.campaign.status) == (3, CampaignStatus.RUNNING)
    assert again.retried == 0
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.DONE
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_named_items_and_those_of_a_phase_are_retried_alone(parts: Parts) -> None:
    worker = await failed(parts)
    campaigns = Campaigns(parts.store, parts.clock)

    by_id = await campaigns.retry("rd-os", items=["repo-002"])
    after = await statuses(parts.store, worker.campaign)
    by_phase = await campaigns.retry("rd-os", phase="analysis")

    assert by_id.retried == 1
    assert after == {
        "repo-001/analysis": "failed",
        "repo-002/analysis": "pending",
        "repo-003/analysis": "failed",
    }
    assert by_phase.retried == 2


async def test_an_unknown_item_is_named(parts: Parts) -> None:
    await failed(parts)

    with pytest.raises(NotFound, match="repo-999"):
        await Campaigns(parts.store, parts.clock).retry("rd-os", items=["repo-999"])


async def test_what_was_done_is_never_run_again_also_by_a_retry(parts: Parts) -> None:
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, a_spec(ONE), items(2)))
    await worker.take()
    await worker.finish("repo-001/analysis", {"lines": 7})
    await worker.fail("repo-002/analysis")
    await worker.start()

    await Campaigns(parts.store, parts.clock).retry("rd-os")
    held = await worker.take()

    assert held == {"repo-002/analysis"}
    (first, _) = await rows_of(parts.store, worker.campaign)
    assert (first.status, first.attempt, first.summary) == (ItemStatus.DONE, 1, b'{"lines":7}')


async def test_an_item_without_progress_starts_anew_and_says_so(parts: Parts) -> None:
    worker = await failed(parts, 1)
    (before,) = await rows_of(parts.store, worker.campaign)

    await Campaigns(parts.store, parts.clock).retry("rd-os")
    await worker.take()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert (row.attempt, row.note) == (2, "started anew: nothing was saved")
    assert row.task_id != before.task_id
    feed = await parts.store.read(lambda tx: tx.events.after(START, limit=1000))
    (told,) = [one for one in feed if one.kind is EventKind.ITEM_STARTED]
    assert (told.facts["item"], told.facts["note"]) == ("repo-001", "started anew: nothing was saved")


async def test_an_item_with_progress_goes_on_with_its_task(parts: Parts) -> None:
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, a_spec(ONE), items(1)))
    await worker.take()
    await parts.journal.save_step(worker.held["repo-001/analysis"].claim, "clone", 1)
    await worker.fail("repo-001/analysis")
    (before,) = await rows_of(parts.store, worker.campaign)

    await Campaigns(parts.store, parts.clock).retry("rd-os")
    await worker.take()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert (row.task_id, row.attempt, row.note) == (before.task_id, 1, None)
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_retention_never_makes_a_done_item_run_again(parts: Parts, clock: FakeClock) -> None:
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, a_spec(ONE), items(2)))
    await worker.take()
    await worker.finish("repo-001/analysis")
    await worker.fail("repo-002/analysis")
    await worker.start()

    clock.advance(days=400)
    pruned = await Pruner(parts.store, clock).run_once()
    await Campaigns(parts.store, parts.clock).retry("rd-os")
    held = await worker.take()

    assert pruned.tasks == 1
    assert held == {"repo-002/analysis"}
    rows = await rows_of(parts.store, worker.campaign)
    assert [row.note for row in rows] == [None, "started anew: nothing was saved"]
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


@pytest.mark.parametrize("effects", [0, 1])
async def test_an_item_whose_damaged_task_had_effects_fails_before_a_retry_repeats_them(
    parts: Parts, effects: int
) -> None:
    worker = CampaignWorker(parts, await begun(parts.store, parts.clock, a_spec(ONE), items(1)))
    campaigns = Campaigns(parts.store, parts.clock)
    await worker.take()
    claim = worker.held["repo-001/analysis"].claim
    await parts.journal.save_step(claim, "clone", 1)
    child = await parts.carry(parent_task_id=claim.task_id)
    of_child = {"task_id": child.task.id, "run_id": child.claim.run_id, "fence": child.claim.fence}
    for _ in range(effects):
        sent = an_effect(status=EffectStatus.DONE, **of_child)
        await parts.store.write(lambda tx, sent=sent: tx.effects.create(sent))  # type: ignore[misc]
    await parts.ledger.finish(child.claim)
    await worker.fail("repo-001/analysis")
    execute(parts.store, "UPDATE runs SET number = 7")

    await campaigns.retry("rd-os")
    started = await worker.start()

    (row,) = await rows_of(parts.store, worker.campaign)
    if effects:
        assert (started, row.status, row.attempt, row.task_id) == (0, ItemStatus.FAILED, 1, claim.task_id)
        assert row.error is not None
        assert "cannot go on, and has effects" in row.error
        assert row.error.endswith("a retry of this item starts it anew and does them again")
        await campaigns.retry("rd-os")
        await worker.start()
        (row,) = await rows_of(parts.store, worker.campaign)
    assert (row.status, row.attempt) == (ItemStatus.RUNNING, 2)
    assert row.note is not None
    assert row.note.startswith("started anew: ")
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_an_item_whose_task_is_gone_fails_before_a_retry_starts_it_anew(parts: Parts) -> None:
    worker = await failed(parts, 1)
    campaigns = Campaigns(parts.store, parts.clock)
    for table in ("runs", "tasks"):
        execute(parts.store, f"DELETE FROM {table}")

    await campaigns.retry("rd-os")
    first = await worker.start()
    (told,) = await rows_of(parts.store, worker.campaign)
    await campaigns.retry("rd-os")
    second = await worker.start()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert (first, second) == (0, 1)
    assert told.status is ItemStatus.FAILED
    assert told.error is not None
    assert "is no longer in the ledger, and may have had effects" in told.error
    assert (row.status, row.attempt) == (ItemStatus.RUNNING, 2)


async def test_an_operators_retry_of_a_task_lets_its_item_and_its_campaign_go_on(parts: Parts) -> None:
    worker = await failed(parts, 2)
    (first, _) = await rows_of(parts.store, worker.campaign)

    await parts.store.write(retrying_task(str(first.task_id), now=parts.clock.now()))
    campaign = await campaign_of(parts.store, worker.campaign.id)
    running = await statuses(parts.store, worker.campaign)
    await parts.store.read(lambda tx: recount(tx, worker.campaign))
    await worker.finish_all()

    assert campaign.status is CampaignStatus.RUNNING
    assert running == {"repo-001/analysis": "running", "repo-002/analysis": "failed"}
    assert (await statuses(parts.store, worker.campaign))["repo-001/analysis"] == "done"
    assert (await campaign_of(parts.store, worker.campaign.id)).status is CampaignStatus.FAILED
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_a_task_that_an_operator_retried_before_its_item_came_up_is_not_started_twice(
    parts: Parts,
) -> None:
    worker = await failed(parts, 1)
    (before,) = await rows_of(parts.store, worker.campaign)

    await Campaigns(parts.store, parts.clock).retry("rd-os")
    await parts.store.write(retrying_task(str(before.task_id), now=parts.clock.now()))
    held = await worker.take()

    (row,) = await rows_of(parts.store, worker.campaign)
    assert held == {"repo-001/analysis"}
    assert (row.status, row.task_id, row.attempt) == (ItemStatus.RUNNING, before.task_id, 1)
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_many_items_are_retried_in_several_writes(parts: Parts) -> None:
    worker = await failed(parts, 501, concurrency=600)

    done = await Campaigns(parts.store, parts.clock).retry("rd-os")

    assert done.retried == 501
    assert await worker.start() == 501
    await parts.store.read(lambda tx: recount(tx, worker.campaign))


async def test_a_fork_of_the_task_of_an_item_is_work_of_its_own(parts: Parts) -> None:
    worker = await failed(parts, 1)
    (before,) = await rows_of(parts.store, worker.campaign)

    made = await fork(parts.store, parts.clock, str(before.task_id), at="start")
    (claimed,) = await parts.claims.take(9)
    await parts.ledger.finish(claimed.claim, None)

    assert (claimed.task.id, claimed.task.campaign_id) == (made.id, None)
    assert await rows_of(parts.store, worker.campaign) == [before]
    await parts.store.read(lambda tx: recount(tx, worker.campaign))
