"""Damaged rows: never a payload that was not written, and no one's work stopped by another's damage."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.api.wakes import WakeHistoryAsked, WakesAsked, list_wakes, read_history
from holdfast.core.checkpoint import ResumeReason
from holdfast.core.errors import PageDamaged, RowDamaged
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.recovery.wakes import WakeTimer, pausing_until_wake
from holdfast.store import Store
from holdfast.store.blobs import INLINE_BYTES
from holdfast.store.checkpoints import CheckpointTable
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.builders import plan_of
from tests.engine.parts import Parts
from tests.engine.tables import execute, literal, query

LARGE = "tide " * INLINE_BYTES


def flip(store: Store, table: str, column: str, where: str) -> None:
    """Change one byte of a stored value, as a failing disk does."""
    ((value,),) = query(store, f"SELECT {column} FROM {table} WHERE {where}")
    if isinstance(value, str):
        flipped = f"'{chr(ord(value[0]) ^ 1)}{value[1:]}'"
    else:
        damaged = bytearray(value)
        damaged[len(damaged) // 2] ^= 0x10
        flipped = literal(store, bytes(damaged))
    execute(store, f"UPDATE {table} SET {column} = {flipped} WHERE {where}")


def lose(store: Store, tables: tuple[str, ...], task_id: str) -> None:
    """Delete what these tables have of a task, although other rows refer to it."""
    deletes = "; ".join(
        f"DELETE FROM {one} WHERE {'id' if one == 'tasks' else 'task_id'} = '{task_id}'" for one in tables
    )
    if isinstance(store, SqliteStore):
        off, on = "PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON"
        store._writer.exclusively(
            lambda session: session.connection.execute(  # type: ignore[attr-defined]
                f"{off}; BEGIN; {deletes}; COMMIT; {on}"
            )
        )
    else:
        execute(store, f"SET LOCAL session_replication_role = replica; {deletes}")


async def test_a_damaged_task_is_shown_but_never_worked_on(parts: Parts) -> None:
    damaged, good = await parts.create(priority=0), await parts.create()
    flip(parts.store, "tasks", "goal", f"id = '{damaged.id}'")

    with pytest.raises(RowDamaged):
        await parts.ledger.get(damaged.id)
    claimed = await parts.claims.take()

    assert [one.task.id for one in claimed] == [good.id]
    assert {task.id: task.is_damaged for task in await parts.ledger.page()} == {
        damaged.id: True,
        good.id: False,
    }
    assert_failed_as_damaged(parts, damaged.id)


@pytest.mark.parametrize(
    ("table", "column"), [("tasks", "arguments"), ("runs", "task_name"), ("blobs", "body")]
)
async def test_damage_in_one_task_keeps_no_worker_from_claiming_the_others(
    parts: Parts, table: str, column: str
) -> None:
    damaged = await parts.create(priority=0, arguments=LARGE)
    good = [await parts.create() for _ in range(3)]
    where = {"tasks": "id", "runs": "task_id"}.get(table)
    flip(parts.store, table, column, "1 = 1" if where is None else f"{where} = '{damaged.id}'")

    claimed = await parts.claims.take(10)

    assert {one.task.id for one in claimed} == {task.id for task in good}
    assert_failed_as_damaged(parts, damaged.id)


async def test_a_damaged_seed_is_never_handed_out(parts: Parts) -> None:
    damaged = await follow_up(parts, priority=0)
    await follow_up(parts, priority=1)
    flip(parts.store, "runs", "seed", f"id = '{damaged}'")

    (claimed,) = await parts.claims.take(10)

    assert claimed.run.id != damaged
    task_id = await parts.store.read(lambda tx: tx.runs.look(damaged).task_id)
    assert_failed_as_damaged(parts, task_id)


async def test_a_large_seed_is_handed_out_opened(parts: Parts) -> None:
    await follow_up(parts, goal=LARGE)

    (claimed,) = await parts.claims.take()

    assert claimed.run.seed is not None
    assert LARGE.encode() in claimed.run.seed


async def test_a_damaged_result_is_never_handed_out(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.finish(claimed.claim, "calm")
    flip(parts.store, "tasks", "result", f"id = '{claimed.task.id}'")

    with pytest.raises(RowDamaged):
        await parts.ledger.get(claimed.task.id)


DAMAGES = [
    ("tasks", "goal", "id"),
    ("tasks", "arguments", "id"),
    ("runs", "task_name", "task_id"),
    ("plans", "items", "task_id"),
    ("artifacts", "body", "task_id"),
    ("notes", "text", "task_id"),
]


@pytest.mark.parametrize(("table", "column", "key"), DAMAGES)
@pytest.mark.parametrize("way", ["pause", "rescue"])
async def test_damage_is_never_copied_into_a_checkpoint_and_stops_no_other_task(
    parts: Parts, others: Parts, clock: FakeClock, way: str, table: str, column: str, key: str
) -> None:
    damaged, good = await busy(parts), await busy(parts)
    flip(parts.store, table, column, f"{key} = '{damaged.task.id}'")

    if way == "pause":
        await parts.checkpoints.pause([damaged.claim, good.claim], ResumeReason.SIGNAL)
    else:
        clock.advance(minutes=5)
        rescued = await others.rescuer.rescue()
        assert (rescued.checkpointed, rescued.damaged) == (1, 1)
    resumed = await others.resumer.resume_all()

    checkpoints = await parts.store.read(lambda tx: tx.checkpoints.page())
    assert [one.task_id for one in checkpoints] == [good.task.id]
    assert resumed.followed_up.keys() == {one.id for one in checkpoints}
    assert_failed_as_damaged(parts, damaged.task.id)


async def test_a_damaged_run_does_not_keep_its_good_checkpoint_from_being_resumed(parts: Parts) -> None:
    claimed = await busy(parts)
    await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    flip(parts.store, "runs", "task_name", f"id = '{claimed.run.id}'")

    resumed = await parts.resumer.resume_all()

    assert len(resumed.followed_up) == 1
    assert [one.task.id for one in await parts.claims.take()] == [claimed.task.id]


async def test_a_damaged_run_with_a_damaged_checkpoint_still_becomes_a_failed_resume(parts: Parts) -> None:
    claimed = await busy(parts)
    pause = await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    flip(parts.store, "runs", "task_name", f"id = '{claimed.run.id}'")
    flip(parts.store, "run_checkpoints", "document", f"id = '{pause.checkpoints[0].id}'")

    resumed = await parts.resumer.resume_all()

    assert resumed.failed.keys() == {pause.checkpoints[0].id}
    assert (await parts.store.read(lambda tx: tx.tasks.look(claimed.task.id))).status is TaskStatus.FAILED


async def test_a_damaged_run_that_waits_keeps_no_other_from_waking(parts: Parts, clock: FakeClock) -> None:
    damaged, good = await parts.carry(), await parts.carry()
    for one in (damaged, good):
        due_at = clock.now() + timedelta(seconds=1)
        await parts.claims.wait(one.claim, waits_on="the tide", due_at=due_at)
    flip(parts.store, "runs", "task_name", f"id = '{damaged.run.id}'")
    clock.advance(seconds=1)

    assert (await parts.rescuer.ready_due()).made_ready == 2

    assert [one.run.id for one in await parts.claims.take(10)] == [good.run.id]


@pytest.mark.parametrize("column", ["digest", "task_id", "checkpoint_id"])
async def test_a_damaged_wake_is_fired_and_keeps_no_other_from_firing(parts: Parts, column: str) -> None:
    saved = [await saved_with_wake(parts) for _ in range(3)]
    damaged = saved[1]
    flip(parts.store, "wakes", column, f"task_id = '{damaged}'")

    assert await timer_of(parts).run_once() == 3

    claimed = await parts.claims.take(10)
    assert {one.task.id for one in claimed} == set(saved)
    for one in claimed:
        await parts.ledger.finish(one.claim, "done")
    assert {(await parts.ledger.get(task_id)).status for task_id in saved} == {TaskStatus.SUCCEEDED}


async def test_a_task_with_a_damaged_wake_can_be_cancelled(parts: Parts) -> None:
    task_id = await saved_with_wake(parts)
    flip(parts.store, "wakes", "digest", f"task_id = '{task_id}'")

    await parts.ledger.cancel(task_id, reason="no longer needed")

    assert (await parts.ledger.get(task_id)).status is TaskStatus.CANCELLED


@pytest.mark.parametrize("gone", [("tasks",), ("tasks", "runs"), ("runs",), ("run_checkpoints",)])
async def test_a_wake_of_records_that_are_gone_keeps_no_other_from_firing(
    parts: Parts, gone: tuple[str, ...]
) -> None:
    lost, *others = [await saved_with_wake(parts) for _ in range(3)]
    lose(parts.store, gone, lost)

    assert await timer_of(parts).run_once() == 3

    assert {one.task.id for one in await parts.claims.take(10)} == set(others)
    failed = await parts.store.read(lambda tx: tx.checkpoints.page(task_id=lost))
    assert {one.status for one in failed} <= {CheckpointStatus.FAILED_RESUME}


async def test_an_unreadable_page_under_one_wake_keeps_no_other_from_firing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, *others = [await saved_with_wake(parts) for _ in range(3)]
    free_woken = CheckpointTable.free_woken

    def fails(self: CheckpointTable, checkpoint_id: str, wake_id: str, *, now: datetime) -> str | None:
        task_id = free_woken(self, checkpoint_id, wake_id, now=now)
        if task_id == bad:
            raise PageDamaged("database disk image is malformed")
        return task_id

    monkeypatch.setattr(CheckpointTable, "free_woken", fails)

    assert await timer_of(parts).run_once() == 2

    assert {one.task.id for one in await parts.claims.take(10)} == set(others)
    (wake,) = await parts.store.read(lambda tx: tx.wakes.pending(limit=10))
    assert wake.task_id == bad


async def test_a_damaged_wake_is_listed_with_the_others(parts: Parts) -> None:
    saved = [await saved_with_wake(parts) for _ in range(3)]
    flip(parts.store, "wakes", "digest", f"task_id = '{saved[1]}'")

    page = await parts.store.read(lambda tx: list_wakes(tx, WakesAsked()))
    history = await parts.store.read(lambda tx: read_history(tx, WakeHistoryAsked()))

    assert {one.task_id: one.is_damaged for one in page.wakes} == {one: one == saved[1] for one in saved}
    assert {one.task_id for one in history.wakes if one.is_damaged} == {saved[1]}


async def test_verify_names_every_damaged_record(parts: Parts) -> None:
    claimed = await busy(parts)
    await parts.journal.save_step(claimed.claim, "large", LARGE)
    pause = await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    flip(parts.store, "wakes", "digest", f"task_id = '{await saved_with_wake(parts)}'")
    for table, column, key in (*DAMAGES, ("steps", "result", "name = 'read' AND task_id")):
        flip(parts.store, table, column, f"{key} = '{claimed.task.id}'")
    flip(parts.store, "run_checkpoints", "document", f"id = '{pause.checkpoints[0].id}'")
    flip(parts.store, "blobs", "body", "1 = 1")

    problems = parts.store.verify()

    for noun in ("task", "run", "step", "plan", "artifact", "note", "checkpoint", "blob", "wake"):
        assert any(problem.startswith(f"{noun} ") for problem in problems), f"no damaged {noun} was named"


async def saved_with_wake(parts: Parts) -> str:
    """The id of a task that waits for a wake, which is due."""
    claimed, now = await parts.carry(), parts.clock.now()
    await parts.store.write(pausing_until_wake(claimed.claim, due_at=now, now=now))
    return str(claimed.task.id)


def timer_of(parts: Parts) -> WakeTimer:
    return WakeTimer(parts.store, parts.clock, parts.resumer)


async def busy(parts: Parts) -> ClaimedRun:
    """A run with everything in its journal."""
    claimed = await parts.carry()
    await parts.journal.save_step(claimed.claim, "read", "calm", plan=plan_of("read", "write"))
    await parts.artifacts.record_output(claimed.claim, "report", "calm")
    await parts.journal.decide(claimed.claim, "use the tables")
    return claimed


async def follow_up(parts: Parts, **changes: object) -> str:
    """The id of a follow-up run that is ready."""
    task = await parts.create(**changes)
    (run,) = await parts.ledger.runs(task.id)
    started = await parts.claims.start(run.id)
    await parts.checkpoints.pause([started.claim], ResumeReason.SIGNAL)
    (follow_up,) = (await parts.resumer.resume_all()).followed_up.values()
    return follow_up


def assert_failed_as_damaged(parts: Parts, task_id: str) -> None:
    task = parts.store.read_now(lambda tx: tx.tasks.look(task_id))
    (*_, run) = parts.store.read_now(lambda tx: tx.runs.of_task(task_id))
    assert (task.status, run.status) == (TaskStatus.FAILED, RunStatus.FAILED)
    assert task.failure is not None
    assert task.failure.kind == "row_damaged"


async def test_the_damaged_result_of_a_step_is_neither_read_nor_saved_over(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.journal.save_step(claimed.claim, "read", "calm")
    execute(parts.store, f"UPDATE steps SET result = {literal(parts.store, b'rough')}")

    with pytest.raises(RowDamaged):
        await parts.journal.find_step(claimed.task.id, "read")
    with pytest.raises(RowDamaged):
        await parts.journal.save_step(claimed.claim, "read", "calm")
