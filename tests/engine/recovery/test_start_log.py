"""What each step of a start found and did is in the ledger, also if the start was cut off there."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

import pytest

from holdfast.core.errors import NotFound, StoreUnavailable
from holdfast.core.start_record import MAX_NOTES, StartRecord, StartStep, notes_of
from holdfast.core.transitions import ItemStatus
from holdfast.engine.claims.boots import Life
from holdfast.engine.program.definitions import by_name
from holdfast.engine.recovery.start_log import StartLog
from holdfast.engine.worker.worker import Worker
from holdfast.store import Store, Write
from holdfast.testing import FakeClock
from tests.engine.campaigns.campaign_world import rows_of
from tests.engine.parts import Parts
from tests.engine.small_campaigns import begin, fill, some_items, take
from tests.engine.workers import WatchedStore

T = TypeVar("T")

STEPS = [step.value for step in StartStep]


async def a_start(store: Store, clock: FakeClock) -> tuple[StartLog, Worker]:
    life = await Life.begin(store, clock, locks=None, role="worker")
    return StartLog(store, clock, life.boot), Worker(store, clock, life, by_name([]))


async def come_to_work(log: StartLog, worker: Worker) -> None:
    await log.configured({"tasks": 2}, took=timedelta(seconds=3))
    await worker.take_over(start=log)
    await log.go_on()
    await log.ended()


def newest(store: Store) -> StartRecord:
    return store.read_now(lambda tx: tx.starts.page(limit=1))[0]


async def test_a_start_has_its_five_steps_with_what_they_counted(
    parts: Parts, store: Store, clock: FakeClock
) -> None:
    campaign = await begin(store, clock, some_items(8), concurrency=3)
    await fill(store, clock, campaign)
    held = await take(parts)
    await parts.ledger.finish(held["repo-001"].claim, None)

    await come_to_work(*await a_start(store, clock))

    start = newest(store)
    assert [one.step.value for one in start.steps] == STEPS
    assert all(one.ended_at is not None and one.error is None for one in start.steps)
    assert start.ended_at is not None
    assert start.steps[0].ended_at == start.steps[0].began_at + timedelta(seconds=3)
    loaded = start.steps[1].counts
    assert (loaded["campaigns"], loaded["agentsKnown"]) == (1, 16)
    assert (loaded["itemsDone"], loaded["itemsRunning"], loaded["itemsPending"]) == (1, 2, 13)


async def test_what_a_dead_process_left_is_rescued_and_counted_with_reasons(
    store: Store, clock: FakeClock
) -> None:
    campaign = await begin(store, clock, some_items(2), concurrency=2)
    await fill(store, clock, campaign)
    dead = await Parts.begin(store, clock)
    await take(dead)
    await dead.life.end()

    await come_to_work(*await a_start(store, clock))

    _, _, reconciled, resumed, went_on = newest(store).steps
    assert reconciled.counts["runsRescued"] == 2
    assert (resumed.counts["startedAnew"], resumed.counts["resumed"]) == (2, 0)
    assert sorted(note.partition(" starts anew: nothing was saved (ckpt_")[0] for note in resumed.notes) == [
        "analysis of repo-001",
        "analysis of repo-002",
    ]
    rows = [row for row in await rows_of(store, campaign) if row.task_id is not None]
    assert [(row.status, row.note) for row in rows] == [
        (ItemStatus.RUNNING, "started anew: nothing was saved")
    ] * 2
    assert went_on.counts["runsReady"] == 2


@pytest.mark.parametrize("cut", range(1, 11))
async def test_a_start_that_dies_at_any_write_shows_how_far_it_came(
    store: Store, clock: FakeClock, cut: int
) -> None:
    log, worker = await a_start(store, clock)
    dying = _DiesAtSave(store, cut)
    log._store = dying

    with pytest.raises(_Died):
        await come_to_work(log, worker)

    starts = store.read_now(lambda tx: tx.starts.page())
    if cut == 1:
        assert starts == []
        return
    (start,) = starts
    steps = [one.step.value for one in start.steps]
    assert steps == STEPS[: len(steps)]
    assert start.ended_at is None
    assert [one.ended_at is None for one in start.steps[:-1]] == [False] * (len(steps) - 1)

    # The next start comes to work, and is the newest one.
    clock.advance(seconds=1)
    await come_to_work(*await a_start(store, clock))
    assert newest(store).ended_at is not None
    assert len(store.read_now(lambda tx: tx.starts.page())) == 2


async def test_a_step_that_fails_says_why(store: Store, clock: FakeClock) -> None:
    log, _ = await a_start(store, clock)
    await log.configured({}, took=timedelta(0))
    failing = StoreUnavailable("it is away, says the test")

    with pytest.raises(StoreUnavailable):
        async with log.step(StartStep.LOAD):
            raise failing

    assert newest(store).steps[1].error == "StoreUnavailable: it is away, says the test"


async def test_a_record_that_cannot_be_saved_holds_up_no_start(store: Store, clock: FakeClock) -> None:
    log, worker = await a_start(store, clock)
    watched = WatchedStore(store)
    watched.is_away = True
    log._store = watched

    await come_to_work(log, worker)

    assert watched.refusals >= len(STEPS)
    assert store.read_now(lambda tx: tx.starts.page()) == []


async def test_work_that_is_held_back_is_counted_with_the_reason(
    store: Store, clock: FakeClock, parts: Parts
) -> None:
    campaign = await begin(store, clock, some_items(3))
    await fill(store, clock, campaign)
    await take(parts)
    await parts.life.end()
    log, worker = await a_start(store, clock)
    worker.hold_resumes("the gateway crashed five times")

    await come_to_work(log, worker)

    resumed = newest(store).steps[3]
    assert resumed.counts["heldBack"] == 3
    assert "the gateway crashed five times" in resumed.notes[0]


async def test_starts_are_found_by_a_prefix_and_by_role(store: Store, clock: FakeClock) -> None:
    log, worker = await a_start(store, clock)
    await come_to_work(log, worker)

    assert store.read_now(lambda tx: tx.starts.get(log.record.boot_id[:-2])).role == "worker"
    assert store.read_now(lambda tx: tx.starts.page(role="gateway")) == []
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.starts.get("boot_nothing"))


async def test_retention_keeps_the_newest_start_of_each_kind(store: Store, clock: FakeClock) -> None:
    for _ in range(3):
        clock.advance(seconds=1)
        await come_to_work(*await a_start(store, clock))
    now = clock.advance(days=100)

    await store.write(lambda tx: tx.starts.forget(older_than=now))

    assert len(store.read_now(lambda tx: tx.starts.page())) == 1


def test_notes_are_short_redacted_and_few() -> None:
    notes = notes_of([f"ghp_{'A1b2C3d4' * 5} {'x' * 1000}"] * (MAX_NOTES + 5))

    assert len(notes) == MAX_NOTES + 1
    assert notes[-1] == "and 5 more"
    assert "A1b2C3d4" not in notes[0]
    assert max(map(len, notes)) <= 300


class _Died(BaseException):
    """The process is gone."""


class _DiesAtSave(WatchedStore):
    def __init__(self, inner: Store, at: int) -> None:
        super().__init__(inner)
        self._left = at

    async def write(self, write: Write[T]) -> T:
        self._left -= 1
        if self._left <= 0:
            raise _Died
        return await self.inner.write(write)
