"""What it costs to keep the results of the steps of finished turns: time and bytes for each step."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import apsw
import psycopg

import holdfast as hf
from bench.measure import Report
from bench.writes import WARM_UP
from holdfast.core.clock import SystemClock
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES
from holdfast.store import Store
from tests.engine.workers import carrying

SIZES = {"100 B": 100, "1 kB": 1_000, "16 kB": 16_000}
_WORDS = (
    *("the", "tide", "of", "this", "sea", "was", "high", "when", "our", "ship", "came", "into", "its"),
    *("harbour", "and", "left", "with", "a", "load", "salt", "for", "those", "who", "wait", "there"),
    *("each", "them", "has", "some", "name", "that", "stands", "down", "before", "morning", "breaks"),
)

_salts = itertools.count()
_chance = random.Random("holdfast")

# What is kept, of ours and of the other.
LIMITS = (KEEP_RESULTS_BYTES, 0)


def text_of(size: int) -> str:
    """As much English text; no two are equal."""
    return " ".join(_chance.choices(_WORDS, k=size // 2))[: size - 2]


async def fetch(_number: int, text: str) -> str:
    return text


class Pace:
    """Lets the loop of one run go on by so many turns whenever the bench says so."""

    def __init__(self) -> None:
        self.wanted: asyncio.Queue[list[str]] = asyncio.Queue()
        self.took: asyncio.Queue[float] = asyncio.Queue()

    async def take(self, texts: list[str]) -> float:
        await self.wanted.put(texts)
        return await self.took.get()


@contextlib.asynccontextmanager
async def one_run(store: Store, keep_bytes: int) -> AsyncIterator[Pace]:
    pace = Pace()

    @hf.task(name="bench")
    async def work(run: hf.Run) -> None:
        texts: list[str] = []
        started = 0.0
        async for turn in run.turns("main", max=10_000_000):
            if not texts:
                if started:
                    await pace.took.put(time.perf_counter() - started)
                texts = list(await pace.wanted.get())
                if not texts:
                    break
                started = time.perf_counter()
            await turn.step(fetch, turn.number, texts.pop())

    with contextlib.closing(store):
        async with carrying(store, SystemClock(), work, keep_bytes=keep_bytes) as process:
            handle = await process.holdfast.start(work())
            yield pace
            await pace.wanted.put([])
            await handle.result()


def bench_sqlite(report: Report, directory: Path, open_store: Callable[[Path], Store], *, size: int) -> None:
    def new_store() -> tuple[Store, Callable[[], int]]:
        path = directory / f"kept-{next(_salts)}" / "ledger.db"

        def bytes_of() -> int:
            with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as looking:
                ((found,),) = looking.execute(
                    "SELECT SUM(pgsize) FROM dbstat WHERE name IN ('turns', 'kept_steps')"
                )
                return int(found)

        return open_store(path), bytes_of

    _bench(report, "SQLite", new_store, size=size)


def bench_postgres(
    report: Report, create_database: Callable[[], str], open_store: Callable[[str], Store], *, size: int
) -> None:
    def new_store() -> tuple[Store, Callable[[], int]]:
        url = create_database()

        def bytes_of() -> int:
            with psycopg.connect(url) as looking:
                found = looking.execute(
                    "SELECT pg_total_relation_size('holdfast.turns')"
                    " + pg_total_relation_size('holdfast.kept_steps')"
                ).fetchone()
                assert found is not None
                return int(found[0])

        return open_store(url), bytes_of

    _bench(report, "PostgreSQL", new_store, size=size)


def _bench(
    report: Report, kind: str, new_store: Callable[[], tuple[Store, Callable[[], int]]], *, size: int
) -> None:
    for shown, length in SIZES.items():
        times = f"{kind}: a turn with a step of {shown}, result kept / not kept"
        weights = f"{kind}: bytes of a finished step of {shown}, kept / not kept"
        if not (report.wants(times) or report.wants(weights)):
            continue
        count, rounds = max(10, size // 20), 40
        with asyncio.Runner() as runner:
            stores = [new_store() for _ in LIMITS]
            scopes = [one_run(store, keep) for (store, _), keep in zip(stores, LIMITS, strict=True)]
            paces = [runner.run(_enter(scope)) for scope in scopes]

            def turns(pace: Pace, length: int = length, count: int = count) -> float:
                texts = [text_of(length) for _ in range(count)]
                return runner.run(pace.take(texts)) / count * 1000

            for pace in paces:
                runner.run(pace.take([text_of(length) for _ in range(WARM_UP)]))
            ours, bare = (partial(turns, pace) for pace in paces)
            report.times(times, ours, bare, target=None, rounds=rounds, unit="ms")
            steps = WARM_UP + (count * rounds if report.wants(times) else 0)
            kept_bytes, bare_bytes = (partial(_weight, look, steps) for _, look in stores)
            report.times(weights, kept_bytes, bare_bytes, target=None, rounds=1, unit="B")
            for scope in scopes:
                runner.run(_leave(scope))


def _weight(look: Callable[[], int], steps: int) -> float:
    return look() / steps


async def _enter(scope: contextlib.AbstractAsyncContextManager[Pace]) -> Pace:
    return await scope.__aenter__()


async def _leave(scope: contextlib.AbstractAsyncContextManager[Pace]) -> None:
    await scope.__aexit__(None, None, None)
