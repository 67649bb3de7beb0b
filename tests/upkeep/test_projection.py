"""Pages and details show what can be proved about the workers of tasks, and write nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.api.openclaw import GetAsked, ListAsked, get_task, list_tasks
from holdfast.api.task_lists import TasksAsked, read_page
from holdfast.api.tasks import read_detail
from holdfast.core.run import Queue
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.claims.boots import Life
from holdfast.engine.recovery.rescue import Rescuer
from holdfast.store import Store, Tx
from holdfast.testing import FakeClock
from holdfast.upkeep.projection import Projection
from tests.builders import stored_run
from tests.engine.dead_processes import free_lock
from tests.engine.tables import dump


@asynccontextmanager
async def two_lives(store: Store, clock: FakeClock, locks: Path) -> AsyncIterator[tuple[Life, Life]]:
    """A process that reads, and another one that works."""
    reader, worker = [await Life.begin(store, clock, locks=locks) for _ in range(2)]
    yield reader, worker
    await reader.end()


def shown_statuses(store: Store, task_id: str, projection: Projection) -> dict[str, str]:
    """The status of a task in every list and in every detail."""

    def read(tx: Tx) -> dict[str, str]:
        page = read_page(tx, TasksAsked(), now=store.clock.now(), projection=projection)
        detail = read_detail(tx, task_id, store.clock.now(), projection=projection)
        (listed,) = list_tasks(tx, ListAsked(), projection=projection).tasks
        return {
            "ledger.list": page.tasks[0].status,
            "ledger.show": detail.task.status,
            "its run": detail.runs[-1].status,
            "tasks.list": listed.status,
            "tasks.get": get_task(tx, GetAsked(task_id=task_id), projection=projection).task.status,
        }

    return store.read_now(read)


async def test_a_task_of_a_dead_worker_reads_as_its_rescue_will_leave_it_and_nothing_is_written(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with two_lives(store, clock, tmp_path) as (reader, worker):
        run = stored_run(store, RunStatus.RUNNING, claimed_by=worker.id)
        projection = Projection(reader.proofs, clock.now())
        alive = shown_statuses(store, run.task_id, projection)
        before = dump(store)

        free_lock(worker)
        dead = shown_statuses(store, run.task_id, projection)
        untouched = dump(store) == before
        await Rescuer(store, clock, reader).rescue_dead_boots()
        rescued = shown_statuses(store, run.task_id, projection)

    assert set(alive.values()) == {"running"}
    assert dead == {
        "ledger.list": "paused",
        "ledger.show": "paused",
        "its run": "paused_for_restart",
        "tasks.list": "queued",
        "tasks.get": "queued",
    }
    assert untouched
    assert rescued == dead


async def test_recorded_work_of_a_dead_process_reads_as_lost(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with two_lives(store, clock, tmp_path) as (reader, worker):
        run = stored_run(
            store,
            RunStatus.RUNNING,
            claimed_by=worker.id,
            queue=Queue.PRODUCER,
            task={"runtime": RuntimeName.MEDIA},
        )
        projection = Projection(reader.proofs, clock.now())
        free_lock(worker)

        dead = shown_statuses(store, run.task_id, projection)
        await Rescuer(store, clock, reader).rescue_dead_boots()

        assert dead == shown_statuses(store, run.task_id, projection)
        assert (dead["ledger.list"], dead["tasks.list"]) == ("lost", "failed")


async def test_a_view_says_what_the_ledger_has_and_why_it_is_not_shown(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with two_lives(store, clock, tmp_path) as (reader, worker):
        run = stored_run(store, RunStatus.RUNNING, claimed_by=worker.id)
        free_lock(worker)
        projection = Projection(reader.proofs, clock.now())
        detail, wire = store.read_now(
            lambda tx: (
                read_detail(tx, run.task_id, clock.now(), projection=projection),
                get_task(tx, GetAsked(task_id=run.task_id), projection=projection).task,
            )
        )

    why = f"its process {os.getpid()} on {worker.boot.node} has ended"
    assert msgspec.to_builtins(detail.task.projection) == {"storedStatus": "running", "why": why}
    assert wire.last_activity == why
    assert wire.execution is not None
    assert wire.execution.state == "queued"


async def test_the_own_tasks_of_a_reader_read_as_running_also_after_their_lease(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with two_lives(store, clock, tmp_path) as (reader, _):
        run = stored_run(store, RunStatus.RUNNING, claimed_by=reader.id)
        clock.advance(hours=1)

        shown = shown_statuses(store, run.task_id, Projection(reader.proofs, clock.now()))

    assert set(shown.values()) == {"running"}


@pytest.mark.parametrize("tasks", [1, 60])
async def test_a_page_takes_as_many_queries_whatever_its_length(
    store: Store, clock: FakeClock, tmp_path: Path, counted: Callable[[Tx], list[str]], tasks: int
) -> None:
    async with two_lives(store, clock, tmp_path) as (reader, worker):
        for _ in range(tasks):
            stored_run(store, RunStatus.RUNNING, claimed_by=worker.id)
        projection = Projection(reader.proofs, clock.now())

        def read(tx: Tx) -> list[str]:
            queries = counted(tx)
            read_page(tx, TasksAsked(limit=100), now=store.clock.now(), projection=projection)
            return queries

        queries = store.read_now(read)

    assert set(queries) == {"counts", "get_boot", "live_runs_of_tasks", "page_of_tasks"}
    # The database may count `one` as `all`, too.
    assert len(queries) <= 2 * 4


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tx], list[str]]:
    """The names of the queries that a transaction runs from now on."""

    def count(tx: Tx) -> list[str]:
        names: list[str] = []
        for way in ("one", "all"):
            ask = getattr(tx.statements, way)

            def noted(query: str, params: object, ask: Callable[..., object] = ask) -> object:
                names.append(query)
                return ask(query, params)

            monkeypatch.setattr(tx.statements, way, noted)
        return names

    return count


async def test_a_task_without_a_running_run_takes_no_query_at_all(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    async with two_lives(store, clock, tmp_path) as (reader, _):
        stored_run(store)
        projection = Projection(reader.proofs, clock.now())
        page = store.read_now(
            lambda tx: read_page(tx, TasksAsked(), now=store.clock.now(), projection=projection)
        )

    assert page.tasks[0].status == TaskStatus.QUEUED
    assert page.tasks[0].projection is None
