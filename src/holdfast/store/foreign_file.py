"""Reads a SQLite database of another program: from a private copy, without touching the original.

The original is never opened by SQLite: even a read-only connection would create a -shm file beside a database
in WAL mode. The files are copied instead, and copied again if the other program has changed them meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from holdfast.core.errors import BadInput, Refused

_HEADER = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_WAL_HEADER_BYTES = 32
COPY_ATTEMPTS = 20
# A longer value is cut, and has one character more than this.
MAX_CHARS = 1_000_000
# More columns than that are not read.
_MAX_COLUMNS = 60
_CHUNK_BYTES = 1024 * 1024

Value = str | int | float | bytes | None


class ForeignReader:
    """The private copy, open for reading. Its schema may be anything, so every name is looked up first."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    @contextlib.contextmanager
    def copied(cls, path: Path) -> Iterator[ForeignReader]:
        """Copy the database aside and open the copy. Raises BadInput if it is no SQLite database, Refused if
        its program changes it faster than it can be copied."""
        with tempfile.TemporaryDirectory(prefix="holdfast-import-") as folder:
            copy = Path(folder) / "copy.sqlite"
            _copy_whole(path, copy)
            try:
                connection = _open(copy)
            except apsw.Error as error:
                raise _unreadable(path, error) from error
            try:
                yield cls(connection, path)
            except apsw.Error as error:
                raise _unreadable(path, error) from error
            finally:
                connection.close()

    def has_table(self, table: str) -> bool:
        """Whether it is an ordinary table: a view or a virtual table could run code of its author."""
        query = (
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ? AND sql NOT LIKE '%VIRTUAL%TABLE%'"
        )
        return self._connection.execute(query, (table,)).fetchone() is not None

    def columns(self, table: str) -> list[str]:
        found = self._connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))
        return [str(row[0]) for row in found][:_MAX_COLUMNS]

    def count(self, table: str) -> int:
        row = self._connection.execute(f"SELECT COUNT(*) FROM {_quoted(table)}").fetchone()  # noqa: S608 - quoted
        return 0 if row is None else int(row[0])

    def rows(self, table: str) -> Iterator[dict[str, Value]]:
        """Every row by column name, one at a time."""
        columns = self.columns(table)
        query = f"SELECT {_projection(columns)} FROM {_quoted(table)}"  # noqa: S608 - quoted
        return (_read(columns, row) for row in self._connection.execute(query))

    def rows_with(self, table: str, column: str, values: Sequence[str]) -> Iterator[dict[str, Value]]:
        """Those rows whose column has one of these values."""
        columns = self.columns(table)
        query = (
            f"SELECT {_projection(columns)} FROM {_quoted(table)} "  # noqa: S608 - quoted
            f"WHERE {_quoted(column)} IN (SELECT value FROM json_each(?))"
        )
        wanted = msgspec.json.encode(list(values)).decode()
        return (_read(columns, row) for row in self._connection.execute(query, (wanted,)))

    def repeated(self, table: str, column: str) -> set[str]:
        """Values that several rows have, although the table should have each once."""
        name = _quoted(column)
        query = f"SELECT {name} FROM {_quoted(table)} GROUP BY {name} HAVING COUNT(*) > 1"  # noqa: S608 - quoted
        return {str(row[0]) for row in self._connection.execute(query)}

    def orphans(self, table: str, parents: str, column: str) -> int:
        """How many rows name a parent that does not exist."""
        name = _quoted(column)
        query = (
            f"SELECT COUNT(*) FROM {_quoted(table)} "  # noqa: S608 - quoted
            f"WHERE {name} NOT IN (SELECT {name} FROM {_quoted(parents)} WHERE {name} IS NOT NULL)"
        )
        row = self._connection.execute(query).fetchone()
        return 0 if row is None else int(row[0])


