"""Durable writes: one after another, and from a thousand callers at once."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg

from bench import raw
from bench.journal import save_step
from bench.measure import Report
from holdfast.core.clock import SystemClock
from holdfast.engine.claims.boots import Life
from holdfast.engine.claims.claims import Claims
from holdfast.engine.ledger.ledger import Ledger, NewTask
from holdfast.store import Store

CALLERS = 1000
# Until the WAL has its size, which is 1,000 pages for raw and 4,000 for ours: while it grows, each fsync also
# writes the file's new length.
WARM_UP = 2500
ANSWER = {"answer": 42, "words": ["one", "two", "three"]}

_salts = itertools.count()

Write = Callable[[int, int], Awaitable[object]]


async def warm_up(write: Write) -> None:
    for number in range(WARM_UP):
        await write(0, number)


async def one_after_another(write: Write, caller: int, count: int) -> float:
    started = time.perf_counter()
    for number in range(count):
        await write(caller, number)
    return count / (time.perf_counter() - started)


async def warm_and_one_after_another(write: Write, count: int) -> float:
    await warm_up(write)
    return await one_after_another(write, 1, count)


async def all_at_once(write: Write, each: int) -> float:
    async def call(caller: int) -> None:
        for number in range(each):
            await write(caller, number)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            group.create_task(call(caller))
    return CALLERS * each / (time.perf_counter() - started)


async def journal_writer(store: Store, locks: Path) -> Write:
    """A claimed run of a real task saves steps, each in the store's own guarded write. What a program adds to
    it is measured in bench/programs.py."""
    clock = SystemClock()
    life = await Life.begin(store, clock, locks=locks)
    await Ledger(store, clock).create(NewTask(name="bench", goal="measure durable writes"))
    (claimed,) = await Claims(store, clock, life.id).take()

    def write(caller: int, number: int) -> Awaitable[object]:
        return save_step(store, clock, claimed.claim, f"step-{caller}-{number}", ANSWER)

    return write


def bench_sqlite(report: Report, directory: Path, open_store: Callable[[Path], Store], *, size: int) -> None:
    def ours(measure: Callable[[Write, int], Awaitable[float]], count: int) -> float:
        place = directory / f"ours-{next(_salts)}"

        async def run() -> float:
            store = open_store(place / "ledger.db")
            try:
                return await measure(await journal_writer(store, place / "boots"), count)
            finally:
                store.close()

        return asyncio.run(run())

    def raw_grouped(each: int, *, has_savepoints: bool) -> float:
        connection = raw.sqlite_connection(directory / f"raw-{next(_salts)}.db")
        group = raw.GroupCommit(raw.commit_on_sqlite(connection, has_savepoints=has_savepoints))
        try:
            return asyncio.run(
                all_at_once(lambda caller, number: group.write(raw.step_values(caller, number, "x")), each)
            )
        finally:
            group.close()
            connection.close()

    name = "SQLite: steps one after another / one FULL commit each"
    if report.wants(name):
        bench_one_after_another(report, name, directory, open_store, size=size)
    each = max(1, size // 100)
    report.rates(
        f"SQLite: steps from {CALLERS:,} callers / group commit, a savepoint each",
        lambda: ours(all_at_once, each),
        lambda: raw_grouped(each, has_savepoints=True),
        target=0.5,
        rounds=5,
    )
    report.rates(
        f"SQLite: steps from {CALLERS:,} callers / group commit, no isolation",
        lambda: ours(all_at_once, each),
        lambda: raw_grouped(each, has_savepoints=False),
        target=None,
        rounds=5,
    )


def bench_one_after_another(
    report: Report, name: str, directory: Path, open_store: Callable[[Path], Store], *, size: int
) -> None:
    """Many short turns on files that stay open: a disk's good and bad moments last longer than one turn."""
    place = directory / f"ours-{next(_salts)}"
    store = open_store(place / "ledger.db")
    connection = raw.sqlite_connection(directory / f"raw-{next(_salts)}.db")
    cursor, callers, count = connection.cursor(), itertools.count(1), max(1, size // 10)

    async def write_raw(caller: int, number: int) -> None:
        cursor.execute(raw.SQLITE_INSERT, raw.step_values(caller, number, "x"))

    with asyncio.Runner() as runner:
        write = runner.run(journal_writer(store, place / "boots"))
        for each in (write, write_raw):
            runner.run(warm_up(each))
        report.rates(
            name,
            lambda: runner.run(one_after_another(write, next(callers), count)),
            lambda: runner.run(one_after_another(write_raw, next(callers), count)),
            target=0.7,
            rounds=40,
        )
    connection.close()
    store.close()


def bench_postgres(
    report: Report,
    directory: Path,
    create_database: Callable[[], str],
    open_store: Callable[[str], Store],
    *,
    size: int,
) -> None:
    url = create_database()
    with psycopg.connect(url, autocommit=True) as setup:
        setup.execute(raw.POSTGRES_TABLE)

    def ours(measure: Callable[[Write, int], Awaitable[float]], count: int) -> float:
        async def run() -> float:
            store = open_store(url)
            try:
                return await measure(await journal_writer(store, directory / "boots"), count)
            finally:
                store.close()

        return asyncio.run(run())

    def raw_one_by_one(count: int) -> float:
        salt = str(next(_salts))
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.cursor()
            for number in range(WARM_UP):
                cursor.execute(raw.POSTGRES_INSERT, raw.step_values(1, number, salt), prepare=True)
            started = time.perf_counter()
            for number in range(count):
                cursor.execute(raw.POSTGRES_INSERT, raw.step_values(0, number, salt), prepare=True)
            return count / (time.perf_counter() - started)

    def raw_grouped(each: int) -> float:
        salt = str(next(_salts))
        with psycopg.connect(url, autocommit=True) as connection:
            group = raw.GroupCommit(raw.commit_on_postgres(connection))
            try:
                return asyncio.run(
                    all_at_once(
                        lambda caller, number: group.write(raw.step_values(caller, number, salt)), each
                    )
                )
            finally:
                group.close()

    report.rates(
        "PostgreSQL: steps one after another / one commit each",
        lambda: ours(warm_and_one_after_another, size),
        lambda: raw_one_by_one(size),
        target=0.7,
        rounds=7,
    )
    report.rates(
        f"PostgreSQL: steps from {CALLERS:,} callers / grouped multi-row writes",
        lambda: ours(all_at_once, max(1, size // 100)),
        lambda: raw_grouped(max(1, size // 100)),
        target=0.4,
        rounds=5,
    )
