"""Counts on PostgreSQL are folded by one process, and are the same before and after."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.store.postgres import PostgresStore
from tests.builders import stored_run, write
from tests.store.postgres.sessions import Rival, ask, emit, until

pytestmark = pytest.mark.slow


def test_counts_are_the_same_before_and_after_they_are_folded(store: PostgresStore, url: str) -> None:
    for _ in range(5):
        stored_run(store)
    before = store.read_now(lambda tx: tx.events.counts("run"))

    until(lambda: ask(url, "SELECT count(*) FROM counter_deltas") == [(0,)])

    assert before == store.read_now(lambda tx: tx.events.counts("run")) == {"queued": 5}
    assert ask(url, "SELECT amount FROM counters WHERE noun = 'run' AND status = 'queued'") == [(5,)]
    assert store.verify() == []


def test_only_one_leader_folds_the_counts(store: PostgresStore, rival: Rival) -> None:
    rival.execute("SELECT pg_advisory_xact_lock(7525352680829580149)")
    stored_run(store)

    write(store, lambda tx: tx.statements.run("fold_counters", {}))
    left = rival.execute("SELECT count(*) FROM counter_deltas").fetchone()

    assert left == (3,), "of the task, of its runtime, and of the run"
    assert store.read_now(lambda tx: tx.events.counts("run")) == {"queued": 1}


def test_what_is_left_to_fold_is_folded_when_the_store_is_closed(
    open_store: Callable[..., PostgresStore], url: str
) -> None:
    store = open_store()
    emit(store, "the thread is awake and has folded")
    until(lambda: store._topics._errand_at > time.monotonic())
    stored_run(store)

    store.close()

    assert ask(url, "SELECT count(*) FROM counter_deltas") == [(0,)]
