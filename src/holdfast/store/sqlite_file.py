"""One SQLite file: connections with verified pragmas, named queries on them, whole copies."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from holdfast.core.errors import (
    BadInput,
    HoldfastError,
    PageDamaged,
    RowDamaged,
    SqlFailed,
    StoreUnavailable,
)
from holdfast.store import checksums
from holdfast.store.atomic_files import made_whole
from holdfast.store.contract import Execute, Params, Row
from holdfast.store.queries import Queries
from holdfast.store.sealing import Vault
from holdfast.store.transaction import Tx
from holdfast.store.user_sql import DatabaseFailed, LentStatements, our_tables, refused, sql_failed

T = TypeVar("T")


BUSY_TIMEOUT_MS = 20_000
BACKUP_PAGES = 1000
MAX_PAGES_NAMED = 100
_WAL_PAUSE_S = 0.01
# A second attempt sees the checksums of a file that another process created or changed during the first.
_OPENINGS = 3
_DAMAGED = frozenset({apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS})

# Each is set, read back and compared, because a pragma can silently have no effect.
_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    ("synchronous", "FULL", 2),
    ("foreign_keys", "ON", 1),
    # Pages, 4 MB: while the -wal grows, each flush must also make its new length durable and takes twice as
    # long; afterwards the -wal is overwritten. A larger one is not faster, not even for batches.
    ("wal_autocheckpoint", "1000", 1000),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("recursive_triggers", "OFF", 0),
    # macOS flushes the drive's own cache only on request.
    ("fullfsync", "ON", 1),
    ("checkpoint_fullfsync", "ON", 1),
)
_READER_PRAGMAS: tuple[tuple[str, str, object], ...] = (
    ("query_only", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
)


def library_version() -> str:
    """The version of SQLite itself."""
    return apsw.sqlite_lib_version()


def connect(path: Path | None, *, is_reader: bool = False) -> apsw.Connection:
    """A connection with verified pragmas that maintains the page checksums of its file."""
    for _ in range(_OPENINGS):
        connection = _connect(path, is_reader=is_reader)
        try:
            if path is None or checksums.require(connection):
                return connection
        except apsw.Error as error:
            connection.close()
            raise failed(error) from error
        except BaseException:
            connection.close()
            raise
        connection.close()
    raise StoreUnavailable("SQLite does not notice the ledger's page checksums; try again")


def _connect(path: Path | None, *, is_reader: bool) -> apsw.Connection:
    # A reader creates no file: a deleted ledger must not come back empty.
    creating = 0 if is_reader else apsw.SQLITE_OPEN_CREATE
    flags = apsw.SQLITE_OPEN_READWRITE | creating | apsw.SQLITE_OPEN_EXRESCODE
    try:
        connection = apsw.Connection(
            ":memory:" if path is None else str(path),
            flags=flags,
            vfs=None if path is None else checksums.vfs(),
            statementcachesize=300,
        )
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        if path is not None and not is_reader:
            checksums.ask_for(connection)
            _enter_wal(connection)
        for name, value, expected in _PRAGMAS:
            _set_pragma(connection, name, value, expected)
        if is_reader:
            _set_pragma(connection, "query_only", "ON", 1)
    except apsw.Error as error:
        raise failed(error) from error
    return connection


def _enter_wal(connection: apsw.Connection) -> None:
    """When several processes open a new file, one switches it to WAL. SQLite does not wait for it; we do."""
    give_up_at = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            _set_pragma(connection, "journal_mode", "WAL", "wal")
        except apsw.BusyError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(_WAL_PAUSE_S)
        else:
            return


def connect_beside(path: Path) -> apsw.Connection:
    """A read-only connection: it creates no database and writes nothing.

    SQLite itself may create an empty -wal and a -shm, which every reader of a ledger in WAL mode needs. This
    connection cannot copy the -wal into the database and delete it, as the last writer would.
    """
    try:
        connection = apsw.Connection(
            str(path),
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_EXRESCODE,
            vfs=checksums.vfs(),
            statementcachesize=300,
        )
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        for name, value, expected in _READER_PRAGMAS:
            _set_pragma(connection, name, value, expected)
    except apsw.Error as error:
        raise failed(error) from error
    return connection


def _set_pragma(connection: apsw.Connection, name: str, value: str, expected: object) -> None:
    connection.pragma(name, value)
    found = connection.pragma(name)
    if found != expected:
        raise StoreUnavailable(
            f"SQLite answered {found!r} to PRAGMA {name}={value}; Holdfast needs {expected!r}"
        )


def failed(error: Exception) -> HoldfastError:
    """The database's failure in words for the operator who must fix it.

    StoreUnavailable, which may be retried, unless the database is damaged: then PageDamaged.
    """
    problem = _damage(error)
    if problem is not None:
        return PageDamaged(problem)
    remedy = {
        apsw.FullError: "the disk is full; free some space, work then continues by itself",
        apsw.ReadOnlyError: "the database or its directory is read-only; make it writable",
        apsw.CantOpenError: "the file cannot be opened; check that its directory exists and that you own it",
        apsw.PermissionsError: "no permission; check the owner of the file and its directory",
        apsw.BusyError: "another process has been writing for too long",
        apsw.NotADBError: "the file is not a Holdfast database",
        apsw.IOError: "the disk failed to read or write",
        apsw.NoMemError: "no memory is left",
    }
    words = next((text for kind, text in remedy.items() if isinstance(error, kind)), "it did not answer")
    return StoreUnavailable(f"SQLite: {words} ({error})")


def _damage(error: Exception) -> str | None:
    if isinstance(error, apsw.CorruptError):
        return f"SQLite: {error}"
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) in _DAMAGED:
        return "SQLite: a page does not match its checksum"
    return None


class NotAllSaved(Exception):
    """Some steps of a batch existed already or had lost their claim; save each alone to find out which."""


class SqliteStatements:
    """Named queries on one connection."""

    def __init__(self, connection: apsw.Connection, queries: Queries) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._queries = queries
        self._changes = connection.changes
        self._guest: UserStatements | None = None

    def one(self, query: str, params: Params) -> Row | None:
        found = self.all(query, params)
        return found[0] if found else None

    def all(self, query: str, params: Params) -> list[Row]:
        try:
            # Fetch all rows: an open statement would keep the transaction from committing.
            return list(self._cursor.execute(self._queries[query], params).fetchall())
        except UnicodeDecodeError as error:
            # A statement that is not read to its end would hold its snapshot and block every wal_checkpoint.
            self._cursor.close(True)
            self._cursor = self._connection.cursor()
            sql = self._queries[query]
            if not sql.startswith(("SELECT", "WITH")):
                raise RowDamaged(
                    "record", f"changed by {query}", "a text in it is not valid UTF-8"
                ) from error
            return self._read_as_bytes(sql, params)

    def _read_as_bytes(self, sql: str, params: Params) -> list[Row]:
        """Reads rows with invalid text as bytes, so that their digests show which are damaged.

        One such row must not keep the others from being shown, claimed or rescued.
        """
        cursor = self._connection.cursor()
        names = [column[0] for column in cursor.execute(sql, params).get_description()]
        cursor.close(True)  # even if it has more rows
        columns = ", ".join(f'typeof("{name}"), CAST("{name}" AS BLOB)' for name in names)
        # Safe: composed only of our own query and its column names.
        found = self._connection.execute(f"SELECT {columns} FROM ({sql})", params)  # noqa: S608
        return [
            [_value(kind, stored) for kind, stored in zip(row[::2], row[1::2], strict=True)] for row in found
        ]

    def run(self, query: str, params: Params) -> None:
        self._cursor.execute(self._queries[query], params).fetchall()

    def many(self, query: str, rows: Iterable[Params]) -> None:
        # Row by row in both cases, but the `_many` form of some queries returns nothing.
        many = f"{query}_many"
        name = many if many in self._queries.names else query
        self._cursor.executemany(self._queries[name], rows).fetchall()

    def guarded(self, query: str, row: Row) -> bool:
        self._cursor.execute(self._queries[query], row)
        return self._changes() == 1

    def save_steps(self, rows: Sequence[Row]) -> list[bool]:
        """Row by row inside the driver: quicker than one statement over their JSON."""
        before = self._connection.total_changes()
        self._cursor.executemany(self._queries["save_step"], rows)
        if self._connection.total_changes() != before + len(rows):
            raise NotAllSaved
        return [True] * len(rows)

    def pack(self, values: Sequence[str]) -> object:
        return msgspec.json.encode(values).decode()

    def lend(self, act: Callable[[Execute], T]) -> T:
        if self._guest is None:
            self._guest = UserStatements(self._connection)
        return self._guest.use(act)


# SQLite's errors for a wrong statement of a program; all others are failures of the database.
_OF_THE_PROGRAM = (
    apsw.ConstraintError,
    apsw.SQLError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.TooBigError,
    apsw.BindingsError,
)
# SQLite's own tables, which list the schema or expose the pages.
_INTERNAL = frozenset({"sqlite_master", "sqlite_schema"})
_HIDDEN = frozenset({"dbstat"})
_FORBIDDEN = frozenset(
    {
        apsw.SQLITE_ATTACH,
        apsw.SQLITE_DETACH,
        apsw.SQLITE_PRAGMA,
        apsw.SQLITE_TRANSACTION,
        apsw.SQLITE_SAVEPOINT,
        apsw.SQLITE_ANALYZE,
        apsw.SQLITE_REINDEX,
        # A temporary table would hide one of ours with the same name.
        apsw.SQLITE_CREATE_TEMP_INDEX,
        apsw.SQLITE_CREATE_TEMP_TABLE,
        apsw.SQLITE_CREATE_TEMP_TRIGGER,
        apsw.SQLITE_CREATE_TEMP_VIEW,
    }
)
# These operations name their table in the second argument; all others in the first.
_NAMED_SECOND = frozenset(
    {
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_DROP_TRIGGER,
        apsw.SQLITE_ALTER_TABLE,
    }
)
_NAMED_FIRST = frozenset(
    {
        apsw.SQLITE_READ,
        apsw.SQLITE_INSERT,
        apsw.SQLITE_UPDATE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_CREATE_VTABLE,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_DROP_VIEW,
        apsw.SQLITE_DROP_VTABLE,
    }
)


class UserStatements:
    """Runs a program's own statements on the writing connection; SQLite's authorizer checks each."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._ours = {name.lower() for name in our_tables("sqlite")}
        self._is_inside = False
        # Set once: setting it each time would make SQLite prepare all our statements again.
        connection.authorizer = self._authorize

    def use(self, act: Callable[[Execute], T]) -> T:
        self._is_inside = True
        try:
            answer = LentStatements(self._say).use(act)
        finally:
            self._is_inside = False
        if not self._connection.in_transaction:
            raise SqlFailed("RollbackError", "a statement ended the transaction and the step continued")
        return answer

    def _say(self, sql: str, params: Params) -> list[Row]:
        cursor = self._connection.cursor()
        statements = 0

        def only_one(*_: object) -> bool:
            nonlocal statements
            statements += 1
            return statements == 1

        cursor.exec_trace = only_one
        try:
            # Not from the cache, because the authorizer only checks a statement when it is prepared.
            return list(cursor.execute(sql, params, can_cache=False).fetchall())
        except apsw.AuthError as error:
            raise refused(str(error)) from error
        except apsw.ExecTraceAbort as error:
            raise refused("one statement at a time") from error
        except KeyError as error:
            raise BadInput("params", f"there is no value for :{error.args[0]}") from error
        except _OF_THE_PROGRAM as error:
            raise sql_failed(error) from error
        except apsw.Error as error:
            raise DatabaseFailed(error) from error
        finally:
            cursor.close(True)

    def _authorize(
        self, operation: int, one: str | None, two: str | None, _database: str | None, _inner: str | None
    ) -> int:
        if not self._is_inside:
            return apsw.SQLITE_OK
        if operation in _FORBIDDEN:
            return apsw.SQLITE_DENY
        if operation in _NAMED_FIRST or operation in _NAMED_SECOND:
            table = ((two if operation in _NAMED_SECOND else one) or "").lower()
            is_internal = table.startswith("sqlite_") and table not in _INTERNAL
            if table in self._ours or table in _HIDDEN or is_internal:
                return apsw.SQLITE_DENY
        return apsw.SQLITE_OK


