"""Checkpoints: one open per run, claimed by one resumer, linked to one follow-up run, both ways."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.checkpoint import Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.errors import AmbiguousId, CheckpointUnreadable, NotFound
from holdfast.core.ids import CheckpointId
from holdfast.core.run import RunRecord
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.store.tasks import LAST
from holdfast.testing import FakeClock
from tests.builders import (
    BOOT,
    FAILURE,
    LEASE,
    OTHER_BOOT,
    START,
    a_checkpoint,
    a_run,
    a_task,
    later,
    put,
    stored_checkpoint,
    unique,
)

PAUSED, RESUMING = CheckpointStatus.PAUSED_FOR_RESTART, CheckpointStatus.RESUMING
RESUMED, FAILED = CheckpointStatus.RESUMED, CheckpointStatus.FAILED_RESUME


def claim(store: Store, **changes: Any) -> list[Checkpoint]:
    how: dict[str, Any] = {
        "boot_id": BOOT,
        "token": f"token_{unique()}",
        "limit": 10,
        "now": START,
        "lease": LEASE,
    }
    return store.write_now(lambda tx: tx.checkpoints.claim(**how | changes))


def get(store: Store, checkpoint: Checkpoint) -> Checkpoint:
    return store.read_now(lambda tx: tx.checkpoints.get(checkpoint.id))


def ids(checkpoints: list[Checkpoint]) -> list[str]:
    return [one.id for one in checkpoints]


# --- create and read


def test_a_checkpoint_is_read_back_as_it_was_written(store: Store) -> None:
    checkpoint = stored_checkpoint(
        store,
        kind=CheckpointKind.CRASH,
        reason=ResumeReason.CRASH,
        retry_of="ckpt_before",
        priority=2,
        attempts=3,
        diagnostic=FAILURE,
    )

    kept = get(store, checkpoint)

    assert kept == checkpoint
    assert kept.read_document().run_id == checkpoint.run_id


def test_a_checkpoint_that_was_never_saved_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.checkpoints.get("ckpt_nothing"))

    assert store.read_now(lambda tx: tx.checkpoints.find("ckpt_nothing")) is None


def test_checkpoints_are_found_by_a_unique_prefix(store: Store) -> None:
    for checkpoint_id in ("ckpt_aa1", "ckpt_ab2", "ckpt_ab3"):
        stored_checkpoint(store, id=CheckpointId(checkpoint_id))

    assert store.read_now(lambda tx: tx.checkpoints.resolve("ckpt_aa")) == "ckpt_aa1"
    with pytest.raises(AmbiguousId):
        store.read_now(lambda tx: tx.checkpoints.resolve("ckpt_ab"))


@pytest.mark.parametrize("first", [PAUSED, RESUMING])
@pytest.mark.parametrize("second", [PAUSED, RESUMING])
def test_a_run_has_one_open_checkpoint_at_a_time(
    store: Store, refusal: type[Exception], first: CheckpointStatus, second: CheckpointStatus
) -> None:
    task = a_task(status=TaskStatus.PAUSED)
    run = a_run(task, status=RunStatus.PAUSED_FOR_RESTART)
    checkpoint = a_checkpoint(run, status=first)
    store.write_now(lambda tx: put(tx, task, run, checkpoints=(checkpoint,)))

    with pytest.raises(refusal):
        store.write_now(lambda tx: tx.checkpoints.create_many([a_checkpoint(run, status=second)]))

    assert store.read_now(lambda tx: tx.checkpoints.page()) == [checkpoint]
    assert store.read_now(lambda tx: tx.checkpoints.open_of_run(run.id)) == checkpoint


def test_restarts_and_crashes_are_interruptions_and_a_save_at_the_time_limit_is_none(store: Store) -> None:
    task = a_task(status=TaskStatus.PAUSED)
    kinds = (CheckpointKind.RESTART, CheckpointKind.TIMEOUT, CheckpointKind.CRASH, CheckpointKind.TIMEOUT)
    runs = [
        a_run(task, number=number, status=RunStatus.RESUMED if number < 4 else RunStatus.PAUSED_FOR_RESTART)
        for number in range(1, 5)
    ]
    saved = tuple(
        a_checkpoint(run, kind=kind, status=RESUMED if run.number < 4 else PAUSED)
        for run, kind in zip(runs, kinds, strict=True)
    )
    store.write_now(lambda tx: put(tx, task, *runs, checkpoints=saved))

    assert store.read_now(lambda tx: tx.checkpoints.count_interruptions(task.id)) == 2
    assert store.read_now(lambda tx: tx.checkpoints.count_interruptions("task_other")) == 0


@pytest.mark.parametrize("settled", [RESUMED, FAILED])
def test_a_settled_checkpoint_leaves_room_for_an_open_one(store: Store, settled: CheckpointStatus) -> None:
    before = stored_checkpoint(store, settled)
    run = store.read_now(lambda tx: tx.runs.get(before.run_id))
    assert store.read_now(lambda tx: tx.checkpoints.open_of_run(run.id)) is None

    another = a_checkpoint(run, created_at=later(seconds=1))
    store.write_now(lambda tx: tx.checkpoints.create_many([another]))

    assert store.read_now(lambda tx: tx.checkpoints.open_of_run(run.id)) == another


@pytest.mark.parametrize("kind", [kind for kind in CheckpointKind if not kind.is_resumable])
def test_a_recorded_checkpoint_has_no_status_and_is_never_claimed(store: Store, kind: CheckpointKind) -> None:
    paused = stored_checkpoint(store)
    run = store.read_now(lambda tx: tx.runs.get(paused.run_id))
    recorded = [a_checkpoint(run, kind=kind) for _ in range(2)]

    store.write_now(lambda tx: tx.checkpoints.create_many(recorded))

    assert ids(claim(store)) == [paused.id]
    assert [get(store, one) for one in recorded] == recorded
    assert store.read_now(lambda tx: tx.events.counts("checkpoint")) == {"resuming": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": CheckpointKind.MICRO, "status": PAUSED},
        {"kind": CheckpointKind.RESTART, "status": None},
        {"status": RESUMING, "token": None},
        {"status": RESUMED, "resumed_run_id": None},
        {"status": PAUSED, "resumed_run_id": "run_x"},
    ],
    ids=str,
)
def test_the_database_refuses_a_checkpoint_that_contradicts_itself(
    store: Store, refusal: type[Exception], wrong: dict[str, Any]
) -> None:
    checkpoint = stored_checkpoint(store, FAILED)
    run = store.read_now(lambda tx: tx.runs.get(checkpoint.run_id))

    with pytest.raises(refusal):
        store.write_now(lambda tx: tx.checkpoints.create_many([a_checkpoint(run, **wrong)]))


def test_a_checkpoint_whose_document_is_about_another_run_is_not_readable(store: Store) -> None:
    other, mine = stored_checkpoint(store), stored_checkpoint(store, FAILED)
    run = store.read_now(lambda tx: tx.runs.get(mine.run_id))
    wrong = a_checkpoint(run, status=FAILED, document=other.document)
    store.write_now(lambda tx: tx.checkpoints.create_many([wrong]))

    with pytest.raises(CheckpointUnreadable, match="about"):
        get(store, wrong).read_document()


# --- pages


def test_pages_of_checkpoints_show_the_newest_first_by_status_and_by_task(store: Store) -> None:
    def at(second: int, status: CheckpointStatus) -> Checkpoint:
        return stored_checkpoint(store, status, created_at=later(seconds=second))

    paused, resumed, failed, newest = at(1, PAUSED), at(2, RESUMED), at(3, FAILED), at(4, PAUSED)

    def page(**how: Any) -> list[str]:
        return ids(store.read_now(lambda tx: tx.checkpoints.page(**how)))

    assert page() == [newest.id, failed.id, resumed.id, paused.id]
    assert page(limit=2) == [newest.id, failed.id]
    assert page(before=failed.id) == [resumed.id, paused.id]
    assert page(status=PAUSED) == [newest.id, paused.id]
    assert page(status=PAUSED, before=newest.id, limit=1) == [paused.id]
    assert page(task_id=failed.task_id) == [failed.id]
    assert page(task_id=failed.task_id, status=FAILED) == [failed.id]
    assert page(task_id=failed.task_id, status=PAUSED) == []
    assert page(before=LAST, task_id="task_nothing") == []


def test_a_full_page_of_a_task_in_one_status_skips_the_others(store: Store) -> None:
    paused = stored_checkpoint(store)
    run = store.read_now(lambda tx: tx.runs.get(paused.run_id))
    newer = [
        a_checkpoint(run, kind=CheckpointKind.MILESTONE, created_at=later(seconds=second))
        for second in range(1, 5)
    ]
    store.write_now(lambda tx: tx.checkpoints.create_many(newer))

    page = store.read_now(lambda tx: tx.checkpoints.page(task_id=run.task_id, status=PAUSED, limit=2))

    assert ids(page) == [paused.id]


# --- claims


def test_the_most_urgent_and_oldest_checkpoints_are_claimed_first(store: Store) -> None:
    low = stored_checkpoint(store, priority=9)
    young = stored_checkpoint(store, created_at=later(seconds=2))
    old = stored_checkpoint(store, created_at=later(seconds=1))
    urgent = stored_checkpoint(store, priority=1, created_at=later(seconds=9))

    assert ids(claim(store, limit=3)) == [urgent.id, old.id, young.id]
    assert get(store, low) == low
    assert store.read_now(lambda tx: tx.events.counts("checkpoint")) == {
        "paused_for_restart": 1,
        "resuming": 3,
    }


def test_a_claim_names_its_resumer_and_counts_the_attempt(store: Store) -> None:
    checkpoint = stored_checkpoint(store)

    (claimed,) = claim(store, token="mine")

    assert claimed == get(store, checkpoint)
    assert (claimed.status, claimed.token, claimed.claimed_by) == (RESUMING, "mine", BOOT)
    assert (claimed.attempts, claimed.lease_until) == (1, START + LEASE)


def test_no_worker_claims_what_another_resumes(store: Store) -> None:
    stored_checkpoint(store)
    claim(store)

    assert claim(store, boot_id=OTHER_BOOT) == []


@pytest.mark.parametrize("status", [RESUMING, RESUMED, FAILED])
def test_only_paused_checkpoints_are_claimed(store: Store, status: CheckpointStatus) -> None:
    checkpoint = stored_checkpoint(store, status)

    assert claim(store) == []
    assert get(store, checkpoint) == checkpoint


def test_a_resumer_that_lost_the_answer_finds_its_own_claims(store: Store) -> None:
    for _ in range(3):
        stored_checkpoint(store)
    mine = claim(store, token="mine", limit=2)
    claim(store, token="other")

    assert store.read_now(lambda tx: tx.checkpoints.with_token(BOOT, "mine")) == mine
    assert store.read_now(lambda tx: tx.checkpoints.with_token(OTHER_BOOT, "mine")) == []


def test_a_resumer_holds_only_what_has_its_token(store: Store) -> None:
    one, two, three = (stored_checkpoint(store) for _ in range(3))
    mine = ids(claim(store, token="mine", limit=2))
    claim(store, token="other")
    everyone = [one.id, two.id, three.id, "ckpt_nothing"]

    assert store.write_now(lambda tx: tx.checkpoints.hold(everyone, "mine")) == set(mine)
    assert store.write_now(lambda tx: tx.checkpoints.hold(everyone, "unknown")) == set()


def test_a_resume_lapses_with_time_and_not_before(store: Store, clock: FakeClock) -> None:
    checkpoint = stored_checkpoint(store)
    claim(store)

    clock.advance(seconds=29)
    assert store.read_now(lambda tx: tx.checkpoints.lapsed(now=clock.now(), limit=10)) == []
    clock.advance(seconds=1)

    assert ids(store.read_now(lambda tx: tx.checkpoints.lapsed(now=clock.now(), limit=10))) == [checkpoint.id]


def test_what_a_boot_resumes_is_known(store: Store) -> None:
    first = stored_checkpoint(store, priority=1)
    second = stored_checkpoint(store, priority=2)
    stored_checkpoint(store, RESUMING, claimed_by=OTHER_BOOT)
    claim(store, limit=2)

    def resuming(limit: int) -> list[str]:
        return ids(store.read_now(lambda tx: tx.checkpoints.resuming_of_boot(BOOT, limit=limit)))

    assert resuming(10) == [first.id, second.id]
    assert resuming(1) == [first.id]


def test_of_several_checkpoints_those_still_resuming_are_locked(store: Store) -> None:
    one, two = stored_checkpoint(store, RESUMING), stored_checkpoint(store, RESUMING)
    paused = stored_checkpoint(store)

    found = store.write_now(lambda tx: tx.checkpoints.lock_resuming([two.id, paused.id, one.id]))

    assert found == sorted([one, two], key=lambda one: one.id)


# --- resumed, returned, failed


def follow_up(store: Store, checkpoint: Checkpoint) -> RunRecord:
    """What a resume writes, in one transaction."""
    run = a_run(
        a_task(id=checkpoint.task_id),
        number=2,
        resumes_run_id=checkpoint.run_id,
        checkpoint_id=checkpoint.id,
    )

    def write(tx: Tx) -> None:
        tx.runs.set_resumed([checkpoint.run_id], now=START)
        tx.runs.create(run)
        tx.checkpoints.set_resumed([(checkpoint.id, run.id, FAILURE)], checkpoint.token or "", now=START)

    store.write_now(write)
    return run


def test_a_resumed_checkpoint_and_its_follow_up_run_name_each_other(store: Store) -> None:
    checkpoint = stored_checkpoint(store, RESUMING)

    run = follow_up(store, checkpoint)

    kept = get(store, checkpoint)
    assert (kept.status, kept.resumed_run_id, kept.diagnostic) == (RESUMED, run.id, FAILURE)
    assert kept.lease_until is None
    continued = store.read_now(lambda tx: tx.runs.get(run.id))
    assert (continued.resumes_run_id, continued.checkpoint_id) == (checkpoint.run_id, checkpoint.id)
    assert store.read_now(lambda tx: tx.events.counts("checkpoint")) == {"resumed": 1}
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"queued": 1, "resumed": 1}


def test_two_checkpoints_never_lead_to_the_same_run(store: Store, refusal: type[Exception]) -> None:
    one, two = stored_checkpoint(store, RESUMING), stored_checkpoint(store, RESUMING)
    run = follow_up(store, one)

    with pytest.raises(refusal):
        store.write_now(
            lambda tx: tx.checkpoints.set_resumed([(two.id, run.id, None)], two.token or "", now=START)
        )

    assert get(store, two) == two


def test_a_second_follow_up_of_one_run_is_refused_by_the_database(
    store: Store, refusal: type[Exception]
) -> None:
    checkpoint = stored_checkpoint(store, RESUMING)
    run = follow_up(store, checkpoint)
    store.write_now(lambda tx: tx.runs.end_idle(run, RunStatus.FAILED, failure=None, now=START))

    twin = a_run(a_task(id=checkpoint.task_id), number=3, resumes_run_id=checkpoint.run_id)
    with pytest.raises(refusal):
        store.write_now(lambda tx: tx.runs.create(twin))


def test_a_returned_checkpoint_is_as_free_as_before_but_the_attempt_counts(store: Store) -> None:
    checkpoint = stored_checkpoint(store)
    claim(store)
    settled = stored_checkpoint(store, FAILED)

    returned = store.write_now(
        lambda tx: tx.checkpoints.return_claimed([checkpoint.id, settled.id, "ckpt_nothing"], now=START)
    )

    assert returned == [(checkpoint.id, checkpoint.run_id, checkpoint.task_id)]
    assert get(store, checkpoint) == msgspec.structs.replace(checkpoint, attempts=1)
    assert get(store, settled) == settled
    assert claim(store, boot_id=OTHER_BOOT)[0].attempts == 2


def test_a_resumer_whose_checkpoint_was_returned_holds_nothing(store: Store) -> None:
    checkpoint = stored_checkpoint(store)
    claim(store, token="mine")
    store.write_now(lambda tx: tx.checkpoints.return_claimed([checkpoint.id], now=START))
    claim(store, token="other", boot_id=OTHER_BOOT)

    assert store.write_now(lambda tx: tx.checkpoints.hold([checkpoint.id], "mine")) == set()


@pytest.mark.parametrize("status", [PAUSED, RESUMING])
def test_a_checkpoint_that_will_not_be_resumed_says_why(store: Store, status: CheckpointStatus) -> None:
    checkpoint = stored_checkpoint(store, status)

    assert store.write_now(lambda tx: tx.checkpoints.set_failed(checkpoint, FAILURE, now=later(seconds=1)))
    kept = get(store, checkpoint)
    assert (kept.status, kept.diagnostic, kept.lease_until) == (FAILED, FAILURE, None)
    assert store.read_now(lambda tx: tx.events.counts("checkpoint")) == {"failed_resume": 1}


def test_a_failure_decided_on_an_old_reading_is_refused(store: Store) -> None:
    paused = stored_checkpoint(store)
    (claimed,) = claim(store)

    assert not store.write_now(lambda tx: tx.checkpoints.set_failed(paused, FAILURE, now=START))
    assert get(store, paused) == claimed


def test_a_failed_checkpoint_is_retried_by_one_other(store: Store, refusal: type[Exception]) -> None:
    failed = stored_checkpoint(store, FAILED)
    run = store.read_now(lambda tx: tx.runs.get(failed.run_id))
    retry = a_checkpoint(run, retry_of=failed.id, status=FAILED)
    store.write_now(lambda tx: tx.checkpoints.create_many([retry]))

    with pytest.raises(refusal):
        store.write_now(lambda tx: tx.checkpoints.create_many([a_checkpoint(run, retry_of=failed.id)]))

    assert store.read_now(lambda tx: tx.checkpoints.that_retries(failed.id)) == retry
    assert store.read_now(lambda tx: tx.checkpoints.that_retries(retry.id)) is None


# --- retention


def test_only_settled_checkpoints_of_ended_tasks_are_pruned(store: Store) -> None:
    def stored(task_status: TaskStatus, status: CheckpointStatus, updated_s: int = 0) -> Checkpoint:
        task = a_task(status=task_status)
        run = a_run(task, status=RunStatus(status))
        checkpoint = a_checkpoint(run, status=status, updated_at=later(seconds=updated_s))
        store.write_now(lambda tx: put(tx, task, run, checkpoints=(checkpoint,)))
        return checkpoint

    resumed, failed = stored(TaskStatus.SUCCEEDED, RESUMED), stored(TaskStatus.FAILED, FAILED)
    kept = [
        stored(TaskStatus.SUCCEEDED, RESUMED, updated_s=10),
        stored(TaskStatus.RUNNING, RESUMED),
        stored(TaskStatus.SUCCEEDED, PAUSED),
        stored(TaskStatus.SUCCEEDED, RESUMING),
    ]

    def prune(tx: Tx) -> list[Checkpoint]:
        gone = tx.checkpoints.to_prune(older_than=later(seconds=5))
        tx.checkpoints.delete(gone)
        return gone

    assert set(ids(store.write_now(prune))) == {resumed.id, failed.id}
    assert set(ids(store.read_now(lambda tx: tx.checkpoints.page()))) == set(ids(kept))
    assert store.read_now(lambda tx: tx.events.counts("checkpoint")) == {
        "paused_for_restart": 1,
        "resumed": 2,
        "resuming": 1,
    }


def test_checkpoints_that_two_processes_prune_are_counted_once(store: Store) -> None:
    stored_checkpoint(store, FAILED)
    checkpoint = stored_checkpoint(store, FAILED)

    for _ in range(2):
        store.write_now(lambda tx: tx.checkpoints.delete([checkpoint]))

    assert store.read_now(lambda tx: tx.events.counts("checkpoint")) == {"failed_resume": 1}


# --- of one family


def test_of_one_family_the_paused_ones_are_claimed_and_no_others(store: Store) -> None:
    def stored(**task: Any) -> Checkpoint:
        its_task = a_task(status=TaskStatus.PAUSED, **task)
        run = a_run(its_task, status=RunStatus.PAUSED_FOR_RESTART)
        checkpoint = a_checkpoint(run)
        store.write_now(lambda tx: put(tx, its_task, run, checkpoints=(checkpoint,)))
        return checkpoint

    def claim_of(task_id: str, **changes: Any) -> list[Checkpoint]:
        how: dict[str, Any] = {
            "boot_id": BOOT,
            "token": f"token_{unique()}",
            "limit": 10,
            "now": START,
            "lease": LEASE,
        }
        return store.write_now(lambda tx: tx.checkpoints.claim_of_tree(task_id, **how | changes))

    root = stored()
    child = stored(parent_task_id=root.task_id)
    other = stored()

    assert sorted(ids(claim_of(root.task_id, token="ours"))) == sorted([root.id, child.id])
    assert claim_of(root.task_id) == []
    assert {one.status for one in store.read_now(lambda tx: tx.checkpoints.with_token(BOOT, "ours"))} == {
        RESUMING
    }
    assert get(store, other).status is PAUSED
    assert get(store, child).attempts == child.attempts + 1
