"""What only PostgreSQL can get wrong: many writers, its own clock, late commits, lost answers and servers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import re
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString, TypeVar

import psycopg
import pytest

from holdfast.core.claim import Boot
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import ClaimLost, Refused, SettingsError, StoreUnavailable
from holdfast.core.events import Event, EventKind
from holdfast.core.step import Step
from holdfast.core.task import Progress, Task
from holdfast.core.transitions import RunStatus
from holdfast.store import Store, Tx, write_groups
from holdfast.store import postgres_connection as link_module
from holdfast.store.effects import beginning_effect
from holdfast.store.journal import SaveStep, saving_step
from holdfast.store.migrations import load_migrations
from holdfast.store.postgres import PostgresStore
from holdfast.store.queries import load_queries, numbered
from holdfast.store.sealing import CLOSED
from holdfast.testing import FakeClock
from tests.builders import (
    BOOT,
    LEASE,
    OTHER_BOOT,
    START,
    a_boot,
    a_run,
    a_step,
    a_task,
    an_effect,
    later,
    put,
    running_run,
    stored_checkpoint,
    stored_run,
    unique,
    write,
)
from tests.servers import PostgresServer
from tests.store.programs import send

pytestmark = pytest.mark.slow

T = TypeVar("T")
Rival = psycopg.Connection[Any]

SOON_S = 20.0


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database, gone with the test."""
    created = postgres_server.create_database()
    yield created
    postgres_server.drop_database(created)


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[..., PostgresStore]]:
    with contextlib.ExitStack() as stores:

        def open_one(at: str = url, **settings: Any) -> PostgresStore:
            store = PostgresStore(at, clock=FakeClock(), **settings)
            stores.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(open_store: Callable[..., PostgresStore]) -> PostgresStore:
    return open_store()


@pytest.fixture
def rival(url: str, store: Store) -> Iterator[Rival]:
    """Somebody else in the same ledger, whose transactions stay open until the test ends them."""
    with psycopg.connect(url, options="-c search_path=holdfast") as connection:
        yield connection


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def ask(url: str, query: LiteralString, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True, options="-c search_path=holdfast") as connection:
        return connection.execute(query, values or None).fetchall()


def change(url: str, statement: LiteralString) -> None:
    with psycopg.connect(url, autocommit=True, options="-c search_path=holdfast") as connection:
        connection.execute(statement)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def until_blocked(url: str, *, count: int = 1) -> None:
    """Until so many transactions wait for a lock that somebody else holds."""
    waiting: LiteralString = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    until(lambda: ask(url, waiting)[0][0] >= count)


def set_clock(url: str, micros: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION holdfast.holdfast_now() RETURNS BIGINT LANGUAGE sql VOLATILE"
            f" AS $$ SELECT CAST({micros} AS BIGINT) $$".encode()
        )


def emit(store: Store, subject: str, *, task_id: str | None = None) -> None:
    store.write_now(lambda tx: tx.emit(EventKind.TASK_CREATED, subject, at=START, task_id=task_id))


def creation_of(task: Task) -> Callable[[Tx], str]:
    def create(tx: Tx) -> str:
        tx.tasks.create(task)
        return task.id

    return create


def feed(store: Store, position: str = "0.0") -> list[Event]:
    return store.read_now(lambda tx: tx.events.after(position))


def subjects(events: list[Event]) -> list[str]:
    return [event.subject_id for event in events]


def steps_of(store: Store, task_id: str) -> list[Step]:
    return store.read_now(lambda tx: tx.journal.steps(task_id))


# --- leases


def test_leases_follow_the_clock_of_the_database_and_not_the_callers(store: PostgresStore, url: str) -> None:
    server_time = to_micros(later(days=1000))
    set_clock(url, server_time)
    for _ in range(3):
        stored_run(store)

    claims: dict[str, Any] = {"boot_id": BOOT, "now": START, "lease": LEASE}
    ready = write(store, lambda tx: tx.runs.claim_ready(token="a", names=None, limit=1, **claims))
    named = write(store, lambda tx: tx.runs.claim_ready(token="b", names=["research"], limit=1, **claims))
    left = stored_run(store)
    one = write(store, lambda tx: tx.runs.claim(left.id, token="c", **claims))

    assert one is not None
    assert {run.lease_until for run in (*ready, *named, one)} == {from_micros(server_time) + LEASE}
    assert {run.updated_at for run in (*ready, *named, one)} == {START}


