"""What operators ask of a ledger with a million tasks: pages, one task, counts, an audit and a sweep.

Everything is measured beside the raw query for as many rows, or beside the same question to a ledger that
has only the work in flight: the cost must grow with that work, and not with the history.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from bench.gateway import Gateway, environ_of, gateway
from bench.measure import Report, timed
from holdfast.api.openclaw import ListAsked, list_tasks
from holdfast.api.task_lists import TasksAsked, read_page
from holdfast.api.tasks import TaskAsked, read_detail
from holdfast.core.clock import SystemClock, to_micros
from holdfast.core.ids import new_run_id, new_task_id
from holdfast.core.payload import digest_of
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import TaskStatus
from holdfast.engine.claims.claims import NEVER
from holdfast.store import Store, Tx
from holdfast.store.boot_proofs import BootProofs
from holdfast.store.queries import load_queries, numbered
from holdfast.store.sqlite_file import connect
from holdfast.upkeep.audit import Audit, TaskCounts
from holdfast.upkeep.projection import Projection
from holdfast.upkeep.sweep import Sweep, find_candidates

IN_FLIGHT = 1000
# As many as one audit looks at in its pages of ended tasks.
FEW = 1000
OWNERS, NAMES, SESSIONS = 100, 50, 1000
REPEATS = 30
PAGES = 3000
WARM_UP_PAGES = 500

Values = tuple[Any, ...]
Read = Callable[[Tx], object]

_TASK = ", ".join("?" * 28)
_RUN = ", ".join("?" * 25)
# Of a hundred ended tasks; the others succeeded.
_ENDS = {3: "failed", 17: "cancelled", 29: "timed_out", 47: "failed"}
_RUNTIMES = [runtime.value for runtime in RuntimeName]
_REACHES = re.compile(r"(SEARCH|SCAN) (?!json_each|\(|all_parts|past|present)|(Scan|Index) .*on ")
_FAILED = b'{"kind":"bench","message":"it broke"}'


# --- rows


def rows_of(finished: int, now: datetime, failed: int | None) -> Iterator[tuple[Values, Values]]:
    """Tasks with one run each, straight as the tables have them, with true digests: first the finished ones,
    spread over three weeks, then those in flight. As many of them failed, or else their usual share."""
    spread = timedelta(days=21) / max(finished, 1)
    for number in range(finished):
        ended = now - timedelta(days=22) + number * spread
        usual = _ENDS.get(number % 100, "succeeded")
        end = usual if failed is None else "failed" if number < failed else "succeeded"
        yield _rows(number, end, ended, ended)
    for number in range(IN_FLIGHT):
        yield _rows(number, ("queued", "running", "waiting", "running")[number % 4], now, None)


def _rows(number: int, status: str, at: datetime, ended: datetime | None) -> tuple[Values, Values]:
    created, micros = at - timedelta(minutes=5), to_micros(at)
    is_live, is_recorded = ended is None, status == "running"
    runtime = "acp" if is_live and is_recorded else _RUNTIMES[number % len(_RUNTIMES)]
    name, session = f"name {number % NAMES}", f"agent:main:{number % SESSIONS}"
    task_id, run_id = new_task_id(created), new_run_id(created)
    fixed: Values = (
        task_id,
        f"owner {number % OWNERS}",
        runtime,
        name,
        "find out how tides work",
        b'{"topic":"tides"}',
        None,
        session,
        None,
        None,
        f"key {number}" if number % 10 == 0 else None,
        "silent",
        to_micros(created),
    )
    result = b'"high tide at six"' if status == "succeeded" else None
    failure = None if is_live or result is not None else _FAILED
    task: Values = (
        *fixed,
        digest_of(*fixed),
        status,
        5,
        "mail:tides" if status == "waiting" else None,
        None,
        result,
        None if result is None else digest_of(task_id, result),
        failure,
        None,
        None,
        micros,
        to_micros(created),
        None if ended is None else micros,
        None if ended is None else to_micros(ended + timedelta(days=30)),
        None,  # of no campaign
    )
    first: Values = (run_id, task_id, name, 1, None, None, None, to_micros(created))
    run: Values = (
        *first,
        digest_of(*first),
        status,
        5,
        to_micros(NEVER) if status == "waiting" else micros,
        "producer" if is_live and is_recorded else "ready",
        0,
        0,
        f"producer:{runtime}" if is_live and is_recorded else None,
        run_id if is_live and is_recorded else None,
        1 if status == "running" else 0,
        to_micros(NEVER) if status == "running" else None,
        micros if status == "running" else None,
        "mail:tides" if status == "waiting" else None,
        failure,
        micros,
        to_micros(created),
        None if ended is None else micros,
    )
    return task, run


def _batches(rows: Iterator[tuple[Values, Values]], counts: Counter[Values]) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(rows, 20_000)):
        for task, run in batch:
            counts["task", task[14]] += 1
            counts["runtime", task[2]] += 1
            counts["run", run[9]] += 1
        yield batch


def fill_sqlite(path: Path, finished: int, now: datetime, *, failed: int | None = None) -> None:
    counts: Counter[Values] = Counter()
    with contextlib.closing(connect(path)) as connection:
        connection.pragma("synchronous", "OFF")
        for batch in _batches(rows_of(finished, now, failed), counts):
            with connection:
                connection.executemany(f"INSERT INTO tasks VALUES ({_TASK})", [task for task, _ in batch])
                connection.executemany(f"INSERT INTO runs VALUES ({_RUN})", [run for _, run in batch])
        rows = [(*noun, amount) for noun, amount in counts.items()]
        connection.executemany("INSERT INTO counters VALUES (?, ?, ?)", rows)
        connection.execute("PRAGMA optimize")


def fill_postgres(url: str, finished: int, now: datetime, *, failed: int | None = None) -> None:
    counts: Counter[Values] = Counter()
    with psycopg.connect(url, autocommit=True, options="-c search_path=holdfast") as connection:
        for batch in _batches(rows_of(finished, now, failed), counts):
            for table, place in (("tasks", 0), ("runs", 1)):
                with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                    for rows in batch:
                        copy.write_row(rows[place])
        for noun, amount in counts.items():
            connection.execute("INSERT INTO counters VALUES (%s, %s, %s)", (*noun, amount))
        # A ledger that grew over months was vacuumed long ago; after a COPY the server would do it meanwhile.
        connection.execute("VACUUM (ANALYZE)")


# --- what is asked

FILTERS: dict[str, TasksAsked] = {
    "no filter": TasksAsked(),
    "by status": TasksAsked(status=(TaskStatus.FAILED,)),
    "by runtime": TasksAsked(runtime=RuntimeName.CRON),
    "by name": TasksAsked(name="name 7"),
    "by owner": TasksAsked(owner="owner 7"),
    "by agent": TasksAsked(agent_id="main"),
    "by session": TasksAsked(session_key="agent:main:7"),
    "by key": TasksAsked(key="key 70"),
    "by age": TasksAsked(older_than_s=10 * 86_400),
    "by text": TasksAsked(text="tides"),
    "by status and name": TasksAsked(status=(TaskStatus.FAILED,), name="name 3"),
}


def pages() -> dict[str, Read]:
    found: dict[str, Read] = {name: _page_of(asked) for name, asked in FILTERS.items()}
    found["tasks.list, by last change"] = lambda tx: list_tasks(tx, ListAsked(sort_by="updatedAt", limit=50))
    found["tasks.list, by end"] = lambda tx: list_tasks(tx, ListAsked(sort_by="endedAt", limit=50))
    return found


def _page_of(asked: TasksAsked) -> Read:
    def read(tx: Tx) -> object:
        now = SystemClock().now()
        page = read_page(tx, asked, now=now, projection=Projection(BootProofs(None, ""), now))
        assert page.tasks, asked
        return page

    return read


def show_newest(tx: Tx) -> object:
    (task,) = tx.tasks.page(limit=1)
    return read_detail(tx, task.id, SystemClock().now())


def count(tx: Tx) -> object:
    return TaskCounts.of(tx)


def audit(tx: Tx) -> object:
    return Audit(tx, now=SystemClock().now()).report()


def find_work(tx: Tx) -> object:
    """What a plan is made of: everything that it reads."""
    now = SystemClock().now()
    return find_candidates(tx, now=now, prune_at=now)


def plan(store: Store) -> object:
    return asyncio.run(Sweep(store, SystemClock()).plan())


# --- plans


def print_plans(kind: str, explain: Callable[[str, dict[str, Any]], list[str]], store: Store) -> None:
    """The plan of each query that these questions ask, once."""
    seen: dict[str, dict[str, Any]] = {}

    def watched(read: Read) -> Read:
        def look(tx: Tx) -> object:
            for way in ("one", "all"):
                ask = getattr(tx.statements, way)

                def note(query: str, params: dict[str, Any], ask: Callable[..., Any] = ask) -> Any:
                    seen.setdefault(query, dict(params))
                    return ask(query, params)

                setattr(tx.statements, way, note)
            try:
                return read(tx)
            finally:
                for way in ("one", "all"):
                    delattr(tx.statements, way)

        return look

    with contextlib.suppress(AttributeError):  # statements with slots cannot be watched
        for read in (*pages().values(), show_newest, count, audit, find_work):
            store.read_now(watched(read))
    print(f"{kind}: plans of {len(seen)} queries at this size", flush=True)
    for query, params in sorted(seen.items()):
        # Only how tables are reached: what a query then does with the rows is small.
        for line in filter(_REACHES.search, explain(query, params)):
            print(f"    {query}: {line.strip()}", flush=True)


def explain_on_sqlite(path: Path) -> Callable[[str, dict[str, Any]], list[str]]:
    def explain(query: str, params: dict[str, Any]) -> list[str]:
        with contextlib.closing(connect(path, is_reader=True)) as connection:
            sql = f"EXPLAIN QUERY PLAN {load_queries('sqlite')[query]}"
            return [str(row[3]) for row in connection.execute(sql, params)]

    return explain


def explain_on_postgres(store: Any) -> Callable[[str, dict[str, Any]], list[str]]:
    """Through a session of the store: its settings decide which plans the server makes."""

    def explain(query: str, params: dict[str, Any]) -> list[str]:  # noqa: ARG001 - plans are generic
        sql, _ = numbered(load_queries("postgres")[query])

        def ask(session: Any) -> list[str]:
            result = session._link.command(f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {sql}".encode())  # noqa: SLF001 - as our tests do
            return [row[0] for row in session._link.rows(result)]  # noqa: SLF001 - as our tests do

        found: list[str] = store._writer.exclusively(ask)  # noqa: SLF001 - as our tests do
        return found

    return explain


# --- the gateway


def memory_while_paging(one: Gateway, pages_read: int) -> tuple[float, float]:
    """After a warm-up, and after very many pages, shows and audits."""
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(str(one.socket))
        answers = way.makefile("rb")

        def ask(method: str, **params: Any) -> Any:
            frame = {"type": "req", "id": "1", "method": method, "params": params}
            way.sendall(json.dumps(frame).encode() + b"\n")
            answer = json.loads(answers.readline())
            if not answer["ok"]:
                raise RuntimeError(answer)
            return answer["payload"]

        token: str | None = None
        id_field = TaskAsked.__struct_encode_fields__[0]
        memory = 0.0
        for number in range(WARM_UP_PAGES + pages_read):
            page = ask("ledger.list", limit=200, **({} if token is None else {"pageToken": token}))
            token = page["nextPageToken"]
            if number % 10 == 0:
                ask("ledger.show", **{id_field: page["tasks"][0]["id"]})
                ask("tasks.list", limit=200)
            if number % 100 == 0:
                ask("upkeep.audit")
            if number == WARM_UP_PAGES:
                memory = one.memory_mib()
        return memory, one.memory_mib()


# --- all of it


def bench_sqlite(
    report: Report, directory: Path, open_store: Callable[[Path], Store], *, finished: int
) -> None:
    homes = {"long": directory / "operators-long", "short": directory / "operators-short"}
    if not _wants(report, "SQLite", finished):
        return
    now = SystemClock().now()
    started = time.perf_counter()
    for name, home in homes.items():
        open_store(home / "ledger.db").close()
        fill_sqlite(home / "ledger.db", finished if name == "long" else FEW, now)
    print(f"SQLite: filled {finished:,} tasks in {time.perf_counter() - started:.0f} s", flush=True)
    stores = {name: open_store(home / "ledger.db") for name, home in homes.items()}
    raw = connect(homes["long"] / "ledger.db", is_reader=True)
    try:
        _bench(report, "SQLite", stores, lambda sql: list(raw.execute(sql)), finished)
        print_plans("SQLite", explain_on_sqlite(homes["long"] / "ledger.db"), stores["long"])
    finally:
        raw.close()
        for store in stores.values():
            store.close()
    _bench_commands(report, homes, finished)
    _bench_memory(report, "SQLite", homes["long"], f"sqlite:///{homes['long'] / 'ledger.db'}", finished)


def bench_postgres(
    report: Report,
    directory: Path,
    create_database: Callable[[], str],
    open_store: Callable[[str], Store],
    *,
    finished: int,
) -> None:
    if not _wants(report, "PostgreSQL", finished):
        return
    now = SystemClock().now()
    started = time.perf_counter()
    urls = {"long": create_database(), "short": create_database()}
    for name, url in urls.items():
        open_store(url).close()
        fill_postgres(url, finished if name == "long" else FEW, now)
    print(f"PostgreSQL: filled {finished:,} tasks in {time.perf_counter() - started:.0f} s", flush=True)
    stores = {name: open_store(url) for name, url in urls.items()}
    raw = psycopg.connect(urls["long"], autocommit=True, options="-c search_path=holdfast")
    try:
        _bench(report, "PostgreSQL", stores, lambda sql: raw.execute(sql).fetchall(), finished)
        print_plans("PostgreSQL", explain_on_postgres(stores["long"]), stores["long"])
    finally:
        raw.close()
        for store in stores.values():
            store.close()
    _bench_memory(report, "PostgreSQL", directory / "operators-pg", urls["long"], finished)


def _wants(report: Report, kind: str, finished: int) -> bool:
    names = [f"{kind}: a page of {finished:,}", f"{kind}: show", f"{kind}: counts", f"{kind}: audit"]
    names += [f"{kind}: sweep", f"{kind}: gateway memory", f"{kind}: `holdfast tasks"]
    return any(report.wants(name) for name in names)


def _bench(
    report: Report,
    kind: str,
    stores: dict[str, Store],
    ask: Callable[[str], object],
    finished: int,
) -> None:
    long, short = stores["long"], stores["short"]

    def repeated(act: Callable[[], object]) -> float:
        act()
        return timed(lambda: [act() for _ in range(REPEATS)]) / REPEATS * 1000

    def bare() -> float:
        """The fifty newest rows, as an author would fetch them."""
        return repeated(lambda: ask("SELECT * FROM tasks ORDER BY id DESC LIMIT 50"))

    for name, read in pages().items():
        report.times(
            f"{kind}: a page of {finished:,}, {name} / 50 raw rows",
            lambda read=read: repeated(lambda: long.read_now(read)),  # type: ignore[misc]
            bare,
            target=None,
            rounds=5,
            unit="ms",
        )
    for name, of in (
        ("a page", lambda store: store.read_now(pages()["no filter"])),
        ("show", lambda store: store.read_now(show_newest)),
        ("counts", lambda store: store.read_now(count)),
        ("audit", lambda store: store.read_now(audit)),
        ("sweep, planned", plan),
    ):
        report.times(
            f"{kind}: {name}, {finished:,} tasks / {FEW:,} and as many in flight",
            lambda of=of: repeated(lambda: of(long)),  # type: ignore[misc]
            lambda of=of: repeated(lambda: of(short)),  # type: ignore[misc]
            target=1.5,
            rounds=5,
            unit="ms",
        )


def _bench_commands(report: Report, homes: dict[str, Path], finished: int) -> None:
    def command(home: Path, *words: str) -> float:
        call = [sys.executable, "-m", "holdfast", *words]
        environ = environ_of(home, None) | {"NO_COLOR": "1"}
        quiet = subprocess.DEVNULL
        return timed(lambda: subprocess.run(call, env=environ, check=True, stdout=quiet, stderr=quiet))

    for words in (("tasks", "list"), ("tasks", "maintenance")):
        report.times(
            f"SQLite: `holdfast {' '.join(words)}`, {finished:,} tasks / {FEW:,} and as many in flight",
            lambda words=words: command(homes["long"], *words),  # type: ignore[misc]
            lambda words=words: command(homes["short"], *words),  # type: ignore[misc]
            target=1.5,
            rounds=5,
        )


def _bench_memory(report: Report, kind: str, home: Path, url: str, finished: int) -> None:
    name = f"{kind}: gateway memory after {PAGES:,} pages of {finished:,} / after {WARM_UP_PAGES:,}"
    if not report.wants(name):
        return
    settings = {"gateway": {"rate_limit_per_s": 1e6}}
    with gateway(home, url, settings) as one:
        one.start()
        one.until(one.is_ready)
        first, last = memory_while_paging(one, PAGES)
    report.times(name, lambda: last, lambda: first, target=1.1, rounds=1, unit="MB")
