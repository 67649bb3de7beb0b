"""Deliveries: in order for each target, attempted by one boot at a time, settled by that one only."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.delivery import Delivery
from holdfast.core.ids import BootId
from holdfast.core.task import Origin
from holdfast.core.transitions import DELIVERY_MOVES, DeliveryStatus
from holdfast.store import Store, Tx
from holdfast.store.deliveries import PAGE
from tests.builders import BOOT, FAILURE, OTHER_BOOT, START, a_boot, a_delivery, due_by, later
from tests.engine.tables import execute, literal

ADA, BEN = Origin(channel="hook", peer="ada"), Origin(channel="hook", peer="ben")
S = DeliveryStatus


def owed(store: Store, **changes: Any) -> Delivery:
    delivery = a_delivery(**changes)
    store.write_now(lambda tx: tx.deliveries.create(delivery))
    return delivery


def due(store: Store, **by: float) -> list[str]:
    return [one.id for one in due_by(store, later(**by))]


def lapsed(store: Store, *channels: str, **by: float) -> list[Delivery]:
    return store.read_now(
        lambda tx: tx.deliveries.lapsed(channels or ["", "hook"], now=later(**by))
    ).deliveries


def attempt(store: Store, delivery: Delivery, boot: str = BOOT) -> Delivery | None:
    return store.write_now(
        lambda tx: tx.deliveries.attempt(delivery.id, boot_id=boot, lease_until=later(minutes=1), now=START)
    )


def test_the_oldest_that_is_owed_to_each_target_is_due(store: Store) -> None:
    first = owed(store, origin=ADA)
    second = owed(store, origin=ADA, created_at=later(seconds=1))
    other = owed(store, origin=BEN, created_at=later(seconds=2))
    nowhere = owed(store, created_at=later(seconds=3))

    assert set(due(store)) == {first.id, other.id, nowhere.id}
    taken = attempt(store, first)
    assert first.id not in due(store)
    assert second.id not in due(store)
    assert taken is not None
    store.write_now(lambda tx: tx.deliveries.settle(taken, S.FAILED, failure=FAILURE, now=START))
    assert second.id in due(store)


def test_what_comes_later_is_not_due_before_its_time_and_holds_back_its_target(store: Store) -> None:
    first = owed(store, origin=ADA, due_at=later(minutes=5))
    second = owed(store, origin=ADA, created_at=later(seconds=1))

    assert due(store) == []
    assert due(store, minutes=5) == [first.id]
    assert second.id not in due(store, minutes=5)


def test_nothing_is_due_in_an_empty_ledger(store: Store) -> None:
    assert due(store, days=365) == []
    assert store.read_now(lambda tx: tx.deliveries.waiting_channels()) == []


def test_what_is_due_is_found_for_each_channel_alone(store: Store) -> None:
    first = owed(store, origin=ADA)
    second = owed(store, origin=Origin(channel="post", peer="ada"))
    owed(store, origin=Origin(channel="later", peer="ada"), due_at=later(days=1))
    nowhere = owed(store)

    assert store.read_now(lambda tx: tx.deliveries.waiting_channels()) == ["", "hook", "later", "post"]
    for channel, one in (("hook", first), ("post", second), ("", nowhere)):
        look = store.read_now(lambda tx, name=channel: tx.deliveries.due(name, now=START, limit=9))  # type: ignore[misc]
        assert look.deliveries == [one]
    for channel in ("later", "gone"):
        look = store.read_now(lambda tx, name=channel: tx.deliveries.due(name, now=START, limit=9))  # type: ignore[misc]
        assert look.deliveries == []


def test_a_doubt_is_found_by_those_who_have_its_channel(store: Store) -> None:
    taken = attempt(store, owed(store, origin=ADA))

    assert lapsed(store, "post", minutes=1) == []
    assert lapsed(store, "post", "hook", minutes=1) == [taken]


def owed_much(store: Store, count: int, origin: Origin, **changes: Any) -> None:
    """So many to one target; the first of them must wait, and the others wait for it."""

    def write(tx: Tx) -> None:
        tx.deliveries.create(a_delivery(origin=origin, due_at=later(days=9), **changes))
        for number in range(1, count):
            at = later(microseconds=number)
            tx.deliveries.create(a_delivery(origin=origin, created_at=at, **changes))

    store.write_now(write)


def test_a_peer_that_is_owed_much_hides_no_other(store: Store) -> None:
    owed_much(store, PAGE + 50, ADA)
    other = owed(store, origin=BEN, due_at=later(seconds=1))

    look = store.read_now(lambda tx: tx.deliveries.due("hook", now=later(minutes=1), limit=9))

    assert look.deliveries == [other]


def test_a_look_goes_on_where_the_last_one_ended(store: Store) -> None:
    owed_much(store, PAGE + 50, ADA)
    for number in range(PAGE):
        owed(store, origin=Origin(channel="hook", peer=f"patient {number:04d}"), due_at=later(days=9))
    other = owed(store, origin=Origin(channel="hook", peer="zoe"), due_at=later(seconds=1))
    found, after = [], ""

    for _ in range(2):
        look = store.read_now(
            lambda tx, after=after: tx.deliveries.due("hook", now=later(minutes=1), limit=9, after=after)  # type: ignore[misc]
        )
        found.append(look.deliveries)
        after = look.after

    assert found == [[], [other]]
    assert after == "", "and then from the start again"


def test_a_look_that_finds_enough_leaves_its_place(store: Store) -> None:
    first = owed(store, origin=ADA)

    look = store.read_now(lambda tx: tx.deliveries.due("hook", now=START, limit=1, after="there"))

    assert (look.deliveries, look.after) == ([first], "there")


def test_a_page_of_damaged_ones_hides_no_other(store: Store) -> None:
    for number in range(PAGE):
        owed(store, origin=Origin(channel="hook", peer=f"peer {number:04d}"))
    execute(store, f"UPDATE deliveries SET digest = {literal(store, b'x')}")
    other = owed(store, origin=Origin(channel="hook", peer="zoe"), due_at=later(seconds=1))
    found, after = [], ""

    for _ in range(2):
        look = store.read_now(
            lambda tx, after=after: tx.deliveries.due("hook", now=later(minutes=1), limit=9, after=after)  # type: ignore[misc]
        )
        found.append(look.deliveries)
        after = look.after

    assert found == [[], [other]]


def test_one_that_is_damaged_hides_no_other_and_is_named(store: Store) -> None:
    damaged, other = owed(store, origin=ADA), owed(store, origin=BEN)
    execute(store, f"UPDATE deliveries SET digest = {literal(store, b'x')} WHERE id = '{damaged.id}'")

    look = store.read_now(lambda tx: tx.deliveries.due("hook", now=START, limit=9))

    assert look.deliveries == [other]
    assert look.damaged == frozenset({str(damaged.id)})


def test_one_that_stands_under_another_channel_is_damaged(store: Store) -> None:
    moved = owed(store, origin=ADA)
    execute(store, f"UPDATE deliveries SET channel = 'post' WHERE id = '{moved.id}'")

    look = store.read_now(lambda tx: tx.deliveries.due("post", now=START, limit=9))

    assert look.deliveries == []
    assert look.damaged == frozenset({str(moved.id)})
    assert store.verify() != []


def test_one_boot_attempts_a_delivery(store: Store) -> None:
    delivery = owed(store)

    taken = attempt(store, delivery)

    assert taken is not None
    assert (taken.status, taken.attempts, taken.claimed_by) == (S.ATTEMPTING, 1, BOOT)
    assert taken.due_at == later(minutes=1)
    assert attempt(store, delivery, OTHER_BOOT) is None


@pytest.mark.parametrize("to", sorted(DELIVERY_MOVES[S.ATTEMPTING]))
def test_an_attempt_is_settled_once(store: Store, to: DeliveryStatus) -> None:
    taken = attempt(store, owed(store))
    assert taken is not None

    def settle(tx: Tx) -> Delivery | None:
        return tx.deliveries.settle(taken, to, failure=FAILURE, due_at=later(hours=1), now=later(seconds=1))

    settled = store.write_now(settle)

    assert settled is not None
    assert (settled.status, settled.failure, settled.due_at) == (to, FAILURE, later(hours=1))
    assert settled.claimed_by is None
    assert store.write_now(settle) is None


def test_attempts_of_a_boot_that_ended_or_took_too_long_are_found_and_fenced(store: Store) -> None:
    store.write_now(lambda tx: [tx.boots.begin(a_boot()), tx.boots.begin(a_boot(id=OTHER_BOOT))])
    mine, of_the_dead = attempt(store, owed(store)), attempt(store, owed(store), OTHER_BOOT)
    assert mine is not None
    assert of_the_dead is not None
    assert lapsed(store) == []

    store.write_now(lambda tx: tx.boots.end(OTHER_BOOT, now=START))

    assert lapsed(store) == [of_the_dead]
    assert {one.id for one in lapsed(store, minutes=1)} == {mine.id, of_the_dead.id}

    def reclaim(tx: Tx) -> Delivery | None:
        return tx.deliveries.reclaim(
            of_the_dead, boot_id=BOOT, lease_until=later(minutes=2), now=later(seconds=1)
        )

    taken = store.write_now(reclaim)
    assert taken is not None
    assert (taken.status, taken.attempts, taken.claimed_by) == (S.ATTEMPTING, 2, BOOT)
    assert store.write_now(reclaim) is None
    assert store.write_now(lambda tx: tx.deliveries.settle(of_the_dead, S.DELIVERED, now=START)) is None
    assert store.write_now(lambda tx: tx.deliveries.settle(taken, S.DELIVERED, now=START)) is not None


def test_attempts_of_a_boot_that_is_unknown_are_left_to_it_until_they_took_too_long(store: Store) -> None:
    taken = attempt(store, owed(store), BootId("boot_unknown"))
    assert taken is not None

    assert lapsed(store) == []
    assert lapsed(store, minutes=1) == [taken]


def test_what_is_owed_because_of_a_task_is_found(store: Store) -> None:
    first, second = owed(store, task_id="task_1"), owed(store, task_id="task_1")
    owed(store, task_id="task_2")

    found = store.read_now(lambda tx: tx.deliveries.of_task("task_1"))

    assert {one.id for one in found} == {first.id, second.id}
