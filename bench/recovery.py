"""Recovery of a killed process's runs, beside the raw reads and writes that it needs."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg

from bench.journal import save_step
from bench.measure import Report
from holdfast.core.clock import SystemClock
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import Claims
from holdfast.engine.ledger.ledger import Ledger, NewTask
from holdfast.engine.recovery.rescue import Rescuer
from holdfast.engine.recovery.resume import Resumer
from holdfast.store import Store

BATCH = 500
_salts = itertools.count()

OpenStore = Callable[[], Store]


def work_and_die(open_store: OpenStore, locks: Path, runs: int) -> None:
    """In its own process: `runs` runs, each with one saved step, then SIGKILL."""

    async def work() -> None:
        clock = SystemClock()
        store = open_store()
        life = await Life.begin(store, clock, locks=locks)
        ledger, claims = Ledger(store, clock), Claims(store, clock, life.id)
        for first in range(0, runs, BATCH):
            await ledger.create_many(
                [
                    NewTask(name="bench", goal=f"survive {number}", arguments={"number": number})
                    for number in range(first, min(first + BATCH, runs))
                ]
            )
        while claimed := await claims.take(BATCH):
            async with asyncio.TaskGroup() as group:
                for one in claimed:
                    group.create_task(save_step(store, clock, one.claim, "first", {"done": True}))

    asyncio.run(work())
    os.kill(os.getpid(), signal.SIGKILL)


def kill_a_process(open_store: OpenStore, locks: Path, runs: int) -> None:
    child = multiprocessing.get_context("fork").Process(target=work_and_die, args=(open_store, locks, runs))
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the process that was to be killed ended with {child.exitcode}")


def recover(open_store: OpenStore, locks: Path, runs: int) -> float:
    """Seconds from opening the store until every run has its one follow-up, ready to be claimed."""

    async def run() -> float:
        clock = SystemClock()
        started = time.perf_counter()
        store = open_store()
        try:
            life = await Life.begin(store, clock, locks=locks)
            rescued = await Rescuer(store, clock, life).rescue()
            resumed = await Resumer(store, clock, life.id).resume_all()
            seconds = time.perf_counter() - started
            if rescued.checkpointed != runs or len(resumed.followed_up) != runs:
                raise RuntimeError(f"{rescued} {len(resumed.followed_up)} instead of {runs}")
            await life.end()
            return seconds
        finally:
            store.close()

    return asyncio.run(run())


# The same rows by hand: what must be read, and what must be written for a resume to be exactly one.
# The schema with its indexes is the ledger's own.
READS = (
    "SELECT * FROM runs WHERE status = 'running'",
    "SELECT * FROM tasks",
    "SELECT task_id, run_id, name, seq FROM steps",
)
# Row by row, which is the quickest way in SQLite.
SQLITE_WRITES = """
INSERT INTO run_checkpoints
VALUES (:c, :t, :r, 'crash', 'crash', 1, :document, NULL, 1, :digest,
        'paused_for_restart', 5, NULL, NULL, NULL, 0, NULL, NULL, 1);
UPDATE runs SET status = 'paused_for_restart', fence = fence + 1, lease_until = NULL WHERE id = :r;
UPDATE tasks SET status = 'paused', waits_on = 'resume' WHERE id = :t;
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts) VALUES (1, 'run_paused', :t, :r, :digest);

UPDATE run_checkpoints SET status = 'resuming', token = 'x', claimed_by = 'b', attempts = 1 WHERE id = :c;
UPDATE runs SET status = 'resuming' WHERE id = :r;
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
VALUES (1, 'checkpoint_claimed', :t, :c, :digest);

UPDATE runs SET status = 'resumed', ended_at = 1 WHERE id = :r;
INSERT INTO runs
VALUES (:f, :t, 'bench', 2, :r, :c, :document, 1, :digest, 'queued', 5, 1, 'ready', 0, 0,
        NULL, NULL, 0, NULL, NULL, NULL, NULL, 1, NULL, NULL);
UPDATE run_checkpoints SET status = 'resumed', resumed_run_id = :f WHERE id = :c;
UPDATE tasks SET status = 'queued', waits_on = NULL WHERE id = :t;
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
VALUES (1, 'checkpoint_resumed', :t, :c, :digest)
"""
# A batch in each statement, which is the quickest way in PostgreSQL.
POSTGRES_WRITES = """
INSERT INTO run_checkpoints
SELECT c, t, r, 'crash', 'crash', 1, document, NULL, 1, digest,
       'paused_for_restart', 5, NULL, NULL, NULL, 0, NULL, NULL, 1
  FROM unnest(%(c)s::text[], %(t)s::text[], %(r)s::text[], %(document)s::bytea[], %(digest)s::bytea[])
    AS given (c, t, r, document, digest);
