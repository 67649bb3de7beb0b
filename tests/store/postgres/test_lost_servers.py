"""A PostgreSQL server that crashes, is gone for a while, or ends our connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.core.events import Event, EventKind
from holdfast.store import Store, Tx, write_groups
from holdfast.store.journal import saving_step
from holdfast.store.postgres import PostgresStore, migrate_database
from holdfast.store.postgres_connection import PostgresConnection
from holdfast.store.sealing import CLOSED
from holdfast.testing import FakeClock
from tests.builders import START, a_run, a_step, a_task, put, running_run, unique
from tests.servers import PostgresServer
from tests.store.postgres.sessions import SOON_S, change, emit, feed, steps_of, subjects

pytestmark = pytest.mark.slow


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
            emit(store, "no listener hears this")
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
def test_a_store_can_be_closed_while_its_server_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_groups, "RETRY_FOR_S", 1.0)
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


@pytest.mark.parametrize("times", [1, 2])
def test_a_process_whose_connection_ends_while_it_sets_the_ledger_up_tries_once_more(
    url: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The server does this to a process that was frozen in that transaction."""
    ended: list[None] = []

    def end_then_migrate(link: PostgresConnection, *, may_upgrade: bool) -> object:
        if len(ended) < times:
            ended.append(None)
            link.ask("SELECT pg_terminate_backend(pg_backend_pid())")
        return migrate_database(link, may_upgrade=may_upgrade)

    monkeypatch.setattr("holdfast.store.postgres.migrate_database", end_then_migrate)

    if times == 1:
        with contextlib.closing(PostgresStore(url, clock=FakeClock())) as store:
            assert store.read_now(lambda tx: tx.tasks.page(statuses=(), owner=None, limit=1)) == []
    else:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            PostgresStore(url, clock=FakeClock())
