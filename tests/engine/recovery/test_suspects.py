"""Resume is bounded by attempts without progress; a run that kills its process is found; no other pays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.core.checkpoint import Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.claim import Claim
from holdfast.core.plan import Plan
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import (
    ALONE_AT_MOST,
    SUSPECT_PATIENCE,
    SUSPECT_ROOM,
    ClaimedRun,
    Claims,
    Family,
)
from holdfast.engine.recovery.attempts import record_attempts
from holdfast.engine.recovery.resume import Resumed
from holdfast.store import Store
from holdfast.testing import Crashed, FakeClock
from tests.builders import plan_of, stored_run
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.dead_processes import die
from tests.engine.parts import Parts, a_new_task
from tests.engine.stage import Stage
from tests.engine.workers import WatchedStore

MANY_LIVES = 60


class Lives:
    """Processes that come one after another; each recovers what the last one left."""

    def __init__(self, store: Store, clock: FakeClock, locks: Path) -> None:
        self._store = store
        self._clock = clock
        self._locks = locks
        self.max_idle_attempts = 3
        # What the newest of them found at its start.
        self.resumed = Resumed()

    @asynccontextmanager
    async def next(self) -> AsyncIterator[Parts]:
        """A life that has recovered; it dies at the end of the block."""
        parts = await Parts.begin(
            self._store, self._clock, locks=self._locks, max_idle_attempts=self.max_idle_attempts
        )
        self.resumed = await parts.recover()
        yield parts
        die(parts)
        self._clock.advance(seconds=1)


@pytest.fixture
def lives(store: Store, clock: FakeClock, tmp_path: Path) -> Lives:
    return Lives(store, clock, tmp_path / "boots")


async def make_suspect(lives: Lives, **changes: object) -> None:
    """A task whose process died twice without progress."""
    async with lives.next() as parts:
        await parts.carry(**changes)
    async with lives.next() as parts:
        assert len(await parts.claims.take(10)) == 1


async def only_checkpoint_with(store: Store, status: CheckpointStatus) -> Checkpoint:
    (checkpoint,) = await store.read(lambda tx: tx.checkpoints.page(status=status))
    return checkpoint


# --- the killer


async def test_only_the_killer_among_twenty_runs_is_quarantined(lives: Lives, store: Store) -> None:
    async with lives.next() as parts:
        tasks = await parts.ledger.create_many([a_new_task(arguments=number) for number in range(20)])
    killer = tasks[11].id

    lived = 0
    while await any_left(store) and lived < MANY_LIVES:
        lived += 1
        async with lives.next() as parts:
            await work_until_killed(parts, killer)

    statuses = {task.id: task.status for task in await parts.ledger.page(limit=100)}
    assert statuses.pop(killer) is TaskStatus.FAILED
    assert set(statuses.values()) == {TaskStatus.SUCCEEDED}
    failed = await only_checkpoint_with(store, CheckpointStatus.FAILED_RESUME)
    assert (failed.task_id, failed.diagnostic is not None) == (killer, True)
    assert failed.diagnostic is not None
    assert failed.diagnostic.kind == "quarantined"
    assert lived <= 6
    assert_ledger_is_whole(store, is_at_rest=True)


async def work_until_killed(parts: Parts, killer: str) -> None:
    """Carry on until nothing is ready or the killer is among what was taken: then no run gets anywhere."""
    while claimed := await parts.claims.take(20):
        if any(one.task.id == killer for one in claimed):
            return
        for one in claimed:
            await parts.journal.save_step(one.claim, "work", 1)
            await parts.ledger.finish(one.claim, "done")


async def any_left(store: Store) -> bool:
    counts = await store.read(lambda tx: tx.events.counts("task"))
    return any(counts.get(status) for status in ("queued", "running", "paused"))


async def test_the_quarantine_names_its_evidence(
    lives: Lives, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await make_suspect(lives)
    async with lives.next() as parts:
        await parts.claims.take()
    async with lives.next() as parts:
        task = (await parts.ledger.page())[0]

    failed = await only_checkpoint_with(store, CheckpointStatus.FAILED_RESUME)
    assert failed.diagnostic is not None
    assert failed.diagnostic.facts["idle_attempts"] == 3
    assert failed.diagnostic.facts["attempts"] == 3
    assert failed.diagnostic.facts["company"] == 1
    assert "attempt 3 of 3 without progress" in failed.diagnostic.message
    assert task.status is TaskStatus.FAILED
    assert task.failure is not None
    assert (task.failure.kind, task.failure.facts["why"]) == ("failed_resume", "quarantined")
    told = [one.getMessage() for one in caplog.records if one.name == "holdfast.tasks"]
    assert [words.partition(": quarantined: ")[0] for words in told] == [
        f"{task.id} failed: {failed.id} is not resumed"
    ]


# --- suspects are alone


async def test_after_two_crashes_without_progress_a_run_is_carried_alone(lives: Lives) -> None:
    await make_suspect(lives)
    async with lives.next() as parts:
        await parts.create()

        claimed = await parts.claims.take(10)

        assert len(claimed) == 1
        assert claimed[0].claim.is_alone
        assert await parts.claims.take(10) == []


# --- a suspect that waits neither starves nor stops others


async def be_busy(parts: Parts) -> ClaimedRun:
    """The process carries something that lasts."""
    task = await parts.create(goal="lasts")
    (run,) = await parts.ledger.runs(task.id)
    return await parts.claims.start(run.id)


async def taken(parts: Parts, limit: int = 10) -> list[tuple[str, bool]]:
    """The goals of what a process takes, and whether it must be alone."""
    return [(one.task.goal, one.claim.is_alone) for one in await parts.claims.take(limit)]


async def test_a_busy_process_takes_other_work_while_a_suspect_waits(lives: Lives, clock: FakeClock) -> None:
    await make_suspect(lives, goal="suspect")
    async with lives.next() as parts:
        await be_busy(parts)
        await parts.create(goal="at once")
        assert await taken(parts) == [("at once", False)]

        await parts.create(goal="later")
        clock.advance(seconds=(SUSPECT_PATIENCE + SUSPECT_ROOM).total_seconds())

        assert ("later", False) in await taken(parts)


async def test_a_suspect_that_no_idle_process_took_is_carried_beside_others(
    lives: Lives, clock: FakeClock
) -> None:
    await make_suspect(lives, goal="suspect")
    async with lives.next() as parts:
        await be_busy(parts)
        clock.advance(seconds=(SUSPECT_PATIENCE + SUSPECT_ROOM).total_seconds())

        assert await taken(parts, 1) == [("suspect", False)]

        await parts.create(goal="more")
        assert await taken(parts) == [("more", False)]


async def test_a_process_that_is_never_idle_makes_room_for_a_suspect(lives: Lives, clock: FakeClock) -> None:
    await make_suspect(lives, goal="suspect")
    async with lives.next() as parts:
        short = await be_busy(parts)
        clock.advance(seconds=SUSPECT_PATIENCE.total_seconds())
        await parts.create(goal="more")
        assert await taken(parts) == []

        await parts.ledger.finish(short.claim, "done")

        assert await taken(parts) == [("suspect", True)]


async def test_of_two_suspects_the_one_that_has_waited_too_long_comes_first(
    parts: Parts, store: Store, clock: FakeClock
) -> None:
    patient = stored_run(store, is_alone=True, priority=9, due_at=clock.now())
    urgent = stored_run(store, is_alone=True, priority=1, due_at=clock.now())
    (first,) = await parts.claims.take(10)
    await parts.ledger.finish(first.claim, "done")
    clock.advance(seconds=SUSPECT_PATIENCE.total_seconds())
    stored_run(store, is_alone=True, priority=1, due_at=clock.now())

    (second,) = await parts.claims.take(10)

    assert [first.run.id, second.run.id] == [urgent.id, patient.id]


async def test_any_idle_worker_takes_the_suspect_and_only_one_of_them(
    parts: Parts, others: Parts, store: Store
) -> None:
    suspect = stored_run(store, is_alone=True, idle_attempts=2)
    other = await parts.create()

    async with asyncio.TaskGroup() as group:
        takes = [group.create_task(one.claims.take(10)) for one in (parts, others)]

    assert sorted(run.task.id for take in takes for run in take.result()) == sorted(
        [suspect.task_id, other.id]
    )
    assert [len(take.result()) for take in takes] == [1, 1]


async def test_two_busy_workers_do_not_carry_the_same_suspect(
    parts: Parts, others: Parts, store: Store, clock: FakeClock
) -> None:
    suspects = [stored_run(store, is_alone=True, idle_attempts=2, due_at=clock.now()) for _ in range(6)]
    for one in (parts, others):
        await be_busy(one)
    clock.advance(seconds=(SUSPECT_PATIENCE + SUSPECT_ROOM).total_seconds())

    found: list[str] = []
    for _ in range(6):
        async with asyncio.TaskGroup() as group:
            takes = [group.create_task(one.claims.take(1)) for one in (parts, others)]
        found += [run.task.id for take in takes for run in take.result()]

    assert sorted(found) == sorted(run.task_id for run in suspects)


async def test_suspects_one_after_another_do_not_starve_other_work(
    parts: Parts, store: Store, clock: FakeClock
) -> None:
    for _ in range(30):
        stored_run(store, is_alone=True, idle_attempts=2, due_at=clock.now())
    other = await parts.create()

    turns = 0
    (claimed,) = await parts.claims.take(10)
    while claimed.task.id != other.id:
        turns += 1
        clock.advance(seconds=50)
        await parts.ledger.finish(claimed.claim, "done")
        (claimed,) = await parts.claims.take(10)

    assert turns == SUSPECT_PATIENCE // timedelta(seconds=50)


async def test_in_a_family_a_suspect_that_waits_hides_no_other(
    parts: Parts, store: Store, clock: FakeClock
) -> None:
    parent = await parts.create(goal="parent")
    family = Family()
    family.choose(parent.id)
    claims = Claims(store, clock, parts.life.id, names=["research"], family=family)
    await claims.take(1)
    child = {"name": "research", "parent_task_id": parent.id}
    stored_run(store, is_alone=True, priority=1, due_at=clock.now(), task=child)
    other = await parts.create(goal="other", parent_task_id=parent.id)

    assert [one.task.id for one in await claims.take(1)] == [other.id]


async def test_a_suspect_that_sleeps_has_made_progress_and_needs_no_second_turn_alone(stage: Stage) -> None:
    @hf.task(name="naps")
    async def naps(run: hf.Run) -> str:
        await run.sleep("8h")
        return "awake"

    suspect = stored_run(stage.store, is_alone=True, task={"name": "naps", "arguments": b"{}"})
    await stage.open(naps)
    await stage.settle()

    run = stage.store.read_now(lambda tx: tx.runs.get(suspect.id))

    assert (run.status, run.is_alone) == (RunStatus.WAITING, False)


# --- what ends a suspicion


async def suspect_in_hand(parts: Parts) -> ClaimedRun:
    (claimed,) = await parts.claims.take()
    assert claimed.claim.is_alone
    return claimed


async def one() -> int:
    return 1


async def test_a_saved_step_exonerates_a_suspect(stage: Stage) -> None:
    seen: list[bool] = []

    @hf.task(name="works")
    async def works(run: hf.Run) -> None:
        seen.append(is_alone(stage, run))
        await run.step(one)
        seen.append(is_alone(stage, run))

    stored_run(stage.store, is_alone=True, task={"name": "works", "arguments": b"{}"})
    await stage.open(works)
    await stage.settle()

    assert seen == [True, False]


async def test_a_finished_item_of_the_plan_exonerates_a_suspect(stage: Stage) -> None:
    seen: list[bool] = []

    @hf.task(name="plans")
    async def plans(run: hf.Run) -> None:
        async for _ in run.plan(["read", "write"]):
            seen.append(is_alone(stage, run))  # noqa: PERF401 - it is asked in each turn

    stored_run(stage.store, is_alone=True, task={"name": "plans", "arguments": b"{}"})
    await stage.open(plans)
    await stage.settle()

    assert seen == [True, False]


async def test_to_remember_an_old_step_is_no_progress(stage: Stage) -> None:
    """A follow-up run passes what was done before; that does not clear it."""
    seen: list[bool] = []

    @hf.task(name="dies")
    async def dies(run: hf.Run) -> None:
        await run.step(one)
        seen.append(is_alone(stage, run))
        raise Crashed

    await stage.open(dies)
    await stage.start(dies())
    for _ in range(4):
        await stage.settle()
        await stage.open(dies)

    assert seen == [False, False, False, True]


def is_alone(stage: Stage, run: hf.Run) -> bool:
    return stage.store.read_now(lambda tx: tx.runs.get(run.id)).is_alone


async def test_a_suspect_that_lives_long_enough_needs_no_loneliness(lives: Lives, clock: FakeClock) -> None:
    await make_suspect(lives)
    async with lives.next() as parts:
        suspect = await suspect_in_hand(parts)
        await parts.create()
        claim = suspect.claim
        for _ in range(int(ALONE_AT_MOST / timedelta(seconds=20))):
            clock.advance(seconds=20)
            (claim,) = (await parts.claims.renew([claim])).held

        assert not claim.is_alone
        assert len(await parts.claims.take(10)) == 1


# --- attempts without progress


async def test_progress_starts_the_count_anew(lives: Lives) -> None:
    async with lives.next() as parts:
        await parts.carry()
    async with lives.next() as parts:
        (claimed,) = await parts.claims.take()
        assert claimed.run.idle_attempts == 1
        await parts.journal.save_step(claimed.claim, "work", 1)
    async with lives.next() as parts:
        (claimed,) = await parts.claims.take()

    assert claimed.run.idle_attempts == 0


@pytest.mark.parametrize(
    "reason", [ResumeReason.EXPLICIT_RESTART, ResumeReason.CONFIG_RELOAD, ResumeReason.SIGNAL]
)
async def test_restarts_that_another_run_wanted_are_never_counted(parts: Parts, reason: ResumeReason) -> None:
    await parts.create()

    for number in range(1, 11):
        (claimed,) = await parts.claims.take()
        assert (claimed.run.number, claimed.run.idle_attempts) == (number, 0)
        await parts.checkpoints.pause([claimed.claim], reason)
        assert len((await parts.resumer.resume_all()).followed_up) == 1


async def deaths_until_given_up(lives: Lives, store: Store) -> int:
    """How often a process dies that carries one task, and nothing of it is ever saved."""
    async with lives.next() as parts:
        await parts.create()
    for died in range(MANY_LIVES):
        async with lives.next() as parts:
            if not await parts.claims.take(10):
                return died
    return MANY_LIVES


def a_task_with(attempts: int | None) -> dict[str, int | None]:
    @hf.task(name="research", attempts=attempts)
    async def research(run: hf.Run) -> None: ...

    return {"research": research.named_attempts}


@pytest.mark.parametrize(
    ("ledger", "attempts", "deaths"),
    [
        *(("sqlite", attempts, deaths) for attempts, deaths in [(1, 3), (2, 3), (3, 3), (4, 4), (20, 20)]),
        pytest.param("postgres", 4, 4, marks=pytest.mark.slow),
    ],
    indirect=["ledger"],
)
async def test_a_task_is_given_up_when_the_attempts_that_it_names_are_spent(
    lives: Lives, store: Store, attempts: int, deaths: int
) -> None:
    """Also by a process that does not know the task, and not before it was carried alone."""
    await record_attempts(store, a_task_with(attempts))

    assert await deaths_until_given_up(lives, store) == deaths
    failed = await only_checkpoint_with(store, CheckpointStatus.FAILED_RESUME)
    assert failed.diagnostic is not None
    assert (failed.diagnostic.kind, failed.diagnostic.facts["attempts"]) == ("quarantined", deaths)
    assert_ledger_is_whole(store, is_at_rest=True)


async def test_a_task_that_names_no_attempts_has_those_of_the_settings(lives: Lives, store: Store) -> None:
    lives.max_idle_attempts = 6
    await record_attempts(store, a_task_with(2))
    await record_attempts(store, a_task_with(None))

    assert await deaths_until_given_up(lives, store) == 6


async def test_attempts_that_are_known_already_are_not_written_again(store: Store) -> None:
    watched = WatchedStore(store)
    for attempts in (None, 7, 7, None, None):
        await record_attempts(watched, a_task_with(attempts))

    assert len(watched.writes) == 2


async def test_one_death_that_hit_many_runs_blames_none(lives: Lives) -> None:
    lives.max_idle_attempts = 1
    async with lives.next() as parts:
        await parts.ledger.create_many([a_new_task(arguments=number) for number in range(5)])
        assert len(await parts.claims.take(10)) == 5

    async with lives.next() as parts:
        assert len(await parts.claims.take(10)) == 5


async def test_deaths_that_others_share_end_a_run_after_twice_its_attempts(
    lives: Lives, store: Store, clock: FakeClock
) -> None:
    """It lives so long that it is not alone any more; then its process dies."""
    async with lives.next() as parts:
        await parts.create(goal="killer")
        await parts.create(goal="company")

    deaths = 0
    while deaths < MANY_LIVES and "killer" in await carried_until_death(lives, clock, f"part {deaths}"):
        deaths += 1

    assert deaths == 2 * lives.max_idle_attempts
    failed = await only_checkpoint_with(store, CheckpointStatus.FAILED_RESUME)
    assert failed.diagnostic is not None
    assert failed.diagnostic.kind == "no_progress"


async def carried_until_death(lives: Lives, clock: FakeClock, part: str) -> dict[str, Claim]:
    """What a process carries that outlives the time alone of a suspect; only the company saves anything."""
    carried: dict[str, Claim] = {}
    async with lives.next() as parts:
        for _ in range(1 + ALONE_AT_MOST // timedelta(seconds=20)):
            carried |= {one.task.goal: one.claim for one in await parts.claims.take(10)}
            clock.advance(seconds=20)
            await parts.claims.renew(list(carried.values()))
        await parts.journal.save_step(carried["company"], part, 1)
    return carried


async def test_a_suspect_that_died_alone_and_goes_on_is_named(lives: Lives, store: Store) -> None:
    """So that a gateway that restarts does not take these crashes for a loop."""
    await record_attempts(store, a_task_with(100))
    await make_suspect(lives)
    blamed = []
    for _ in range(3):
        async with lives.next() as parts:
            blamed.append(len(lives.resumed.blamed))
            assert len(await parts.claims.take(10)) == 1

    assert blamed == [0, 1, 1]


@pytest.mark.parametrize("reason", [ResumeReason.TIMEOUT, ResumeReason.REQUIRES_RESTART])
async def test_a_run_that_gets_nowhere_is_given_up_after_three_attempts(
    parts: Parts, others: Parts, store: Store, reason: ResumeReason
) -> None:
    await parts.create()
    await record_attempts(store, a_task_with(3))

    for _ in range(3):
        (claimed,) = await parts.claims.take()
        await parts.checkpoints.pause([claimed.claim], reason, kind=CheckpointKind.TIMEOUT)
        await others.resumer.resume_all()

    assert await parts.claims.take() == []
    failed = await only_checkpoint_with(store, CheckpointStatus.FAILED_RESUME)
    assert failed.diagnostic is not None
    assert (failed.diagnostic.kind, failed.diagnostic.facts["idle_attempts"]) == ("no_progress", 3)
    assert (await parts.ledger.get(claimed.task.id)).status is TaskStatus.FAILED
    assert_ledger_is_whole(store, is_at_rest=True)


async def crash_after(lives: Lives, times: int, plan_at: dict[int, Plan]) -> list[int]:
    """The counts that each life found, when each saved a plan of its own and died."""
    async with lives.next() as parts:
        await parts.create()
    found = []
    for number in range(times):
        async with lives.next() as parts:
            for claimed in await parts.claims.take():
                found.append(claimed.run.idle_attempts)
                await parts.journal.save_plan(claimed.claim, plan_at[number])
    return found


async def test_to_save_the_same_plan_again_is_no_progress(lives: Lives) -> None:
    plan = plan_of("read", "write")

    found = await crash_after(lives, 5, dict.fromkeys(range(5), plan))

    assert found == [0, 0, 1, 2], "the first plan is news, the same plan again is not"


async def test_to_plan_anew_each_time_is_no_progress(lives: Lives) -> None:
    plans = {number: plan_of(f"read {number}", "write") for number in range(5)}

    found = await crash_after(lives, 5, plans)

    assert found == [0, 0, 1, 2]


async def test_a_moved_cursor_is_progress(lives: Lives) -> None:
    titles = [f"part {number}" for number in range(6)]
    plan, plans = plan_of(*titles), {}
    for number in range(5):
        plan = plan.complete(titles[number])
        plans[number] = plan

    found = await crash_after(lives, 5, plans)

    assert found == [0, 0, 0, 0, 0]


async def test_age_alone_ends_nothing(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()
    await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    clock.advance(days=3650)

    assert len((await parts.resumer.resume_all()).followed_up) == 1
    (again,) = await parts.claims.take()
    assert again.run.status is RunStatus.RUNNING
