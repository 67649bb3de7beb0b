"""Many writers on PostgreSQL: rows that another transaction locks, deadlocks, and groups of writes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast.api.flow_changes import FlowRetryAsked, retrying_flow
from holdfast.core.claim import Boot
from holdfast.core.errors import ClaimLost, RevisionMismatch
from holdfast.core.task import Progress
from holdfast.core.transitions import TaskStatus
from holdfast.engine.ledger.flows import NewFlow, creating_flow
from holdfast.engine.ledger.ledger import cancelling
from holdfast.store import Store, Tx
from holdfast.store.effects import beginning_effect
from holdfast.store.journal import SaveStep, saving_step
from holdfast.store.postgres import PostgresStore
from holdfast.store.sealing import CLOSED
from tests.builders import (
    BOOT,
    LEASE,
    START,
    a_boot,
    a_run,
    a_step,
    a_task,
    an_effect,
    put,
    running_run,
    stored_run,
    write,
)
from tests.engine.flows import a_definition, a_node
from tests.store.postgres.sessions import SOON_S, Rival, creation_of, steps_of, until_blocked
from tests.store.program_records import send

pytestmark = pytest.mark.slow


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


def test_a_run_that_another_session_is_changing_is_skipped_by_claimants(
    store: PostgresStore, rival: Rival
) -> None:
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


def test_a_retry_of_a_flow_that_changed_while_it_waited_is_refused(
    store: PostgresStore, url: str, rival: Rival, threads: ThreadPoolExecutor
) -> None:
    new = NewFlow(definition=a_definition(a_node("a"), a_node("b")))
    flow = write(store, creating_flow(new, now=START))
    for task in store.read_now(lambda tx: tx.tasks.of_flow(flow.id)):
        write(store, cancelling(task.id, reason="stop", owner=None, now=START))
    read = store.read_now(lambda tx: tx.flows.get(flow.id)).revision
    rival.execute("UPDATE flows SET revision = revision + 1 WHERE id = %s", (flow.id,))

    asked = FlowRetryAsked(flow_id=flow.id, node="b", expected_revision=read)
    retrying = threads.submit(store.write_now, retrying_flow(asked, now=START))
    until_blocked(url)
    rival.commit()

    with pytest.raises(RevisionMismatch, match=f"try again with revision {read + 1}"):
        retrying.result(SOON_S)
    tasks = store.read_now(lambda tx: tx.tasks.of_flow(flow.id))
    assert {task.status for task in tasks} == {TaskStatus.CANCELLED}


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


def test_a_lock_that_another_session_holds_does_not_stop_the_event_loop(
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