def _value(kind: str, stored: bytes | None) -> object:
    """A value that was cast to bytes, converted back; invalid text is marked."""
    if stored is None or kind == "blob":
        return stored
    text = stored.decode("utf-8", "replace")
    return int(text) if kind == "integer" else text


def name_damaged_pages(connection: apsw.Connection) -> list[str]:
    try:
        found = checksums.damaged_pages(connection)
    except apsw.Error as error:
        damage = failed(error)
        return [damage.finding if isinstance(damage, RowDamaged) else str(damage)]
    named = [f"SQLite: page {page} does not match its checksum" for page in found[:MAX_PAGES_NAMED]]
    more = len(found) - len(named)
    return [*named, f"SQLite: {more:,} more pages do not match their checksums"] if more else named


def problems_of_pages(tx: Tx) -> Iterator[str]:
    """SQLite's own check of every page and index."""
    for row in tx.statements.all("integrity_check", {}):
        if row[0] != "ok":
            yield f"SQLite: {row[0]}"


class Snapshots:
    """A connection that reads one snapshot at a time."""

    def __init__(self, connection: apsw.Connection, queries: Queries, vault: Vault) -> None:
        self.connection = connection
        self._tx = Tx(SqliteStatements(connection, queries), vault)

    def run(self, read: Callable[[Tx], T]) -> T:
        try:
            self.connection.execute("BEGIN")
            try:
                answer = read(self._tx)
            finally:
                # SQLite has ended the transaction itself if a page could not be read.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise failed(error) from error
        finally:
            self._tx.forget()  # events and counts of a read are not written
        return answer

    def close(self) -> None:
        self.connection.close()


