"""A restore lets what was not done at a milestone start anew, says so before, and goes on after a crash."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from holdfast.core.campaign import Campaign, ItemPhase, Phase
from holdfast.core.campaign_checkpoint import CampaignCheckpoint
from holdfast.core.errors import BadInput, IllegalMove, NotFound, NotYours, Refused, RowDamaged
from holdfast.core.task import Failure
from holdfast.core.transitions import CampaignStatus, ItemStatus, RunStatus
from holdfast.engine.campaigns.changes import (
    pausing_campaign,
    pausing_items,
    resuming_items,
    retrying_items,
    starting_campaign,
)
from holdfast.engine.campaigns.creating import adding_items
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.program import campaign_restore
from holdfast.engine.program.campaign_restore import (
    RestoreProgress,
    beginning_restore,
    restore_campaign,
    undoing_chunk,
)
from holdfast.progress.saver import CampaignSaver
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, FakeClock
from tests.engine.campaigns.campaign_world import (
    TWO,
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
from tests.engine.tables import dump, execute


class Restoring:
    """A campaign, its worker, and a milestone of it."""

    def __init__(self, parts: Parts, clock: FakeClock, campaign: Campaign) -> None:
        self.store, self.clock, self.campaign = parts.store, clock, campaign
        self.worker = CampaignWorker(parts, campaign)
        self.campaigns = Campaigns(parts.store, clock)

    @classmethod
    async def begin(
        cls,
        parts: Parts,
        clock: FakeClock,
        count: int = 4,
        *phases: Phase,
        name: str = "rd-os",
        **changes: Any,
    ) -> Restoring:
        return cls(
            parts, clock, await begun(parts.store, clock, a_spec(*phases, **changes), items(count), name=name)
        )

    async def finish(self, *names: str) -> None:
        await self.worker.take()
        for name in names:
            await self.worker.finish(name, {"by": name})

    async def milestone(self, name: str = "here") -> CampaignCheckpoint:
        return await self.campaigns.milestone(name, self.campaign.id)

    async def restore(self, to: CampaignCheckpoint, **options: Any) -> RestoreProgress:
        return await restore_campaign(self.store, self.clock, to.id, patience_s=0, **options)

    async def restored(self, to: CampaignCheckpoint, **options: Any) -> RestoreProgress:
        """To the end; whoever carries an item stops when it is told to."""
        for _ in range(50):
            progress = await self.restore(to, **options)
            if progress.is_over:
                return progress
            for name in sorted(self.worker.held):
                await self.stop(name)
        raise AssertionError("it does not end")

    async def stop(self, name: str) -> None:
        """Its worker has heard that it was cancelled."""
        claim = self.worker.held.pop(name).claim
        failure = Failure(kind="cancelled", message="as was asked")
        await self.worker.parts.ledger.fail(claim, failure, status=RunStatus.CANCELLED)

    async def rows(self) -> dict[tuple[int, int], ItemPhase]:
        return {(one.phase, one.place): one for one in await rows_of(self.store, self.campaign)}

    async def statuses(self) -> dict[str, str]:
        return await statuses(self.store, self.campaign)

    async def status(self) -> CampaignStatus:
        return (await campaign_of(self.store, self.campaign.id)).status

    async def check(self) -> None:
        await self.store.read(lambda tx: recount(tx, self.campaign))


# --- what it does


async def test_what_was_done_after_the_milestone_starts_anew_as_new_tasks(
    parts: Parts, clock: FakeClock
) -> None:
    at = await Restoring.begin(parts, clock, 3)
    await at.finish("repo-001/analysis")
    milestone = await at.milestone()
    await at.finish("repo-002/analysis", "repo-001/migration")
    before = await at.rows()

    await at.restored(milestone)

    after = await at.rows()
    assert after[0, 0] == before[0, 0]
    for key in ((0, 1), (0, 2), (1, 0)):
        assert (after[key].status, after[key].task_id) == (ItemStatus.PENDING, None)
        assert after[key].note == f"started anew: {milestone.id} was restored"
    assert after[0, 1].summary is None
    await at.check()
    assert await at.status() is CampaignStatus.RUNNING
    held = await at.worker.take()
    assert held == {"repo-002/analysis", "repo-003/analysis", "repo-001/migration"}
    again = await at.rows()
    assert (again[0, 1].attempt, again[0, 1].note) == (2, f"started anew: {milestone.id} was restored")
    assert again[0, 1].task_id not in (None, before[0, 1].task_id)
    assert await at.worker.finish_all() == 5
    await at.worker.start()
    assert await at.status() is CampaignStatus.DONE
    await at.check()


async def test_it_deletes_nothing(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock, 2)
    milestone = await at.milestone()
    await at.finish("repo-001/analysis", "repo-002/analysis")
    before = dump(parts.store)

    await at.restored(milestone)

    after = dump(parts.store)
    for table in (
        "tasks",
        "runs",
        "steps",
        "effects",
        "campaign_items",
        "campaign_checkpoints",
        "ledger_events",
    ):
        assert [row for row in before[table] if row not in after[table]] == [], table


async def test_the_preview_says_what_it_would_undo_and_changes_nothing(
    parts: Parts, clock: FakeClock
) -> None:
    at = await Restoring.begin(parts, clock, 6, concurrency=4)
    await at.finish("repo-001/analysis")
    milestone = await at.milestone()
    await at.finish("repo-002/analysis", "repo-001/migration")
    await at.worker.take()
    await at.worker.fail("repo-003/analysis")
    await at.worker.fail("repo-004/analysis")
    await parts.store.write(
        retrying_items(at.campaign.id, now=clock.now(), phase="analysis", item_ids=["repo-004"])
    )
    before = dump(parts.store)

    plan = await at.campaigns.plan_restore(milestone.id)

    assert dump(parts.store) == before
    found = [(one.name, one.done, one.failed, one.running, one.waiting) for one in plan.phases]
    assert found == [("analysis", 1, 1, 1, 1), ("migration", 1, 0, 1, 0)]
    assert (plan.undone, plan.effects, plan.unfinished) == (6, {}, None)
    assert (await at.restored(milestone)).restore.undone == plan.undone
    assert (await at.campaigns.plan_restore(milestone.id)).undone == 0
    await at.check()


async def test_running_items_are_stopped_first_and_nothing_starts_meanwhile(
    parts: Parts, clock: FakeClock
) -> None:
    at = await Restoring.begin(parts, clock, 4, concurrency=2)
    milestone = await at.milestone()
    await at.worker.take()

    first = await at.restore(milestone)

    assert (first.is_over, first.stopping) == (False, 2)
    assert await at.status() is CampaignStatus.PAUSED
    assert await at.worker.start() == 0
    with pytest.raises(Refused, match=r"a restore of rd-os .* is under way; finish it first: holdfast"):
        await parts.store.write(starting_campaign(at.campaign.id, now=clock.now()))
    await at.worker.fail("repo-001/analysis")
    # One of them ends before it hears that it should stop.
    await at.worker.finish("repo-002/analysis")
    over = await at.restore(milestone)
    assert (over.is_over, over.restore.undone) == (True, 2)
    assert set((await at.statuses()).values()) == {"pending"}
    await at.check()
    assert await at.worker.start() == 2


@pytest.mark.parametrize("how", ["running", "failed"])
async def test_a_restore_waits_until_the_tasks_that_an_item_started_have_stopped(
    parts: Parts, clock: FakeClock, how: str
) -> None:
    at = await Restoring.begin(parts, clock, 1, Phase(name="analysis", task="analyse"))
    milestone = await at.milestone()
    await at.worker.take()
    parent = at.worker.held["repo-001/analysis"].task.id
    child = await parts.carry(parent_task_id=parent)
    if how == "failed":
        await at.worker.fail("repo-001/analysis")

    first = await at.restore(milestone)
    asked = await parts.ledger.get(child.task.id)
    if how == "running":
        await at.stop("repo-001/analysis")
    second = await at.restore(milestone)
    stopped = Failure(kind="cancelled", message="as was asked")
    await parts.ledger.fail(child.claim, stopped, status=RunStatus.CANCELLED)
    last = await at.restore(milestone)

    assert [one.stopping for one in (first, second, last)] == [1, 1, 0]
    assert [one.is_over for one in (first, second, last)] == [False, False, True]
    # It hears of it at the end of the task that started it.
    assert (asked.cancel_requested_at is None) == (how == "running")
    await at.check()


async def test_a_paused_campaign_stays_paused(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock)
    milestone = await at.milestone()
    await at.finish("repo-001/analysis")
    await parts.store.write(pausing_campaign(at.campaign.id, now=clock.now()))

    await at.restored(milestone)

    assert await at.status() is CampaignStatus.PAUSED
    await parts.store.write(starting_campaign(at.campaign.id, now=clock.now()))
    assert await at.worker.finish_all() == 8


async def test_a_campaign_that_is_paused_during_a_restore_stays_paused(
    parts: Parts, clock: FakeClock
) -> None:
    at = await Restoring.begin(parts, clock)
    milestone = await at.milestone()
    await at.worker.take()
    await at.restore(milestone)
    await parts.store.write(pausing_campaign(at.campaign.id, now=clock.now()))

    await at.restored(milestone)

    assert await at.status() is CampaignStatus.PAUSED


async def test_items_that_an_operator_paused_stay_paused_and_get_new_tasks(
    parts: Parts, clock: FakeClock
) -> None:
    at = await Restoring.begin(parts, clock, 3)
    milestone = await at.milestone()
    await at.worker.take()
    await parts.store.write(
        pausing_items(at.campaign.id, ["repo-001", "repo-002"], now=clock.now(), phase="analysis")
    )
    first = await at.restore(milestone)
    for name in ("repo-001/analysis", "repo-002/analysis", "repo-003/analysis"):
        await at.stop(name)

    progress = await at.restore(milestone)

    assert (first.stopping, progress.is_over, progress.restore.undone) == (3, True, 3)
    rows = await at.rows()
    assert [(rows[0, place].status.value, rows[0, place].task_id) for place in range(3)] == [
        ("paused", None),
        ("paused", None),
        ("pending", None),
    ]
    await at.check()
    await parts.store.write(resuming_items(at.campaign.id, now=clock.now()))
    assert await at.worker.finish_all() == 6
    await at.check()


async def test_a_campaign_that_has_ended_goes_on(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock, 2)
    await at.worker.take()
    for name in ("repo-001/analysis", "repo-002/analysis"):
        await at.worker.finish(name)
    milestone = await at.milestone("analysis-done")
    await at.worker.finish_all()
    await at.worker.start()
    assert await at.status() is CampaignStatus.DONE

    progress = await at.restored(milestone)

    assert progress.restore.undone == 2
    assert await at.status() is CampaignStatus.RUNNING
    assert await at.worker.finish_all() == 2
    await at.worker.start()
    assert await at.status() is CampaignStatus.DONE
    await at.check()


async def test_items_that_were_added_later_stay_and_start_anew(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock, 1)
    await at.finish("repo-001/analysis")
    milestone = await at.milestone()
    await parts.store.write(adding_items(at.campaign.id, items(20, first=50), now=clock.now()))
    await at.finish("repo-050/analysis")
    await at.restored(milestone)

    found = await at.statuses()
    assert found["repo-050/analysis"] == "pending"
    assert len(found) == 42
    assert found["repo-001/analysis"] == "done"
    await at.check()


async def test_nothing_to_undo_changes_nothing(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock)
    await at.worker.finish_all()
    await at.worker.start()
    milestone = await at.milestone()
    before = dump(parts.store)

    progress = await at.restore(milestone)

    assert (progress.is_over, progress.restore.undone) == (True, 0)
    assert dump(parts.store) == before


async def test_going_back_twice_says_what_it_cannot_bring_back(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock, 3)
    early = await at.milestone("early")
    await at.finish("repo-001/analysis", "repo-002/analysis")
    late = await at.milestone("late")
    await at.restored(early)

    plan = await at.campaigns.plan_restore(late.id)

    assert [(one.name, one.undone, one.lost) for one in plan.phases] == [
        ("analysis", 0, 2),
        ("migration", 0, 0),
    ]
    assert await at.worker.finish_all() == 6
    await at.check()


async def test_a_complete_batch_is_saved_again_after_a_restore(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock, 2, Phase(name="analysis", task="analyse"))
    saver = CampaignSaver(parts.store, clock)
    milestone = await at.milestone()
    await at.worker.finish_all()
    await at.worker.start()
    first = [one.name for one in await saver.run_once()]
    await at.restored(milestone)
    between = [one.name for one in await saver.run_once()]
    clock.advance(seconds=1)
    await at.worker.finish_all()
    await at.worker.start()
    again = [one.name for one in await saver.run_once()]

    assert first == again == ["batch-001", "analysis-complete", "campaign-complete"]
    assert between == ["restored"]


# --- chunks, races, kills


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_restore, "CHUNK", 2)


@pytest.mark.usefixtures("small_chunks")
async def test_it_goes_chunk_by_chunk_and_each_chunk_leaves_the_counts_right(
    parts: Parts, clock: FakeClock
) -> None:
    at = await Restoring.begin(parts, clock, 5)
    milestone = await at.milestone()
    await at.worker.finish_all()
    await at.worker.start()
    undone = []
    while True:
        progress = await at.restore(milestone, max_chunks=1)
        undone.append(progress.restore.undone)
        if progress.is_over:
            break
        await at.check()
        assert await at.status() is CampaignStatus.PAUSED
        assert await at.worker.start() == 0

    assert undone == [2, 4, 5, 7, 9, 10, 10]
    assert set((await at.statuses()).values()) == {"pending"}
    await at.check()


@pytest.mark.usefixtures("small_chunks")
async def test_two_processes_that_restore_at_once_do_it_once(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock, 7)
    milestone = await at.milestone()
    await at.worker.finish_all()

    both = await asyncio.gather(at.restore(milestone), at.restore(milestone))

    assert [one.is_over for one in both] == [True, True]
    # The second one may find nothing left to undo.
    assert max(one.restore.undone for one in both) == 14
    await at.check()
    assert await at.worker.finish_all() == 14


async def test_only_one_restore_of_a_campaign_is_under_way(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock)
    one, other = await at.milestone("one"), await at.milestone("other")
    await at.worker.take()
    await at.restore(one)

    with pytest.raises(Refused, match=rf"finish it first: holdfast checkpoints restore {one.id} --apply"):
        await at.restore(other)


async def test_a_write_that_runs_again_after_its_commit_gives_the_same_answer(
    parts: Parts, clock: FakeClock
) -> None:
    at = await Restoring.begin(parts, clock, 2)
    milestone = await at.milestone()
    await at.finish("repo-001/analysis")
    begin = beginning_restore(milestone.id, effects="refuse", now=clock.now())
    restore, _ = await parts.store.write(begin)
    assert (await parts.store.write(begin))[0] == restore
    await at.restored(milestone)

    progress = await parts.store.write(undoing_chunk(restore, now=clock.now()))

    assert (progress.is_over, progress.restore.undone) == (True, 2)


@pytest.mark.parametrize(
    ("ledger", "most"),
    [
        ("sqlite", 8),
        pytest.param("sqlite", 60, marks=pytest.mark.slow),
        pytest.param("postgres", 10, marks=pytest.mark.slow),
    ],
    indirect=["ledger"],
)
@pytest.mark.usefixtures("small_chunks")
async def test_a_restore_that_dies_anywhere_goes_on_with_the_same_command(
    parts: Parts, clock: FakeClock, seed: int, most: int
) -> None:
    at, milestone = await half_done(parts, clock, "recorded")
    recording = FailingStore(parts.store)
    await to_the_end(at, recording, milestone)
    expected = await at.statuses()
    points = recording.failpoints()
    assert len(points) > 50
    for number, point in enumerate(random.Random(seed).sample(points, min(most, len(points)))):
        at, milestone = await half_done(parts, clock, f"c-{number}")
        with pytest.raises(Crashed):
            await to_the_end(at, FailingStore(parts.store, [point]), milestone)
        await at.check()
        assert await at.worker.start() == 0 or await at.status() is CampaignStatus.RUNNING

        await to_the_end(at, parts.store, milestone)

        if await at.worker.start() == 0:
            assert await at.statuses() == expected, point
        await at.check()
        await at.worker.finish_all()
        await at.worker.start()
        assert await at.status() is CampaignStatus.DONE, point


async def half_done(parts: Parts, clock: FakeClock, name: str) -> tuple[Restoring, CampaignCheckpoint]:
    """One item done at the milestone; since then others are done, failed and running."""
    at = await Restoring.begin(parts, clock, 4, name=name, concurrency=3)
    await at.finish("repo-001/analysis")
    milestone = await at.milestone()
    await at.finish("repo-001/migration", "repo-002/analysis")
    await at.worker.take()
    await at.worker.fail("repo-003/analysis")
    await at.worker.start()
    return at, milestone


async def to_the_end(at: Restoring, store: Store, milestone: CampaignCheckpoint) -> None:
    for _ in range(10):
        progress = await restore_campaign(store, at.clock, milestone.id, patience_s=0)
        if progress.is_over:
            return
        for name in sorted(at.worker.held):
            await at.stop(name)
    raise AssertionError("it does not end")


async def test_chaos_and_restores_leave_the_counts_right(parts: Parts, clock: FakeClock, seed: int) -> None:
    chance = random.Random(seed)
    at = await Restoring.begin(parts, clock, 12, *TWO, concurrency=5, batch_size=3)
    saver = CampaignSaver(parts.store, clock)
    milestones = [await at.milestone("first")]
    for _ in range(40):
        clock.advance(seconds=chance.randrange(1, 400))
        match chance.randrange(10):
            case 0:
                milestones.append(await at.milestone(f"m{len(milestones)}"))
            case 1:
                await at.restored(chance.choice(milestones))
            case 2:
                await parts.store.write(retrying_items(at.campaign.id, now=clock.now()))
            case 3:
                milestones += [one for one in await saver.run_once() if one.recoverable]
            case 4:
                ids = [f"repo-{chance.randrange(1, 13):03d}" for _ in range(3)]
                await parts.store.write(pausing_items(at.campaign.id, sorted(set(ids)), now=clock.now()))
                if chance.random() < 0.7:
                    await parts.store.write(resuming_items(at.campaign.id, now=clock.now()))
            case _:
                await at.worker.take()
                for name in sorted(at.worker.held):
                    if chance.random() < 0.5:
                        await (at.worker.fail if chance.random() < 0.2 else at.worker.finish)(name)
        await at.worker.start()
        await at.check()
    await at.restored(milestones[0])
    await parts.store.write(resuming_items(at.campaign.id, now=clock.now()))
    assert await at.worker.finish_all() == 24
    await at.check()


# --- refused


async def test_a_checkpoint_of_counts_only_is_refused(parts: Parts, clock: FakeClock) -> None:
    at = await Restoring.begin(parts, clock)
    (started,) = await CampaignSaver(parts.store, clock).run_once()

    for go in (at.campaigns.plan_restore, at.campaigns.restore):
        with pytest.raises(Refused, match="is a periodic checkpoint, which holds only counts"):
            await go(started.id)


@pytest.mark.parametrize(
    ("damage", "error", "says"),
    [
        ("UPDATE campaign_checkpoints SET items = 3", Refused, "is damaged: its record does not match"),
        ("UPDATE campaign_checkpoint_places SET phase = phase + 5", Refused, "has no record of phase 0"),
        (
            "UPDATE campaign_checkpoint_places SET checkpoint_id = 'checkpoint-x'",
            Refused,
            "no record of phase",
        ),
        ("UPDATE campaign_checkpoint_places SET digest = places", RowDamaged, "damage|digest"),
    ],
)
async def test_a_damaged_checkpoint_is_refused_with_the_reason(
    parts: Parts, clock: FakeClock, damage: str, error: type[Exception], says: str
) -> None:
    at = await Restoring.begin(parts, clock)
    milestone = await at.milestone()
    await at.finish("repo-001/analysis")
    execute(parts.store, damage)
    before = dump(parts.store)

    for go in (at.campaigns.plan_restore, at.campaigns.restore):
        with pytest.raises(error, match=says):
            await go(milestone.id)
    assert dump(parts.store) == before


@pytest.mark.parametrize("name", ["checkpoint-x", "x", "../..", "'; DROP TABLE tasks; --", ""])
async def test_an_unknown_id_is_refused(parts: Parts, clock: FakeClock, name: str) -> None:
    with pytest.raises((NotFound, BadInput)):
        await Campaigns(parts.store, clock).restore(name)


async def test_a_draft_has_nothing_to_restore(parts: Parts, clock: FakeClock) -> None:
    campaigns = Campaigns(parts.store, clock)
    await campaigns.create("draft", a_spec(), items(1))
    milestone = await campaigns.milestone("first", "draft")

    assert (await campaigns.restore(milestone.id)).restore.undone == 0
    with pytest.raises(IllegalMove):
        await parts.store.write(beginning_restore(milestone.id, effects="refuse", now=clock.now()))


async def test_another_owner_may_neither_look_nor_restore(parts: Parts, clock: FakeClock) -> None:
    campaigns = Campaigns(parts.store, clock, owner="ada")
    await campaigns.create("hers", a_spec(), items(1))
    milestone = await campaigns.milestone("first", "hers")
    others = Campaigns(parts.store, clock, owner="bob")

    for go in (others.plan_restore, others.restore):
        with pytest.raises(NotYours):
            await go(milestone.id)
    with pytest.raises(NotYours):
        await others.milestone("mine", "hers")
    with pytest.raises(NotYours):
        await others.checkpoints("hers")


@pytest.mark.parametrize("effects", ["", "KEEP", None, 7, "compensate"])
async def test_a_wrong_decision_is_refused(parts: Parts, clock: FakeClock, effects: Any) -> None:
    at = await Restoring.begin(parts, clock)
    milestone = await at.milestone()

    with pytest.raises(BadInput):
        await at.restore(milestone, effects=effects)
