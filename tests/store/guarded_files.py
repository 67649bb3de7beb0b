"""A ledger's files and its guard, and what other processes do to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from holdfast.store import file_watch, guard
from holdfast.store.guard import FileGuard

SUFFIXES = ["", "-wal", "-shm"]


def open_ledger(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    assert connection.pragma("journal_mode", "wal") == "wal"
    connection.execute("CREATE TABLE IF NOT EXISTS commits (number INTEGER)")
    return connection


def commit(connection: apsw.Connection, number: int) -> None:
    connection.execute("INSERT INTO commits VALUES (?)", (number,))


def run_elsewhere(script: str, *arguments: object) -> str:
    """Run a script in a process of its own to its end, and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def delete_elsewhere(path: Path) -> None:
    run_elsewhere("import os, sys; os.remove(sys.argv[1])", path)


def move_elsewhere(path: Path, target: Path) -> None:
    run_elsewhere("import os, sys; os.rename(sys.argv[1], sys.argv[2])", path, target)


def make_settled(folder: Path) -> None:
    """As if nothing had happened in it for a long time."""
    os.utime(folder, (1_700_000_000, 1_700_000_000))


def check_often(watch: FileGuard) -> None:
    for _ in range(2 * guard._LOOKS):
        watch.check()


def tell(watch: FileGuard, path: Path) -> None:
    """From now on it is told."""
    if not file_watch._is_of_one_kernel(str(path)):
        pytest.skip("this file system does not tell")
    make_settled(path.parent)
    check_often(watch)
    assert watch.is_told
