"""Durable programs beside the raw database: steps, effects, crowds of runs, recovery to the end, starts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import apsw
import psycopg

import holdfast as hf
from bench import raw, recovery
from bench.history import fill
from bench.measure import Measured, Report
from bench.writes import WARM_UP
from holdfast.store import Store

ANSWER = {"answer": 42, "words": ["one", "two", "three"]}
RUNS = 1000
STEPS = 10

_salts = itertools.count()

Block = Callable[[int], Awaitable[float]]


async def answer(_number: int) -> dict[str, object]:
    return ANSWER


@hf.opaque
async def act(_number: int) -> dict[str, object]:
    return ANSWER


class Pace:
    """Lets one run do a block of steps whenever the bench says so, inside one task."""

    def __init__(self) -> None:
        self.wanted: asyncio.Queue[tuple[Callable[[hf.Run, int], Awaitable[float]], int]] = asyncio.Queue()
        self.rates: asyncio.Queue[float] = asyncio.Queue()

    async def take_turn(self, how: Callable[[hf.Run, int], Awaitable[float]], count: int) -> float:
        await self.wanted.put((how, count))
        return await self.rates.get()


async def plain_steps(run: hf.Run, count: int) -> float:
    started = time.perf_counter()
    for number in range(count):
        await run.step(answer, number)
    return count / (time.perf_counter() - started)


async def effects(run: hf.Run, count: int) -> float:
    started = time.perf_counter()
    for number in range(count):
        await run.step(act, number)
    return count / (time.perf_counter() - started)


async def pure_steps(run: hf.Run, count: int) -> float:
    quick = hf.step(answer, pure=True)
    started = time.perf_counter()
    for number in range(count):
        await run.step(quick, number)
    await run.emit("flushed")
    return count / (time.perf_counter() - started)


@contextlib.asynccontextmanager
async def one_run(url: str) -> AsyncIterator[Pace]:
    pace = Pace()

    @hf.task(name="bench")
    async def work(run: hf.Run) -> None:
        while (wanted := await pace.wanted.get())[1]:
            await pace.rates.put(await wanted[0](run, wanted[1]))

    async with hf.open(url, tasks=[work]) as holdfast:
        handle = await holdfast.start(work())
        yield pace
        await pace.wanted.put((plain_steps, 0))
        await handle.result()


def bench_steps(
    report: Report, kind: str, url: str, raw_write: Callable[[int, int], None], count: int
) -> None:
    """Many short turns of ours and raw: the disk's good and bad moments last longer than one of them, and
    there are turns enough to see several of both."""
    kinds: list[tuple[str, Callable[[hf.Run, int], Awaitable[float]], float | None]] = [
        (
            f"{kind}: one run, plain steps / one durable commit each",
            plain_steps,
            0.7 if kind == "PostgreSQL" else 0.65,
        ),
        (
            f"{kind}: one run, effects (two commits) / one durable commit each",
            effects,
            0.3,
        ),
        (f"{kind}: one run, pure steps that share a commit / one durable commit each", pure_steps, None),
    ]
    callers = itertools.count(1)

    def by_hand() -> float:
        caller = next(callers)
        started = time.perf_counter()
        for number in range(count):
            raw_write(caller, number)
        return count / (time.perf_counter() - started)

    for number in range(WARM_UP):
        raw_write(0, number)
    with asyncio.Runner() as runner:
        scope = one_run(url)
        pace = runner.run(_enter(scope))
        runner.run(pace.take_turn(plain_steps, WARM_UP))
        rows: list[Measured] = [
            (name, lambda how=how: runner.run(pace.take_turn(how, count)), target)  # type: ignore[misc]
            for name, how, target in kinds
        ]
        report.rates_in_turns(rows, by_hand, rounds=180)
        runner.run(_leave(scope))


async def _enter(scope: contextlib.AbstractAsyncContextManager[Pace]) -> Pace:
    return await scope.__aenter__()


async def _leave(scope: contextlib.AbstractAsyncContextManager[Pace]) -> None:
    await scope.__aexit__(None, None, None)


# --- a crowd


@hf.task(name="ten")
async def ten_steps(run: hf.Run, number: int) -> int:
    for step in range(STEPS):
        await run.step(answer, step)
    return number


def crowd(url: str) -> float:
    """Runs per second, from their creation to their end."""

    async def work() -> float:
        async with hf.open(url, tasks=[ten_steps]) as holdfast:
            started = time.perf_counter()
            handles = await holdfast.start_many([ten_steps(number) for number in range(RUNS)])
            await asyncio.gather(*(handle.result() for handle in handles))
            return RUNS / (time.perf_counter() - started)

    return asyncio.run(work())


# By hand a run is: its task and itself, the claim, its steps, the end of both. The tables, with their
# indexes, are the ledger's own; no events, no counts, no digests, no dedup keys.
SQLITE_KINDS = {
    "create": (
        """INSERT INTO tasks (id, owner, runtime, name, goal, arguments, notify, created_at, digest, status,
                              priority, updated_at)
           VALUES (:t, 'x', 'python', 'ten', 'ten steps', :result, 'silent', 1, :digest, 'queued', 5, 1)""",
        """INSERT INTO runs (id, task_id, task_name, number, created_at, digest, status, priority, due_at,
                             queue, is_alone, idle_attempts, fence, updated_at)
           VALUES (:r, :t, 'ten', 1, 1, :digest, 'queued', 5, 1, 'ready', 0, 0, 0, 1)""",
    ),
    "claim": (
        """UPDATE runs SET status = 'running', fence = fence + 1, claimed_by = 'x', lease_until = 9
            WHERE id = :r AND status = 'queued'""",
        "UPDATE tasks SET status = 'running', started_at = 1 WHERE id = :t AND status = 'queued'",
    ),
    "step": (
        """INSERT INTO steps
           VALUES (:t, '', 'answer', :number, :r, 1, :digest, :result, 1, 1, :digest, NULL)""",
    ),
    "end": (
        "UPDATE runs SET status = 'succeeded', lease_until = NULL, ended_at = 1 WHERE id = :r AND fence = 1",
        """UPDATE tasks SET status = 'succeeded', result = :result, ended_at = 1, cleanup_after = 2
            WHERE id = :t""",
    ),
}
POSTGRES_KINDS = {
    "create": (
        """INSERT INTO tasks (id, owner, runtime, name, goal, arguments, notify, created_at, digest, status,
                              priority, updated_at)
           SELECT t, 'x', 'python', 'ten', 'ten steps', ''::bytea, 'silent', 1, ''::bytea, 'queued', 5, 1
             FROM unnest(%(t)s::text[]) AS given (t)""",
        """INSERT INTO runs (id, task_id, task_name, number, created_at, digest, status, priority, due_at,
                             queue, is_alone, idle_attempts, fence, updated_at)
           SELECT r, t, 'ten', 1, 1, ''::bytea, 'queued', 5, 1, 'ready', 0, 0, 0, 1
             FROM unnest(%(t)s::text[], %(r)s::text[]) AS given (t, r)""",
    ),
    "claim": (
        """UPDATE runs SET status = 'running', fence = fence + 1, claimed_by = 'x', lease_until = 9
            WHERE id = ANY (%(r)s) AND status = 'queued'""",
        "UPDATE tasks SET status = 'running', started_at = 1 WHERE id = ANY (%(t)s) AND status = 'queued'",
    ),
    "step": (
        """INSERT INTO steps SELECT t, '', 'answer', number, r, 1, ''::bytea, result, 1, 1, ''::bytea
             FROM unnest(%(t)s::text[], %(r)s::text[], %(number)s::text[], %(result)s::bytea[])
               AS given (t, r, number, result)""",
    ),
    "end": (
        """UPDATE runs SET status = 'succeeded', lease_until = NULL, ended_at = 1
            WHERE id = ANY (%(r)s) AND fence = 1""",
        """UPDATE tasks SET status = 'succeeded', result = ''::bytea, ended_at = 1, cleanup_after = 2
            WHERE id = ANY (%(t)s)""",
    ),
}


def raw_crowd(commit: Callable[[list[raw.Values]], None]) -> float:
    """The same rows by hand, through the smallest group commit."""
    group = raw.GroupCommit(commit)

    async def one(caller: int) -> None:
        row = {
            "t": f"task_{caller:026}",
            "r": f"run_{caller:026}",
            "result": raw.RESULT,
            "digest": raw.DIGEST,
        }
        await group.write(("create", row))
        await group.write(("claim", row))
        for number in range(STEPS):
            await group.write(("step", row | {"number": str(number)}))
        await group.write(("end", row))

    async def all_of_them() -> float:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as children:
            for caller in range(RUNS):
                children.create_task(one(caller))
        return RUNS / (time.perf_counter() - started)

    try:
        return asyncio.run(all_of_them())
    finally:
        group.close()


def raw_crowd_on_sqlite(path: Path) -> float:
    connection = apsw.Connection(str(path), statementcachesize=100)
    connection.pragma("synchronous", "FULL")
    cursor = connection.cursor()

    def commit(group: list[raw.Values]) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        for kind, row in group:
            cursor.execute("SAVEPOINT one")
            for statement in SQLITE_KINDS[kind]:
                cursor.execute(statement, row)
            cursor.execute("RELEASE one")
        cursor.execute("COMMIT")

    try:
        return raw_crowd(commit)
    finally:
        connection.close()


def raw_crowd_on_postgres(url: str) -> float:
    with psycopg.connect(url, options="-c search_path=holdfast") as connection:
        cursor = connection.cursor()

        def commit(group: list[raw.Values]) -> None:
            for kind, statements in POSTGRES_KINDS.items():
                found = [row for name, row in group if name == kind]
                if found:
                    columns = {name: [row[name] for row in found] for name in found[0]}
                    for statement in statements:
                        cursor.execute(statement, columns, prepare=True)
            connection.commit()

        return raw_crowd(commit)


# --- killed after step 1 of 3, and finished by a new process

# What the recovery's own raw writes leave to be done: claim each run, save two steps, end run and task.
SQLITE_FINISH = """
UPDATE runs SET status = 'running', fence = fence + 1, claimed_by = 'b', lease_until = 9 WHERE id = :f;
UPDATE tasks SET status = 'running' WHERE id = :t;
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts) VALUES (1, 'run_claimed', :t, :f, :digest);
INSERT INTO steps VALUES (:t, '', 'answer', '2', :f, 2, :digest, :document, 1, 1, :digest, NULL);
INSERT INTO steps VALUES (:t, '', 'answer', '3', :f, 3, :digest, :document, 1, 1, :digest, NULL);
UPDATE runs SET status = 'succeeded', ended_at = 1 WHERE id = :f;
UPDATE tasks SET status = 'succeeded', ended_at = 1, result = :digest, cleanup_after = 2 WHERE id = :t;
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts) VALUES (1, 'run_ended', :t, :f, :digest);
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts) VALUES (1, 'task_ended', :t, :t, :digest)
"""
POSTGRES_FINISH = """
UPDATE runs SET status = 'running', fence = fence + 1, claimed_by = 'b', lease_until = 9
 WHERE id = ANY (%(f)s);
