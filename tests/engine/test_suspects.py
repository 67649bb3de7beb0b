"""Resume is bounded by attempts without progress; who kills its process is found, and nobody else pays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.checkpoint import Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.plan import Plan, plan_of
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.claims import ALONE_AT_MOST, SUSPECT_PATIENCE, ClaimedRun
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.deaths import die
from tests.engine.parts import Parts, a_new_task

MANY_LIVES = 60


class Lives:
    """Processes that come one after another; each recovers what the last one left."""

    def __init__(self, store: Store, clock: FakeClock, locks: Path) -> None:
        self._store = store
        self._clock = clock
        self._locks = locks

    @asynccontextmanager
    async def next(self) -> AsyncIterator[Parts]:
        """A life that has recovered; it dies at the end of the block."""
        parts = await Parts.begin(self._store, self._clock, locks=self._locks)
        await parts.recover()
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
    """Carry on until nothing is ready or the killer is among what was taken: then nobody gets anywhere."""
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
    assert failed.diagnostic.facts["company"] == 1
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


async def test_a_suspect_waits_for_a_boot_that_is_busy(lives: Lives, clock: FakeClock) -> None:
    await make_suspect(lives)
    async with lives.next() as parts:
        task = await parts.create()
        (run,) = await parts.ledger.runs(task.id)
        await parts.claims.start(run.id)
        more = await parts.create()

        assert [one.task.id for one in await parts.claims.take(10)] == [more.id]

        await parts.create()
        clock.advance(seconds=SUSPECT_PATIENCE.total_seconds() + 1)
        assert await parts.claims.take(10) == []


async def suspect_in_hand(parts: Parts) -> ClaimedRun:
    (claimed,) = await parts.claims.take()
    assert claimed.claim.is_alone
    return claimed


async def test_progress_exonerates_a_suspect(lives: Lives) -> None:
    await make_suspect(lives)
    async with lives.next() as parts:
        suspect = await suspect_in_hand(parts)
        await parts.create()

        await parts.journal.save_step(suspect.claim, "work", 1)

        assert len(await parts.claims.take(10)) == 1
        assert not (await parts.claims.renew([suspect.claim])).held[0].is_alone


async def test_a_moved_cursor_exonerates_a_suspect(lives: Lives) -> None:
    await make_suspect(lives)
    async with lives.next() as parts:
        suspect = await suspect_in_hand(parts)
        await parts.create()

        await parts.journal.save_plan(suspect.claim, plan_of("read", "write").complete("read"))

        assert len(await parts.claims.take(10)) == 1


async def test_to_remember_an_old_step_is_no_progress(lives: Lives) -> None:
    """A follow-up run passes what was done before; that does not clear it."""
    async with lives.next() as parts:
        claimed = await parts.carry()
        await parts.journal.save_step(claimed.claim, "work", 1)
    for _ in range(2):
        async with lives.next() as parts:
            (claimed,) = await parts.claims.take()
            await parts.journal.save_step(claimed.claim, "work", 1)

    async with lives.next() as parts:
        suspect = await suspect_in_hand(parts)
        await parts.create()
        await parts.journal.save_step(suspect.claim, "work", 1)
        assert await parts.claims.take(10) == []


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
async def test_restarts_that_somebody_else_wanted_are_never_counted(
    parts: Parts, reason: ResumeReason
) -> None:
    await parts.create()

    for number in range(1, 11):
        (claimed,) = await parts.claims.take()
        assert (claimed.run.number, claimed.run.idle_attempts) == (number, 0)
        await parts.checkpoints.pause([claimed.claim], reason)
        assert len((await parts.resumer.resume_all()).followed_up) == 1


@pytest.mark.parametrize("reason", [ResumeReason.TIMEOUT, ResumeReason.REQUIRES_RESTART])
async def test_a_run_that_gets_nowhere_is_given_up_after_three_attempts(
    parts: Parts, others: Parts, store: Store, reason: ResumeReason
) -> None:
    await parts.create()

    for _ in range(3):
        (claimed,) = await parts.claims.take()
        await parts.checkpoints.pause([claimed.claim], reason, kind=CheckpointKind.TIMEOUT)
        await others.resumer.resume_all()

    assert await parts.claims.take() == []
    failed = await only_checkpoint_with(store, CheckpointStatus.FAILED_RESUME)
    assert failed.diagnostic is not None
    assert failed.diagnostic.facts["idle_attempts"] == 3
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