def _open(copy: Path) -> apsw.Connection:
    connection = apsw.Connection(str(copy))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _copy_whole(path: Path, copy: Path) -> None:
    """Copy the database, its WAL and its rollback journal, as of one moment.

    In WAL mode only a checkpoint changes the database file. If neither that file nor the header of the WAL
    has changed while both were copied, database and WAL belong together; frames that were added to the WAL
    meanwhile are whole transactions or are ignored.
    """
    for _ in range(COPY_ATTEMPTS):
        before = _version_of(path)
        for suffix in ("", "-wal", "-journal"):
            _copy_file(Path(f"{path}{suffix}"), Path(f"{copy}{suffix}"), is_needed=not suffix)
        if _version_of(path) == before:
            return
    raise Refused(
        f"{path} was changed {COPY_ATTEMPTS} times while it was copied; stop OpenClaw for a moment, then run "
        "the import again"
    )


def _version_of(path: Path) -> tuple[object, ...]:
    """What differs after a checkpoint, a restart of the WAL, or a write in rollback mode."""
    try:
        found = path.stat()
    except OSError as error:
        raise _no_file(path, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise BadInput("path", f"{path} is not a file")
    # A time of change has the resolution of a clock tick. In rollback mode every commit changes the header.
    header, wal_header = _beginning(path, _HEADER_BYTES), _beginning(Path(f"{path}-wal"), _WAL_HEADER_BYTES)
    return (found.st_ino, found.st_size, found.st_mtime_ns, header, wal_header, _journal(path))


def _beginning(path: Path, size: int) -> bytes:
    try:
        with os.fdopen(_open_regular(path), "rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _no_file(path, error) from error


def _open_regular(path: Path) -> int:
    """Without waiting, in case a pipe has taken its place. Raises OSError for what is not a file: a device
    would be copied for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return descriptor


def _journal(path: Path) -> tuple[int, int] | None:
    try:
        found = Path(f"{path}-journal").stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _copy_file(source: Path, copy: Path, *, is_needed: bool) -> None:
    copy.unlink(missing_ok=True)
    try:
        descriptor = _open_regular(source)
    except FileNotFoundError as error:
        if is_needed:
            raise _no_file(source, error) from error
        return
    except OSError as error:
        raise _no_file(source, error) from error
    with os.fdopen(descriptor, "rb") as reading, copy.open("wb") as writing:
        if is_needed and reading.read(len(_HEADER)) != _HEADER:
            raise BadInput("path", f"{source} is not a SQLite database; name OpenClaw's state directory")
        reading.seek(0)
        shutil.copyfileobj(reading, writing, _CHUNK_BYTES)


def _no_file(path: Path, error: OSError) -> BadInput:
    return BadInput("path", f"{path} cannot be read: {error.strerror}")


def _unreadable(path: Path, error: apsw.Error) -> BadInput:
    why = f"SQLite cannot read the database {path}: {error}"
    if isinstance(error, apsw.CorruptError):
        rest = f"sqlite3 {shlex.quote(str(path))} .recover | sqlite3 recovered.sqlite"
        why += f"; to save what can be read of it: {rest}; then import recovered.sqlite"
    return BadInput("path", why)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _projection(columns: Sequence[str]) -> str:
    """Text is read as bytes, because it may be anything but UTF-8, and cut, because it may have any length.
    The last value has a bit for each column that holds bytes itself."""
    values = [
        f"CASE typeof({name}) WHEN 'text' THEN CAST(substr({name}, 1, {MAX_CHARS + 1}) AS BLOB) "
        f"WHEN 'blob' THEN substr({name}, 1, {MAX_CHARS + 1}) ELSE {name} END"
        for name in map(_quoted, columns)
    ]
    bits = [f"((typeof({_quoted(name)}) = 'blob') << {bit})" for bit, name in enumerate(columns)]
    return f"{', '.join(values)}, {' | '.join(bits)}"


def _read(columns: Sequence[str], row: tuple[Value, ...]) -> dict[str, Value]:
    *values, blobs = row
    assert isinstance(blobs, int)
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) and not blobs >> bit & 1 else value
        for bit, (name, value) in enumerate(zip(columns, values, strict=True))
    }