UPDATE tasks SET status = 'running' WHERE id = ANY (%(t)s);
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT 1, 'run_claimed', t, f, ''::bytea FROM unnest(%(t)s::text[], %(f)s::text[]) AS given (t, f);
INSERT INTO steps SELECT t, '', 'answer', '2', f, 2, ''::bytea, ''::bytea, 1, 1, ''::bytea
  FROM unnest(%(t)s::text[], %(f)s::text[]) AS given (t, f);
INSERT INTO steps SELECT t, '', 'answer', '3', f, 3, ''::bytea, ''::bytea, 1, 1, ''::bytea
  FROM unnest(%(t)s::text[], %(f)s::text[]) AS given (t, f);
UPDATE runs SET status = 'succeeded', ended_at = 1 WHERE id = ANY (%(f)s);
UPDATE tasks SET status = 'succeeded', ended_at = 1, result = ''::bytea, cleanup_after = 2
 WHERE id = ANY (%(t)s);
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT 1, 'run_ended', t, f, ''::bytea FROM unnest(%(t)s::text[], %(f)s::text[]) AS given (t, f);
INSERT INTO ledger_events (at, kind, task_id, subject_id, facts)
SELECT 1, 'task_ended', t, t, ''::bytea FROM unnest(%(t)s::text[], %(f)s::text[]) AS given (t, f)
"""

_blocked = itertools.count(1)
_runs_to_block = 0


@hf.task(name="three")
async def three_steps(run: hf.Run, number: int) -> int:
    await run.step(answer, 1)
    if run.number == 1:
        if next(_blocked) == _runs_to_block:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.Event().wait()
    await run.step(answer, 2)
    await run.step(answer, 3)
    return number


def begin_and_die(url: str, runs: int) -> None:
    """In its own process: every run saves its first step and waits; then SIGKILL."""
    global _runs_to_block
    _runs_to_block = runs

    async def work() -> None:
        async with hf.open(url, tasks=[three_steps], capacity=runs) as holdfast:
            for first in range(0, runs, 500):
                await holdfast.start_many([three_steps(n) for n in range(first, min(first + 500, runs))])
            await asyncio.Event().wait()

    asyncio.run(work())


def killed(url: str, runs: int) -> str:
    child = multiprocessing.get_context("fork").Process(target=begin_and_die, args=(url, runs))
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the process that was to be killed ended with {child.exitcode}")
    return url


def finish_all(url: str, runs: int) -> float:
    """Seconds from opening the ledger until every task has ended."""

    async def work() -> float:
        started = time.perf_counter()
        async with hf.open(url, tasks=[three_steps], capacity=runs) as holdfast:
            while True:
                counts = await holdfast.store.read(lambda tx: tx.events.counts("task"))
                if counts.get("succeeded", 0) == runs:
                    return time.perf_counter() - started
                await holdfast.store.wait_for("events", 0.02)

    return asyncio.run(work())


def raw_finish_on_sqlite(path: Path) -> float:
    seconds = recovery.raw_on_sqlite(path)
    started = time.perf_counter()
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", "FULL")
    cursor = connection.cursor()
    runs = cursor.execute("SELECT resumes_run_id, task_id FROM runs WHERE status = 'queued'").fetchall()
    for batch in recovery.batches(recovery.raw_rows(runs)):
        cursor.execute("BEGIN IMMEDIATE")
        for statement in SQLITE_FINISH.split(";"):
            cursor.executemany(statement, batch)
        cursor.execute("COMMIT")
    connection.close()
    return seconds + time.perf_counter() - started


def raw_finish_on_postgres(url: str) -> float:
    seconds = recovery.raw_on_postgres(url)
    started = time.perf_counter()
    with psycopg.connect(url, options="-c search_path=holdfast") as connection:
        cursor = connection.cursor()
        runs = cursor.execute("SELECT resumes_run_id, task_id FROM runs WHERE status = 'queued'").fetchall()
        for batch in recovery.batches(recovery.raw_rows(runs)):
            columns = {name: [row[name] for row in batch] for name in batch[0]}
            for statement in POSTGRES_FINISH.split(";"):
                cursor.execute(statement, columns)
            connection.commit()
    return seconds + time.perf_counter() - started


# --- starts

# What the system calls the most memory of a process counts that of its parent, too, up to `exec`.
FIRST_STEP = """
import asyncio, sys
import holdfast as hf

