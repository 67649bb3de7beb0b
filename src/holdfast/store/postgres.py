"""PostgreSQL: several writers, SKIP LOCKED claims, readers on snapshots, notifications by LISTEN/NOTIFY."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import errors

from holdfast.core.clock import Clock
from holdfast.core.errors import Refused, SettingsError, StoreUnavailable
from holdfast.store.clock import LedgerClock, clock_for
from holdfast.store.contract import Busy, JoinedWrite, Statements, Write
from holdfast.store.expected_schema import Index, cannot_make
from holdfast.store.hints import Hints
from holdfast.store.migrations import Migration, load_migrations, migrate
from holdfast.store.postgres_connection import (
    IDLE,
    PostgresConnection,
    PostgresStatements,
    explain,
    is_lost,
    may_retry,
    read_url,
    time_in,
    unavailable,
)
from holdfast.store.queries import load_queries
from holdfast.store.sealing import NoKey, Sealing, Vault
from holdfast.store.topics import Topics
from holdfast.store.transaction import Tx
from holdfast.store.write_session import CommitUnknown
from holdfast.store.writer import Writer

if TYPE_CHECKING:
    from holdfast.store.dashboard_views import SqlView, ViewReport

T = TypeVar("T")

READERS = 4
MAX_WRITERS = 16
# PostgreSQL caches 64 subtransactions of a transaction; with more, the reads of all clients get slower.
MAX_TRANSACTION = 60

_WRITING = {"lock_timeout": "10s", "statement_timeout": "60s", "default_transaction_read_only": "off"}
_READING = {"lock_timeout": "10s", "statement_timeout": "300s"}
# A notification may be lost in a crash of the server, so do not wait for the disk.
_TELLING = {"lock_timeout": "5s", "statement_timeout": "10s", "synchronous_commit": "off"}

# On the thread of an event loop, wait for a lock no longer than this.
_IMPATIENT = b"SET lock_timeout = '50ms'"
_PATIENT = b"SET lock_timeout = '10s'"
_NOT_COMMITTED = "the connection was lost before the statement was committed"
# Also asks for the server's time, in the same round trip.
_BEGIN_READING = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT holdfast_now()"

_MIGRATION_LOCK = int.from_bytes(b"holdfast", "big")


class PostgresSession:
    """One connection that writes; it connects on first use, and reconnects when it was lost."""

    def __init__(self, link: PostgresConnection, clock: LedgerClock, vault: Vault) -> None:
        self._link = link
        self._clock = clock
        self.tx = Tx(PostgresStatements(link), vault)
        self._receipt = secrets.token_hex(8)
        self._number = 0
        self._is_patient = True
        self._has_savepoint = False

    def begin(self, *, may_wait: bool) -> None:
        """Begin a transaction. It writes its number on a receipt row, which shows later whether it committed.

        (PostgreSQL's own transaction id does not work: after a crash another transaction may get it.) The
        answer includes the server's time, which the renewal of leases needs.
        """
        self._get_ready(may_wait=may_wait)
        self._number += 1
        self._link.prepare("write_receipt")
        begin = f"BEGIN; EXECUTE write_receipt({self._number}, '{self._receipt}')".encode()
        asked = self._clock.steady_ns()
        while (answer := self._link.command(begin)).command_tuples != 1:
            # The receipt does not exist yet, or another process deleted it. It must exist before the
            # transaction begins, so that `has_committed` can wait for its row lock.
            self._link.command(b"ROLLBACK")
            self.tx.statements.run("insert_receipt", {"id": self._receipt})
            asked = self._clock.steady_ns()
        self._clock.learn(asked, time_in(answer))
        self._has_savepoint = False

    def commit(self) -> None:
        try:
            result = self._link.command(b"COMMIT")
        except psycopg.Error as error:
            if self._link.is_open:
                raise
            receipt, number = self._receipt, self._number
            # This receipt now belongs to this commit alone; the next transaction gets another one.
            self._receipt, self._number = secrets.token_hex(8), 0
            raise CommitUnknown(lambda session: session.has_committed(receipt, number)) from error
        if result.command_status != b"COMMIT":
            # A write caught an error that it should have raised; nothing was committed.
            raise errors.InFailedSqlTransaction("the transaction had failed before its commit")

    def has_committed(self, receipt: str, number: int) -> bool:
        """Whether a transaction with a lost commit answer committed; waits while the server processes it."""
        self._get_ready(may_wait=True)
        row = self.tx.statements.one("read_receipt", {"id": receipt})
        return row is not None and row[0] == number

    def rollback(self) -> None:
        if not self._link.has_transaction:
            return
        try:
            self._link.command(b"ROLLBACK")
        except psycopg.Error:
            # Closing the connection rolls back, too; the error that led here matters more.
            self._link.close()

    def savepoint(self) -> None:
        # One round trip for both: the end of the last write's savepoint and the beginning of this one's.
        self._link.command(
            b"RELEASE member; SAVEPOINT member" if self._has_savepoint else b"SAVEPOINT member"
        )
        self._has_savepoint = True

    def release(self) -> None:
        """Does nothing: the next savepoint or the commit releases it."""

    def rollback_to(self) -> None:
        self._link.command(b"ROLLBACK TO member")

    def is_open(self) -> bool:
        # A failed transaction is open: ROLLBACK TO its savepoint makes it usable again.
        return self._link.has_transaction

    def alone(self, write: JoinedWrite[T], *, may_wait: bool) -> T:
        raw = self._link.raw
        if may_wait is not self._is_patient or raw is None or raw.transaction_status != IDLE:
            self._get_ready(may_wait=may_wait)
        is_done = self._link.guarded(write.statement, write.row)
        answer = write.when_done if is_done else write(self.tx)
        raw = self._link.raw
        if raw is None or raw.transaction_status != IDLE:
            raise psycopg.OperationalError(_NOT_COMMITTED)
        return answer

    def crowd(self, write: Write[T], *, may_wait: bool) -> T:
        if may_wait is not self._is_patient or not self._link.is_idle:
            self._get_ready(may_wait=may_wait)
        answer = write(self.tx)
        if not self._link.is_idle:
            raise psycopg.OperationalError(_NOT_COMMITTED)
        return answer

    def explain(self, error: Exception) -> Exception | None:
        return explain(error)

    def may_retry(self, error: Exception) -> bool:
        return may_retry(error)

    def close(self) -> None:
        if self._link.is_open:
            with contextlib.suppress(psycopg.Error):  # the next process that opens the ledger cleans up, too
                self.tx.statements.run("delete_receipt", {"id": self._receipt})
        self._link.close()

    def _get_ready(self, *, may_wait: bool) -> None:
        if not self._link.is_open:
            if not may_wait:
                raise Busy
            self._link.open()
            self._is_patient = True
        self.rollback()  # an interrupt may have left a transaction open
        if may_wait is not self._is_patient:
            self._link.command(_PATIENT if may_wait else _IMPATIENT)
            self._is_patient = may_wait


class _Migrating:
    """Holds the migration lock until its transaction ends."""

    def __init__(self, link: PostgresConnection) -> None:
        self._link = link
        self._statements = PostgresStatements(link)

    def applied(self) -> list[tuple[int, str]]:
        # Checked first, so that a role that may not create schemas can use an existing one.
        if self._link.ask("SELECT to_regclass('holdfast.schema_migrations')::text")[0][0] is None:
            self._link.command(b"CREATE SCHEMA IF NOT EXISTS holdfast")
            self._link.command(
                b"CREATE TABLE schema_migrations "
                b"(number BIGINT PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL)"
            )
        found = self._link.ask("SELECT number, digest FROM schema_migrations ORDER BY number")
        return [(row[0], row[1]) for row in found]

    def apply(self, migration: Migration) -> None:
        self._link.command(migration.sql.encode())
        self._link.ask(
            "INSERT INTO schema_migrations VALUES ($1, $2, $3)",
            str(migration.number),
            migration.name,
            migration.digest,
        )

    def columns(self) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in self._statements.all("schema_columns", {})]

    def indexes(self) -> list[str]:
        return [row[0] for row in self._statements.all("schema_indexes", {})]

    def make_index(self, index: Index) -> None:
        try:
            self._link.command(index.sql.encode())
        except (psycopg.IntegrityError, psycopg.ProgrammingError) as error:
            raise cannot_make(index, error) from error

    def views(self) -> ViewReport:
        from holdfast.store.dashboard_views import compare_views

        found = self._statements.all("taken_names", {})
        return compare_views("postgres", {row[0]: row[1] for row in found})

    def make_views(self, report: ViewReport) -> None:
        if self._try_views(
            [f"DROP VIEW {', '.join(report.present)}"] if report.present else [], report.views
        ):
            return
        # Views of the user show some of ours, which cannot be dropped then: replace what can be.
        for view in report.views:
            self._try_views([], [view])

    def _try_views(self, first: Sequence[str], views: Sequence[SqlView]) -> bool:
        self._link.command(b"SAVEPOINT views")
        try:
            for statement in first:
                self._link.command(statement.encode())
            for view in views:
                self._link.command(f"CREATE OR REPLACE VIEW {view.name} AS {view.sql}".encode())
                self._link.command(f"COMMENT ON VIEW {view.name} IS '{view.mark}'".encode())
        except psycopg.DatabaseError as error:
            if is_lost(error):
                raise
            self._link.command(b"ROLLBACK TO views; RELEASE views")
            return False
        self._link.command(b"RELEASE views")
        return True

    def is_as_checked(self) -> bool:
        """PostgreSQL does not count the changes of a schema, so each process compares it."""
        return False

    def note_checked(self) -> None:
        pass


def migrate_database(
    link: PostgresConnection, *, may_upgrade: bool, known: Sequence[Migration] | None = None
) -> list[Migration]:
    """Create or upgrade the schema atomically; a second process waits and finds it done."""
    link.command(b"BEGIN")
    try:
        # A migration may take long, and a second process waits for it.
        link.command(b"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        link.ask("SELECT pg_advisory_xact_lock($1)", str(_MIGRATION_LOCK))
        applied = migrate(
            _Migrating(link),
            load_migrations("postgres") if known is None else known,
            may_upgrade=may_upgrade,
        )
        link.ask(
            "INSERT INTO ledger_facts VALUES ('ledger_id', $1) ON CONFLICT DO NOTHING", secrets.token_hex(16)
        )
        link.execute("rebase_events", {})
        link.execute("delete_old_receipts", {})
        link.command(b"COMMIT")
    except BaseException:
        if link.has_transaction:
            link.command(b"ROLLBACK")
        raise
    return applied


class PostgresStore:
    """The ledger in the schema `holdfast` of one database. Several gateways on several hosts may share it."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        may_upgrade: bool = False,
        writers: int = 3,
        may_write_inline: bool = True,
        vault: Vault | None = None,
    ) -> None:
        """Raises KeyMissing or KeyWrong when the ledger has a key and the vault does not have the same one.

        Without `may_write_inline` no write runs on the thread of an event loop: a server that stalls would
        block the loop and everything else that it serves.
        """
        if not 1 <= writers <= MAX_WRITERS:
            raise SettingsError(f"store: {writers} writers; choose a number from 1 to {MAX_WRITERS}")
        # The time of this ledger is the server's, unless the caller passes a clock.
        self.clock, self._server_clock = clock_for(clock)
        self.vault = vault or Vault(NoKey())
        self.sealing = Sealing(self.vault)
        self._address = read_url(url)
        self._queries = load_queries("postgres")
        self._hints = Hints()
        self._is_closed = False
        first = self._open_first(may_upgrade=may_upgrade)
        links = [first, *(self._link(_WRITING) for _ in range(writers - 1))]
        telling = self._link(_TELLING)
        self._topics = Topics(telling, PostgresStatements(telling), self._hints, errand=_fold_counters)
        self._readers: queue.SimpleQueue[_Reader] = queue.SimpleQueue()
        self._reader_slots = threading.Semaphore(READERS)
        self._writer = Writer(
            [PostgresSession(link, self._server_clock, self.vault) for link in links],
            on_commit=self._committed,
            max_transaction=MAX_TRANSACTION,
            may_run_inline=may_write_inline,
        )
        self.vault.ask = partial(self.write_now, self.vault.key)
        self.vault.look = partial(self.read_now, self.vault.find)

    def _link(self, settings: Mapping[str, str]) -> PostgresConnection:
        return PostgresConnection(self._address, self._queries, **settings)

    def _open_first(self, *, may_upgrade: bool) -> PostgresConnection:
        """The first connection, to a ledger that is set up.

        If this process is frozen while it sets the ledger up, the server ends the transaction and closes the
        connection. The server still answers, so a second connection tries again.
        """
        try:
            return self._set_up(self._opened(), may_upgrade=may_upgrade)
        except psycopg.Error as error:
            if not is_lost(error):
                raise unavailable(error) from error
        try:
            return self._set_up(self._opened(), may_upgrade=may_upgrade)
        except psycopg.Error as error:
            raise unavailable(error) from error

    def _opened(self) -> PostgresConnection:
        link = self._link(_WRITING)
        try:
            link.open()
        except psycopg.Error as error:
            link.close()
            raise unavailable(error) from error
        except BaseException:
            link.close()
            raise
        return link

    def _set_up(self, link: PostgresConnection, *, may_upgrade: bool) -> PostgresConnection:
        try:
            migrate_database(link, may_upgrade=may_upgrade)
            link.ask_time(self._server_clock)
            self.vault.begin(Tx(PostgresStatements(link), self.vault))
        except BaseException:
            link.close()
            raise
        return link

    # --- writing

    def write(self, write: Write[T]) -> Coroutine[Any, Any, T]:
        return self._writer.write(write)

    def write_now(self, write: Write[T]) -> T:
        return self._writer.write_now(write)

    def _committed(self, topics: set[str]) -> None:
        self._hints.give(topics)
        self._topics.tell(topics)

    # --- reading

    async def read(self, read: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self.read_now, read)

    def read_now(self, read: Callable[[Tx], T]) -> T:
        with self._reader_slots:
            self._require_open()
            reader = self._take_reader()
            try:
                return reader.run(read)
            finally:
                self._readers.put(reader)

    def _take_reader(self) -> _Reader:
        try:
            return self._readers.get_nowait()
        except queue.Empty:
            return _Reader(self._link(_READING), self._server_clock, self.vault)

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    async def wait_for(self, topic: str, timeout_s: float) -> bool:
        self._require_open()
        self._topics.listen()
        return await self._hints.wait_for(topic, timeout_s)

    # --- operations

    def held_why(self) -> str | None:
        """The server guards its own files, so resumes are held only if the ledger itself says so."""
        return self.read_now(lambda tx: tx.boots.fact("held"))

    def accept(self) -> None:
        """Does nothing: a PostgreSQL database has no mark that an operator could accept."""

    def backup(self, target: str) -> None:
        raise Refused(
            "use PostgreSQL's own tools to back it up, while it is in use: "
            f"pg_dump --schema=holdfast --format=custom --file={target} DATABASE"
        )

    def verify(self) -> list[str]:
        """Checks the catalog, then every digest and every count."""
        # Imported here, because it needs the row modules of all tables, which slows down starting.
        from holdfast.store.verify import problems_of_catalog, verify

        try:
            return verify(self.read_now, problems_of_catalog)
        except StoreUnavailable as error:
            return [str(error)]

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._writer.close()
        self._topics.close()
        for _ in range(READERS):  # each slot is free once its reader is done
            self._reader_slots.acquire()
        while not self._readers.empty():
            self._readers.get_nowait().close()
        for _ in range(READERS):
            self._reader_slots.release()


def _fold_counters(statements: Statements) -> None:
    statements.run("fold_counters", {})


class _Reader:
    """A connection that reads one snapshot at a time."""

    def __init__(self, link: PostgresConnection, clock: LedgerClock, vault: Vault) -> None:
        self._link = link
        self._clock = clock
        self._tx = Tx(PostgresStatements(link), vault)

    def run(self, read: Callable[[Tx], T]) -> T:
        try:
            try:
                return self._run_once(read)
            except psycopg.OperationalError as error:
                if not is_lost(error):
                    raise
                # The connection may have been lost long ago, while it was idle.
                self._link.close()
                return self._run_once(read)
        except psycopg.Error as error:
            failure = explain(error)
            if failure is None:
                raise
            raise failure from error

    def _run_once(self, read: Callable[[Tx], T]) -> T:
        if not self._link.is_open:
            self._link.open()
        asked = self._clock.steady_ns()
        try:
            self._clock.learn(asked, time_in(self._link.command(_BEGIN_READING)))
            return read(self._tx)
        finally:
            if self._link.has_transaction:
                self._link.command(b"ROLLBACK")

    def close(self) -> None:
        self._link.close()
