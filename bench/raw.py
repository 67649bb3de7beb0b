"""The raw databases: what an author would write by hand without a ledger, as bare as it is durable."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg

# The same columns as the ledger's own table of steps, without its guard, its digest, its JSON.
SQLITE_TABLE = (
    "CREATE TABLE steps (task_id TEXT, scope TEXT, name TEXT, occurrence TEXT, run_id TEXT, seq INTEGER, "
    "input_digest BLOB, result BLOB, started_at INTEGER, ended_at INTEGER, digest BLOB, "
    "PRIMARY KEY (task_id, scope, name, occurrence)) STRICT, WITHOUT ROWID"
)
POSTGRES_TABLE = (
    "CREATE TABLE raw_steps (task_id text, scope text, name text, occurrence text, run_id text, seq bigint, "
    "input_digest bytea, result bytea, started_at bigint, ended_at bigint, digest bytea, "
    "PRIMARY KEY (task_id, scope, name, occurrence))"
)
SQLITE_INSERT = "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
POSTGRES_INSERT = "INSERT INTO raw_steps VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
POSTGRES_INSERT_MANY = (
    "INSERT INTO raw_steps SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], "
    "%s::bigint[], %s::bytea[], %s::bytea[], %s::bigint[], %s::bigint[], %s::bytea[])"
)
RESULT = b'{"answer":42,"words":["one","two","three"]}'
DIGEST = bytes(8)

Values = tuple[Any, ...]


def step_values(caller: int, number: int, salt: str) -> Values:
    return (
        f"task_{salt:0>26}",
        "",
        f"step-{caller}-{number}",
        "1",
        f"run_{salt:0>26}",
        number,
        None,
        RESULT,
        number,
        number,
        DIGEST,
    )


def sqlite_connection(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    assert connection.pragma("journal_mode", "WAL") == "wal"
    connection.pragma("synchronous", "FULL")
    connection.execute(SQLITE_TABLE)
    return connection


class GroupCommit:
    """The smallest group commit: callers hand over values and wait, one thread commits for all of them."""

    def __init__(self, commit: Callable[[list[Values]], None]) -> None:
        self._commit = commit
        self._waiting: deque[tuple[Values, asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._wake = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    async def write(self, values: Values) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._wake:
            self._waiting.append((values, loop, future))
            self._wake.notify()
        await future

    def close(self) -> None:
        with self._wake:
            self._is_over = True
            self._wake.notify()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._is_over:
                    self._wake.wait()
                if not self._waiting:
                    return
                group = [self._waiting.popleft() for _ in range(min(512, len(self._waiting)))]
            self._commit([values for values, _, _ in group])
            group[0][1].call_soon_threadsafe(_answer, [future for _, _, future in group])


def _answer(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


def commit_on_sqlite(connection: apsw.Connection, *, has_savepoints: bool) -> Callable[[list[Values]], None]:
    """With a savepoint each, one caller's error harms no other; without, it is the fastest that can be."""
    cursor = connection.cursor()

    def commit_isolated(group: list[Values]) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        for values in group:
            cursor.execute("SAVEPOINT one")
            cursor.execute(SQLITE_INSERT, values)
            cursor.execute("RELEASE one")
        cursor.execute("COMMIT")

    def commit(group: list[Values]) -> None:
        cursor.execute("BEGIN IMMEDIATE")
        for values in group:
            cursor.execute(SQLITE_INSERT, values)
        cursor.execute("COMMIT")

    return commit_isolated if has_savepoints else commit


def commit_on_postgres(connection: psycopg.Connection[Any]) -> Callable[[list[Values]], None]:
    cursor = connection.cursor()

    def commit(group: list[Values]) -> None:
        cursor.execute(
            POSTGRES_INSERT_MANY, [list(column) for column in zip(*group, strict=True)], prepare=True
        )

    return commit
