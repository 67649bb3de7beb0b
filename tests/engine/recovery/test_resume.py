"""Resume: one paused checkpoint becomes one follow-up run, or says why it never will."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.checkpoint import Checkpoint, ResumeReason, SeedContext, decode_seed, encode_document
from holdfast.core.errors import CheckpointUnreadable, IllegalMove, ResumesHeld
from holdfast.core.events import EventKind
from holdfast.core.run import RunRecord
from holdfast.core.step import ArtifactState
from holdfast.core.task import Progress
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.recovery.resume import MAX_RESUME_ATTEMPTS, Resumed, Resumer, retrying
from holdfast.store import Tx
from holdfast.store.rows.work import row_from_checkpoint
from holdfast.testing import FakeClock
from tests.builders import a_run, plan_of
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump, execute, literal


async def paused(parts: Parts, **changes: object) -> Checkpoint:
    """A checkpoint of a run that was paused for a restart after its first step."""
    claimed = await parts.carry(**changes)
    await parts.journal.save_step(claimed.claim, "read", 1)
    found = await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    return found.checkpoints[0]


async def follow_up_of(parts: Parts, checkpoint: Checkpoint) -> RunRecord:
    runs = await parts.ledger.runs(checkpoint.task_id)
    (run,) = (run for run in runs if run.resumes_run_id == checkpoint.run_id)
    return run


async def seed_of(parts: Parts, run: RunRecord) -> SeedContext:
    assert run.seed is not None
    stored = run.seed
    return decode_seed(await parts.store.read(lambda tx: tx.blobs.open(stored)))


async def now(parts: Parts, checkpoint: Checkpoint) -> Checkpoint:
    return await parts.store.read(lambda tx: tx.checkpoints.get(checkpoint.id))


def rewrite(parts: Parts, checkpoint: Checkpoint, document: bytes, **changes: object) -> None:
    """Put another document in the checkpoint's place, with a digest that fits."""
    changed = msgspec.structs.replace(checkpoint, document=document, **changes)
    row = row_from_checkpoint(changed)
    execute(
        parts.store,
        f"UPDATE run_checkpoints SET document = {literal(parts.store, document)},"
        f" digest = {literal(parts.store, row['digest'])}, schema_version = {row['schema_version']}"
        f" WHERE id = '{checkpoint.id}'",
    )


# --- the good way


async def test_a_checkpoint_becomes_one_follow_up_run(parts: Parts) -> None:
    checkpoint = await paused(parts)

    resumed = await parts.resumer.resume_all()

    run = await follow_up_of(parts, checkpoint)
    assert resumed.followed_up == {checkpoint.id: run.id}
    assert (run.number, run.status, run.checkpoint_id) == (2, RunStatus.QUEUED, checkpoint.id)
    after = await now(parts, checkpoint)
    assert (after.status, after.resumed_run_id) == (CheckpointStatus.RESUMED, run.id)
    assert (await parts.ledger.get(checkpoint.task_id)).status is TaskStatus.QUEUED
    assert_ledger_is_whole(parts.store)


async def test_resuming_again_finds_nothing_left(parts: Parts) -> None:
    await paused(parts)
    await parts.resumer.resume_all()
    before = dump(parts.store)

    again = await parts.resumer.resume_all()

    assert again == Resumed()
    assert dump(parts.store) == before


async def test_two_resumers_share_the_checkpoints_between_them(parts: Parts, others: Parts) -> None:
    await parts.ledger.create_many([a_new_task() for _ in range(20)])
    claimed = await parts.claims.take(20)
    await parts.checkpoints.pause([one.claim for one in claimed], ResumeReason.SIGNAL)

    first = await parts.resumer.claim(15)
    second = await others.resumer.claim(15)
    one, two = await others.resumer.settle(second), await parts.resumer.settle(first)

    assert (len(one.followed_up), len(two.followed_up)) == (5, 15)
    assert one.followed_up.keys().isdisjoint(two.followed_up)
    assert_ledger_is_whole(parts.store)