def test_a_lease_lapses_and_is_renewed_by_the_clock_of_the_database(store: PostgresStore, url: str) -> None:
    run, _ = running_run(store)
    set_clock(url, to_micros(START + LEASE) - 1)
    early = store.read_now(lambda tx: tx.runs.lapsed(now=later(days=9), limit=9))

    set_clock(url, to_micros(START + LEASE))
    late = store.read_now(lambda tx: tx.runs.lapsed(now=START, limit=9))
    renewed = write(store, lambda tx: tx.runs.renew([run.id], boot_id=BOOT, now=START, lease=LEASE))

    assert early == []
    assert [found.id for found in late] == [run.id]
    assert renewed == {run.id: (1, START + 2 * LEASE)}


def test_resumes_are_leased_by_the_clock_of_the_database(store: PostgresStore, url: str) -> None:
    stored_checkpoint(store)
    set_clock(url, to_micros(later(days=7)))

    claimed = write(
        store, lambda tx: tx.checkpoints.claim(boot_id=BOOT, token="t", limit=1, now=START, lease=LEASE)
    )
    before = store.read_now(lambda tx: tx.checkpoints.lapsed(now=later(days=99), limit=9))
    set_clock(url, to_micros(later(days=7) + LEASE))
    after = store.read_now(lambda tx: tx.checkpoints.lapsed(now=START, limit=9))

    assert claimed[0].lease_until == later(days=7) + LEASE
    assert before == []
    assert [found.id for found in after] == [claimed[0].id]


# --- many writers


