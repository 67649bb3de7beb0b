"""What page checksums or a count per task add to one durable commit: `python -m bench.absence DIRECTORY`."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import apsw

from holdfast.store import checksums

ROUNDS, COMMITS, RUNS = 60, 200, 200
KINDS = ("plain", "page checksums", "a count per task")

SCHEMA = """
CREATE TABLE runs (id TEXT PRIMARY KEY, fence INTEGER NOT NULL, steps INTEGER NOT NULL) STRICT;
CREATE TABLE steps (task_id TEXT, name TEXT, occurrence TEXT, run_id TEXT, result BLOB, digest BLOB,
                    PRIMARY KEY (task_id, name, occurrence)) STRICT, WITHOUT ROWID;
"""
SAVE = "INSERT INTO steps SELECT ?, 'read', ?, id, ?, ? FROM runs WHERE id = ? AND fence = 1"
COUNT = "UPDATE runs SET steps = steps + 1 WHERE id = ?"


def make(path: Path, kind: str) -> apsw.Connection:
    has_checksums = kind == "page checksums"
    connection = apsw.Connection(str(path), vfs=checksums.vfs() if has_checksums else None)
    if has_checksums:
        checksums.ask_for(connection)
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", "FULL")
    connection.execute(SCHEMA)
    rows = [(f"run-{number:04}",) for number in range(RUNS)]
    connection.executemany("INSERT INTO runs VALUES (?, 1, 0)", rows)
    return connection


def commits(connection: apsw.Connection, kind: str, number: int) -> list[float]:
    cursor, run_id, taken = connection.cursor(), f"run-{number % RUNS:04}", []
    for place in range(COMMITS):
        row = (f"task-{number:04}", f"{place:06}", b'{"tide": "calm"}' * 5, b"12345678", run_id)
        started = time.perf_counter()
        if kind == "a count per task":
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute(SAVE, row)
            cursor.execute(COUNT, (run_id,))
            cursor.execute("COMMIT")
        else:
            cursor.execute(SAVE, row)
        taken.append(time.perf_counter() - started)
    return taken


def main(directory: Path) -> None:
    connections = {kind: make(directory / f"{kind}.db", kind) for kind in KINDS}
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(ROUNDS):  # in turns, so that all meet the same machine
        for kind, connection in connections.items():
            taken[kind] += commits(connection, kind, number)
    for kind, seconds in taken.items():
        median, mean = statistics.median(seconds) * 1e6, statistics.fmean(seconds) * 1e6
        print(f"{kind:18} median {median:6.1f} us, mean {mean:6.1f} us")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
