"""deliveries.retry: what was given up goes out after all, once; its earlier sender says nothing more."""

from __future__ import annotations

import threading

import pytest

from holdfast.api.deliveries import (
    DeliveryAsked,
    confirming_delivery,
    dismissing_delivery,
    retrying_delivery,
)
from holdfast.core.delivery import Delivery
from holdfast.core.errors import IllegalMove
from holdfast.core.events import EventKind
from holdfast.core.task import Failure
from holdfast.store import Store
from holdfast.store.contract import Write
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, RepeatingStore
from holdfast.views.deliveries import DeliveryChangedView
from tests.builders import BOOT, START, later
from tests.conftest import Ledger
from tests.delivery.recording_channel import RecordingChannel, S, outbox, owed, seen

GIVEN_UP = Failure(kind="gave_up", message="no receiver was there")


def retrial(delivery: Delivery) -> Write[DeliveryChangedView]:
    return retrying_delivery(DeliveryAsked(delivery_id=delivery.id), by="ada", now=later(seconds=1))


def given_up(store: Store, text: str = "hello") -> Delivery:
    return owed(store, text, status=S.FAILED, failure=GIVEN_UP, attempts=20)


async def test_it_goes_out_with_its_key_before_what_came_later(store: Store, clock: FakeClock) -> None:
    post, first = RecordingChannel(), given_up(store, "first")
    owed(store, "second")
    store.write_now(retrial(first))
    clock.set(later(seconds=2))

    await outbox(store, clock, post).run_once()

    assert [text for _, text in post.sent] == ["first", "second"]
    assert post.keys[0] == first.idempotency_key
    now = seen(store, first)
    assert (now.status, now.attempts, now.failure) == (S.DELIVERED, 21, None)


async def test_it_is_tried_once_and_given_up_again(store: Store, clock: FakeClock) -> None:
    post, delivery = RecordingChannel(), given_up(store)

    def refuse(_text: str) -> None:
        raise RuntimeError("still away")

    post.before = refuse
    store.write_now(retrial(delivery))
    clock.set(later(seconds=2))

    await outbox(store, clock, post).run_once()

    now = seen(store, delivery)
    assert now.status is S.FAILED
    assert now.failure is not None
    assert "still away" in now.failure.message


def test_a_sender_that_wakes_up_late_changes_nothing(store: Store) -> None:
    delivery = owed(store, "hello")
    frozen = store.write_now(
        lambda tx: tx.deliveries.attempt(delivery.id, boot_id=BOOT, lease_until=later(seconds=90), now=START)
    )
    assert frozen is not None
    # Another gateway found out about it, and gave it up; a person has it sent again.
    store.write_now(
        lambda tx: tx.deliveries.reclaim(frozen, boot_id=BOOT, lease_until=later(hours=1), now=later(hours=1))
    )
    taken = seen(store, delivery)
    store.write_now(lambda tx: tx.deliveries.settle(taken, S.FAILED, failure=GIVEN_UP, now=later(hours=1)))
    store.write_now(retrial(delivery))
    store.write_now(
        lambda tx: tx.deliveries.attempt(
            delivery.id, boot_id=BOOT, lease_until=later(hours=2), now=later(hours=1)
        )
    )

    assert store.write_now(lambda tx: tx.deliveries.settle(frozen, S.DELIVERED, now=later(hours=1))) is None
    assert store.write_now(lambda tx: tx.deliveries.settle(taken, S.FAILED, now=later(hours=1))) is None
    assert seen(store, delivery).status is S.ATTEMPTING


def test_run_again_after_its_commit_it_answers_the_same(store: Store) -> None:
    delivery = given_up(store)

    answer = RepeatingStore(store).write_now(retrial(delivery))

    assert answer.delivery.status == "pending"
    told = [event.kind for event in store.read_now(lambda tx: tx.events.newest(limit=5))]
    assert told.count(EventKind.DELIVERY_RETRIED) == 1


def test_a_process_that_dies_in_it_has_done_all_or_nothing(store: Store) -> None:
    delivery = given_up(store)
    recording = FailingStore(store)
    recording.write_now(retrial(delivery))
    deaths: list[Failpoint] = [point for point in recording.failpoints() if point.where != "after"]
    assert len(deaths) > 2

    for point in deaths:
        other = given_up(store)
        with pytest.raises(Crashed):
            FailingStore(store, [point]).write_now(retrial(other))
        assert seen(store, other).status is S.FAILED


def test_of_two_who_decide_at_once_the_first_holds(ledger: Ledger) -> None:
    stores = [ledger.open(), ledger.open()]
    for _ in range(10):
        delivery = given_up(stores[0])
        asked = DeliveryAsked(delivery_id=delivery.id)
        writes = (
            retrying_delivery(asked, by="ada", now=later(seconds=1)),
            retrying_delivery(asked, by="ben", now=later(seconds=2)),
        )
        done: list[str] = []

        def decide(store: Store, write: Write[DeliveryChangedView], done: list[str] = done) -> None:
            try:
                done.append(store.write_now(write).delivery.status)
            except IllegalMove:
                done.append("refused")

        threads = [threading.Thread(target=decide, args=pair) for pair in zip(stores, writes, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(done) == ["pending", "refused"]


def test_what_is_dismissed_is_not_sent_again(store: Store) -> None:
    delivery = given_up(store)
    store.write_now(
        dismissing_delivery(DeliveryAsked(delivery_id=delivery.id), by="ada", now=later(seconds=1))
    )

    with pytest.raises(IllegalMove, match="dismissed"):
        store.write_now(retrial(delivery))


def test_a_confirmation_that_runs_again_after_its_commit_answers_the_same(store: Store) -> None:
    doubted = owed(store, "x", status=S.FAILED, failure=Failure(kind="in_doubt", message="no answer"))
    write = confirming_delivery(DeliveryAsked(delivery_id=doubted.id), by="ada", now=later(seconds=1))

    answer = RepeatingStore(store).write_now(write)

    assert answer.delivery.status == S.DELIVERED.value
    assert seen(store, doubted).status is S.DELIVERED
