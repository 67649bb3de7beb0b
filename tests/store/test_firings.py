"""Firings: each occurrence once, following the message that it posted."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from holdfast.core.errors import IllegalMove
from holdfast.core.ids import FiringId
from holdfast.core.schedule import Firing
from holdfast.core.schedule_spec import Schedule, ScheduleSource, ScheduleSpec
from holdfast.core.transitions import FiringStatus
from holdfast.store import Store, Tx
from holdfast.store.schedules import FiringPlace
from tests.builders import START, a_firing, later


def fired(store: Store, *firings: Firing) -> None:
    store.write_now(lambda tx: [tx.firings.create(one) for one in firings])


def test_an_occurrence_is_one_of_its_schedule(store: Store) -> None:
    first = a_firing(schedule="nightly")
    fired(store, first)

    kept = store.write_now(lambda tx: tx.firings.create(a_firing(schedule="nightly")))
    next_one = a_firing(schedule="nightly", occurrence_at=later(days=1))
    other = a_firing(schedule="hourly")
    fired(store, next_one, other)

    assert kept == first
    assert store.read_now(lambda tx: tx.firings.last_of("nightly")) == next_one
    assert store.read_now(lambda tx: tx.firings.last_of("hourly")) == other
    assert store.read_now(lambda tx: tx.firings.last_of("never")) is None


def test_what_was_missed_by_a_clock_that_was_ahead_is_not_the_last(store: Store) -> None:
    done = a_firing(schedule="nightly", occurrence_at=later(hours=1), created_at=later(hours=1))
    missed = a_firing(
        schedule="nightly",
        occurrence_at=later(hours=2),
        status=FiringStatus.MISSED,
        created_at=later(hours=9),
    )
    fired(store, done, missed)

    def last(until: datetime, slack: timedelta = timedelta(0)) -> Firing | None:
        return store.read_now(lambda tx: tx.firings.last_of("nightly", until=until, slack=slack))

    assert (last(later(hours=3)), last(later(hours=9))) == (done, missed)
    assert last(later(hours=3), timedelta(hours=6)) == missed
    assert store.read_now(lambda tx: tx.firings.last_of("nightly")) == missed


def test_a_firing_goes_with_the_message_that_it_posted(store: Store) -> None:
    firing = a_firing(message_id="msg_1")
    fired(store, firing)

    def follow(to: FiringStatus) -> Firing | None:
        return store.write_now(lambda tx: tx.firings.follow("msg_1", to, task_id="task_1", now=later(days=1)))

    running, again, done, late = (
        follow(FiringStatus.RUNNING),
        follow(FiringStatus.RUNNING),
        follow(FiringStatus.DONE),
        follow(FiringStatus.FAILED),
    )

    assert running is not None
    assert (running.status, running.task_id, running.updated_at) == (
        FiringStatus.RUNNING,
        "task_1",
        later(days=1),
    )
    assert again is None
    assert done is not None
    assert done.status is FiringStatus.DONE
    assert late is None
    assert (
        store.write_now(lambda tx: tx.firings.follow("msg_2", FiringStatus.DONE, task_id=None, now=START))
        is None
    )


def test_a_firing_that_is_queued_again_says_so_and_posts_anew(store: Store) -> None:
    firing = a_firing(message_id="msg_1", status=FiringStatus.RUNNING, task_id="task_1")
    fired(store, firing)

    def requeue(tx: Tx) -> Firing:
        tx.firings.move(firing.id, FiringStatus.REQUEUED, now=START)
        return tx.firings.repost(firing.id, "msg_2", now=START)

    requeued = store.write_now(requeue)

    assert (requeued.status, requeued.is_retry) == (FiringStatus.REQUEUED, True)
    assert (requeued.message_id, requeued.task_id) == ("msg_2", None)


def test_a_firing_that_follows_its_message_into_the_queue_again_says_so(store: Store) -> None:
    firing = a_firing(message_id="msg_1", status=FiringStatus.RUNNING, task_id="task_1")
    fired(store, firing)

    requeued = store.write_now(
        lambda tx: tx.firings.follow("msg_1", FiringStatus.REQUEUED, task_id="task_1", now=START)
    )

    assert requeued is not None
    assert (requeued.status, requeued.is_retry, requeued.task_id) == (FiringStatus.REQUEUED, True, "task_1")


def test_only_what_was_queued_again_posts_anew(store: Store) -> None:
    firing = a_firing(status=FiringStatus.DONE)
    fired(store, firing)

    with pytest.raises(IllegalMove):
        store.write_now(lambda tx: tx.firings.repost(firing.id, "msg_2", now=START))


def test_the_open_firings_are_those_that_have_not_ended(store: Store) -> None:
    firings = [
        a_firing(status=status, occurrence_at=later(hours=hour)) for hour, status in enumerate(FiringStatus)
    ]
    fired(store, *firings)

    found = store.read_now(lambda tx: tx.firings.open(limit=9))

    assert [one.status for one in found] == [FiringStatus.DUE, FiringStatus.RUNNING, FiringStatus.REQUEUED]


def test_the_history_of_a_schedule_is_read_latest_first(store: Store) -> None:
    firings = [a_firing(schedule="nightly", occurrence_at=later(days=day)) for day in range(3)]
    fired(store, *firings)

    page = store.read_now(lambda tx: tx.firings.page("nightly", limit=2))
    rest = store.read_now(lambda tx: tx.firings.page("nightly", before=page[-1].occurrence_at))

    assert [page, rest] == [[firings[2], firings[1]], [firings[0]]]


def test_a_span_of_the_history_has_its_beginning_and_not_its_end(store: Store) -> None:
    days = [a_firing(schedule="nightly", occurrence_at=later(days=day)) for day in range(5)]
    fired(store, *days)

    found = store.read_now(
        lambda tx: tx.firings.page("nightly", since=later(days=1), before=later(days=4), limit=2)
    )

    assert found == [days[3], days[2]]
    assert store.read_now(
        lambda tx: tx.firings.page("nightly", since=later(days=1), before=later(days=2))
    ) == [days[1]]


def test_the_history_of_all_schedules_is_in_the_order_in_which_it_was_recorded(store: Store) -> None:
    ids = ("fire_9", "fire_1", "fire_5", "fire_3")
    firings = [
        a_firing(id=FiringId(one), created_at=later(hours=number // 2), occurrence_at=later(minutes=number))
        for number, one in enumerate(ids)
    ]
    fired(store, *firings)

    page = store.read_now(lambda tx: tx.firings.newest(limit=3))
    rest = store.read_now(lambda tx: tx.firings.newest(before=FiringPlace.of(page[-1]), limit=3))

    assert [one.id for one in (*page, *rest)] == list(ids[::-1])


def test_a_schedule_of_the_settings_adopts_what_older_releases_have_fired(store: Store) -> None:
    schedule = Schedule(
        name="nightly",
        source=ScheduleSource.SETTINGS,
        owner="system",
        spec=ScheduleSpec(),
        created_at=later(days=1),
        updated_at=later(days=1),
    )
    old = a_firing(schedule="nightly")
    other = a_firing(schedule="nightly", occurrence_at=later(hours=1), schedule_made_at=later(hours=1))
    fired(store, old, other)
    assert store.read_now(lambda tx: tx.firings.open_of(schedule, limit=9)) == []

    store.write_now(lambda tx: tx.firings.adopt(schedule))

    (found,) = store.read_now(lambda tx: tx.firings.open_of(schedule, limit=9))
    assert found == msgspec.structs.replace(old, schedule_made_at=later(days=1))
    assert store.read_now(lambda tx: tx.firings.newest_of(schedule, until=later(days=2))) == found
    assert store.read_now(lambda tx: tx.firings.page("nightly", made_at=later(hours=1))) == [other]


def test_a_firing_is_found_by_the_message_that_it_posted(store: Store) -> None:
    firing = a_firing(message_id="msg_1", status=FiringStatus.RUNNING, task_id="task_1")
    fired(store, firing)

    assert store.read_now(lambda tx: tx.firings.of_message("msg_1")) == firing
    assert store.read_now(lambda tx: tx.firings.of_message("msg_2")) is None
