"""SQLite: pragmas, one writer, BEGIN IMMEDIATE, file permissions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from holdfast import trust
from holdfast.core.clock import Clock, to_micros
from holdfast.core.errors import HoldfastError, LedgerReplaced, StoreUnavailable
from holdfast.store import checksums, wal, watermark
from holdfast.store.contract import Busy, JoinedWrite, Write
from holdfast.store.guard import FileGuard
from holdfast.store.hints import Hints
from holdfast.store.migrations import Migration, load_migrations, migrate
from holdfast.store.queries import Queries, load_queries
from holdfast.store.sealing import MemoryKey, NoKey, Sealing, Vault
from holdfast.store.sqlite_file import (
    BUSY_TIMEOUT_MS,
    Snapshots,
    SqliteStatements,
    connect,
    copy_whole,
    failed,
    mark_in,
    name_damaged_pages,
    private_umask,
    problems_of_pages,
    why_held,
)
from holdfast.store.transaction import Tx
from holdfast.store.watermark import Watermark
from holdfast.store.writer import Writer

if TYPE_CHECKING:
    from holdfast.store.dashboard_views import ViewReport
    from holdfast.store.expected_schema import Index

T = TypeVar("T")

MARK_EVERY_S = 5.0
READERS = 2
# How long a close waits for readers in other processes: the next process that opens the file also empties the
# -wal.
TIDY_TIMEOUT_MS = 100


class SqliteSession:
    """The one connection that writes."""

    def __init__(
        self,
        connection: apsw.Connection,
        queries: Queries,
        vault: Vault,
        check: Callable[[], None],
    ) -> None:
        self.connection = connection
        self._statements = SqliteStatements(connection, queries)
        self.tx = Tx(self._statements, vault)
        self._cursor = connection.cursor()
        self._check = check
        self._waits = True

    def begin(self, *, may_wait: bool) -> None:
        if may_wait is not self._waits:
            self._set_patience(may_wait=may_wait)
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            if may_wait:
                raise
            raise Busy from error

    def _set_patience(self, *, may_wait: bool) -> None:
        self.connection.set_busy_timeout(BUSY_TIMEOUT_MS if may_wait else 0)
        self._waits = may_wait

    def commit(self) -> None:
        self._cursor.execute("COMMIT")
        # Checked after the commit and before it is acknowledged: a commit into a file that was deleted or
        # replaced is lost.
        self._check()

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def savepoint(self) -> None:
        self._cursor.execute("SAVEPOINT member")

    def release(self) -> None:
        self._cursor.execute("RELEASE member")

    def rollback_to(self) -> None:
        self._cursor.execute("ROLLBACK TO member")
        self._cursor.execute("RELEASE member")

    def is_open(self) -> bool:
        return bool(self.connection.in_transaction)

    def alone(self, write: JoinedWrite[T], *, may_wait: bool) -> T:
        if may_wait is not self._waits:
            self._set_patience(may_wait=may_wait)
        try:
            is_done = self._statements.guarded(write.statement, write.row)
            answer = write.when_done if is_done else write(self.tx)
        except apsw.BusyError as error:
            if may_wait:
                raise
            raise Busy from error
        self._check()
        return answer

    def crowd(self, write: Write[T], *, may_wait: bool) -> T:
        self.begin(may_wait=may_wait)
        try:
            answer = write(self.tx)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return answer

    def explain(self, error: Exception) -> Exception | None:
        if isinstance(error, LedgerReplaced):
            return error
        if isinstance(error, (apsw.ConstraintError, apsw.SQLError)) or not isinstance(error, apsw.Error):
            return None
        return failed(error)

    def may_retry(self, error: Exception) -> bool:  # noqa: ARG002 - SQLite waited already
        return False

    def close(self) -> None:
        # The guard's lock keeps SQLite from emptying the -wal at the last close, so do it here. The timeout
        # is short: if another process was frozen during a read, waiting does not help.
        self.connection.set_busy_timeout(TIDY_TIMEOUT_MS)
        with contextlib.suppress(apsw.Error):
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self.connection.close()


class _Migrating:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queries = load_queries("sqlite")

    def applied(self) -> list[tuple[int, str]]:
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations "
            "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL) STRICT"
        )
        # As bytes: a digest with a flipped bit must be reported as wrong, not fail to decode.
        found = self._connection.execute(
            "SELECT number, CAST(digest AS BLOB) FROM schema_migrations ORDER BY number"
        )
        return [(number, digest.decode("utf-8", "replace")) for number, digest in found]

    def apply(self, migration: Migration) -> None:
        self._connection.execute(migration.sql)
        self._connection.execute(
            "INSERT INTO schema_migrations VALUES (?, ?, ?)",
            (migration.number, migration.name, migration.digest),
        )

    def columns(self) -> list[tuple[str, str]]:
        return [
            (str(row[0]), str(row[1])) for row in self._connection.execute(self._queries["schema_columns"])
        ]

    def indexes(self) -> list[str]:
        return [str(row[0]) for row in self._connection.execute(self._queries["schema_indexes"])]

    def make_index(self, index: Index) -> None:
        try:
            self._connection.execute(index.sql)
        except (apsw.ConstraintError, apsw.SQLError) as error:
            from holdfast.store.expected_schema import cannot_make

            raise cannot_make(index, error) from error

    def views(self) -> ViewReport:
        from holdfast.store.dashboard_views import compare_views

        return compare_views("sqlite", dict(self._connection.execute(self._queries["taken_names"])))

    def make_views(self, report: ViewReport) -> None:
        self._connection.execute("SAVEPOINT views")
        try:
            for name in report.present:
                self._connection.execute(f"DROP VIEW {name}")
            for view in report.views:
                self._connection.execute(f"CREATE VIEW {view.name} AS /* {view.mark} */ {view.sql}")
        except apsw.SQLError:
            self._connection.execute("ROLLBACK TO views")
        self._connection.execute("RELEASE views")

    def is_as_checked(self) -> bool:
        """SQLite counts every change of a file's schema in its header. While that count is the noted one,
        comparing the schema again can find nothing, and it would cost each start of a process 3 ms."""
        noted = self._connection.execute("SELECT value FROM ledger_facts WHERE name = 'checked_schema'")
        return noted.fetchall() == [(self._changes_of_schema(),)]

    def note_checked(self) -> None:
        self._connection.execute(
            "INSERT INTO ledger_facts VALUES ('checked_schema', ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (self._changes_of_schema(),),
        )

    def _changes_of_schema(self) -> str:
        return str(self._connection.pragma("schema_version"))


def migrate_file(
    connection: apsw.Connection, *, may_upgrade: bool, known: Sequence[Migration] | None = None
) -> list[Migration]:
    """Create or upgrade the schema atomically; a second process waits and finds it done."""
    try:
        with _exclusive(connection):
            applied = migrate(
                _Migrating(connection),
                load_migrations("sqlite") if known is None else known,
                may_upgrade=may_upgrade,
            )
            connection.execute(
                "INSERT INTO ledger_facts VALUES ('ledger_id', ?), ('mark', '0') ON CONFLICT DO NOTHING",
                (secrets.token_hex(16),),
            )
            _note_checksums(connection)
    except apsw.Error as error:
        raise failed(error) from error
    return applied


def _note_checksums(connection: apsw.Connection) -> None:
    """Record in the ledger that the file has checksums: a flipped bit in its header could deny it."""
    if checksums.has(connection):
        connection.execute("INSERT INTO ledger_facts VALUES ('page_checksums', 'on') ON CONFLICT DO NOTHING")
    elif connection.execute("SELECT 1 FROM ledger_facts WHERE name = 'page_checksums'").fetchall():
        raise StoreUnavailable(
            "SQLite: the ledger was created with page checksums, but the header of its file says that it has "
            "none: if the file is damaged, restore a backup; if a tool dropped them in a copy, run "
            "`holdfast store migrate` to add them again"
        )


@contextlib.contextmanager
def _exclusive(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class SqliteStore:
    """The ledger in one file, or in memory for tests. Several processes may use the same file."""

    def __init__(
        self, path: Path | None, *, clock: Clock, may_upgrade: bool = False, vault: Vault | None = None
    ) -> None:
        """Raises KeyMissing or KeyWrong when the ledger has a key and the vault does not have the same."""
        self.path = path
        # Without a vault nothing can be sealed in a file: values would be lost with a key in memory.
        self.vault = vault or Vault(MemoryKey() if path is None else NoKey())
        self.sealing = Sealing(self.vault)
        # All processes that share the file are on this machine and have the same clock.
        self.clock = clock
        self._hints = Hints()
        self._queries = load_queries("sqlite")
        self._guard: FileGuard | None = None
        connection = _create(path)
        if may_upgrade and path is not None and not checksums.has(connection):
            connection.close()
            _give_checksums(path)
            connection = _create(path)
        try:
            has_lost = path is not None and _has_lost_commits(path, connection)
            migrate_file(connection, may_upgrade=may_upgrade)
            self._only = Snapshots(connection, self._queries, self.vault)
            self._only.run(self.vault.begin)
            if path is not None and has_lost:
                self._mark_ahead(path)
            if path is not None:
                self._guard = FileGuard.watch(path)
            self._held = None if path is None else self._only.run(partial(why_held, path))
        except BaseException:
            connection.close()
            if self._guard is not None:
                self._guard.release()
            raise
        self._check = _no_file if self._guard is None else self._guard.check
        session = SqliteSession(connection, self._queries, self.vault, self._check)
        self._is_closed = False
        self._has_news = False
        self._is_over = threading.Event()
        self._writer = Writer([session], on_commit=self._committed)
        self.vault.ask = partial(self.write_now, self.vault.key)
        self.vault.look = partial(self.read_now, self.vault.find)
        self._marker = threading.Thread(target=self._keep_marking, name="holdfast-marker", daemon=True)
        if path is not None:
            self._marker.start()
        self._readers: queue.SimpleQueue[Snapshots] = queue.SimpleQueue()
        self._reader_slots = threading.Semaphore(READERS)

    # --- writing

    def write(self, write: Write[T]) -> Coroutine[Any, Any, T]:
        return self._writer.write(write)

    def write_now(self, write: Write[T]) -> T:
        return self._writer.write_now(write)

    def _committed(self, topics: set[str]) -> None:
        self._has_news = True
        self._hints.give(topics)

    # --- reading

    async def read(self, read: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self.read_now, read)

    def read_now(self, read: Callable[[Tx], T]) -> T:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        if self.path is None:
            return self._writer.exclusively(lambda _session: self._look(read))
        with self._reader_slots:
            reader = self._take_reader(self.path)
            try:
                return reader.run(read)
            finally:
                self._readers.put(reader)

    def _look(self, read: Callable[[Tx], T]) -> T:
        """In memory the writer's connection is the only one, so a read uses it in read-only mode."""
        self._only.connection.execute("PRAGMA query_only = ON")
        try:
            return self._only.run(read)
        finally:
            self._only.connection.execute("PRAGMA query_only = OFF")

    def _take_reader(self, path: Path) -> Snapshots:
        try:
            return self._readers.get_nowait()
        except queue.Empty:
            self._check()
            return Snapshots(connect(path, is_reader=True), self._queries, self.vault)

    async def wait_for(self, topic: str, timeout_s: float) -> bool:
        return await self._hints.wait_for(topic, timeout_s)

    # --- the mark beside the database

    def held_why(self) -> str | None:
        return self._held

    def accept(self) -> None:
        self._held = None
        self.save_mark()

    def save_mark(self) -> None:
        """Raise the mark in the database first, then in the file, so that the file is never ahead."""
        if self.path is None or self._held is not None:
            return
        now = self.clock.now()

        def raise_mark(tx: Tx) -> Watermark:
            mark = mark_in(tx) + 1
            tx.boots.set_fact("mark", str(mark))
            return Watermark(ledger_id=tx.boots.fact("ledger_id") or "", mark=mark, written_at=to_micros(now))

        watermark.write(watermark.mark_path(self.path), self.write_now(raise_mark))

    def _mark_ahead(self, path: Path) -> None:
        """Set the mark ahead of a database that lost commits, so that resumes are held."""
        beside, now = watermark.mark_path(path), to_micros(self.clock.now())
        if self._only.run(partial(why_held, path)) is None:
            mark, ledger_id = self._only.run(lambda tx: (mark_in(tx) + 1, tx.boots.fact("ledger_id") or ""))
            watermark.write(beside, Watermark(ledger_id=ledger_id, mark=mark, written_at=now))
        # Remove the frames that SQLite does not see; otherwise the next start would find them again.
        with contextlib.suppress(apsw.Error):
            self._only.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _keep_marking(self) -> None:
        """Save the mark at intervals, if something was written since."""
        while not self._is_over.wait(MARK_EVERY_S):
            self._look_around()
            if self._has_news:
                self._try_to_mark()
                self._has_news = False

    def _look_around(self) -> None:
        # If it finds a problem, the next commit raises.
        if self._guard is not None:
            with contextlib.suppress(HoldfastError):
                self._guard.look()

    def _try_to_mark(self) -> None:
        # Best effort: the mark is an additional check, and closing must work on a full disk.
        with contextlib.suppress(HoldfastError, OSError, apsw.Error):
            self.save_mark()

    # --- operations

    def backup(self, target: str) -> None:
        """A consistent copy with SQLite's own backup, page by page, while other processes write."""
        if self.path is None:
            self._writer.exclusively(lambda session: copy_whole(session.connection, Path(target)))  # type: ignore[attr-defined]
            return
        self._check()
        source = connect(self.path, is_reader=True)
        try:
            copy_whole(source, Path(target))
        finally:
            source.close()
        self._check()

    def verify(self) -> list[str]:
        """SQLite's own check of every page and index, then every digest and every count."""
        # Imported here, because it needs the row modules of all tables, which slows down starting.
        from holdfast.store.verify import verify

        try:
            return self._name_damaged_pages() + verify(self.read_now, problems_of_pages)
        except StoreUnavailable as error:
            return [str(error)]

    def _name_damaged_pages(self) -> list[str]:
        if self.path is None:
            return []
        self._check()
        with contextlib.closing(connect(self.path, is_reader=True)) as connection:
            return name_damaged_pages(connection)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_over.set()
        if self._marker.is_alive():
            self._marker.join()
        self._try_to_mark()
        self._is_closed = True
        self._writer.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        if self._guard is not None:
            self._guard.release()