UPDATE runs SET status = 'paused_for_restart', fence = fence + 1, lease_until = NULL WHERE id = ANY (%(r)s);
UPDATE tasks SET status = 'paused', waits_on = 'resume' WHERE id = ANY (%(t)s);
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT 1, 'run_paused', t, r, ''::bytea FROM unnest(%(t)s::text[], %(r)s::text[]) AS given (t, r);

UPDATE run_checkpoints SET status = 'resuming', token = 'x', claimed_by = 'b', attempts = 1
 WHERE id = ANY (%(c)s);
UPDATE runs SET status = 'resuming' WHERE id = ANY (%(r)s);
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT 1, 'checkpoint_claimed', t, c, ''::bytea FROM unnest(%(t)s::text[], %(c)s::text[]) AS given (t, c);

UPDATE runs SET status = 'resumed', ended_at = 1 WHERE id = ANY (%(r)s);
INSERT INTO runs
SELECT f, t, 'bench', 2, r, c, document, 1, digest, 'queued', 5, 1, 'ready', 0, 0,
       NULL, NULL, 0, NULL, NULL, NULL, NULL, 1, NULL, NULL
  FROM unnest(%(f)s::text[], %(t)s::text[], %(r)s::text[], %(c)s::text[], %(document)s::bytea[],
              %(digest)s::bytea[]) AS given (f, t, r, c, document, digest);
UPDATE run_checkpoints SET status = 'resumed', resumed_run_id = f
  FROM unnest(%(f)s::text[], %(c)s::text[]) AS given (f, c) WHERE id = c;
UPDATE tasks SET status = 'queued', waits_on = NULL WHERE id = ANY (%(t)s);
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT 1, 'checkpoint_resumed', t, c, ''::bytea FROM unnest(%(t)s::text[], %(c)s::text[]) AS given (t, c)
"""
DOCUMENT = b"x" * 900
DIGEST = bytes(16)


def raw_rows(runs: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    return [
        {
            "c": f"ckpt_{run[0]}",
            "t": run[1],
            "r": run[0],
            "f": f"run_next_{run[0]}",
            "document": DOCUMENT,
            "digest": DIGEST,
        }
        for run in runs
    ]


def batches(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(rows), BATCH):
        yield rows[first : first + BATCH]


def raw_on_sqlite(path: Path) -> float:
    started = time.perf_counter()
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", "FULL")
    cursor = connection.cursor()
    runs, *_ = [cursor.execute(read).fetchall() for read in READS]
    statements = SQLITE_WRITES.split(";")
    for batch in batches(raw_rows(runs)):
        cursor.execute("BEGIN IMMEDIATE")
        for statement in statements:
            cursor.executemany(statement, batch)
        cursor.execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


def raw_on_postgres(url: str) -> float:
    started = time.perf_counter()
    with psycopg.connect(url, options="-c search_path=holdfast") as connection:
        cursor = connection.cursor()
        runs, *_ = [cursor.execute(read).fetchall() for read in READS]
        for batch in batches(raw_rows(runs)):
            columns = {name: [row[name] for row in batch] for name in batch[0]}
            for statement in POSTGRES_WRITES.split(";"):
                cursor.execute(statement, columns)
            connection.commit()
    return time.perf_counter() - started


def bench_sqlite(
    report: Report, directory: Path, open_store: Callable[[Path], Store], *, sizes: Sequence[int]
) -> None:
    for runs in sizes:

        def killed(runs: int = runs) -> Path:
            place = directory / f"recovery-{next(_salts)}"
            kill_a_process(lambda: open_store(place / "ledger.db"), place / "boots", runs)
            return place

        def ours(runs: int = runs) -> float:
            place = killed(runs)
            return recover(lambda: open_store(place / "ledger.db"), place / "boots", runs)

        report.times(
            f"SQLite: recovery of {runs:,} runs / its raw reads and writes",
            ours,
            lambda: raw_on_sqlite(killed() / "ledger.db"),
            target=5.0,
            rounds=3,
        )


def bench_postgres(
    report: Report,
    directory: Path,
    create_database: Callable[[], str],
    open_store: Callable[[str], Store],
    *,
    sizes: Sequence[int],
) -> None:
    for runs in sizes:

        def killed(runs: int = runs) -> tuple[str, Path]:
            url, locks = create_database(), directory / f"boots-{next(_salts)}"
            kill_a_process(lambda: open_store(url), locks, runs)
            return url, locks

        def ours(runs: int = runs) -> float:
            url, locks = killed(runs)
            return recover(lambda: open_store(url), locks, runs)

        report.times(
            f"PostgreSQL: recovery of {runs:,} runs / its raw reads and writes",
            ours,
            lambda: raw_on_postgres(killed()[0]),
            target=5.0,
            rounds=3,
        )
