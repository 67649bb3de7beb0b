"""Checkpoints: everything a follow-up run needs to know, saved in the commit that pauses its run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from holdfast.core.checkpoint import (
    Checkpoint,
    CheckpointDocument,
    CheckpointKind,
    ResumeReason,
    checkpoint_json_schema,
    encode_document,
)
from holdfast.core.errors import CannotSeal, CheckpointNotSaved, ClaimLost, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.step import ArtifactKind
from holdfast.core.task import Origin, Progress
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.recovery import checkpoints
from holdfast.engine.recovery.checkpoints import Checkpoints
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.builders import plan_of
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump


async def pause(parts: Parts, *claimed: ClaimedRun, reason: ResumeReason = ResumeReason.SIGNAL) -> Checkpoint:
    paused = await parts.checkpoints.pause([one.claim for one in claimed], reason)
    return paused.checkpoints[0]


def opened(parts: Parts, checkpoint: Checkpoint) -> CheckpointDocument:
    """The document as it stands in the ledger now."""
    from holdfast.engine.recovery.resume import _open

    return parts.store.read_now(lambda tx: _open(tx, tx.checkpoints.get(checkpoint.id))).read_document()


async def test_a_checkpoint_says_everything_that_the_next_run_must_know(
    parts: Parts, clock: FakeClock, tmp_path: Path
) -> None:
    origin = Origin(channel="console", peer="ada", account_id="account-7", thread="t1")
    claimed = await parts.carry(
        goal="find out how tides work — 潮汐", origin=origin, session_key="agent:scholar:main"
    )
    report = tmp_path / "report.txt"
    report.write_text("calm")
    await parts.journal.save_plan(claimed.claim, plan_of("read", "write"))
    await parts.journal.save_step(claimed.claim, "read", 1, plan=plan_of("read", "write").complete("read"))
    await parts.artifacts.record_file(claimed.claim, report, name="report")
    await parts.artifacts.record_output(claimed.claim, "changes", "+ a line", kind=ArtifactKind.DIFF)
    await parts.journal.decide(claimed.claim, "use the tables")
    await parts.journal.refer(claimed.claim, "browser profile 7")
    await parts.ledger.progress(claimed.claim, Progress(done=1, total=2))
    clock.advance(seconds=5)

    paused = await parts.checkpoints.pause(
        [claimed.claim], ResumeReason.CONFIG_RELOAD, note="the port changed"
    )

    (checkpoint,) = paused.checkpoints
    document = opened(parts, checkpoint)
    # identity
    assert document.checkpoint_id == checkpoint.id
    assert (document.task_id, document.run_id) == (claimed.task.id, claimed.run.id)
    assert (document.run_number, document.boot_id) == (1, parts.life.id)
    assert document.task_name == "research"
    # routing and account
    assert (document.owner, document.session_key) == ("ada", "agent:scholar:main")
    assert (document.origin, document.account_id) == (origin, "account-7")
    # goal, plan and cursor
    assert document.goal == claimed.task.goal
    assert document.plan == plan_of("read", "write").complete("read")
    assert (document.cursor.last_completed, document.cursor.next_step) == ("read", "write")
    assert (document.steps_saved, document.progress) == (1, Progress(done=1, total=2))
    # artifacts with checksums
    artifacts = {artifact.name: artifact for artifact in document.artifacts}
    assert artifacts["report"].sha256 == hashlib.sha256(b"calm").hexdigest()
    assert artifacts["report"].path == str(report)
    assert (artifacts["changes"].kind, artifacts["changes"].content) == (ArtifactKind.DIFF, "+ a line")
    # decisions and tool context
    assert [note.text for note in document.decisions] == ["use the tables"]
    assert [note.text for note in document.tool_context] == ["browser profile 7"]
    # reason, policy, status, time
    assert (document.kind, document.reason) == (CheckpointKind.RESTART, ResumeReason.CONFIG_RELOAD)
    assert (document.policy, document.note) == ("at_most_once", "the port changed")
    assert document.created_at == clock.now()
    assert (checkpoint.status, checkpoint.diagnostic) == (CheckpointStatus.PAUSED_FOR_RESTART, None)


async def test_a_stored_document_validates_against_the_published_schema(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.journal.save_step(claimed.claim, "read", 1, plan=plan_of("read", "write"))
    checkpoint = await pause(parts, claimed)

    stored = parts.store.read_now(lambda tx: tx.checkpoints.get(checkpoint.id))

    jsonschema.validate(json.loads(stored.document), checkpoint_json_schema())


async def test_without_a_plan_the_cursor_shows_the_last_step(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.journal.save_step(claimed.claim, "read", 1)

    document = opened(parts, await pause(parts, claimed))

    assert document.plan is None
    assert (document.cursor.last_completed, document.cursor.next_step) == ("read", None)


async def test_a_large_document_becomes_a_blob_and_reads_the_same(parts: Parts) -> None:
    claimed = await parts.carry(goal="tide " * 20_000)

    document = opened(parts, await pause(parts, claimed))

    assert document.goal == "tide " * 20_000


async def test_a_pause_takes_the_run_its_task_and_its_claim_in_one_commit(parts: Parts) -> None:
    claimed = await parts.carry()

    checkpoint = await pause(parts, claimed)

    run = await parts.store.read(lambda tx: tx.runs.get(claimed.run.id))
    assert run.status is RunStatus.PAUSED_FOR_RESTART
    assert run.fence > claimed.claim.fence
    task = await parts.ledger.get(claimed.task.id)
    assert (task.status, task.waits_on) == (TaskStatus.PAUSED, "resume")
    with pytest.raises(ClaimLost):
        await parts.journal.save_step(claimed.claim, "late", 1)
    events = await parts.store.read(lambda tx: tx.events.of_task(claimed.task.id))
    assert events[-1].kind is EventKind.RUN_PAUSED
    assert events[-1].facts["checkpoint_id"] == checkpoint.id
    assert_ledger_is_whole(parts.store)


async def test_many_runs_are_paused_in_one_commit_each_by_its_own_checkpoint(parts: Parts) -> None:
    await parts.ledger.create_many([a_new_task() for _ in range(20)])
    claimed = await parts.claims.take(20)

    paused = await parts.checkpoints.pause([one.claim for one in claimed], ResumeReason.SIGNAL)

    assert {one.run_id for one in paused.checkpoints} == {one.run.id for one in claimed}
    assert paused.lost == ()
    assert_ledger_is_whole(parts.store)


async def test_a_pause_names_the_claims_that_were_lost_before_and_pauses_the_others(
    parts: Parts, others: Parts
) -> None:
    kept, lost = await parts.carry(), await parts.carry()
    await parts.claims.release(lost.claim)
    (theirs,) = await others.claims.take()

    paused = await parts.checkpoints.pause([lost.claim, kept.claim], ResumeReason.SIGNAL)

    assert [one.run_id for one in paused.checkpoints] == [kept.run.id]
    assert paused.lost == (lost.claim,)
    assert (await others.claims.renew([theirs.claim])).lost == ()
    assert_ledger_is_whole(parts.store)


async def test_pausing_nothing_is_no_work(parts: Parts) -> None:
    before = dump(parts.store)

    paused = await parts.checkpoints.pause([], ResumeReason.SIGNAL)

    assert (paused.checkpoints, paused.lost) == ((), ())
    assert dump(parts.store) == before


async def test_a_pause_that_cannot_be_made_durable_says_so(parts: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()

    class FullDisk:
        async def write(self, _write: object) -> object:
            raise StoreUnavailable("the disk is full")

    with pytest.raises(CheckpointNotSaved) as error:
        await Checkpoints(FullDisk(), clock).pause([claimed.claim], ResumeReason.SIGNAL)  # type: ignore[arg-type]

    assert claimed.run.id in str(error.value)
    assert "the disk is full" in str(error.value)


async def test_of_many_runs_the_one_is_named_whose_checkpoint_cannot_be_sealed(
    parts: Parts, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await parts.ledger.create_many([a_new_task() for _ in range(5)])
    claimed = await parts.claims.take(5)
    secret = claimed[3]
    encode = encode_document

    def refuse(document: CheckpointDocument) -> bytes:
        if document.run_id == secret.run.id:
            raise CannotSeal("the service is away")
        return encode(document)

    monkeypatch.setattr(checkpoints, "encode_document", refuse)
    with pytest.raises(CheckpointNotSaved) as error:
        await parts.checkpoints.pause([one.claim for one in claimed], ResumeReason.SIGNAL)

    assert error.value.run_id == secret.run.id
    assert "the service is away" in error.value.why
    assert_ledger_is_whole(parts.store)


async def test_a_run_that_asked_for_the_restart_says_so_in_its_checkpoint_and_the_others_do_not(
    parts: Parts,
) -> None:
    one, other = await parts.carry(), await parts.carry()
    asking = {str(one.run.id): "a new driver"}

    paused = await parts.checkpoints.pause(
        [one.claim, other.claim], ResumeReason.EXPLICIT_RESTART, asking=asking
    )

    saved = {each.run_id: opened(parts, each) for each in paused.checkpoints}
    assert (saved[one.run.id].reason, saved[one.run.id].note) == ("requires_restart", "a new driver")
    assert (saved[other.run.id].reason, saved[other.run.id].note) == ("explicit_restart", None)
    assert_ledger_is_whole(parts.store)


@pytest.mark.parametrize("kind", [CheckpointKind.BATCH, CheckpointKind.MILESTONE, CheckpointKind.PERIODIC])
async def test_a_recorded_checkpoint_is_kept_and_its_run_goes_on(parts: Parts, kind: CheckpointKind) -> None:
    claimed = await parts.carry()

    checkpoint = await parts.checkpoints.record(claimed.claim, kind, "half-way")

    assert (checkpoint.kind, checkpoint.status) == (kind, None)
    assert opened(parts, checkpoint).note == "half-way"
    await parts.journal.save_step(claimed.claim, "read", 1)
    assert (await parts.resumer.resume_all()).followed_up == {}
    assert_ledger_is_whole(parts.store)


async def test_only_the_holder_records_a_checkpoint(parts: Parts, store: Store) -> None:
    claimed = await parts.carry()
    await parts.claims.release(claimed.claim)
    before = dump(store)

    with pytest.raises(ClaimLost):
        await parts.checkpoints.record(claimed.claim, CheckpointKind.MILESTONE, "half-way")

    assert dump(store) == before


async def test_the_follow_up_of_recorded_work_is_its_producers_too(parts: Parts) -> None:
    """Nothing here can carry it on; the producer that carries it outside starts the follow-up run."""
    task = await parts.create(runtime="media")
    (run,) = await parts.ledger.runs(task.id)
    started = await parts.claims.start(run.id)
    await parts.checkpoints.pause([started.claim], ResumeReason.SIGNAL)

    await parts.resumer.resume_all()

    assert await parts.claims.take() == []
    _, follow_up = await parts.ledger.runs(task.id)
    assert (await parts.claims.start(follow_up.id)).run.resumes_run_id == run.id