async def test_the_most_urgent_checkpoints_are_resumed_first(parts: Parts) -> None:
    urgencies = [5, 1, 9, 0]
    checkpoints = {priority: await paused(parts, priority=priority) for priority in urgencies}

    claimed = await parts.resumer.claim(2)

    assert [one.id for one in claimed] == [checkpoints[0].id, checkpoints[1].id]


async def test_the_follow_up_run_is_told_where_the_work_stands(parts: Parts) -> None:
    claimed = await parts.carry()
    plan = plan_of("read", "write").complete("read")
    await parts.journal.save_step(claimed.claim, "read", 1, plan=plan)
    await parts.journal.decide(claimed.claim, "use the tables")
    await parts.journal.refer(claimed.claim, "browser profile 7")
    await parts.ledger.progress(claimed.claim, Progress(done=1, total=2))
    pause = await parts.checkpoints.pause([claimed.claim], ResumeReason.CONFIG_RELOAD)
    await parts.resumer.resume_all()

    seed = await seed_of(parts, await follow_up_of(parts, pause.checkpoints[0]))

    assert (seed.checkpoint_id, seed.previous_run_id) == (pause.checkpoints[0].id, claimed.run.id)
    assert (seed.reason, seed.goal) == (ResumeReason.CONFIG_RELOAD, claimed.task.goal)
    assert (seed.plan, seed.cursor) == (plan, plan.cursor)
    assert (seed.steps_saved, seed.progress) == (1, Progress(done=1, total=2))
    assert [note.text for note in seed.decisions] == ["use the tables"]
    assert [note.text for note in seed.tool_context] == ["browser profile 7"]


async def test_the_settling_write_run_again_gives_the_same_answer(parts: Parts) -> None:
    """The answer to its first commit may have been lost."""
    checkpoint = await paused(parts)
    claimed = await parts.resumer.claim()
    prepared = [await parts.resumer._prepare(one) for one in claimed]
    write = parts.resumer._following_up(prepared)  # type: ignore[arg-type]
    first = await parts.store.write(write)
    before = dump(parts.store)

    again = await parts.store.write(write)

    assert again == first
    assert list(first.followed_up) == [checkpoint.id]
    assert dump(parts.store) == before


# --- artifacts


async def test_artifacts_are_told_as_they_were_found(parts: Parts, tmp_path: Path) -> None:
    claimed = await parts.carry()
    for name in ("same", "changed", "missing", "pipe"):
        (tmp_path / name).write_text(name)
        await parts.artifacts.record_file(claimed.claim, tmp_path / name)
    await parts.artifacts.record_output(claimed.claim, "output", "calm")
    pause = await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    (tmp_path / "changed").write_text("otherwise")
    (tmp_path / "missing").unlink()
    (tmp_path / "pipe").unlink()
    os.mkfifo(tmp_path / "pipe")

    await parts.resumer.resume_all()

    checkpoint = await now(parts, pause.checkpoints[0])
    seed = await seed_of(parts, await follow_up_of(parts, checkpoint))
    states = {report.name: report.state for report in seed.artifacts}
    assert states == {
        "same": ArtifactState.SAME,
        "output": ArtifactState.SAME,
        "changed": ArtifactState.CHANGED,
        "missing": ArtifactState.MISSING,
        "pipe": ArtifactState.MISSING,
    }
    assert checkpoint.status is CheckpointStatus.RESUMED
    assert checkpoint.diagnostic is not None
    assert checkpoint.diagnostic.kind == "artifacts"
    for odd in ("changed (changed)", "missing (missing)", "pipe (missing)"):
        assert odd in checkpoint.diagnostic.message
    assert "same" not in checkpoint.diagnostic.message


async def test_unchanged_artifacts_need_no_diagnostic(parts: Parts, tmp_path: Path) -> None:
    claimed = await parts.carry()
    (tmp_path / "report").write_text("calm")
    await parts.artifacts.record_file(claimed.claim, tmp_path / "report")
    pause = await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)

    await parts.resumer.resume_all()

    assert (await now(parts, pause.checkpoints[0])).diagnostic is None


# --- checkpoints that must not be executed


def document_of(checkpoint: Checkpoint, **changes: object) -> bytes:
    return encode_document(msgspec.structs.replace(checkpoint.read_document(), **changes))


