"""Retention: what ended long ago is forgotten whole; its dedup key is remembered for a while."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta

import pytest

from holdfast.core.checkpoint import CheckpointKind, ResumeReason
from holdfast.core.effect import Effect
from holdfast.core.errors import FeedGap, KeyConflict, NotFound
from holdfast.core.events import EventKind
from holdfast.core.task import Failure
from holdfast.core.transitions import EffectStatus, TaskStatus
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION
from holdfast.engine.ledger.retention import EVENTS_KEPT, Forgotten, Pruner, pruning, pruning_checkpoints
from holdfast.store import Tx
from holdfast.store.blobs import INLINE_BYTES
from holdfast.store.events import START
from holdfast.store.tasks import TOMBSTONE_DAYS
from holdfast.testing import FakeClock
from tests.builders import an_effect, later, plan_of
from tests.engine.parts import Parts
from tests.engine.tables import dump, query

LARGE = "tide " * INLINE_BYTES


async def ended(parts: Parts, text: str = LARGE, **changes: object) -> str:
    """A task that was paused, resumed and finished, with something in every table."""
    claimed = await parts.carry(arguments=[text], **changes)
    await parts.journal.save_step(claimed.claim, "read", text, plan=plan_of("read"))
    await parts.artifacts.record_output(claimed.claim, "report", "calm")
    await parts.journal.decide(claimed.claim, "use the tables")
    await parts.checkpoints.record(claimed.claim, CheckpointKind.MILESTONE, "half-way")
    await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    await parts.resumer.resume_all()
    (again,) = await parts.claims.take()
    await parts.ledger.finish(again.claim, text)
    return claimed.task.id


async def prune(parts: Parts) -> None:
    await Pruner(parts.store, parts.clock).run_once()


async def test_an_ended_task_is_kept_until_its_retention_is_over(parts: Parts, clock: FakeClock) -> None:
    task_id = await ended(parts)
    clock.advance(seconds=DEFAULT_RETENTION.total_seconds() - 1)

    await prune(parts)

    assert (await parts.ledger.get(task_id)).status is TaskStatus.SUCCEEDED


async def test_nothing_of_a_forgotten_task_is_left_in_any_table(parts: Parts, clock: FakeClock) -> None:
    before = {table: len(rows) for table, rows in dump(parts.store).items()}
    task_id = await ended(parts)
    clock.advance(seconds=DEFAULT_RETENTION.total_seconds())

    await prune(parts)

    after = {table: len(rows) for table, rows in dump(parts.store).items()}
    for table in (
        "tasks",
        "runs",
        "steps",
        "plans",
        "artifacts",
        "notes",
        "run_checkpoints",
        "blobs",
        "blob_uses",
    ):
        assert after[table] == before[table], f"something is left in {table}"
    with pytest.raises(NotFound):
        await parts.ledger.get(task_id)
    assert parts.store.verify() == []
    events = await parts.store.read(lambda tx: tx.events.of_task(task_id))
    assert events[-1].kind is EventKind.TASK_PRUNED


async def test_what_goes_on_is_never_forgotten(parts: Parts, clock: FakeClock) -> None:
    running, waiting, paused = await parts.carry(), await parts.carry(), await parts.carry()
    queued = await parts.create()
    await parts.claims.wait(waiting.claim, waits_on="the tide")
    await parts.checkpoints.pause([paused.claim], ResumeReason.SIGNAL)
    clock.advance(days=3650)

    await prune(parts)

    kept = {task.id for task in await parts.ledger.page()}
    assert kept == {running.task.id, waiting.task.id, paused.task.id, queued.id}


async def test_a_blob_that_another_task_needs_stays(parts: Parts, clock: FakeClock) -> None:
    old = await ended(parts)
    clock.advance(days=20)
    young = await ended(parts)
    clock.advance(days=11)

    await prune(parts)

    with pytest.raises(NotFound):
        await parts.ledger.get(old)
    assert LARGE.encode() in (await parts.ledger.get(young)).arguments
    assert parts.store.verify() == []


async def test_a_key_outlives_its_task_as_a_tombstone(parts: Parts, clock: FakeClock) -> None:
    task_id = await ended(parts, "calm", key="tides")
    clock.advance(seconds=DEFAULT_RETENTION.total_seconds())
    await prune(parts)

    again = await parts.create(key="tides", arguments=["calm"])

    assert (again.id, again.status) == (task_id, TaskStatus.SUCCEEDED)
    assert again.failure is not None
    assert again.failure.kind == "pruned"
    assert await parts.claims.take() == []
    with pytest.raises(KeyConflict):
        await parts.create(key="tides", arguments=["rough"])
    with pytest.raises(KeyConflict, match="another goal"):
        await parts.create(key="tides", arguments=["calm"], goal="in other words")


async def test_a_tombstone_goes_in_the_end(parts: Parts, clock: FakeClock) -> None:
    task_id = await ended(parts, "calm", key="tides")
    clock.advance(seconds=DEFAULT_RETENTION.total_seconds())
    await prune(parts)
    clock.advance(days=TOMBSTONE_DAYS)
    await prune(parts)

    again = await parts.create(key="tides", arguments=["rough"])

    assert again.id != task_id
    assert again.status is TaskStatus.QUEUED
    assert_ledger_is_whole_but_for_the_story(parts)


def assert_ledger_is_whole_but_for_the_story(parts: Parts) -> None:
    """The feed no longer tells of what was forgotten, so no listener can follow it from the start."""
    assert parts.store.verify() == []


async def test_old_events_go_and_a_listener_that_was_behind_is_told(parts: Parts, clock: FakeClock) -> None:
    await parts.create()
    (first, *_) = await parts.store.read(lambda tx: tx.events.after(START))
    clock.advance(seconds=EVENTS_KEPT.total_seconds())
    await parts.create()

    await prune(parts)

    left = await parts.store.read(lambda tx: tx.events.after(START))
    assert [event.kind for event in left] == [EventKind.TASK_CREATED]
    with pytest.raises(FeedGap):
        await parts.store.read(lambda tx: tx.events.after(first.position))


async def test_one_pass_is_bounded_and_the_next_goes_on(parts: Parts, clock: FakeClock) -> None:
    for _ in range(3):
        claimed = await parts.carry()
        await parts.ledger.fail(claimed.claim, Failure(kind="storm", message="rough"))
    clock.advance(days=31)

    passes = [
        (await parts.store.write(pruning(now=clock.now(), events_kept=timedelta(days=365), limit=2))).tasks
        for _ in range(3)
    ]

    assert passes == [2, 1, 0]


async def test_pruning_the_same_batch_again_after_its_commit_does_no_harm(
    parts: Parts, clock: FakeClock
) -> None:
    task_id = await ended(parts, "calm", key="tides")
    clock.advance(days=31)
    write = pruning(now=clock.now())
    await parts.store.write(write)

    again = await parts.store.write(write)

    assert again.tasks == 0
    assert (await parts.create(key="tides", arguments=["calm"])).id == task_id


async def test_settled_checkpoints_of_ended_tasks_can_be_pruned_alone(parts: Parts, clock: FakeClock) -> None:
    task_id = await ended(parts, "calm")
    going_on = await parts.carry()
    await parts.checkpoints.record(going_on.claim, CheckpointKind.MILESTONE, "half-way")
    clock.advance(days=1)

    gone = await parts.store.write(pruning_checkpoints(older_than=clock.now()))

    assert len(gone) == 2
    assert [one.task_id for one in await parts.store.read(lambda tx: tx.checkpoints.page())] == [
        going_on.task.id
    ]
    assert (await parts.ledger.get(task_id)).status is TaskStatus.SUCCEEDED
    assert parts.store.verify() == []


async def test_boots_that_ended_long_ago_are_forgotten(parts: Parts, others: Parts, clock: FakeClock) -> None:
    await others.life.end()
    clock.advance(days=31)

    await prune(parts)

    assert [row[0] for row in dump(parts.store)["boots"]] == [parts.life.id]


async def test_a_task_with_an_effect_of_unknown_outcome_is_kept(parts: Parts, clock: FakeClock) -> None:
    kept, gone = await parts.carry(), await parts.carry()
    for claimed, status in ((kept, EffectStatus.UNKNOWN), (gone, EffectStatus.DONE)):
        effect = an_effect(task_id=claimed.task.id, run_id=claimed.run.id, status=status)
        await parts.store.write(functools.partial(create_effect, effect))
        await parts.ledger.finish(claimed.claim)

    clock.advance(days=31)
    await Pruner(parts.store, parts.clock).run_once()

    assert (await parts.ledger.get(kept.task.id)).has_ended
    assert query(parts.store, "SELECT task_id FROM effects") == [(kept.task.id,)]


def create_effect(effect: Effect, tx: Tx) -> None:
    tx.effects.create(effect)


# --- a clock that jumps


async def test_a_clock_that_is_a_year_ahead_for_75_seconds_deletes_nothing(
    parts: Parts, clock: FakeClock
) -> None:
    task_id = await ended(parts, "calm", key="tides")
    watch = ClockWatch(parts.store, clock, boottime_us=clock.boottime_us, machine="boot 1")
    pruner = Pruner(parts.store, clock, watch=watch)
    await pruner.run_once()
    clock.advance(days=1)
    before = dump(parts.store)

    clock.jump(days=365)
    for _ in range(3):
        clock.advance(seconds=25)
        assert await pruner.run_once() == Forgotten()
    clock.jump(days=-365)
    assert await pruner.run_once() == Forgotten()

    assert dump(parts.store) == before
    assert (await parts.create(key="tides", arguments=["calm"])).id == task_id


async def test_a_clock_that_jumps_after_it_was_looked_at_deletes_nothing(
    parts: Parts, clock: FakeClock
) -> None:
    await ended(parts, "calm", key="tides")
    jumpy = RightOnce(clock)
    watch = ClockWatch(parts.store, clock, boottime_us=clock.boottime_us, machine="boot 1")
    await watch.deletion_time()
    clock.advance(days=1)
    again = ClockWatch(parts.store, jumpy, boottime_us=clock.boottime_us, machine="boot 1")

    assert await Pruner(parts.store, jumpy, watch=again).run_once() == Forgotten()
    assert clock.now() > later(days=365)


class RightOnce:
    """A clock that jumps a year ahead when it was looked at."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        now = self._clock.now()
        self._clock.jump(days=365)
        return now


async def test_what_is_old_is_deleted_when_the_machine_was_off_for_months_but_not_at_once(
    parts: Parts, clock: FakeClock
) -> None:
    task_id = await ended(parts)
    before = ClockWatch(parts.store, clock, boottime_us=clock.boottime_us, machine="boot 1")
    await before.deletion_time()
    clock.advance(days=90)
    watch = ClockWatch(parts.store, clock, boottime_us=clock.boottime_us, machine="boot 2")
    pruner = Pruner(parts.store, clock, watch=watch)

    assert await pruner.run_once() == Forgotten()
    for _ in range(61):
        clock.advance(minutes=1)
        await pruner.run_once()

    with pytest.raises(NotFound):
        await parts.ledger.get(task_id)