async def answer(number: int) -> int:
    return number

@hf.task(name="first")
async def first(run: hf.Run) -> int:
    return await run.step(answer, 1)

async def main() -> None:
    async with hf.open(sys.argv[1], tasks=[first]) as holdfast:
        await (await holdfast.start(first())).result()
        print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))

asyncio.run(main())
"""
BARE_STEP = """
import asyncio, sys
import apsw, msgspec

async def main() -> None:
    connection = apsw.Connection(sys.argv[1].removeprefix("sqlite:///"))
    connection.pragma("synchronous", "FULL")
    answer = msgspec.json.encode(1)
    values = ("task_x", "", "answer", sys.argv[2], "run_x", 1, None, answer, 1, 1, bytes(16), None)
    connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))

asyncio.run(main())
"""
_numbers = itertools.count()


def run_script(script: str, *arguments: str) -> tuple[float, int]:
    """Seconds of a whole process, and the most memory it had, in KiB."""
    # A second start has the bytecode of the first. Without a cache it would measure the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return time.perf_counter() - started, int(done.stdout.split()[-1])


def import_seconds(text: str) -> float:
    """Of the import alone, in a fresh process."""
    script = f"import time; a = time.perf_counter(); {text}; print(time.perf_counter() - a)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(done.stdout)


def bench_starts(
    report: Report, directory: Path, open_store: Callable[[Path], Store], *, finished: int
) -> None:
    name = f"start to the first durable step, {finished:,} finished runs / a bare process that writes it"
    if report.wants(name):
        path = directory / "starts" / "ledger.db"
        store = open_store(path)
        fill(store, finished)
        # A copy of its own: the bare process knows nothing of page checksums, and would leave stale ones.
        bare = f"sqlite:///{path.with_name('bare.db')}"
        store.backup(bare.removeprefix("sqlite:///"))
        store.close()
        url = f"sqlite:///{path}"
        most: list[int] = []

        def ours() -> float:
            seconds, memory_kib = run_script(FIRST_STEP, url)
            most.append(memory_kib)
            return seconds

        report.times(
            name, ours, lambda: run_script(BARE_STEP, bare, str(next(_numbers)))[0], target=2.0, rounds=15
        )
        print(f"    most memory of that process: {statistics.median(most) / 1024:.0f} MB (target < 40)")
    name = "import holdfast with the task decorator / import asyncio, apsw, msgspec"
    if report.wants(name):
        report.times(
            name,
            lambda: import_seconds(
                "import asyncio, apsw, msgspec; import holdfast; holdfast.task; holdfast.open"
            ),
            lambda: import_seconds("import asyncio, apsw, msgspec"),
            target=None,
            rounds=15,
        )
        row = report.rows[-1]
        print(f"    {1000 * (row.ours - row.raw):.0f} ms more (target at most 30)")


# --- all of it


def bench_sqlite(
    report: Report,
    directory: Path,
    open_store: Callable[[Path], Store],
    *,
    size: int,
    sizes: Sequence[int],
    finished: int,
) -> None:
    def new_url() -> str:
        return f"sqlite:///{directory / f'program-{next(_salts)}' / 'ledger.db'}"

    def new_ledger() -> Path:
        path = directory / f"raw-crowd-{next(_salts)}" / "ledger.db"
        open_store(path).close()
        return path

    def connection() -> apsw.Connection:
        return raw.sqlite_connection(directory / f"raw-program-{next(_salts)}.db")

    if report.wants("SQLite: one run"):
        by_hand = connection()
        cursor = by_hand.cursor()
        bench_steps(
            report,
            "SQLite",
            new_url(),
            lambda caller, number: void(
                cursor.execute(raw.SQLITE_INSERT, raw.step_values(caller, number, "x"))
            ),
            max(1, size // 20),
        )
        by_hand.close()
    report.rates(
        f"SQLite: {RUNS:,} runs of {STEPS} steps, created and ended / group commit",
        lambda: crowd(new_url()),
        lambda: raw_crowd_on_sqlite(new_ledger()),
        target=0.4,
        rounds=5,
    )
    for runs in sizes:
        report.times(
            f"SQLite: {runs:,} runs killed after step 1 of 3, all finished / raw reads and writes",
            lambda runs=runs: finish_all(killed(new_url(), runs), runs),  # type: ignore[misc]
            lambda runs=runs: raw_finish_on_sqlite(  # type: ignore[misc]
                Path(killed(new_url(), runs).removeprefix("sqlite:///"))
            ),
            target=5.0,
            rounds=3,
        )
    bench_starts(report, directory, open_store, finished=finished)


def bench_postgres(
    report: Report,
    create_database: Callable[[], str],
    open_store: Callable[[str], Store],
    *,
    size: int,
    sizes: Sequence[int],
) -> None:
    url = create_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(raw.POSTGRES_TABLE)
        cursor = connection.cursor()
        if report.wants("PostgreSQL: one run"):
            bench_steps(
                report,
                "PostgreSQL",
                create_database(),
                lambda caller, number: void(
                    cursor.execute(raw.POSTGRES_INSERT, raw.step_values(caller, number, "one"), prepare=True)
                ),
                max(1, size // 20),
            )

    def new_ledger() -> str:
        new = create_database()
        open_store(new).close()
        return new

    report.rates(
        f"PostgreSQL: {RUNS:,} runs of {STEPS} steps, created and ended / grouped multi-row writes",
        lambda: crowd(create_database()),
        lambda: raw_crowd_on_postgres(new_ledger()),
        target=0.3,
        rounds=5,
    )
    for runs in sizes:
        report.times(
            f"PostgreSQL: {runs:,} runs killed after step 1 of 3, all finished / raw reads and writes",
            lambda runs=runs: finish_all(killed(create_database(), runs), runs),  # type: ignore[misc]
            lambda runs=runs: raw_finish_on_postgres(killed(create_database(), runs)),  # type: ignore[misc]
            target=5.0,
            rounds=3,
        )


def void(_: object) -> None:
    return None
