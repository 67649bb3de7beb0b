"""The ledger: create, finish, fail, cancel and read tasks."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from holdfast.core.checkpoint import ResumeReason
from holdfast.core.claim import Claim
from holdfast.core.errors import ClaimLost, KeyConflict, NotYours
from holdfast.core.events import EventKind
from holdfast.core.run import Queue
from holdfast.core.task import Failure, NotifyPolicy, Origin, Progress, RuntimeName
from holdfast.core.transitions import CheckpointStatus, RunStatus, TaskStatus
from holdfast.engine.ledger.ledger import AlreadyEnded, Cancelled, CancelRequested, Finished
from holdfast.store.blobs import INLINE_BYTES
from holdfast.testing import FakeClock
from tests.crash.invariants import assert_ledger_is_whole
from tests.engine.parts import Parts, a_new_task
from tests.engine.tables import dump

STORM = Failure(kind="storm", message="the sea was rough", facts={"beaufort": 9})


async def kinds_of(parts: Parts, task_id: str) -> list[EventKind]:
    return [event.kind for event in await parts.store.read(lambda tx: tx.events.of_task(task_id))]


# --- create


async def test_a_created_task_is_read_back_with_all_that_was_asked(parts: Parts) -> None:
    origin = Origin(channel="console", peer="ada", account_id="account-7", thread="tides")
    task = await parts.create(
        arguments={"topic": "tides"},
        origin=origin,
        session_key="agent:scholar:main",
        notify=NotifyPolicy.STATE_CHANGES,
        priority=2,
    )

    found = await parts.ledger.get(task.id, owner="ada")

    assert found == task
    assert found.origin == origin
    assert found.arguments == b'{"topic":"tides"}'
    assert (found.status, found.priority) == (TaskStatus.QUEUED, 2)


async def test_a_created_task_has_a_first_run_that_is_ready(parts: Parts) -> None:
    task = await parts.create()

    (run,) = await parts.ledger.runs(task.id)

    assert (run.number, run.status, run.queue) == (1, RunStatus.QUEUED, Queue.READY)
    assert await kinds_of(parts, task.id) == [EventKind.TASK_CREATED]


async def test_large_arguments_come_back_whole(parts: Parts) -> None:
    text = "tide " * INLINE_BYTES

    task = await parts.create(arguments={"text": text})

    found = await parts.ledger.get(task.id)
    (claimed,) = await parts.claims.take()
    assert msgspec.json.decode(found.arguments) == {"text": text}
    assert claimed.task.arguments == found.arguments


async def test_many_tasks_are_created_in_one_commit_or_not_at_all(parts: Parts) -> None:
    await parts.create(key="second", arguments=1)
    before = dump(parts.store)

    with pytest.raises(KeyConflict):
        await parts.ledger.create_many(
            [a_new_task(key="first"), a_new_task(key="second", arguments=2), a_new_task(key="third")]
        )

    assert dump(parts.store) == before


async def test_a_write_that_fails_in_a_crowd_leaves_no_trace_of_itself(parts: Parts) -> None:
    """It shares its transaction with the others, and has already noted events and counts when it fails."""
    await parts.create(key="taken", arguments=1)
    good = [parts.create(key=f"good-{number}") for number in range(20)]
    bad = [
        parts.ledger.create_many([a_new_task(key=f"bad-{number}"), a_new_task(key="taken", arguments=2)])
        for number in range(20)
    ]

    answers = await asyncio.gather(
        *(one for pair in zip(good, bad, strict=True) for one in pair), return_exceptions=True
    )

    assert sum(isinstance(answer, KeyConflict) for answer in answers) == 20
    contents = assert_ledger_is_whole(parts.store)
    assert {task.dedup_key for task in contents.tasks.values()} == {"taken"} | {
        f"good-{number}" for number in range(20)
    }


# --- names in which something is redacted


async def test_an_owner_whose_name_looks_like_a_secret_finds_its_tasks_and_no_others(parts: Parts) -> None:
    token = "ghp_" + "0aZ9" * 8  # put together here, so that it is none
    mine = await parts.create(owner=f"{token}abcd", key="tides")
    other = await parts.create(owner=f"{token}wxyz", key="tides")

    assert mine.id != other.id
    assert token not in mine.owner
    assert [task.id for task in await parts.ledger.page(owner=f"{token}abcd")] == [mine.id]
    with pytest.raises(NotYours) as refused:
        await parts.ledger.cancel(other.id, reason="enough", owner=f"{token}abcd")
    assert token not in str(refused.value)
    await parts.ledger.cancel(mine.id, reason="enough", owner=f"{token}abcd")


async def test_keys_that_differ_in_a_redacted_part_alone_do_not_collide(parts: Parts) -> None:
    token = "ghp_" + "0aZ9" * 8

    first = await parts.create(key=f"login {token}abcd")
    second = await parts.create(key=f"login {token}wxyz")
    again = await parts.create(key=f"login {token}abcd")

    assert again.id == first.id != second.id


# --- dedup keys


async def test_the_same_key_finds_the_first_task(parts: Parts) -> None:
    first = await parts.create(key="tides", arguments={"n": 1})

    again = await parts.create(key="tides", arguments={"n": 1}, priority=1)

    assert again.id == first.id
    assert len(await parts.ledger.page()) == 1


async def test_the_same_key_with_another_goal_is_a_conflict_if_a_caller_has_said_that_goal(
    parts: Parts,
) -> None:
    first = await parts.create(key="tides")

    with pytest.raises(KeyConflict, match="another goal"):
        await parts.create(key="tides", goal="in other words")

    again = await parts.create(key="tides", goal="made up from its name", has_own_goal=False)
    assert again.id == first.id


async def test_the_same_key_finds_the_first_task_after_it_has_ended(parts: Parts) -> None:
    claimed = await parts.carry(key="tides")
    await parts.ledger.finish(claimed.claim, "done")

    again = await parts.create(key="tides")

    assert (again.id, again.status) == (claimed.task.id, TaskStatus.SUCCEEDED)


async def test_the_same_key_with_other_arguments_is_a_conflict(parts: Parts) -> None:
    first = await parts.create(key="tides", arguments={"n": 1})
    before = dump(parts.store)

    with pytest.raises(KeyConflict) as error:
        await parts.create(key="tides", arguments={"n": 2})

    assert error.value.task_id == first.id
    assert dump(parts.store) == before


async def test_keys_of_different_owners_never_meet(parts: Parts) -> None:
    ours = await parts.create(key="tides", owner="ada", arguments=1)
    theirs = await parts.create(key="tides", owner="grace", arguments=2)

    assert ours.id != theirs.id


async def test_the_same_key_twice_in_one_call_is_one_task(parts: Parts) -> None:
    one, two = await parts.ledger.create_many([a_new_task(key="tides"), a_new_task(key="tides")])

    assert one.id == two.id
    assert_ledger_is_whole(parts.store)


# --- due times and priorities


async def test_a_task_due_later_is_not_ready_before_its_time(parts: Parts, clock: FakeClock) -> None:
    task = await parts.create(due_at=clock.now() + timedelta(hours=1))

    assert await parts.claims.take() == []
    assert (await parts.rescuer.ready_due()).made_ready == 0

    clock.advance(hours=1)
    assert (await parts.rescuer.ready_due()).made_ready == 1
    (claimed,) = await parts.claims.take()
    assert claimed.task.id == task.id


async def test_the_most_urgent_task_comes_first_then_the_oldest(parts: Parts, clock: FakeClock) -> None:
    created = []
    for priority in (5, 9, 0, 5):
        created.append(await parts.create(priority=priority))
        clock.advance(seconds=1)

    claimed = [(await parts.claims.take())[0].task.id for _ in created]

    assert claimed == [created[place].id for place in (2, 0, 3, 1)]


# --- owners


async def test_a_foreign_owner_neither_sees_nor_cancels_a_task(parts: Parts) -> None:
    task = await parts.create(owner="ada")
    before = dump(parts.store)

    with pytest.raises(NotYours):
        await parts.ledger.get(task.id, owner="grace")
    with pytest.raises(NotYours):
        await parts.ledger.cancel(task.id, reason="mine now", owner="grace")

    assert dump(parts.store) == before


async def test_a_page_shows_only_the_owners_tasks_newest_first(parts: Parts, clock: FakeClock) -> None:
    mine: list[str] = []
    for owner in ("ada", "grace", "ada"):
        task = await parts.create(owner=owner)
        clock.advance(seconds=1)
        if owner == "ada":
            mine.insert(0, task.id)

    page = await parts.ledger.page(owner="ada")

    assert [task.id for task in page] == mine


# --- finish and fail


async def test_a_finished_task_keeps_its_result(parts: Parts) -> None:
    claimed = await parts.carry()

    outcome = await parts.ledger.finish(claimed.claim, {"tide": "high"})

    assert isinstance(outcome, Finished)
    found = await parts.ledger.get(claimed.task.id)
    assert (found.status, found.result) == (TaskStatus.SUCCEEDED, b'{"tide":"high"}')
    assert found.cleanup_after is not None
    assert await kinds_of(parts, claimed.task.id) == [
        EventKind.TASK_CREATED,
        EventKind.RUN_CLAIMED,
        EventKind.RUN_ENDED,
        EventKind.TASK_ENDED,
    ]
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_a_large_result_comes_back_whole(parts: Parts) -> None:
    claimed = await parts.carry()
    text = "tide " * INLINE_BYTES

    await parts.ledger.finish(claimed.claim, text)

    assert msgspec.json.decode((await parts.ledger.get(claimed.task.id)).result or b"") == text


async def test_finishing_twice_with_the_same_claim_gives_the_same_answer(parts: Parts) -> None:
    claimed = await parts.carry()
    first = await parts.ledger.finish(claimed.claim, "done")
    before = dump(parts.store)

    second = await parts.ledger.finish(claimed.claim, "done")

    assert second == first
    assert dump(parts.store) == before


@pytest.mark.parametrize(
    "status", [RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED, RunStatus.LOST]
)
async def test_a_run_may_fail_in_every_way_that_is_not_success(parts: Parts, status: RunStatus) -> None:
    claimed = await parts.carry()

    await parts.ledger.fail(claimed.claim, STORM, status=status)

    found = await parts.ledger.get(claimed.task.id)
    assert found.status.value == status.value
    assert found.failure == STORM
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_a_weaker_update_to_an_ended_task_is_ignored_and_says_so(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.finish(claimed.claim, "done")

    outcome = await parts.ledger.fail(claimed.claim, STORM)

    assert isinstance(outcome, AlreadyEnded)
    assert outcome.task.status is TaskStatus.SUCCEEDED
    found = await parts.ledger.get(claimed.task.id)
    assert (found.status, found.result, found.failure) == (TaskStatus.SUCCEEDED, b'"done"', None)
    assert (await kinds_of(parts, claimed.task.id))[-1] is EventKind.UPDATE_IGNORED


async def test_a_failed_task_does_not_succeed_later(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.fail(claimed.claim, STORM)

    outcome = await parts.ledger.finish(claimed.claim, "after all")

    assert isinstance(outcome, AlreadyEnded)
    found = await parts.ledger.get(claimed.task.id)
    assert (found.status, found.result, found.failure) == (TaskStatus.FAILED, None, STORM)


async def test_a_claim_with_another_fence_ends_nothing(parts: Parts) -> None:
    claimed = await parts.carry()
    stale = msgspec.structs.replace(claimed.claim, fence=claimed.claim.fence - 1)
    before = dump(parts.store)

    with pytest.raises(ClaimLost):
        await parts.ledger.finish(stale, "done")
    with pytest.raises(ClaimLost):
        await parts.ledger.fail(stale, STORM)

    assert dump(parts.store) == before


async def test_progress_is_shown_and_only_its_holder_may_tell_it(parts: Parts) -> None:
    claimed = await parts.carry()
    stale = msgspec.structs.replace(claimed.claim, fence=7)

    await parts.ledger.progress(claimed.claim, Progress(done=3, total=9, failed=1, subtask="reading"))
    with pytest.raises(ClaimLost):
        await parts.ledger.progress(stale, Progress(done=9))

    assert (await parts.ledger.get(claimed.task.id)).progress == Progress(
        done=3, total=9, failed=1, subtask="reading"
    )


# --- cancel


async def paused(parts: Parts) -> Claim:
    claimed = await parts.carry()
    await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)
    return claimed.claim


async def test_a_queued_task_is_cancelled_at_once(parts: Parts) -> None:
    task = await parts.create()

    outcome = await parts.ledger.cancel(task.id, reason="enough")

    assert isinstance(outcome, Cancelled)
    assert (outcome.task.status, outcome.task.cancel_reason) == (TaskStatus.CANCELLED, "enough")
    assert await parts.claims.take() == []
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_a_waiting_task_is_cancelled_at_once(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.claims.wait(claimed.claim, waits_on="the tide")

    outcome = await parts.ledger.cancel(claimed.task.id, reason="enough")

    assert isinstance(outcome, Cancelled)
    assert not await parts.claims.wake(claimed.run.id)
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_a_paused_task_is_cancelled_at_once_with_its_checkpoint(parts: Parts) -> None:
    claim = await paused(parts)

    outcome = await parts.ledger.cancel(claim.task_id, reason="enough")

    assert isinstance(outcome, Cancelled)
    (checkpoint,) = await parts.store.read(lambda tx: tx.checkpoints.page(task_id=claim.task_id))
    assert checkpoint.status is CheckpointStatus.FAILED_RESUME
    assert checkpoint.diagnostic is not None
    assert checkpoint.diagnostic.kind == "cancelled"
    assert (await parts.resumer.resume_all()).followed_up == {}
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_a_task_that_is_being_resumed_is_cancelled_and_gets_no_follow_up(parts: Parts) -> None:
    claim = await paused(parts)
    claimed = await parts.resumer.claim()

    outcome = await parts.ledger.cancel(claim.task_id, reason="enough")
    resumed = await parts.resumer.settle(claimed)

    assert isinstance(outcome, Cancelled)
    assert resumed.followed_up == {}
    assert len(await parts.ledger.runs(claim.task_id)) == 1
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_the_holder_of_a_running_task_is_told_to_cancel(parts: Parts) -> None:
    claimed = await parts.carry()

    outcome = await parts.ledger.cancel(claimed.task.id, reason="enough")
    renewed = await parts.claims.renew([claimed.claim])

    assert isinstance(outcome, CancelRequested)
    assert outcome.task.status is TaskStatus.RUNNING
    assert renewed.cancelled_task_ids == {claimed.task.id}


async def test_cancel_beats_pause(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.cancel(claimed.task.id, reason="enough")
    await parts.checkpoints.pause([claimed.claim], ResumeReason.SIGNAL)

    resumed = await parts.resumer.resume_all()

    assert len(resumed.cancelled) == 1
    assert resumed.followed_up == {}
    found = await parts.ledger.get(claimed.task.id)
    assert (found.status, found.cancel_reason) == (TaskStatus.CANCELLED, "enough")
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_cancel_beats_a_crash(parts: Parts, others: Parts, clock: FakeClock) -> None:
    claimed = await parts.carry()
    await parts.ledger.cancel(claimed.task.id, reason="enough")
    clock.advance(minutes=5)

    await others.recover()

    assert (await parts.ledger.get(claimed.task.id)).status is TaskStatus.CANCELLED
    assert_ledger_is_whole(parts.store, is_at_rest=True)


@pytest.mark.parametrize("way", ["wait", "release"])
async def test_a_cancel_is_kept_when_the_holder_gives_its_run_back(parts: Parts, way: str) -> None:
    claimed = await parts.carry()
    await parts.ledger.cancel(claimed.task.id, reason="enough")

    if way == "wait":
        await parts.claims.wait(claimed.claim, waits_on="the tide")
    else:
        await parts.claims.release(claimed.claim)

    assert (await parts.ledger.get(claimed.task.id)).status is TaskStatus.CANCELLED
    assert_ledger_is_whole(parts.store, is_at_rest=True)


async def test_the_first_reason_to_cancel_stays(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.cancel(claimed.task.id, reason="enough")
    before = dump(parts.store)

    await parts.ledger.cancel(claimed.task.id, reason="really enough")

    assert dump(parts.store) == before


async def test_cancelling_an_ended_task_changes_nothing(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.finish(claimed.claim, "done")
    before = dump(parts.store)

    outcome = await parts.ledger.cancel(claimed.task.id, reason="too late")

    assert isinstance(outcome, AlreadyEnded)
    assert dump(parts.store) == before


# --- recorded work


async def test_work_of_a_producer_outside_is_never_claimed_here(parts: Parts) -> None:
    task = await parts.create(runtime=RuntimeName.MEDIA)
    (run,) = await parts.ledger.runs(task.id)

    assert await parts.claims.take() == []
    started = await parts.claims.start(run.id)
    assert started.run.status is RunStatus.RUNNING


@pytest.mark.parametrize("way", ["wait", "release"])
async def test_work_of_a_producer_stays_with_the_producer(parts: Parts, way: str) -> None:
    task = await parts.create(runtime=RuntimeName.MEDIA)
    (run,) = await parts.ledger.runs(task.id)
    started = await parts.claims.start(run.id)

    if way == "wait":
        await parts.claims.wait(started.claim, waits_on="the tide")
        await parts.claims.wake(run.id)
    else:
        await parts.claims.release(started.claim)

    assert await parts.claims.take() == []
    assert (await parts.claims.start(run.id)).claim.fence > started.claim.fence


async def test_a_second_end_with_another_result_is_told_that_the_task_had_ended(parts: Parts) -> None:
    claimed = await parts.carry()
    await parts.ledger.finish(claimed.claim, "one")

    again = await parts.ledger.finish(claimed.claim, "two")

    assert isinstance(again, AlreadyEnded)
    assert (await parts.ledger.get(claimed.task.id)).result == b'"one"'
