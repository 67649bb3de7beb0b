"""Runs: claimed in order, held under a fence, renewed while alive, and never by two."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import NotFound
from holdfast.core.ids import RunId
from holdfast.core.run import Queue, RunRecord
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from tests.builders import (
    BOOT,
    FAILURE,
    LEASE,
    OTHER_BOOT,
    START,
    a_run,
    a_task,
    later,
    put,
    running_run,
    stored_checkpoint,
    stored_run,
    unique,
    write,
)


def claim_ready(store: Store, **changes: Any) -> list[RunRecord]:
    how: dict[str, Any] = {
        "boot_id": BOOT,
        "token": f"token_{unique()}",
        "names": None,
        "limit": 10,
        "now": START,
        "lease": LEASE,
    }
    return write(store, lambda tx: tx.runs.claim_ready(**how | changes))


def claim(store: Store, run_id: str, **changes: Any) -> RunRecord | None:
    how: dict[str, Any] = {"boot_id": BOOT, "token": f"token_{unique()}", "now": START, "lease": LEASE}
    return write(store, lambda tx: tx.runs.claim(run_id, **how | changes))


def get(store: Store, run: RunRecord) -> RunRecord:
    return store.read_now(lambda tx: tx.runs.get(run.id))


# --- create and read


def test_a_run_is_read_back_as_it_was_written(store: Store) -> None:
    task = a_task()
    run = a_run(
        task,
        number=3,
        resumes_run_id="run_before",
        checkpoint_id="ckpt_x",
        seed=b'{"why":"crash"}',
        status=RunStatus.RUNNING,
        priority=1,
        due_at=later(seconds=-5),
        queue=Queue.PRODUCER,
        is_alone=True,
        idle_attempts=2,
        fence=7,
        beat_at=START,
        failure=FAILURE,
        started_at=START,
    )

    store.write_now(lambda tx: put(tx, task, run))

    assert get(store, run) == run


def test_a_run_that_was_never_created_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.runs.get("run_nothing"))


def test_creating_the_same_run_again_changes_and_counts_nothing(store: Store) -> None:
    run = stored_run(store)
    (claimed,) = claim_ready(store)

    assert not store.write_now(lambda tx: tx.runs.create(run))
    assert get(store, run) == claimed
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"running": 1}


def test_a_run_needs_its_task(store: Store, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        store.write_now(lambda tx: tx.runs.create(a_run(a_task())))


def test_a_task_has_one_live_run_at_a_time(store: Store, refusal: type[Exception]) -> None:
    task = a_task()
    store.write_now(lambda tx: put(tx, task, a_run(task)))

    with pytest.raises(refusal):
        store.write_now(lambda tx: tx.runs.create(a_run(task, number=2)))

    assert store.read_now(lambda tx: len(tx.runs.of_task(task.id))) == 1
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"queued": 1}


def test_a_run_is_continued_by_one_run_only(store: Store, refusal: type[Exception]) -> None:
    task = a_task()
    first = a_run(task, status=RunStatus.RESUMED)
    follow_up = a_run(task, number=2, resumes_run_id=first.id, status=RunStatus.FAILED)
    store.write_now(lambda tx: put(tx, task, first, follow_up))

    with pytest.raises(refusal):
        store.write_now(lambda tx: tx.runs.create(a_run(task, number=3, resumes_run_id=first.id)))

    assert store.read_now(lambda tx: tx.runs.of_task(task.id)) == [first, follow_up]


def test_the_lineage_of_a_task_is_in_the_order_of_its_runs(store: Store) -> None:
    task = a_task()
    runs = [a_run(task, number=number, status=RunStatus.FAILED) for number in (2, 1)] + [
        a_run(task, number=3)
    ]
    store.write_now(lambda tx: put(tx, task, *runs))

    def read(tx: Tx) -> tuple[list[int], int, RunRecord | None]:
        lineage = [run.number for run in tx.runs.of_task(task.id)]
        return lineage, tx.runs.last_number(task.id), tx.runs.live_of_task(task.id)

    assert store.read_now(read) == ([1, 2, 3], 3, runs[2])
    assert store.read_now(lambda tx: tx.runs.last_number("task_nothing")) == 0
    assert store.read_now(lambda tx: tx.runs.live_of_task("task_nothing")) is None


# --- claims


def test_claims_come_by_priority_then_by_due_time_then_by_age(store: Store) -> None:
    low = stored_run(store, priority=9, due_at=later(seconds=-99))
    late = stored_run(store, priority=5, due_at=later(seconds=-1))
    early = stored_run(store, priority=5, due_at=later(seconds=-9))
    first = stored_run(store, priority=5, due_at=later(seconds=-9), id=RunId("run_0"))
    urgent = stored_run(store, priority=1, due_at=START)

    claimed = claim_ready(store, limit=4)

    assert [run.id for run in claimed] == [urgent.id, first.id, early.id, late.id]
    assert get(store, low).status is RunStatus.QUEUED
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"queued": 1, "running": 4}


def test_a_claim_raises_the_fence_and_names_its_holder_and_its_end(store: Store) -> None:
    run = stored_run(store, fence=4)

    (claimed,) = claim_ready(store, token="mine")

    assert claimed == get(store, run)
    assert claimed.status is RunStatus.RUNNING
    assert claimed.fence == 5
    assert (claimed.claimed_by, claimed.claim_token) == (BOOT, "mine")
    assert (claimed.lease_until, claimed.beat_at, claimed.started_at) == (START + LEASE, START, START)


def test_no_worker_claims_what_another_carries(store: Store) -> None:
    stored_run(store)
    (claimed,) = claim_ready(store)

    assert claim_ready(store, boot_id=OTHER_BOOT) == []
    assert claim(store, claimed.id, boot_id=OTHER_BOOT) is None
    assert get(store, claimed) == claimed


def test_a_claim_takes_only_the_names_that_its_boot_can_carry(store: Store) -> None:
    stored_run(store, task={"name": "write"})
    research = stored_run(store, task={"name": "research"})
    draw = stored_run(store, task={"name": "draw"})

    claimed = claim_ready(store, names=["research", "draw", "sing"])

    assert {run.id for run in claimed} == {research.id, draw.id}
    assert claim_ready(store, names=[]) == []


@pytest.mark.parametrize(
    "change",
    [
        {"queue": Queue.LATER, "due_at": later(hours=1)},
        {"queue": Queue.PRODUCER},
        {"is_alone": True},
        {"status": RunStatus.WAITING},
        {"status": RunStatus.PAUSED_FOR_RESTART},
        {"status": RunStatus.SUCCEEDED},
    ],
    ids=str,
)
def test_what_is_not_ready_is_not_claimed(store: Store, change: dict[str, Any]) -> None:
    stored_run(store, **change)

    assert claim_ready(store) == []
    assert claim_ready(store, names=["research"]) == []


def test_of_one_family_those_that_are_ready_are_found_at_every_depth(store: Store) -> None:
    root = stored_run(store)
    child = stored_run(store, task={"parent_task_id": root.task_id}, priority=1)
    grandchild = stored_run(store, task={"parent_task_id": child.task_id}, priority=2, is_alone=True)
    stored_run(store, task={"parent_task_id": root.task_id, "name": "other"})
    stored_run(store, RunStatus.RUNNING, task={"parent_task_id": root.task_id})
    stored_run(store)

    found = store.read_now(lambda tx: tx.runs.ready_of_tree(root.task_id, ["research"], limit=10))
    below = store.read_now(lambda tx: tx.runs.ready_of_tree(child.task_id, ["research"], limit=10))
    first = store.read_now(lambda tx: tx.runs.ready_of_tree(root.task_id, ["research"], limit=1))

    assert found == [(child.id, False, START), (grandchild.id, True, START), (root.id, False, START)]
    assert below == found[:2]
    assert first == found[:1]


def test_a_claimant_that_lost_the_answer_finds_its_own_claims(store: Store) -> None:
    for _ in range(3):
        stored_run(store)
    claimed = claim_ready(store, token="mine", limit=2)
    claim_ready(store, token="other", limit=1)

    found = store.read_now(lambda tx: tx.runs.with_token(BOOT, "mine"))

    assert found == claimed
    assert store.read_now(lambda tx: tx.runs.with_token(OTHER_BOOT, "mine")) == []
    assert store.read_now(lambda tx: tx.runs.with_token(BOOT, "unknown")) == []


def test_one_run_is_claimed_by_its_id_whatever_its_queue(store: Store) -> None:
    recorded = stored_run(store, queue=Queue.PRODUCER)
    suspect = stored_run(store, is_alone=True)

    assert claim(store, recorded.id) == get(store, recorded)
    assert claim(store, suspect.id) == get(store, suspect)
    assert claim(store, "run_nothing") is None


def test_a_waiting_run_is_claimed_only_by_who_knows_that_it_waits(store: Store) -> None:
    run = stored_run(store, RunStatus.WAITING)

    assert claim(store, run.id) is None
    claimed = claim(store, run.id, status=RunStatus.WAITING)

    assert claimed is not None
    assert (claimed.status, claimed.waits_on, claimed.fence) == (RunStatus.RUNNING, None, 1)
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"running": 1}


def test_a_run_remembers_when_it_was_first_claimed(store: Store) -> None:
    run = stored_run(store)
    claim_ready(store)
    store.write_now(lambda tx: tx.runs.release(run.id, 1, due_at=START, queue=Queue.READY, now=START))

    (again,) = claim_ready(store, now=later(minutes=5))

    assert again.started_at == START
    assert again.fence == 3


# --- renew, lapse, release


def test_a_holder_renews_only_what_it_still_holds(store: Store, clock: FakeClock) -> None:
    mine, gone, lost = (stored_run(store) for _ in range(3))
    for run in (mine, gone):
        claim(store, run.id)
    claim(store, lost.id, boot_id=OTHER_BOOT)
    store.write_now(lambda tx: tx.runs.end(gone.id, 1, RunStatus.FAILED, failure=None, now=START))

    clock.advance(seconds=10)
    renewed = store.write_now(
        lambda tx: tx.runs.renew(
            [mine.id, gone.id, lost.id, "run_nothing"], boot_id=BOOT, now=clock.now(), lease=LEASE
        )
    )

    assert renewed == {mine.id: (1, clock.now() + LEASE)}
    kept = get(store, mine)
    assert (kept.lease_until, kept.beat_at, kept.fence) == (clock.now() + LEASE, clock.now(), 1)
    assert get(store, lost).lease_until == START + LEASE


def test_a_lease_lapses_with_time_and_not_before(store: Store, clock: FakeClock) -> None:
    run = stored_run(store)
    claim(store, run.id)

    clock.advance(seconds=29)
    assert store.read_now(lambda tx: tx.runs.lapsed(now=clock.now(), limit=10)) == []
    clock.advance(seconds=1)

    assert [one.id for one in store.read_now(lambda tx: tx.runs.lapsed(now=clock.now(), limit=10))] == [
        run.id
    ]


def test_a_renewed_lease_does_not_lapse(store: Store, clock: FakeClock) -> None:
    run = stored_run(store)
    claim(store, run.id)
    clock.advance(seconds=20)
    store.write_now(lambda tx: tx.runs.renew([run.id], boot_id=BOOT, now=clock.now(), lease=LEASE))

    clock.advance(seconds=29)

    assert store.read_now(lambda tx: tx.runs.lapsed(now=clock.now(), limit=10)) == []


def test_the_longest_lapsed_come_first_and_a_page_at_a_time(store: Store, clock: FakeClock) -> None:
    runs = []
    for _ in range(3):
        run = stored_run(store)
        claim(store, run.id, now=clock.now())
        runs.append(run.id)
        clock.advance(seconds=1)

    clock.advance(minutes=1)
    found = store.read_now(lambda tx: tx.runs.lapsed(now=clock.now(), limit=2))

    assert [run.id for run in found] == runs[:2]


def test_the_next_lease_to_lapse_is_known_before_it_does(store: Store, clock: FakeClock) -> None:
    assert store.read_now(lambda tx: tx.runs.next_lapse(now=clock.now())) is None
    for _ in range(2):
        claim(store, stored_run(store).id, now=clock.now())
        clock.advance(seconds=4)

    left = store.read_now(lambda tx: tx.runs.next_lapse(now=clock.now()))
    clock.advance(seconds=30)
    gone = store.read_now(lambda tx: tx.runs.next_lapse(now=clock.now()))

    assert (left, gone) == (LEASE - timedelta(seconds=8), timedelta(seconds=-8))


def test_the_lease_of_a_resume_is_one_of_those_that_lapse(store: Store, clock: FakeClock) -> None:
    stored_checkpoint(store)
    lease = timedelta(seconds=7)
    store.write_now(
        lambda tx: tx.checkpoints.claim(boot_id=BOOT, token="t", limit=1, now=clock.now(), lease=lease)
    )

    assert store.read_now(lambda tx: tx.runs.next_lapse(now=clock.now())) == lease


def test_a_holder_that_was_robbed_cannot_renew(store: Store, clock: FakeClock) -> None:
    run = stored_run(store)
    claim(store, run.id)
    store.write_now(lambda tx: tx.runs.pause([run.id], now=START))

    renewed = store.write_now(lambda tx: tx.runs.renew([run.id], boot_id=BOOT, now=clock.now(), lease=LEASE))

    assert renewed == {}


def test_a_released_run_is_free_for_anyone_and_its_old_fence_is_worth_nothing(store: Store) -> None:
    run, claimed = running_run(store)

    def release(fence: int) -> bool:
        return write(
            store, lambda tx: tx.runs.release(run.id, fence, due_at=START, queue=Queue.READY, now=START)
        )

    assert not release(claimed.fence + 1)
    assert release(claimed.fence)
    assert not release(claimed.fence)
    kept = get(store, run)
    assert (kept.status, kept.claimed_by, kept.claim_token, kept.lease_until) == (
        RunStatus.QUEUED,
        None,
        None,
        None,
    )
    assert kept.fence == claimed.fence + 1
    assert [one.id for one in claim_ready(store, boot_id=OTHER_BOOT)] == [run.id]


def test_a_run_released_for_later_is_not_ready_before_its_time(store: Store) -> None:
    run, claimed = running_run(store)
    due = later(minutes=5)
    store.write_now(
        lambda tx: tx.runs.release(run.id, claimed.fence, due_at=due, queue=Queue.LATER, now=START)
    )

    assert claim_ready(store) == []
    assert store.write_now(lambda tx: tx.runs.ready_due(now=later(minutes=4), limit=10)) == 0
    assert store.write_now(lambda tx: tx.runs.ready_due(now=due, limit=10)) == 1
    assert [one.id for one in claim_ready(store, now=due)] == [run.id]


def test_the_mover_takes_the_earliest_due_runs_first(store: Store) -> None:
    def due_in(seconds: int) -> RunRecord:
        return stored_run(store, queue=Queue.LATER, due_at=later(seconds=seconds))

    second, first, third = due_in(2), due_in(1), due_in(3)

    assert store.write_now(lambda tx: tx.runs.ready_due(now=later(seconds=9), limit=2)) == 2
    assert [get(store, run).queue for run in (first, second, third)] == [
        Queue.READY,
        Queue.READY,
        Queue.LATER,
    ]


# --- wait and wake


def test_a_waiting_run_has_no_holder_and_names_what_it_waits_for(store: Store) -> None:
    run, claimed = running_run(store)

    def wait(fence: int) -> bool:
        return write(
            store,
            lambda tx: tx.runs.wait(run.id, fence, waits_on="an answer", due_at=later(hours=1), now=START),
        )

    assert not wait(claimed.fence - 1)
    assert wait(claimed.fence)
    kept = get(store, run)
    assert (kept.status, kept.waits_on, kept.due_at) == (RunStatus.WAITING, "an answer", later(hours=1))
    assert (kept.claimed_by, kept.lease_until, kept.fence) == (None, None, claimed.fence + 1)


def test_a_woken_run_is_the_same_run_ready_to_be_claimed(store: Store) -> None:
    run = stored_run(store, RunStatus.WAITING, due_at=later(hours=1), fence=3)

    assert store.write_now(lambda tx: tx.runs.wake(run.id, now=later(seconds=5)))
    assert not store.write_now(lambda tx: tx.runs.wake(run.id, now=later(seconds=6)))
    woken = get(store, run)
    assert (woken.status, woken.waits_on, woken.due_at, woken.queue) == (
        RunStatus.QUEUED,
        None,
        later(seconds=5),
        Queue.READY,
    )
    assert [one.id for one in claim_ready(store)] == [run.id]


def test_waits_whose_time_is_over_are_found_earliest_first(store: Store) -> None:
    def waiting(seconds: int) -> RunRecord:
        return stored_run(store, RunStatus.WAITING, due_at=later(seconds=seconds))

    second, first, far = waiting(2), waiting(1), waiting(99)
    stored_run(store, due_at=START)

    def over(limit: int) -> list[tuple[str, str]]:
        return store.read_now(lambda tx: tx.runs.waits_over(now=later(seconds=2), limit=limit))

    assert over(10) == [(first.id, first.task_id), (second.id, second.task_id)]
    assert over(1) == [(first.id, first.task_id)]
    assert get(store, far) == far


def test_runs_are_found_by_what_they_wait_for(store: Store) -> None:
    later_due = stored_run(store, RunStatus.WAITING, waits_on="boot:boot_1", due_at=later(seconds=2))
    first_due = stored_run(store, RunStatus.WAITING, waits_on="boot:boot_1", due_at=later(seconds=1))
    stored_run(store, RunStatus.WAITING, waits_on="boot:boot_2")
    stored_run(store)

    found = store.read_now(lambda tx: tx.runs.waiting_on("boot:boot_1"))

    assert found == [(first_due.id, first_due.task_id), (later_due.id, later_due.task_id)]


# --- the end


def test_only_the_newest_fence_ends_a_run(store: Store) -> None:
    run, claimed = running_run(store, fence=5)

    def end(fence: int, to: RunStatus = RunStatus.SUCCEEDED) -> RunRecord | None:
        return write(store, lambda tx: tx.runs.end(run.id, fence, to, failure=FAILURE, now=later(seconds=1)))

    assert end(4) is None
    assert end(6) is None
    assert get(store, run) == run
    ended = end(claimed.fence)
    assert ended is not None
    assert ended == get(store, run)
    assert (ended.status, ended.ended_at, ended.failure) == (
        RunStatus.SUCCEEDED,
        later(seconds=1),
        FAILURE,
    )
    assert ended.lease_until is None
    assert end(claimed.fence, RunStatus.FAILED) is None
    assert get(store, run) == ended


def test_a_run_that_no_worker_holds_is_ended_as_it_was_read(store: Store) -> None:
    run = stored_run(store)
    claim(store, run.id)

    # Another worker took it after it was read as queued.
    late = store.write_now(lambda tx: tx.runs.end_idle(run, RunStatus.CANCELLED, failure=FAILURE, now=START))

    assert not late
    assert get(store, run).status is RunStatus.RUNNING


def test_ending_an_idle_run_raises_its_fence(store: Store) -> None:
    run = stored_run(store, RunStatus.WAITING, fence=2)

    assert store.write_now(
        lambda tx: tx.runs.end_idle(run, RunStatus.CANCELLED, failure=FAILURE, now=later(seconds=1))
    )

    kept = get(store, run)
    assert (kept.status, kept.fence, kept.ended_at) == (RunStatus.CANCELLED, 3, later(seconds=1))
    assert (kept.failure, kept.waits_on) == (FAILURE, None)


# --- pause and resume


def test_pausing_raises_the_fence_so_that_the_holder_writes_nothing_more(store: Store) -> None:
    run, claimed = running_run(store)
    idle = stored_run(store)

    assert store.write_now(lambda tx: tx.runs.pause([run.id, idle.id, "run_nothing"], now=START)) == 1
    kept = get(store, run)
    assert (kept.status, kept.fence, kept.lease_until) == (
        RunStatus.PAUSED_FOR_RESTART,
        claimed.fence + 1,
        None,
    )
    assert (
        store.write_now(
            lambda tx: tx.runs.end(run.id, claimed.fence, RunStatus.SUCCEEDED, failure=None, now=START)
        )
        is None
    )
    assert get(store, idle) == idle


def test_a_paused_run_goes_through_resuming_to_resumed(store: Store) -> None:
    run = stored_run(store, RunStatus.PAUSED_FOR_RESTART)

    def step(tx: Tx) -> list[int]:
        return [
            tx.runs.set_resuming([run.id], now=START),
            tx.runs.set_paused_again([run.id], now=START),
            tx.runs.set_resuming([run.id], now=START),
            tx.runs.set_resumed([run.id], now=later(seconds=1)),
            tx.runs.set_resumed([run.id], now=later(seconds=2)),
        ]

    assert store.write_now(step) == [1, 1, 1, 1, 0]
    kept = get(store, run)
    assert (kept.status, kept.ended_at) == (RunStatus.RESUMED, later(seconds=1))
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"resumed": 1}


def test_a_run_that_cannot_be_resumed_says_why(store: Store) -> None:
    run = stored_run(store, RunStatus.RESUMING)
    old_reading = msgspec.structs.replace(run, status=RunStatus.PAUSED_FOR_RESTART)

    assert not store.write_now(lambda tx: tx.runs.set_failed_resume(old_reading, FAILURE, now=START))
    assert store.write_now(lambda tx: tx.runs.set_failed_resume(run, FAILURE, now=START))
    kept = get(store, run)
    assert (kept.status, kept.failure, kept.ended_at) == (RunStatus.FAILED_RESUME, FAILURE, START)


# --- suspects


def test_suspects_stand_apart_and_the_most_urgent_comes_first(store: Store) -> None:
    stored_run(store)
    patient = stored_run(store, is_alone=True, priority=5)
    urgent = stored_run(store, is_alone=True, priority=1, due_at=later(seconds=-3))
    stored_run(store, is_alone=True, queue=Queue.LATER)

    assert store.read_now(lambda tx: tx.runs.suspects(limit=9)) == [
        (urgent.id, "research", later(seconds=-3)),
        (patient.id, "research", START),
    ]
    assert len(store.read_now(lambda tx: tx.runs.suspects())) == 1


def test_a_boot_knows_whether_it_carries_a_suspect_or_anything(store: Store) -> None:
    def carries(boot_id: str) -> tuple[bool, bool]:
        return store.read_now(
            lambda tx: (tx.runs.boot_carries_suspect(boot_id), tx.runs.boot_carries_any(boot_id))
        )

    assert carries(BOOT) == (False, False)
    running_run(store)
    assert carries(BOOT) == (False, True)
    running_run(store, is_alone=True)
    assert carries(BOOT) == (True, True)
    assert carries(OTHER_BOOT) == (False, False)


def test_progress_exonerates_a_suspect_under_its_fence(store: Store) -> None:
    run, claimed = running_run(store, is_alone=True)

    def exonerate(fence: int) -> bool:
        return write(store, lambda tx: tx.runs.exonerate(run.id, fence, now=START))

    assert not exonerate(claimed.fence + 1)
    assert exonerate(claimed.fence)
    assert not exonerate(claimed.fence)
    assert not get(store, run).is_alone


# --- what a boot carries


def test_what_a_boot_carries_is_listed_by_urgency(store: Store) -> None:
    low, _ = running_run(store, priority=9)
    high, _ = running_run(store, priority=1)
    running_run(store, claimed_by=OTHER_BOOT)
    stored_run(store)

    def carried(limit: int) -> list[str]:
        return [run.id for run in store.read_now(lambda tx: tx.runs.of_boot(BOOT, limit=limit))]

    assert carried(10) == [high.id, low.id]
    assert carried(1) == [high.id]


def test_of_several_runs_those_still_running_are_locked(store: Store) -> None:
    one, _ = running_run(store)
    two, _ = running_run(store)
    queued = stored_run(store)

    found = store.write_now(lambda tx: tx.runs.lock_running([two.id, queued.id, one.id, "run_nothing"]))

    assert found == sorted([one, two], key=lambda run: run.id)


def test_a_lock_shows_a_record_as_it_stands(store: Store) -> None:
    run = stored_run(store)

    assert store.write_now(lambda tx: tx.runs.lock(run.id)) == run
    assert store.write_now(lambda tx: tx.tasks.lock(run.task_id)).status is TaskStatus.QUEUED
    with pytest.raises(NotFound):
        store.write_now(lambda tx: tx.runs.lock("run_nothing"))


def test_the_last_run_of_a_task_is_found_and_the_failed_ones_are_counted(store: Store) -> None:
    task = a_task()

    def create(tx: Tx) -> None:
        tx.tasks.create(task)
        for number in (1, 2, 3):
            tx.runs.create(a_run(task, number=number, status=RunStatus.FAILED))
        tx.runs.create(a_run(task, number=4))

    store.write_now(create)

    assert store.read_now(lambda tx: tx.runs.last_of_task(task.id)).number == 4
    assert store.read_now(lambda tx: tx.runs.count_failed(task.id)) == 3


def test_a_task_without_runs_has_no_last_one(store: Store) -> None:
    with pytest.raises(NotFound):
        store.read_now(lambda tx: tx.runs.last_of_task("task_none"))
