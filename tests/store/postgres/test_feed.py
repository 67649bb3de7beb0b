"""The feed of events on PostgreSQL, where transactions commit late and in any order."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from holdfast.core.events import Event
from holdfast.store.postgres import PostgresStore
from tests.builders import later, write
from tests.store.postgres.sessions import Rival, ask, change, emit, feed, subjects

pytestmark = pytest.mark.slow


def test_the_feed_never_passes_by_an_event_whose_transaction_commits_late(
    store: PostgresStore, rival: Rival
) -> None:
    emit(store, "early")
    rival.execute(
        "INSERT INTO ledger_events (at, kind, subject_id, facts) VALUES (1, 'task_created', 'late', '{}')"
    )
    emit(store, "after")

    first = feed(store)
    rival.commit()
    second = feed(store, first[-1].position)

    assert subjects(first) == ["early"]
    assert subjects(second) == ["late", "after"]


def test_the_feed_is_in_the_order_of_transactions_and_that_of_a_task_in_the_order_of_its_changes(
    store: PostgresStore, url: str
) -> None:
    with psycopg.connect(url, options="-c search_path=holdfast") as connection:
        connection.execute(
            "INSERT INTO ledger_events (position, txid, at, kind, task_id, subject_id, facts)"
            " OVERRIDING SYSTEM VALUE VALUES"
            " (1, '10', 1, 'task_created', 'task_a', 'began late', '{}'),"
            " (2, '9', 1, 'task_created', 'task_a', 'began early', '{}'),"
            " (3, '9', 1, 'task_created', 'task_a', 'with it', '{}')"
        )

    def of_task(position: str = "0.0") -> list[Event]:
        return store.read_now(lambda tx: tx.events.of_task("task_a", position))

    assert subjects(feed(store)) == ["began early", "with it", "began late"]
    assert subjects(feed(store, "9.3")) == ["began late"]
    assert subjects(store.read_now(lambda tx: tx.events.newest(limit=2))) == ["with it", "began late"]
    assert subjects(of_task()) == ["began late", "began early", "with it"]
    assert subjects(of_task("10.1")) == ["began early", "with it"]


def test_a_ledger_that_was_dumped_and_restored_elsewhere_goes_on(
    store: PostgresStore, url: str, open_store: Callable[..., PostgresStore]
) -> None:
    for subject in ("one", "two"):
        emit(store, subject)
    # What a younger server sees after a restore: numbers of transactions that it has yet to give.
    change(url, "UPDATE ledger_events SET txid = CAST('9' || CAST(txid AS text) || '000' AS xid8)")
    old = ask(url, "SELECT CAST(max(txid) AS text) || '.' || max(position) FROM ledger_events")[0][0]
    write(store, lambda tx: tx.boots.set_fact("pruned_events", old))

    restored = open_store()
    emit(restored, "three")
    events = feed(restored)

    assert subjects(events) == ["one", "two", "three"]
    assert subjects(feed(restored, events[1].position)) == ["three"]
    assert subjects(feed(restored, old)) == ["one", "two", "three"]


def test_only_one_pruner_is_at_work(store: PostgresStore, rival: Rival) -> None:
    emit(store, "old")
    rival.execute("SELECT pg_advisory_xact_lock(7525352680829580150)")
    idle = write(store, lambda tx: tx.events.prune(older_than=later(days=1)))

    rival.commit()
    pruned = write(store, lambda tx: tx.events.prune(older_than=later(days=1)))

    assert (idle, pruned) == (0, 1)