def with_field(checkpoint: Checkpoint, **fields: object) -> bytes:
    decoded = msgspec.json.decode(checkpoint.document)
    return msgspec.json.encode(decoded | fields)


def corrupt(parts: Parts, checkpoint: Checkpoint, how: str) -> None:
    document = checkpoint.document
    match how:
        case "another digest":
            flipped = document.replace(b"tides", b"tider")
            execute(
                parts.store,
                f"UPDATE run_checkpoints SET document = {literal(parts.store, flipped)}"
                f" WHERE id = '{checkpoint.id}'",
            )
        case "empty":
            rewrite(parts, checkpoint, b"")
        case "truncated":
            rewrite(parts, checkpoint, document[: len(document) // 2])
        case "not JSON":
            rewrite(parts, checkpoint, b"\x80\x04\x95 not a pickle either")
        case "not UTF-8":
            rewrite(parts, checkpoint, document.replace(b"tides", b"tid\xff\xfe"))
        case "a list":
            rewrite(parts, checkpoint, b"[]")
        case "another schema":
            rewrite(parts, checkpoint, with_field(checkpoint, schema="other.checkpoint"))
        case "another version":
            rewrite(parts, checkpoint, with_field(checkpoint, version=2))
        case "a newer row":
            rewrite(parts, checkpoint, document, schema_version=2)
        case "an unknown field":
            rewrite(parts, checkpoint, with_field(checkpoint, extra=1))
        case "a wrong type":
            rewrite(parts, checkpoint, with_field(checkpoint, run_number="1"))
        case "an unknown reason":
            rewrite(parts, checkpoint, with_field(checkpoint, reason="because"))
        case "another run":
            rewrite(parts, checkpoint, document_of(checkpoint, run_id="run_other"))
        case "another task":
            rewrite(parts, checkpoint, document_of(checkpoint, task_id="task_other"))
        case "a missing blob":
            rewrite(parts, checkpoint, b"\x00zstd:" + b"0" * 64)
        case _:
            raise AssertionError(how)


CORRUPTIONS = [
    "another digest",
    "empty",
    "truncated",
    "not JSON",
    "not UTF-8",
    "a list",
    "another schema",
    "another version",
    "a newer row",
    "an unknown field",
    "a wrong type",
    "an unknown reason",
    "another run",
    "another task",
    "a missing blob",
]


async def test_a_checkpoint_that_cannot_be_trusted_is_never_executed(parts: Parts) -> None:
    broken = {how: await paused(parts) for how in CORRUPTIONS}
    good = await paused(parts)
    for how, checkpoint in broken.items():
        corrupt(parts, checkpoint, how)

    resumed = await parts.resumer.resume_all()

    assert list(resumed.followed_up) == [good.id]
    assert resumed.failed.keys() == {checkpoint.id for checkpoint in broken.values()}
    for how, checkpoint in broken.items():
        after = await now(parts, checkpoint)
        assert after.status is CheckpointStatus.FAILED_RESUME, how
        assert after.diagnostic is not None
        assert (after.diagnostic.kind, bool(after.diagnostic.message)) == ("checkpoint_unreadable", True), how
        task = await parts.store.read(lambda tx, one=checkpoint: tx.tasks.get(one.task_id))  # type: ignore[misc]
        assert task.status is TaskStatus.FAILED, how
        assert task.failure is not None
        assert task.failure.kind == "failed_resume"
        assert task.failure.facts["checkpoint_id"] == checkpoint.id
        assert len(await parts.ledger.runs(checkpoint.task_id)) == 1, how


async def test_a_checkpoint_that_cannot_be_read_cannot_be_retried_either(
    parts: Parts, clock: FakeClock
) -> None:
    checkpoint = await paused(parts)
    corrupt(parts, checkpoint, "truncated")
    await parts.resumer.resume_all()
    before = dump(parts.store)

    with pytest.raises(CheckpointUnreadable):
        await parts.store.write(retrying(checkpoint.id, now=clock.now()))

    assert dump(parts.store) == before


# --- a follow-up run that cannot be created


def plant(parts: Parts, checkpoint: Checkpoint) -> None:
    """A run that claims to continue the same one already: the database refuses a second."""

    def put(tx: Tx) -> None:
        task = tx.tasks.get(checkpoint.task_id)
        planted = a_run(
            task,
            number=77,
            resumes_run_id=checkpoint.run_id,
            status=RunStatus.FAILED,
            created_at=task.created_at,
        )
        tx.runs.create(planted)

    parts.store.write_now(put)


async def test_a_resume_whose_creation_fails_is_failed_while_the_others_go_on(parts: Parts) -> None:
    checkpoints = [await paused(parts) for _ in range(5)]
    plant(parts, checkpoints[2])

    resumed = await parts.resumer.resume_all()

    assert resumed.failed.keys() == {checkpoints[2].id}
    assert resumed.followed_up.keys() == {one.id for one in checkpoints} - {checkpoints[2].id}
    failed = await now(parts, checkpoints[2])
    assert failed.status is CheckpointStatus.FAILED_RESUME
    assert failed.diagnostic is not None
    assert failed.diagnostic.kind == "resume_failed"
    assert (await parts.ledger.get(checkpoints[2].task_id)).status is TaskStatus.FAILED
    assert await parts.resumer.resume_all() == Resumed()


# --- bounded attempts


async def test_a_checkpoint_whose_resumers_die_is_returned_and_given_up_in_the_end(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    checkpoint = await paused(parts)

    for _ in range(MAX_RESUME_ATTEMPTS):
        (claimed,) = await parts.resumer.claim()
        assert claimed.id == checkpoint.id
        clock.advance(minutes=5)
        assert (await others.rescuer.rescue()).returned == 1
    resumed = await others.resumer.resume_all()

    assert resumed.failed.keys() == {checkpoint.id}
    after = await now(parts, checkpoint)
    assert after.diagnostic is not None
    assert after.diagnostic.kind == "resume_attempts"
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_a_resumer_that_lost_its_checkpoint_creates_nothing(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    checkpoint = await paused(parts)
    late = await parts.resumer.claim()
    clock.advance(minutes=5)
    await others.rescuer.rescue()
    resumed = await others.resumer.resume_all()

    nothing = await parts.resumer.settle(late)

    assert nothing == Resumed()
    assert resumed.followed_up.keys() == {checkpoint.id}
    assert len(await parts.ledger.runs(checkpoint.task_id)) == 2
    assert_ledger_is_whole(parts.store)


async def test_a_resumer_that_lost_an_unusable_checkpoint_fails_nothing(
    parts: Parts, others: Parts, clock: FakeClock
) -> None:
    checkpoint = await paused(parts)
    (late,) = await parts.resumer.claim()
    clock.advance(minutes=5)
    await others.rescuer.rescue()
    await others.resumer.resume_all()

    nothing = await parts.resumer.settle([msgspec.structs.replace(late, is_damaged=True)])

    assert nothing == Resumed()
    assert (await now(parts, checkpoint)).status is CheckpointStatus.RESUMED
    assert_ledger_is_whole(parts.store)


# --- the way back


async def failed(parts: Parts) -> Checkpoint:
    checkpoint = await paused(parts)
    plant(parts, checkpoint)
    await parts.resumer.resume_all()
    execute(parts.store, "DELETE FROM runs WHERE number = 77")
    execute(parts.store, "UPDATE counters SET amount = amount - 1 WHERE noun = 'run' AND status = 'failed'")
    return checkpoint


async def test_a_person_may_retry_a_failed_resume(parts: Parts, clock: FakeClock) -> None:
    checkpoint = await failed(parts)

    retry = await parts.store.write(retrying(checkpoint.id, now=clock.now()))

    assert (retry.status, retry.retry_of) == (CheckpointStatus.PAUSED_FOR_RESTART, checkpoint.id)
    assert (await parts.ledger.get(checkpoint.task_id)).status is TaskStatus.PAUSED
    resumed = await parts.resumer.resume_all()
    assert resumed.followed_up.keys() == {retry.id}
    (claimed,) = await parts.claims.take()
    assert await parts.journal.find_step(claimed.task.id, "read") == b"1"
    await parts.ledger.finish(claimed.claim, "done")
    assert (await now(parts, checkpoint)).status is CheckpointStatus.FAILED_RESUME
    assert (await parts.ledger.get(checkpoint.task_id)).status is TaskStatus.SUCCEEDED
    events = await parts.store.read(lambda tx: tx.events.of_task(checkpoint.task_id))
    assert EventKind.TASK_REOPENED in [event.kind for event in events]


async def test_retrying_twice_gives_the_same_answer(parts: Parts, clock: FakeClock) -> None:
    checkpoint = await failed(parts)
    first = await parts.store.write(retrying(checkpoint.id, now=clock.now()))
    before = dump(parts.store)
    clock.advance(hours=1)

    second = await parts.store.write(retrying(checkpoint.id, now=clock.now()))

    assert second == first
    assert dump(parts.store) == before


@pytest.mark.parametrize("status", ["paused", "resuming", "resumed", "recorded"])
async def test_only_a_failed_resume_can_be_retried(parts: Parts, clock: FakeClock, status: str) -> None:
    checkpoint = await paused(parts)
    if status == "resuming":
        await parts.resumer.claim()
    elif status == "resumed":
        await parts.resumer.resume_all()
    elif status == "recorded":
        await parts.resumer.resume_all()
        (claimed,) = await parts.claims.take()
        from holdfast.core.checkpoint import CheckpointKind

        checkpoint = await parts.checkpoints.record(claimed.claim, CheckpointKind.MILESTONE, "half-way")
    before = dump(parts.store)

    with pytest.raises(IllegalMove):
        await parts.store.write(retrying(checkpoint.id, now=clock.now()))

    assert dump(parts.store) == before


async def test_a_checkpoint_of_a_cancelled_task_cannot_be_retried(parts: Parts, clock: FakeClock) -> None:
    checkpoint = await paused(parts)
    await parts.ledger.cancel(checkpoint.task_id, reason="enough")
    before = dump(parts.store)

    with pytest.raises(IllegalMove):
        await parts.store.write(retrying(checkpoint.id, now=clock.now()))

    assert dump(parts.store) == before


# --- held


async def test_nothing_is_resumed_while_resumes_are_held(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await paused(parts)
    before = dump(parts.store)
    monkeypatch.setattr(parts.store, "held_why", lambda: "the database is older than its mark")

    with pytest.raises(ResumesHeld):
        await parts.resumer.resume_all()

    assert dump(parts.store) == before


async def test_a_checkpoint_whose_run_cannot_be_found_fails_with_the_run_that_its_task_has(
    parts: Parts,
) -> None:
    checkpoint = await paused(parts)
    execute(parts.store, f"UPDATE run_checkpoints SET run_id = 'run_x' WHERE id = '{checkpoint.id}'")

    resumed = await parts.resumer.resume_all()

    assert resumed.failed.keys() == {checkpoint.id}
    assert (await parts.ledger.get(checkpoint.task_id)).status is TaskStatus.FAILED
    assert await parts.resumer.resume_all() == Resumed()


# --- side by side


class Counting(Resumer):
    """Counts the batches that are being settled at a time; none goes on before as many as wanted are."""

    wanted = 1
    inside = most = batches = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._are_there = asyncio.Event()

    async def settle(self, claimed: Sequence[Checkpoint]) -> Resumed:
        self.inside += 1
        self.batches += 1
        self.most = max(self.most, self.inside)
        if self.inside == self.wanted:
            self._are_there.set()
        async with asyncio.timeout(20):
            await self._are_there.wait()
        try:
            return await super().settle(claimed)
        finally:
            self.inside -= 1


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_so_many_batches_are_resumed_side_by_side(parts: Parts, concurrency: int) -> None:
    for _ in range(8):
        await paused(parts)
    resumer = Counting(parts.store, parts.clock, parts.life.id)
    resumer.concurrency = resumer.wanted = concurrency

    resumed = await resumer.resume_all(batch=2)

    assert len(resumed.followed_up) == 8
    assert resumer.most == concurrency
    assert resumer.batches >= 4
