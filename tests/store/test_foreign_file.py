"""The database of another program: a consistent copy is read, and the original is left as it was."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import BadInput, Refused
from holdfast.store import foreign_file
from holdfast.store.foreign_file import ForeignReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    return folder / "their.sqlite"


@pytest.fixture
def theirs(path: Path) -> Iterator[apsw.Connection]:
    """The connection of the other program, in WAL mode, with rows that only the WAL has."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").fetchall()
        connection.execute("CREATE TABLE fish (name TEXT, size)")
        connection.execute("INSERT INTO fish VALUES ('cod', 3), (CAST(x'ff' AS TEXT), x'00')")
        yield connection


def everything_in(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        one.name: (one.stat().st_mtime_ns, one.stat().st_size, one.read_bytes()) for one in folder.iterdir()
    }


@pytest.mark.usefixtures("theirs")
def test_rows_that_only_the_wal_has_are_read_and_the_original_is_not_touched(path: Path) -> None:
    before = everything_in(path.parent)

    with ForeignReader.copied(path) as reader:
        rows = list(reader.rows("fish"))

    assert rows == [{"name": "cod", "size": 3}, {"name": "\ufffd", "size": b"\x00"}]
    assert everything_in(path.parent) == before


def test_a_database_that_was_left_in_wal_mode_gets_no_files_beside_it(
    path: Path, theirs: apsw.Connection
) -> None:
    theirs.close()
    path.parent.chmod(0o500)

    with ForeignReader.copied(path) as reader:
        count = reader.count("fish")

    path.parent.chmod(0o700)
    assert (count, list(path.parent.iterdir())) == (2, [path])


def test_a_copy_is_consistent_while_the_other_program_writes_and_checkpoints(
    path: Path, theirs: apsw.Connection
) -> None:
    """Every transaction of the writer leaves two equal numbers."""
    theirs.execute("CREATE TABLE pair (a INTEGER, b INTEGER); INSERT INTO pair VALUES (0, 0)")
    has_ended = threading.Event()

    def write() -> None:
        with closing(apsw.Connection(str(path))) as connection:
            connection.set_busy_timeout(5000)
            number = 0
            while not has_ended.is_set():
                number += 1
                connection.execute(
                    "BEGIN IMMEDIATE; UPDATE pair SET a = a + 1; UPDATE pair SET b = b + 1; COMMIT"
                )
                if number % 50 == 0:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = []
        for _ in range(20):
            with ForeignReader.copied(path) as reader:
                seen += [(row["a"], row["b"]) for row in reader.rows("pair")]
    finally:
        has_ended.set()
        writer.join(30)

    assert len(seen) == 20
    assert all(a == b for a, b in seen)


def test_a_database_that_changes_all_the_time_is_refused(
    path: Path, theirs: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    copy = foreign_file._copy_file

    def copy_and_change(source: Path, target: Path, *, is_needed: bool) -> None:
        copy(source, target, is_needed=is_needed)
        theirs.execute("INSERT INTO fish VALUES ('eel', 1)")
        theirs.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    monkeypatch.setattr(foreign_file, "_copy_file", copy_and_change)

    with pytest.raises(Refused, match="stop OpenClaw for a moment"), ForeignReader.copied(path):
        pass


def test_a_database_in_the_middle_of_a_transaction_is_read_as_before_it(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(
            "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; CREATE TABLE fish (name)"
        ).fetchall()
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) "
            "INSERT INTO fish SELECT printf('%0200d', i) FROM n"
        )
        connection.execute("BEGIN; UPDATE fish SET name = 'half ' || name")

        with ForeignReader.copied(path) as reader:
            changed = [row for row in reader.rows("fish") if str(row["name"]).startswith("half")]

    assert changed == []


def test_what_is_no_database_or_is_damaged_is_refused(path: Path, theirs: apsw.Connection) -> None:
    theirs.close()
    whole = path.read_bytes()
    for content, why in (
        (b"", "is not a SQLite database"),
        (b"hello", "is not a SQLite database"),
        (whole[:100], "SQLite cannot read"),
        (whole[:100] + os.urandom(len(whole) - 100), "SQLite cannot read"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=why), ForeignReader.copied(path) as reader:
            reader.count("fish")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BadInput, match="is not a file"), ForeignReader.copied(path):
        pass


def test_a_view_or_a_virtual_table_is_no_table(path: Path, theirs: apsw.Connection) -> None:
    theirs.execute(
        "CREATE VIEW task_runs AS SELECT * FROM fish; CREATE VIRTUAL TABLE flow_runs USING fts5(x)"
    )

    with ForeignReader.copied(path) as reader:
        found = [reader.has_table(name) for name in ("fish", "task_runs", "flow_runs", "gone")]

    assert found == [True, False, False, False]