def mark_in(tx: Tx) -> int:
    """The database's own mark; a damaged one counts as 0, so that resumes are held."""
    mark = tx.boots.fact("mark") or ""
    return int(mark) if mark.isdecimal() else 0


def why_held(path: Path, tx: Tx) -> str | None:
    """Why the mark beside the database holds resumes; None when it does not."""
    # Imported here, because commands that only list do not need it.
    from holdfast.store import watermark
    from holdfast.store.watermark import MarkCheck

    found = watermark.read(watermark.mark_path(path))
    verdict = watermark.compare(found, ledger_id=tx.boots.fact("ledger_id") or "", mark=mark_in(tx))
    match verdict:
        case MarkCheck.FRESH | MarkCheck.CURRENT:
            return None
        case MarkCheck.OLDER:
            return (
                "the database is older than its mark: it is an older copy, or its WAL was truncated or "
                "damaged and commits are missing"
            )
        case MarkCheck.FOREIGN:
            return "the mark beside the database belongs to another ledger"
        case MarkCheck.UNREADABLE:
            return "the mark beside the database cannot be read"


def copy_whole(
    source: apsw.Connection, target: Path, *, on_pages: Callable[[int, int], None] = lambda _done, _all: None
) -> None:
    """A copy with SQLite's own backup while other processes write; it gets its name once it is complete.

    Raises StoreUnavailable when the target exists or cannot be created; then nothing of it remains.
    """
    try:
        with made_whole(target) as unfinished:
            # Follow no link: another file may take its name between creating and opening it.
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_EXRESCODE
            copy = apsw.Connection(str(unfinished), flags=flags, vfs=checksums.vfs())
            try:
                if checksums.has(source):
                    checksums.begin(copy)
                _copy_pages(source, copy, on_pages)
            finally:
                copy.close()
    except apsw.Error as error:
        raise failed(error) from error
    except OSError as error:
        raise StoreUnavailable(f"{target}: {error.strerror}; choose another path") from error


def _copy_pages(source: apsw.Connection, copy: apsw.Connection, on_pages: Callable[[int, int], None]) -> None:
    # In one snapshot: otherwise each commit of another connection would restart the copy, and with a busy
    # writer it would never end.
    with contextlib.ExitStack() as snapshot:
        if not source.in_transaction:
            snapshot.enter_context(source)
        source.pragma("schema_version")
        with copy.backup("main", source, "main") as pages:
            while not pages.done:
                pages.step(BACKUP_PAGES)
                on_pages(pages.page_count - pages.remaining, pages.page_count)


@contextlib.contextmanager
def private_umask() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
