"""The contract of a store: reads of what was committed, hints, several stores on one ledger, closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError, Refused, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.store import Store, Tx
from holdfast.store.sqlite import SqliteStore
from tests.builders import BOOT, LEASE, START, a_task, running_run, stored_run
from tests.conftest import Ledger

PATIENCE_S = 20.0


def set_fact(value: str) -> Callable[[Tx], None]:
    def write(tx: Tx) -> None:
        tx.boots.set_fact("colour", value)

    return write


def colour(tx: Tx) -> str | None:
    return tx.boots.fact("colour")


# --- reading


def test_a_read_sees_what_was_committed_before_it(store: Store) -> None:
    store.write_now(set_fact("blue"))

    assert store.read_now(colour) == "blue"
    assert asyncio.run(store.read(colour)) == "blue"


def test_a_read_changes_nothing(store: Store) -> None:
    with pytest.raises(HoldfastError):
        store.read_now(set_fact("blue"))

    assert store.read_now(colour) is None
    store.write_now(set_fact("green"))
    assert store.read_now(colour) == "green"


def test_what_a_read_counts_or_emits_is_never_written(store: Store) -> None:
    def careless(tx: Tx) -> None:
        tx.emit(EventKind.RUN_WOKEN, "run_x", at=START)
        tx.count("task", a_task().status, 5)

    store.read_now(careless)
    store.write_now(set_fact("blue"))

    assert store.read_now(lambda tx: tx.events.newest()) == []
    assert store.read_now(lambda tx: tx.events.counts("task")) == {}


def test_an_error_of_a_read_reaches_its_caller_and_the_next_read_works(store: Store) -> None:
    def fail(tx: Tx) -> None:
        tx.tasks.page()
        raise ZeroDivisionError

    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            store.read_now(fail)

    assert store.read_now(lambda tx: tx.tasks.page()) == []


def test_many_reads_at_once_are_all_answered(store: Store) -> None:
    store.write_now(set_fact("blue"))

    async def read_all() -> list[str | None]:
        return await asyncio.gather(*(store.read(colour) for _ in range(50)))

    assert asyncio.run(read_all()) == ["blue"] * 50


def test_a_write_sees_its_own_changes(store: Store) -> None:
    def write(tx: Tx) -> str | None:
        tx.boots.set_fact("colour", "blue")
        return colour(tx)

    assert store.write_now(write) == "blue"


# --- hints


@pytest.mark.parametrize("topic", ["runs", "events"])
def test_a_hint_wakes_who_waits_for_its_topic(store: Store, topic: str) -> None:
    def hint(tx: Tx) -> None:
        tx.hint("runs")
        tx.emit(EventKind.RUN_WOKEN, "run_x", at=START)

    async def wait() -> bool:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.wait_for(topic, PATIENCE_S))
            while not waiting.done():
                # Only a hint: one given before a caller waits is not kept for them.
                await store.write(hint)
                await asyncio.sleep(0)
        return waiting.result()

    assert asyncio.run(wait())


def test_without_a_hint_the_wait_is_over_in_its_time(store: Store) -> None:
    async def wait() -> bool:
        return await store.wait_for("runs", 0.01)

    assert not asyncio.run(wait())


def test_a_write_that_fails_gives_no_hint(store: Store) -> None:
    def fail(tx: Tx) -> None:
        tx.hint("runs")
        raise ZeroDivisionError

    async def wait() -> bool:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(store.wait_for("runs", 0.2))
            for _ in range(5):
                with pytest.raises(ZeroDivisionError):
                    await store.write(fail)
        return waiting.result()

    assert not asyncio.run(wait())


# --- several stores on one ledger


def is_shared(store: Store, other: Store) -> bool:
    store.write_now(set_fact("shared"))
    return other.read_now(colour) == "shared"


def test_two_stores_on_one_ledger_see_each_other(ledger: Ledger) -> None:
    one, two = ledger.open(), ledger.open()
    if not is_shared(one, two):
        pytest.skip("this kind of store shares nothing")

    two.write_now(set_fact("green"))

    assert one.read_now(colour) == "green"
    assert one.write_now(colour) == "green"


def test_two_stores_never_claim_the_same_run(ledger: Ledger) -> None:
    one, two = ledger.open(), ledger.open()
    if not is_shared(one, two):
        pytest.skip("this kind of store shares nothing")
    runs = {stored_run(one).id for _ in range(40)}
    claimed: dict[str, list[str]] = {"one": [], "two": []}

    def claim_all(name: str, store: Store) -> None:
        for number in range(40):

            def claim(tx: Tx, token: str = f"{name} {number}") -> list[str]:
                found = tx.runs.claim_ready(
                    boot_id=BOOT, token=token, names=None, limit=3, now=START, lease=LEASE
                )
                return [run.id for run in found]

            claimed[name] += store.write_now(claim)

    threads = [threading.Thread(target=claim_all, args=pair) for pair in (("one", one), ("two", two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert sorted(claimed["one"] + claimed["two"]) == sorted(runs)
    assert one.read_now(lambda tx: tx.events.counts("run")) == {"running": 40}


# --- operations and the end


def test_a_healthy_ledger_verifies_and_holds_nothing_back(store: Store) -> None:
    running_run(store)

    assert store.verify() == []
    assert store.held_why() is None


def test_a_count_that_is_wrong_is_found(store: Store) -> None:
    stored_run(store)
    store.write_now(lambda tx: tx.count("run", a_task().status, 3))

    (problem,) = store.verify()

    assert "counts of runs" in problem


def test_a_backup_holds_everything_or_says_how_to_make_one(store: Store, tmp_path: Path) -> None:
    store.write_now(set_fact("blue"))
    target = tmp_path / "backup.db"

    if isinstance(store, SqliteStore):
        store.backup(str(target))
        assert target.stat().st_size > 0
        with pytest.raises(StoreUnavailable, match="exists"):
            store.backup(str(target))
    else:
        with pytest.raises(Refused, match="pg_dump"):
            store.backup(str(target))


def test_a_store_closes_twice_and_is_of_no_use_afterwards(store: Store) -> None:
    store.write_now(set_fact("blue"))
    store.close()
    store.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        store.write_now(set_fact("green"))
    with pytest.raises(StoreUnavailable, match="closed"):
        store.read_now(colour)
    with pytest.raises(StoreUnavailable, match="closed"):
        asyncio.run(store.write(set_fact("green")))
    with pytest.raises(StoreUnavailable, match="closed"):
        asyncio.run(store.read(colour))