def test_a_fence_raised_while_a_step_waits_refuses_the_step(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    run, claim = running_run(store)
    rival.execute("UPDATE runs SET fence = fence + 1 WHERE id = %s", (run.id,))

    saving = threads.submit(store.write_now, saving_step(a_step(run), claim.fence, CLOSED))
    until_blocked(url)
    rival.commit()

    with pytest.raises(ClaimLost):
        saving.result(SOON_S)
    assert steps_of(store, run.task_id) == []


def test_a_fence_raised_while_a_crowd_of_steps_waits_refuses_only_the_steps_of_that_run(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    held, claim = running_run(store)
    lost, _ = running_run(store)
    rival.execute("UPDATE runs SET fence = fence + 1 WHERE id = %s", (lost.id,))
    writes = [
        saving_step(a_step(run, name=name), claim.fence, CLOSED) for run in (held, lost) for name in "abcdef"
    ]

    saving = threads.submit(in_one_crowd, store, writes)
    until_blocked(url)
    rival.commit()
    answers = saving.result(SOON_S)

    assert answers[:6] == [None] * 6
    assert {type(answer) for answer in answers[6:]} == {ClaimLost}
    assert len(steps_of(store, held.task_id)) == 6
    assert steps_of(store, lost.task_id) == []


def in_one_crowd(store: Store, writes: list[SaveStep]) -> list[object]:
    async def all_at_once() -> list[object]:
        return list(await asyncio.gather(*(store.write(one) for one in writes), return_exceptions=True))

    return asyncio.run(all_at_once())


def test_a_progress_report_waits_for_a_fence_that_is_being_raised(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    run, claim = running_run(store)
    rival.execute("UPDATE runs SET fence = fence + 1 WHERE id = %s", (run.id,))

    saving: Future[bool] = threads.submit(
        write,
        store,
        lambda tx: tx.tasks.save_progress(run.task_id, run.id, claim.fence, Progress(done=1), now=START),
    )
    until_blocked(url)
    rival.commit()

    assert saving.result(SOON_S) is False


def test_a_run_that_is_about_to_wait_for_a_boot_waits_for_an_end_that_is_being_noted(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    store.write_now(lambda tx: tx.boots.begin(a_boot()))
    rival.execute("UPDATE boots SET ended_at = 7 WHERE id = %s", (BOOT,))

    looking: Future[Boot | None] = threads.submit(write, store, lambda tx: tx.boots.lock(BOOT))
    until_blocked(url)
    rival.commit()

    boot = looking.result(SOON_S)
    assert boot is not None
    assert boot.ended_at is not None


def test_the_end_of_a_boot_finds_a_run_that_was_about_to_wait_for_it(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    store.write_now(lambda tx: tx.boots.begin(a_boot()))
    run = stored_run(store)
    rival.execute("SELECT * FROM boots WHERE id = %s FOR SHARE", (BOOT,))

    def end(tx: Tx) -> list[tuple[str, str]]:
        tx.boots.end(BOOT, now=START)
        return tx.runs.waiting_on("boot:here")

    ending: Future[list[tuple[str, str]]] = threads.submit(write, store, end)
    until_blocked(url)
    rival.execute("UPDATE runs SET status = 'waiting', waits_on = 'boot:here' WHERE id = %s", (run.id,))
    rival.commit()

    assert ending.result(SOON_S) == [(run.id, run.task_id)]


def test_an_intent_waits_for_a_fence_that_is_being_raised(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    run, claim = running_run(store)
    effect = an_effect(task_id=run.task_id, run_id=run.id)
    rival.execute("UPDATE runs SET fence = fence + 1 WHERE id = %s", (run.id,))

    noting: Future[bool] = threads.submit(write, store, lambda tx: tx.effects.begin(effect, claim))
    until_blocked(url)
    rival.commit()

    with pytest.raises(ClaimLost):
        noting.result(SOON_S)
    assert store.read_now(lambda tx: tx.effects.of_task(run.task_id)) == []


def test_an_effect_that_is_done_is_written_to_no_index_anew(store: PostgresStore, rival: Rival) -> None:
    run, _ = running_run(store)
    effect = an_effect(task_id=run.task_id, run_id=run.id)
    store.write_now(beginning_effect(effect, CLOSED))

    rival.execute(
        "UPDATE effects SET status = 'done', outcome = 'x', updated_at = 9 WHERE task_id = %s",
        (run.task_id,),
    )
    updates = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'effects'"
    assert rival.execute(updates).fetchone() == (1, 1)


def test_a_sender_waits_for_another_and_is_given_the_place_after_its_mail(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    run, _ = running_run(store)
    rival.execute("SELECT 1 FROM tasks WHERE id = %s FOR NO KEY UPDATE", (run.task_id,))
    rival.execute("INSERT INTO mail VALUES (%s, 1, 'hints', '', 'x', 'first', 0, '')", (run.task_id,))

    sending: Future[bool] = threads.submit(write, store, lambda tx: send(tx, run.task_id, "others"))
    repeating: Future[bool] = threads.submit(write, store, lambda tx: send(tx, run.task_id, key="first"))
    until_blocked(url, count=2)
    rival.commit()

    assert sending.result(SOON_S)
    assert not repeating.result(SOON_S)
    mail = store.read_now(lambda tx: tx.mail.next_of(run.task_id, "others"))
    assert mail is not None
    assert mail.seq == 2


def test_a_step_and_a_pause_that_race_agree_on_who_was_first(
    open_store: Callable[..., PostgresStore], threads: ThreadPoolExecutor
) -> None:
    saver, pauser = open_store(), open_store()
    for _ in range(30):
        run, claim = running_run(saver)
        start = threading.Barrier(2)

        def save(run: Any = run, claim: Any = claim, start: threading.Barrier = start) -> bool:
            start.wait(SOON_S)
            try:
                return saver.write_now(saving_step(a_step(run), claim.fence, CLOSED)) is None
            except ClaimLost:
                return False

        def pause(run: Any = run, start: threading.Barrier = start) -> tuple[int, int]:
            def act(tx: Tx) -> tuple[int, int]:
                paused = tx.runs.pause([run.id], now=START)
                # Nothing of the old holder may appear after this moment.
                return paused, len(tx.journal.steps(run.task_id))

            start.wait(SOON_S)
            return write(pauser, act)

        saving, pausing = threads.submit(save), threads.submit(pause)
        was_saved, (paused, seen) = saving.result(SOON_S), pausing.result(SOON_S)

        assert paused == 1
        assert seen == len(steps_of(saver, run.task_id)) == int(was_saved)


def test_claimants_on_several_connections_never_get_the_same_run(
    open_store: Callable[..., PostgresStore], threads: ThreadPoolExecutor
) -> None:
    stores = [open_store() for _ in range(3)]
    wanted = {stored_run(stores[0]).id for _ in range(40)}

    def claim_of_three(boot: str, token: str) -> Callable[[Tx], list[str]]:
        claim: dict[str, Any] = {"boot_id": boot, "token": token, "now": START, "lease": LEASE}
        return lambda tx: [run.id for run in tx.runs.claim_ready(names=None, limit=3, **claim)]

    def claim_all(store: Store, boot: str) -> list[str]:
        claimed: list[str] = []
        for number in itertools.count():
            token = f"{boot}-{number}"
            found = store.write_now(claim_of_three(boot, token))
            if not found:
                return claimed
            claimed += found
        raise AssertionError

    taking = [threads.submit(claim_all, store, f"boot_{place}") for place, store in enumerate(stores)]
    taken = [run_id for one in taking for run_id in one.result(SOON_S)]

    assert len(taken) == len(wanted)
    assert set(taken) == wanted


def test_a_run_that_somebody_is_changing_is_skipped_by_claimants(store: PostgresStore, rival: Rival) -> None:
    busy, free = stored_run(store), stored_run(store)
    rival.execute("SELECT 1 FROM runs WHERE id = %s FOR UPDATE", (busy.id,))

    claimed = write(
        store,
        lambda tx: tx.runs.claim_ready(boot_id=BOOT, token="t", names=None, limit=9, now=START, lease=LEASE),
    )

    assert [run.id for run in claimed] == [free.id]


def test_a_deadlock_is_run_again_until_both_writes_are_done(
    open_store: Callable[..., PostgresStore], url: str, threads: ThreadPoolExecutor
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE \"{name}\" SET deadlock_timeout = '50ms'".encode())
    store = open_store()
    one, other = a_task(), a_task()
    write(store, lambda tx: [tx.tasks.create(one), tx.tasks.create(other)])
    both_hold_one = threading.Barrier(2)
    attempts: list[str] = []

    def lock_both(first: str, second: str) -> Callable[[Tx], None]:
        def act(tx: Tx) -> None:
            attempts.append(first)
            tx.tasks.lock(first)
            if attempts.count(first) == 1:
                both_hold_one.wait(SOON_S)
            tx.tasks.lock(second)
            tx.tasks.request_cancel(first, f"by {first}", now=START)

        return act

    writing = [
        threads.submit(write, store, lock_both(one.id, other.id)),
        threads.submit(write, store, lock_both(other.id, one.id)),
    ]
    for future in writing:
        future.result(SOON_S)

    assert len(attempts) > 2
    found = store.read_now(lambda tx: tx.tasks.get_many([one.id, other.id]))
    assert {task.cancel_reason for task in found.values()} == {f"by {one.id}", f"by {other.id}"}


def test_one_bad_write_of_a_group_harms_no_other(store: PostgresStore) -> None:
    task = a_task()
    good = [a_task() for _ in range(30)]

    def create_twice(tx: Tx) -> None:
        tx.tasks.create(task)
        tx.runs.create(a_run(task, number=1))
        tx.runs.create(a_run(task, number=1))

    async def all_at_once() -> list[object]:
        writes: list[Callable[[Tx], object]] = [creation_of(one) for one in good]
        writes.insert(15, create_twice)
        return list(await asyncio.gather(*map(store.write, writes), return_exceptions=True))

    answers = asyncio.run(all_at_once())

    assert isinstance(answers.pop(15), psycopg.errors.UniqueViolation)
    assert answers == [one.id for one in good]
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": 30}
    assert store.verify() == []


def test_a_write_that_hides_an_error_of_the_database_is_not_acknowledged(store: PostgresStore) -> None:
    task = a_task()
    run = a_run(task)

    def careless(tx: Tx) -> None:
        put(tx, task, run)
        with contextlib.suppress(psycopg.Error):
            tx.runs.create(a_run(task))

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        write(store, careless)
    assert store.read_now(lambda tx: tx.events.counts("task")) == {}


def test_a_lock_that_somebody_holds_does_not_stop_the_event_loop(
    store: PostgresStore, rival: Rival, url: str
) -> None:
    run, claim = running_run(store)

    async def main() -> tuple[int, object]:
        for number in range(20):  # a lonely caller's writes are run on the loop's own thread
            await store.write(saving_step(a_step(run, name=f"alone {number}"), claim.fence, CLOSED))
        rival.execute("SELECT 1 FROM runs WHERE id = %s FOR UPDATE", (run.id,))
        async with asyncio.TaskGroup() as group:
            saving = group.create_task(
                store.write(saving_step(a_step(run, name="waits"), claim.fence, CLOSED))
            )
            ticks = 0
            for _ in range(20):
                await asyncio.sleep(0.01)
                ticks += not saving.done()
            rival.commit()
        return ticks, saving.result()

    ticks, answer = asyncio.run(main())

    assert ticks == 20
    assert answer is None


# --- the feed


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


# --- counts


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

    assert left == (2,)
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


# --- hints


def test_a_hint_reaches_another_process_and_comes_at_once_in_this_one(
    open_store: Callable[..., PostgresStore],
) -> None:
    here, elsewhere = open_store(), open_store()

    async def main() -> tuple[bool, bool]:
        async def hint_until(done: asyncio.Future[bool]) -> None:
            while not done.done():  # listening begins some time after the first who waits
                await elsewhere.write(lambda tx: tx.hint("runs"))
                await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            far = group.create_task(here.wait_for("runs", SOON_S))
            group.create_task(hint_until(far))
        async with asyncio.TaskGroup() as group:
            near = group.create_task(here.wait_for("checkpoints", SOON_S))
            await asyncio.sleep(0)
            await here.write(lambda tx: tx.hint("checkpoints"))
        return far.result(), near.result()

    assert asyncio.run(main()) == (True, True)


def test_hints_come_back_after_the_connection_that_carries_them_was_lost(
    open_store: Callable[..., PostgresStore], url: str
) -> None:
    here, elsewhere = open_store(), open_store()

    async def hear() -> bool:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(here.wait_for("events", SOON_S))
            while not waiting.done():
                await asyncio.to_thread(emit, elsewhere, unique())
                await asyncio.sleep(0.02)
        return waiting.result()

    first = asyncio.run(hear())
    change(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )

    assert (first, asyncio.run(hear())) == (True, True)


# --- lost answers


class Cutter:
    """Stands between a store and its server, and cuts the line once, at a message that holds some bytes."""

    def __init__(self, server: PostgresServer) -> None:
        self._target = str(server.socket_directory / ".s.PGSQL.5432")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cut: tuple[bytes, bool] | None = None
        self._ends = socket.socketpair()
        self._pool = ThreadPoolExecutor()
        self._pool.submit(self._accept)
        self.has_cut = threading.Event()

    def url(self, of: str) -> str:
        host, port = self._listener.getsockname()
        database = of.removeprefix("postgresql://postgres@/").partition("?")[0]
        return f"postgresql://postgres@{host}:{port}/{database}?sslmode=disable&gssencmode=disable"

    def cut_before(self, message: bytes) -> None:
        """The server will never see it."""
        self._cut = (message, False)

    def cut_after(self, message: bytes) -> None:
        """The server will have answered, and nobody will hear it."""
        self._cut = (message, True)

    def close(self) -> None:
        self._ends[0].close()
        self._pool.shutdown()
        self._ends[1].close()
        self._listener.close()

    def _accept(self) -> None:
        while self._listener in select.select([self._listener, self._ends[1]], [], [])[0]:
            client, _ = self._listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._pool.submit(self._carry, client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with client, server:
            while True:
                heard = select.select([client, server, self._ends[1]], [], [])[0]
                if self._ends[1] in heard:
                    return
                for source, target in ((client, server), (server, client)):
                    if source not in heard:
                        continue
                    message = source.recv(65536)
                    if not message or (source is client and self._cuts(message, server)):
                        return
                    target.sendall(message)

    def _cuts(self, message: bytes, server: socket.socket) -> bool:
        if self._cut is None or self._cut[0] not in message:
            return False
        (_, is_delivered), self._cut = self._cut, None
        if is_delivered:
            server.sendall(message)
            server.recv(65536)
        self.has_cut.set()
        return True


@pytest.fixture
def cutter(postgres_server: PostgresServer) -> Iterator[Cutter]:
    cutter = Cutter(postgres_server)
    yield cutter
    cutter.close()


@pytest.mark.parametrize("is_delivered", [True, False], ids=["after the commit", "before the commit"])
def test_a_commit_whose_answer_was_lost_happens_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str, is_delivered: bool
) -> None:
    store = open_store(cutter.url(url))
    task = a_task()
    attempts = []

    def create(tx: Tx) -> str:
        attempts.append(1)
        tx.tasks.create(task)
        tx.emit(EventKind.TASK_CREATED, task.id, at=START, task_id=task.id)
        return task.id

    (cutter.cut_after if is_delivered else cutter.cut_before)(b"COMMIT\0")
    answer = write(store, create)

    assert cutter.has_cut.is_set()
    assert answer == task.id
    assert len(attempts) == (1 if is_delivered else 2)
    assert subjects(feed(store)) == [task.id]
    assert store.verify() == []


def emit_created(name: str, tx: Tx) -> None:
    tx.emit(EventKind.TASK_CREATED, name, at=START)


def test_a_commit_whose_answer_was_lost_on_the_loops_own_thread_happens_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str
) -> None:
    store = open_store(cutter.url(url))
    names = [f"subject {number}" for number in range(9)]

    async def main() -> None:
        for name in names:
            if name == names[-1]:
                cutter.cut_after(b"COMMIT\0")
            await store.write(functools.partial(emit_created, name))

    asyncio.run(main())

    assert cutter.has_cut.is_set()
    assert subjects(feed(store)) == names


def test_all_writes_of_a_group_whose_commit_was_not_answered_are_there_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str
) -> None:
    store = open_store(cutter.url(url), writers=1)
    tasks = [a_task() for _ in range(20)]
    cutter.cut_after(b"COMMIT\0")

    async def main() -> list[object]:
        return list(await asyncio.gather(*(store.write(creation_of(task)) for task in tasks)))

    answers = asyncio.run(main())

    assert cutter.has_cut.is_set()
    assert answers == [task.id for task in tasks]
    assert store.read_now(lambda tx: tx.events.counts("task")) == {"queued": 20}
    assert store.verify() == []


@pytest.mark.parametrize("is_delivered", [True, False], ids=["after the step", "before the step"])
def test_a_step_whose_answer_was_lost_is_saved_once(
    open_store: Callable[..., PostgresStore], cutter: Cutter, url: str, is_delivered: bool
) -> None:
    store = open_store(cutter.url(url))
    run, claim = running_run(store)
    step = a_step(run, name="the one that is cut")
    store.write_now(saving_step(a_step(run, name="prepares the statement"), claim.fence, CLOSED))

    (cutter.cut_after if is_delivered else cutter.cut_before)(b"the one that is cut")
    answer = store.write_now(saving_step(step, claim.fence, CLOSED))

    assert cutter.has_cut.is_set()
    assert answer is None  # saved now, also when the answer to that was lost
    assert len(steps_of(store, run.task_id)) == 2


@pytest.mark.parametrize("commits", [True, False])
def test_whoever_asks_about_a_commit_waits_until_the_server_is_done_with_it(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor, commits: bool
) -> None:
    change(url, "INSERT INTO commit_receipts VALUES ('lost', 6, 1)")
    rival.execute("UPDATE commit_receipts SET number = 7 WHERE id = 'lost'")

    asking = threads.submit(
        store._writer.exclusively,
        lambda session: session.has_committed("lost", 7),
    )
    until_blocked(url)
    (rival.commit if commits else rival.rollback)()

    assert asking.result(SOON_S) is commits


def test_receipts_are_tidied_away(open_store: Callable[..., PostgresStore], url: str) -> None:
    store = open_store()
    emit(store, "one")
    change(url, "INSERT INTO commit_receipts VALUES ('of a dead process', 6, 1)")
    change(url, "DELETE FROM commit_receipts WHERE written_at > 1")
    emit(store, "goes on without its receipt")
    open_store().close()
    left = ask(url, "SELECT number FROM commit_receipts")
    store.close()

    assert left == [(2,)]
    assert ask(url, "SELECT number FROM commit_receipts") == []


# --- lost servers


@pytest.mark.slow
def test_every_acknowledged_write_survives_crashes_of_the_server_and_none_is_doubled(tmp_path: Path) -> None:
    with PostgresServer.start(tmp_path) as server:
        url = server.create_database()
        store = PostgresStore(url, clock=FakeClock())
        run, claim = running_run(store)
        acknowledged: list[str] = []
        saved: list[str] = []
        is_over = threading.Event()

        async def create() -> None:
            while not is_over.is_set():
                task = a_task()

                def act(tx: Tx, task: Any = task) -> None:
                    put(tx, task, a_run(task))
                    tx.emit(EventKind.TASK_CREATED, task.id, at=START, task_id=task.id)

                await store.write(act)
                acknowledged.append(task.id)

        async def save() -> None:
            while not is_over.is_set():
                name = unique()
                await store.write(saving_step(a_step(run, name=name), claim.fence, CLOSED))
                saved.append(name)

        async def main() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(20):
                    group.create_task(create())
                    group.create_task(save())

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(asyncio.run, main())
            try:
                for _ in range(4):
                    enough = len(acknowledged) + 100, len(saved) + 100
                    while not (len(acknowledged) > enough[0] and len(saved) > enough[1]):
                        with contextlib.suppress(TimeoutError):
                            working.result(0.01)
                    server.stop("immediate")
                    server.start_again()
            finally:
                is_over.set()
            working.result(60)

        tasks = store.read_now(lambda tx: {task.id for task in tx.tasks.page(limit=1_000_000)})
        created = [event.subject_id for event in everything(store)]
        journal = [step.name for step in steps_of(store, run.task_id)]
        problems = store.verify()
        store.close()

    assert set(acknowledged) <= tasks
    assert sorted(created) == sorted(set(created))
    assert set(acknowledged) <= set(created)
    assert set(saved) <= set(journal)
    assert len(journal) == len(set(journal))
    assert problems == []


def everything(store: Store) -> list[Event]:
    events: list[Event] = []
    while page := feed(store, events[-1].position if events else "0.0"):
        events += page
    return events


@pytest.mark.slow
def test_while_the_server_is_gone_callers_are_told_so_and_later_all_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_groups, "RETRY_FOR_S", 0.3)
    with PostgresServer.start(tmp_path) as server:
        store = PostgresStore(server.create_database(), clock=FakeClock())
        run, claim = running_run(store)
        store.read_now(lambda tx: tx.runs.get(run.id))
        server.stop("immediate")

        async def write_many() -> list[object]:
            writes = [
                store.write(saving_step(a_step(run, name=unique()), claim.fence, CLOSED)) for _ in range(50)
            ]
            return list(await asyncio.gather(*writes, return_exceptions=True))

        started = time.monotonic()
        refused = asyncio.run(write_many())
        took_s = time.monotonic() - started
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store.read_now(lambda tx: tx.runs.get(run.id))
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            emit(store, "nobody hears this")
        assert store.verify()[0].startswith("PostgreSQL: it cannot be reached")

        server.start_again()
        after = asyncio.run(write_many())
        found = store.read_now(lambda tx: tx.runs.get(run.id))
        store.close()

    assert {type(answer) for answer in refused} == {StoreUnavailable}
    assert took_s < 5
    assert after == [None] * 50
    assert found.id == run.id


@pytest.mark.slow
def test_a_store_can_be_closed_while_its_server_is_gone(tmp_path: Path) -> None:
    with PostgresServer.start(tmp_path) as server:
        store = PostgresStore(server.create_database(), clock=FakeClock())
        emit(store, "something to fold")
        with ThreadPoolExecutor(1) as pool:
            server.stop("immediate")
            waiting = pool.submit(emit, store, "too late")
            time.sleep(0.1)
            store.close()

            with pytest.raises(StoreUnavailable):
                waiting.result(SOON_S)


def test_connections_that_an_administrator_ended_are_made_again(store: PostgresStore, url: str) -> None:
    run, claim = running_run(store)
    store.read_now(lambda tx: tx.runs.get(run.id))
    change(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )

    found = store.read_now(lambda tx: tx.runs.get(run.id))
    store.write_now(saving_step(a_step(run), claim.fence, CLOSED))
    emit(store, "alive")

    assert found.id == run.id
    assert subjects(feed(store)) == ["alive"]


# --- opening and closing


def test_stores_that_open_an_empty_database_together_set_it_up_once(
    open_store: Callable[..., PostgresStore], url: str, threads: ThreadPoolExecutor
) -> None:
    opened = [threads.submit(open_store) for _ in range(4)]
    for one in opened:
        one.result(SOON_S)

    numbers = [(one.number,) for one in load_migrations("postgres")]
    assert ask(url, "SELECT number FROM schema_migrations ORDER BY number") == numbers
    assert ask(url, "SELECT count(*) FROM ledger_facts WHERE name = 'ledger_id'") == [(1,)]


def test_everything_is_in_a_schema_of_its_own(store: PostgresStore, url: str) -> None:
    found = ask(
        url,
        "SELECT DISTINCT schemaname FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )

    assert found == [("holdfast",)]


def test_commits_are_durable_whatever_the_database_says(
    open_store: Callable[..., PostgresStore], url: str
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())

    store = open_store()
    found = store._writer.exclusively(lambda session: session._link.show("synchronous_commit"))  # type: ignore[attr-defined]

    assert found == "on"


def test_a_server_that_is_too_old_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "OLDEST_SERVER", 99)

    with pytest.raises(StoreUnavailable, match=r"PostgreSQL \d+ is too old; Holdfast needs 99 or newer"):
        PostgresStore(url, clock=FakeClock())


def test_a_closed_store_is_closed_and_leaves_no_thread(url: str) -> None:
    before = set(threading.enumerate())  # those of ledgers that other modules share
    store = PostgresStore(url, clock=FakeClock())
    emit(store, "wakes the thread that tells others")

    for _ in range(2):
        store.close()

    for use in (
        lambda: emit(store, "x"),
        lambda: feed(store),
        lambda: asyncio.run(store.wait_for("runs", 1)),
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            use()
    new = set(threading.enumerate()) - before
    assert [thread.name for thread in new if "holdfast" in thread.name] == []


def test_a_backup_is_left_to_the_tools_of_postgresql(store: PostgresStore) -> None:
    with pytest.raises(Refused, match="pg_dump --schema=holdfast"):
        store.backup("ledger.dump")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ada:SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:SESAME@/ledger?host=/nowhere",
        "postgresql://ada:SES AME@127.0.0.1/ledger",
        "postgresql://ada:%zzSESAME@127.0.0.1/ledger",
        "postgresql://ada:x@SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:SESAME/x@127.0.0.1:1/ledger",
        "postgresql://ada:x/SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:x?SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:SESAME@127.0.0.1:1/ledger?no_such_option=1",
        "host=127.0.0.1 port=1 password='SESAME",
    ],
)
def test_no_error_shows_any_part_of_the_password(address: str) -> None:
    with pytest.raises((StoreUnavailable, SettingsError)) as caught:
        PostgresStore(address, clock=FakeClock())

    assert "SES" not in "".join(traceback.format_exception(caught.value))


def test_a_refused_login_does_not_show_the_password(postgres_server: PostgresServer, url: str) -> None:
    address = url.replace("postgres@", "nobody_we_know:SESAME@")
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore(address, clock=FakeClock())

    assert "nobody_we_know" in str(caught.value)
    assert "SESAME" not in "".join(traceback.format_exception(caught.value))


BY_INDEX = {
    "runs_pkey": "save_step save_steps hold_run save_progress lock_run lock_running claim_run end_run"
    " begin_effect release_run wait_run wake_run exonerate_run end_idle_run pause_runs set_runs_resuming"
    " set_runs_paused_again set_runs_resumed claim_ready_runs ready_due_runs",
    "runs_ready": "claim_ready_runs",
    "runs_later": "ready_due_runs",
    "runs_suspect": "suspects_waiting",
    "runs_alive": "live_run_of_task",
    "runs_waiting": "waits_over",
    "runs_claimed": "claims_with_token runs_of_boot boot_carries_any boots_in_flight",
    "runs_alone": "boot_carries_suspect",
    "runs_leased": "lapsed_runs",
    "run_checkpoints_paused": "claim_checkpoints",
    "run_checkpoints_open": "open_checkpoint_of_run",
    "run_checkpoints_resuming": "resumes_with_token resuming_of_boot boots_in_flight",
    "ledger_events_feed": "feed newest_events oldest_event rebase_events",
    "ledger_events_by_task": "feed_of_task",
    "steps_pkey": "get_step steps_of_task steps_of_tasks journal_heads last_steps delete_step"
    " delete_steps_of_scope",
    "scope_ops_pkey": "ops_of_tasks delete_scope_ops_of_scope",
    "turns_pkey": "get_turn turns_of_task turns_of_loop journal_heads last_steps delete_turns_below",
    "loops_pkey": "loops_of_tasks delete_loops_below",
    "list_deltas_pkey": "get_delta deltas_of_tasks",
    "durable_values_pkey": "values_of_tasks",
    "mail_pkey": "next_mail_seq",
    "mail_open": "next_mail",
    "effects_doubted": "get_effect find_effects review_effect",
    "effects_pkey": "find_effect settle_effect finish_effect effects_of_task unsettled_effects"
    " done_effects_of_task done_effects_of_tasks get_done_effect close_effects_of_scope journal_heads"
    " last_steps",
    "effects_past": "newest_effects_of_task",
    "effects_verifiable": "settled_keys",
    "effects_unknown": "effects_to_review",
    "deliveries_due": "due_deliveries waiting_channels",
    "deliveries_open": "due_deliveries oldest_owed",
    "deliveries_attempting": "lapsed_deliveries",
    "deliveries_failed": "failed_deliveries",
    "questions_pkey": "get_question",
    "questions_by_task": "open_questions_of_task",
    "questions_open": "open_questions",
    "tasks_pkey": "hold_task",
    "tasks_by_parent": "children_of_task children_of_task_alive",
}


def test_plans_made_while_the_ledger_was_young_are_good_for_an_old_one(store: PostgresStore) -> None:
    """Plans are kept until somebody analyzes the table: until then they must not read all there is."""
    stored_run(store, RunStatus.RUNNING)
    stored_checkpoint(store)
    queries = load_queries("postgres")

    def plan_of(query: str) -> str:
        sql, _ = numbered(queries[query])

        def explain(session: Any) -> str:
            result = session._link.command(f"EXPLAIN (GENERIC_PLAN) {sql}".encode())
            return "\n".join(row[0] for row in session._link.rows(result))

        return store._writer.exclusively(explain)

    plans = [(query, index, plan_of(query)) for index, names in BY_INDEX.items() for query in names.split()]

    for query, index, plan in plans:
        assert re.search(rf"(?:using|Bitmap Index Scan on) {index}\b", plan), (query, plan)
        assert not re.search(r"Seq Scan on \w+", plan), (query, plan)
        assert not re.search(r"Filter: .*\bid = ", plan), (query, plan)


def test_a_lease_of_another_boot_is_not_renewed(store: PostgresStore) -> None:
    run, _ = running_run(store)

    renewed = write(
        store,
        lambda tx: tx.runs.renew([run.id], boot_id=OTHER_BOOT, now=START, lease=timedelta(seconds=1)),
    )

    assert renewed == {}
