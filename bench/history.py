"""A long history must cost nothing: start-up, a page and the counts with a million finished tasks."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec

from bench.measure import Report, timed
from bench.recovery import kill_a_process, recover
from holdfast.core.clock import SystemClock
from holdfast.core.ids import new_run_id, new_task_id
from holdfast.core.run import RunRecord
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.store import Store, Tx

IN_FLIGHT = 1000
BATCH = 5000
REPEATS = 50

_salts = itertools.count()


def fill(store: Store, finished: int) -> None:
    """Finished tasks, each with its run, straight into the tables, with true digests and counts."""
    clock = SystemClock()
    for first in range(0, finished, BATCH):
        now = clock.now()
        count = min(BATCH, finished - first)
        task = Task(
            id=new_task_id(now),
            owner="bench",
            runtime=RuntimeName.PYTHON,
            name="bench",
            goal="something that ended long ago",
            arguments=b"{}",
            created_at=now,
            updated_at=now,
            started_at=now,
            ended_at=now,
            cleanup_after=now + timedelta(days=30),
            status=TaskStatus.SUCCEEDED,
            result=b"null",
        )
        run = RunRecord(
            id=new_run_id(now),
            task_id=task.id,
            task_name="bench",
            number=1,
            created_at=now,
            updated_at=now,
            priority=5,
            due_at=now,
            status=RunStatus.SUCCEEDED,
            started_at=now,
            ended_at=now,
        )
        tasks = [msgspec.structs.replace(task, id=new_task_id(now)) for _ in range(count)]
        runs = [msgspec.structs.replace(run, id=new_run_id(now), task_id=one.id) for one in tasks]

        def save(tx: Tx, tasks: list[Task] = tasks, runs: list[RunRecord] = runs) -> None:
            for one in tasks:
                tx.tasks.create(one)
            tx.runs.create_many(runs)

        store.write_now(save)


def bench(report: Report, directory: Path, open_store: Callable[[Path], Store], *, finished: int) -> None:
    names = (
        f"start-up: {finished:,} finished + {IN_FLIGHT:,} in flight / in flight only",
        f"a page of tasks: {finished:,} finished / in flight only",
        f"counts by status: {finished:,} finished / in flight only",
    )
    if not any(report.wants(name) for name in names):
        return
    long, short = directory / "long", directory / "short"
    store = open_store(long / "ledger.db")
    started = time.perf_counter()
    fill(store, finished)
    store.close()
    print(f"filled {finished:,} finished tasks in {time.perf_counter() - started:.0f} s", flush=True)

    def start_up(place: Path) -> float:
        boots = place / "boots"
        kill_a_process(lambda: open_store(place / "ledger.db"), boots, IN_FLIGHT)
        seconds = recover(lambda: open_store(place / "ledger.db"), boots, IN_FLIGHT)
        finish_all(lambda: open_store(place / "ledger.db"), boots)
        return seconds

    report.times(names[0], lambda: start_up(long), lambda: start_up(short), target=1.5, rounds=3)

    def repeated(place: Path, read: Callable[[Tx], object]) -> float:
        store = open_store(place / "ledger.db")
        try:
            store.read_now(read)
            return timed(lambda: [store.read_now(read) for _ in range(REPEATS)]) / REPEATS
        finally:
            store.close()

    def page(tx: Tx) -> object:
        return tx.tasks.page(statuses=(TaskStatus.SUCCEEDED,), limit=50)

    def counts(tx: Tx) -> object:
        return tx.events.counts("task")

    for name, read in ((names[1], page), (names[2], counts)):
        report.times(
            name,
            lambda read=read: repeated(long, read),  # type: ignore[misc]
            lambda read=read: repeated(short, read),  # type: ignore[misc]
            target=1.5,
            rounds=5,
        )


def finish_all(open_store: Callable[[], Store], boots: Path) -> None:
    """Leave nothing in flight for the next round."""
    from holdfast.engine.claims.boots import Life
    from holdfast.engine.claims.claims import Claims
    from holdfast.engine.ledger.ledger import Ledger

    async def run() -> None:
        clock = SystemClock()
        store = open_store()
        try:
            life = await Life.begin(store, clock, locks=boots)
            claims, ledger = Claims(store, clock, life.id), Ledger(store, clock)
            while claimed := await claims.take(500):
                async with asyncio.TaskGroup() as group:
                    for one in claimed:
                        group.create_task(ledger.finish(one.claim))
            await life.end()
        finally:
            store.close()

    asyncio.run(run())