def _no_file() -> None:
    """The check of a ledger in memory, which has no file to delete or replace."""


def _has_lost_commits(path: Path, connection: apsw.Connection) -> bool:
    """Whether the -wal was damaged after a process died, which hides the commits after the damage."""
    try:
        if not wal.is_filled(connection):
            return False
        # No other process writes meanwhile. Only another connection can count the frames that SQLite sees.
        with _exclusive(connection), contextlib.closing(connect(path, is_reader=True)) as other:
            seen, _ = other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            return wal.has_lost_commits(connection, seen)
    except apsw.Error as error:
        raise failed(error) from error


def _give_checksums(path: Path) -> None:
    try:
        checksums.give(path)
    except apsw.BusyError as error:
        raise StoreUnavailable(
            f"another process has {path} open, so page checksums cannot be added; stop that process, then "
            "run `holdfast store migrate`"
        ) from error
    except apsw.Error as error:
        raise failed(error) from error


@functools.cache
def _new_ledger() -> bytes:
    """A ledger that is set up but has no id yet. Copying it takes a hundredth of the time that setting one up
    takes, and a test may open thousands in memory."""
    with contextlib.closing(connect(None)) as connection:
        migrate_file(connection, may_upgrade=False)
        connection.execute("DELETE FROM ledger_facts WHERE name = 'ledger_id'")
        return bytes(connection.serialize("main"))


def _create(path: Path | None) -> apsw.Connection:
    """Open the file, created with a private umask; its directory is created, too."""
    if path is None:
        connection = connect(None)
        connection.deserialize("main", _new_ledger())
        return connection
    try:
        trust.make_private_directory(path.parent)
        with private_umask():
            connection = connect(path)
        # By path, never through a descriptor: closing one would drop SQLite's locks.
        path.chmod(0o600)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror}; choose a path that you can write to") from error
    return connection
