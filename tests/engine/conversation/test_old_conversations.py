"""What was said, fired, delivered and restarted is forgotten when it is old, settled and not needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from holdfast.core.message import Message
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec
from holdfast.core.task import Origin
from holdfast.core.transitions import (
    DeliveryStatus,
    FiringStatus,
    MessageStatus,
    RestartStatus,
    SessionStatus,
    TaskStatus,
)
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.engine.conversation.transcripts import new_message, post
from holdfast.engine.ledger.retention import (
    CONVERSATIONS_KEPT,
    Forgotten,
    Pruner,
    RetentionPosition,
    pruning_conversations,
)
from holdfast.runtimes.agents import MAX_HISTORY
from holdfast.store import Store, Tx
from holdfast.testing import Crashed, FailingStore, FakeClock, contents_of
from tests.builders import (
    START,
    a_delivery,
    a_firing,
    a_message,
    a_restart,
    a_session,
    a_task,
    later,
    unique,
)
from tests.conftest import Ledger

KEY = "agent:scholar:main"
OLD = START + CONVERSATIONS_KEPT
M, F, D = MessageStatus, FiringStatus, DeliveryStatus
SETTLED = [M.ANSWERED, M.FAILED, M.NOTED]


def prune(store: Store, *, now: datetime = OLD, **options: Any) -> Forgotten:
    return store.write_now(pruning_conversations(now=now, walk=RetentionPosition(), **options))[0]


def transcript(store: Store, *statuses: MessageStatus, **session: Any) -> list[Message]:
    """A session with these messages in it; it was last spoken in just now unless told otherwise."""
    told = [a_message(session_key=KEY, position=place, status=one) for place, one in enumerate(statuses, 1)]
    facts: dict[str, Any] = {"key": KEY, "last_position": len(told), "updated_at": OLD} | session

    def write(tx: Tx) -> None:
        tx.sessions.create(a_session(**facts))
        for one in told:
            tx.messages.create(one)

    store.write_now(write)
    return told


def left(store: Store, key: str = KEY) -> list[int]:
    return [one.position for one in store.read_now(lambda tx: tx.messages.after(key, limit=1000))]


# --- messages


def test_old_messages_far_from_the_end_of_their_transcript_go(store: Store) -> None:
    transcript(store, *SETTLED * 3)

    forgotten = prune(store, kept=4)

    assert forgotten.messages == 5
    assert left(store) == [6, 7, 8, 9]
    assert store.verify() == []


def test_a_message_stays_as_long_as_its_channel_may_hand_it_in_again(store: Store, clock: FakeClock) -> None:
    def hand_in(tx: Tx) -> bool:
        message = new_message(
            KEY, "hello", Origin(channel="hook"), channel_message_id="7", is_noted=True, now=clock.now()
        )
        return post(tx, message).is_duplicate

    store.write_now(hand_in)
    clock.set(OLD)
    clock.advance(seconds=-1)
    prune(store, now=clock.now(), kept=0)

    assert store.write_now(hand_in)
    clock.advance(seconds=1)
    prune(store, now=clock.now(), kept=0)
    assert not store.write_now(hand_in)


async def test_what_is_handed_in_again_is_known_when_the_clock_was_a_year_ahead_for_75_seconds(
    store: Store, clock: FakeClock
) -> None:
    watch = ClockWatch(store, clock, boottime_us=clock.boottime_us, machine="boot 1")
    pruner = Pruner(store, clock, watch=watch)
    await pruner.run_once()

    def hand_in(tx: Tx) -> int:
        """How many of twenty are known: the others are answered, each with its effects."""
        known = 0
        for number in range(20):
            key, origin = f"agent:scholar:{number}", Origin(channel="hook")
            message = new_message(
                key, "pay", origin, channel_message_id=str(number), is_noted=True, now=clock.now()
            )
            known += post(tx, message).is_duplicate
        return known

    assert store.write_now(hand_in) == 0
    clock.advance(hours=2)
    clock.jump(days=365)
    for _ in range(4):
        await pruner.run_once()
        clock.advance(seconds=25)
    clock.jump(days=-365)
    await pruner.run_once()

    assert store.write_now(hand_in) == 20


@pytest.mark.parametrize("status", [M.QUEUED, M.TAKEN])
def test_what_is_to_be_answered_stays_with_what_was_said_just_before_it(
    store: Store, status: MessageStatus
) -> None:
    task_id = "task_1" if status is M.TAKEN else None
    transcript(
        store,
        *[M.ANSWERED] * 4,
        *[M.NOTED] * 4,
        task_id=task_id,
        status=SessionStatus.PROCESSING if task_id else SessionStatus.IDLE,
        queued=0 if task_id else 1,
        ready_at=None if task_id else START,
    )
    asked = a_message(session_key=KEY, position=9, status=status, task_id=task_id)
    store.write_now(lambda tx: tx.messages.create(asked))
    more = [a_message(session_key=KEY, position=place, status=M.NOTED) for place in range(10, 20)]
    store.write_now(lambda tx: [tx.messages.create(one) for one in more])
    set_last_position(store, 19)

    prune(store, kept=3)

    assert left(store) == list(range(6, 20))


def set_last_position(store: Store, last: int) -> None:
    def append(tx: Tx) -> None:
        while tx.sessions.of_key(KEY).last_position < last:
            tx.sessions.append(KEY, is_queued=False, origin=None, now=OLD)

    store.write_now(append)


def test_a_message_stays_as_long_as_its_task(store: Store) -> None:
    task = a_task(status=TaskStatus.FAILED, cleanup_after=later(days=9999))
    answer = a_message(session_key=KEY, position=1, status=M.FAILED, task_id=task.id)
    transcript(store, last_position=9)
    store.write_now(lambda tx: [tx.tasks.create(task), tx.messages.create(answer)])

    assert prune(store, kept=0).messages == 0


def test_a_message_stays_as_long_as_a_firing_that_may_be_queued_again_names_it(store: Store) -> None:
    (message,) = transcript(store, M.FAILED)
    firing = a_firing(status=F.FAILED, message_id=message.id, updated_at=START)
    store.write_now(lambda tx: tx.firings.create(firing))

    assert prune(store, kept=0).messages == 0

    newer = a_firing(schedule=firing.schedule, occurrence_at=later(days=1))
    store.write_now(lambda tx: tx.firings.create(newer))
    forgotten = prune(store, kept=0)
    assert (forgotten.firings, forgotten.messages) == (1, 1)


def test_the_newest_of_a_session_in_use_are_more_than_an_agent_is_reminded_of(store: Store) -> None:
    many = MAX_HISTORY + 1
    transcript(store, *[M.NOTED] * many)

    assert prune(store).messages == 0
    assert len(left(store)) == many


# --- sessions


async def test_a_session_in_which_no_person_speaks_any_more_goes_with_its_whole_transcript(
    store: Store, clock: FakeClock
) -> None:
    transcript(store, *SETTLED, updated_at=START)
    clock.set(OLD)
    pruner = Pruner(store, clock)

    first, second = await pruner.run_once(), await pruner.run_once()

    assert (first.messages, first.sessions) == (3, 0)
    assert (second.messages, second.sessions) == (0, 1)
    assert store.read_now(lambda tx: tx.sessions.find(KEY)) is None
    assert store.verify() == []


@pytest.mark.parametrize(
    "facts",
    [
        {"updated_at": later(seconds=1)},
        {"queued": 1, "ready_at": START},
        {"status": SessionStatus.PROCESSING, "task_id": "task_1"},
        {"status": SessionStatus.INTERRUPTED},
        {"status": SessionStatus.WAITING, "waits_on": "the tide"},
    ],
    ids=str,
)
def test_a_session_that_is_used_or_that_a_caller_waits_for_stays(store: Store, facts: dict[str, Any]) -> None:
    transcript(store, **{"updated_at": START} | facts)

    assert prune(store).sessions == 0


def test_who_speaks_in_a_session_that_was_forgotten_begins_it_anew(store: Store) -> None:
    transcript(store, updated_at=START)
    assert prune(store).sessions == 1

    message = new_message(KEY, "hello", Origin(channel="hook"), now=OLD)
    posted = store.write_now(lambda tx: post(tx, message))

    assert posted.message.position == 1


# --- firings, deliveries, restarts


def test_old_firings_go_but_never_the_last_of_a_schedule(store: Store) -> None:
    firings = [
        a_firing(schedule="tides", occurrence_at=later(minutes=number), status=status)
        for number, status in enumerate([F.DONE, F.FAILED, F.MISSED, F.DONE])
    ]
    store.write_now(lambda tx: [tx.firings.create(one) for one in firings])

    assert prune(store, now=later(days=89)).firings == 0
    assert prune(store).firings == 3
    assert store.read_now(lambda tx: tx.firings.last_of("tides")) == firings[-1]


def test_the_last_firing_of_a_schedule_that_is_gone_goes_too(store: Store) -> None:
    kept = Schedule(
        name="tides",
        source=ScheduleSource.RUNTIME,
        owner="system",
        spec=ScheduleSpec(),
        created_at=START,
        updated_at=START,
    )
    firings = [
        a_firing(schedule="tides", status=F.DONE, schedule_made_at=START),
        a_firing(schedule="removed", status=F.DONE, schedule_made_at=START),
        a_firing(schedule="not declared yet", status=F.DONE),
    ]
    store.write_now(lambda tx: tx.schedules.create(kept))
    store.write_now(lambda tx: [tx.firings.create(one) for one in firings])

    assert prune(store).firings == 1
    assert store.read_now(lambda tx: tx.firings.page("removed")) == []


@pytest.mark.parametrize("status", [F.DUE, F.RUNNING, F.REQUEUED])
def test_a_firing_that_goes_on_stays(store: Store, status: FiringStatus) -> None:
    kept, last = (
        a_firing(schedule="tides", status=status),
        a_firing(schedule="tides", occurrence_at=later(days=1)),
    )
    store.write_now(lambda tx: [tx.firings.create(one) for one in (kept, last)])

    assert prune(store).firings == 0


@pytest.mark.parametrize("status", D)
def test_old_deliveries_without_a_task_go_unless_they_are_owed(store: Store, status: DeliveryStatus) -> None:
    store.write_now(lambda tx: tx.deliveries.create(a_delivery(status=status, task_id="")))

    assert prune(store, now=later(days=89)).deliveries == 0
    is_owed = status in (D.PENDING, D.ATTEMPTING, D.SESSION_QUEUED)
    assert prune(store).deliveries == (0 if is_owed else 1)


def test_a_delivery_stays_as_long_as_its_task(store: Store) -> None:
    task = a_task()
    delivery = a_delivery(status=D.DELIVERED, task_id=task.id)
    store.write_now(lambda tx: [tx.tasks.create(task), tx.deliveries.create(delivery)])

    assert prune(store).deliveries == 0


def test_old_restarts_go_but_never_the_last_and_never_one_to_recover_from(store: Store) -> None:
    statuses = [*RestartStatus, RestartStatus.RECOVERED]
    restarts = [a_restart(id=f"rst_{number}", status=status) for number, status in enumerate(statuses)]
    store.write_now(lambda tx: [tx.restarts.create(one) for one in restarts])

    assert prune(store, now=later(days=89)).restarts == 0
    assert prune(store).restarts == 2
    open_ones = {RestartStatus.DRAINING, RestartStatus.DRAINED}
    kept = store.read_now(lambda tx: tx.restarts.page())
    assert {one.status for one in kept[1:]} == open_ones
    assert kept[0].id == restarts[-1].id


# --- one pass


def everything_old(store: Store) -> None:
    transcript(store, *SETTLED * 2, updated_at=START)

    def write(tx: Tx) -> None:
        for number in range(3):
            tx.firings.create(a_firing(schedule="s", occurrence_at=later(minutes=number), status=F.DONE))
            tx.deliveries.create(a_delivery(status=D.DELIVERED, task_id=""))
            tx.restarts.create(a_restart(id=f"rst_{number}", status=RestartStatus.RECOVERED))

    store.write_now(write)


def test_one_pass_is_bounded_and_the_next_goes_on_from_there(store: Store) -> None:
    """The first three must stay; a pass that always began with them would never come to the others."""
    transcript(store, *[M.NOTED] * 3)
    others = [
        a_message(session_key="agent:scholar:old", position=place, status=M.NOTED) for place in range(1, 5)
    ]
    store.write_now(lambda tx: tx.sessions.create(a_session(key="agent:scholar:old", last_position=4)))
    store.write_now(lambda tx: [tx.messages.create(one) for one in others])

    walk, passes = RetentionPosition(), []
    for _ in range(4):
        forgotten, walk = store.write_now(pruning_conversations(now=OLD, walk=walk, limit=2))
        passes.append(forgotten.messages)

    assert sum(passes) == 4
    assert max(passes) <= 2
    assert left(store) == [1, 2, 3]


def test_a_process_that_dies_anywhere_in_a_pass_leaves_all_of_it_or_nothing(store: Store) -> None:
    everything_old(store)
    write = pruning_conversations(now=OLD, walk=RetentionPosition())
    recording = FailingStore(store)
    with pytest.raises(_Undone):
        recording.write_now(lambda tx: _undo(write, tx))
    before = store.read_now(contents_of)
    deaths = [point for point in recording.failpoints() if point.where != "after"]
    assert len(deaths) > 5

    for point in deaths:
        with pytest.raises(Crashed):
            FailingStore(store, [point]).write_now(write)
        assert store.read_now(contents_of) == before

    forgotten, _ = store.write_now(write)
    assert (forgotten.messages, forgotten.firings, forgotten.deliveries, forgotten.restarts) == (6, 2, 3, 2)
    assert store.write_now(write)[0] == Forgotten(sessions=1)
    assert store.verify() == []


class _Undone(Exception):
    """The recording leaves the ledger as it was."""


def _undo(write: Any, tx: Tx) -> None:
    write(tx)
    raise _Undone


@pytest.fixture
def shared(postgres_ledger: Ledger) -> Iterator[Store]:
    """Where several write at a time; elsewhere nothing can come between the look and the removal."""
    postgres_ledger.begin()
    yield postgres_ledger.open()
    postgres_ledger.end()


@pytest.mark.slow
async def test_who_speaks_while_his_session_is_being_forgotten_is_heard(shared: Store) -> None:
    """Whichever write comes first, the message stands in a session that exists, at a place of its own."""
    store = shared
    transcript(store, updated_at=START)
    is_locked, may_go_on = threading.Event(), threading.Event()
    write = pruning_conversations(now=OLD, walk=RetentionPosition())

    def prune_slowly(tx: Tx) -> Forgotten:
        forgotten, _ = write(tx)
        is_locked.set()
        assert may_go_on.wait(10)
        return forgotten

    message = new_message(KEY, "hello", Origin(channel="hook"), channel_message_id=unique(), now=OLD)
    async with asyncio.TaskGroup() as group:
        pruning = group.create_task(asyncio.to_thread(store.write_now, prune_slowly))
        assert await asyncio.to_thread(is_locked.wait, 10)
        posting = group.create_task(asyncio.to_thread(store.write_now, lambda tx: post(tx, message)))
        may_go_on.set()

    assert pruning.result().sessions == 1
    assert posting.result().message.position == 1
    session = store.read_now(lambda tx: tx.sessions.of_key(KEY))
    assert (session.last_position, session.queued) == (1, 1)


@pytest.mark.slow
async def test_a_session_in_which_a_person_is_speaking_is_left_alone(shared: Store) -> None:
    store = shared
    transcript(store, *SETTLED, updated_at=START)
    has_spoken, may_go_on = threading.Event(), threading.Event()
    message = new_message(KEY, "hello", Origin(channel="hook"), now=OLD)

    def post_slowly(tx: Tx) -> None:
        post(tx, message)
        has_spoken.set()
        assert may_go_on.wait(10)

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(store.write_now, post_slowly))
        assert await asyncio.to_thread(has_spoken.wait, 10)
        forgotten = await asyncio.to_thread(prune, store)
        may_go_on.set()

    assert (forgotten.messages, forgotten.sessions) == (0, 0)
    assert left(store) == [1, 2, 3, 4]
