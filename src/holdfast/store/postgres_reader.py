"""Reads a ledger on PostgreSQL while other processes write it; creates and migrates nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import psycopg

from holdfast.core.errors import NoLedger, Refused, StoreUnavailable
from holdfast.store.clock import LedgerClock
from holdfast.store.expected_schema import Index, problems_of_indexes, shape_of
from holdfast.store.migrations import check_readable, load_migrations, missing_indexes
from holdfast.store.postgres_connection import PostgresConnection, PostgresStatements, explain, read_url
from holdfast.store.queries import load_queries
from holdfast.store.sealing import NoKey, Vault
from holdfast.store.transaction import Tx
from holdfast.store.verify import problems_of_catalog, verify

if TYPE_CHECKING:
    from holdfast.store.dashboard_views import ViewReport

T = TypeVar("T")

_SETTINGS = {"lock_timeout": "10s", "statement_timeout": "300s", "default_transaction_read_only": "on"}
_BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresReader:
    """One read-only connection, for a command that reads and exits."""

    def __init__(self, url: str, *, must_be_current: bool = True, vault: Vault | None = None) -> None:
        """Raises NoLedger if there is none, and SchemaMismatch if this Holdfast cannot read it."""
        queries = load_queries("postgres")
        address = read_url(url)
        self._where = f"{address.get('dbname') or 'the database'} on {address.get('host') or 'this machine'}"
        self._link = PostgresConnection(address, queries, **_SETTINGS)
        self.vault = Vault(NoKey(), is_lenient=True) if vault is None else vault
        self._tx = Tx(PostgresStatements(self._link), self.vault)
        # The time of the ledger is its server's, as for its writers.
        self.clock = LedgerClock()
        try:
            known = load_migrations("postgres")
            check_readable(self.applied_migrations(), known, must_be_current=must_be_current)
            if must_be_current:
                shape_of(known).check_columns(self.read_now(_columns))
            self.read_now(lambda _tx: self._link.ask_time(self.clock))
        except BaseException:
            self.close()
            raise

    def read_now(self, read: Callable[[Tx], T]) -> T:
        try:
            if not self._link.is_open:
                self._link.open()
            self._link.command(_BEGIN)
            try:
                return read(self._tx)
            finally:
                if self._link.has_transaction:
                    self._link.command(b"ROLLBACK")
        except psycopg.Error as error:
            failure = explain(error)
            if failure is None:
                raise
            raise failure from error

    def applied_migrations(self) -> list[tuple[int, str]]:
        def read(tx: Tx) -> list[tuple[int, str]]:
            if self._link.ask("SELECT to_regclass('holdfast.schema_migrations')::text")[0][0] is None:
                raise NoLedger(self._where)
            return [(row[0], row[1]) for row in tx.statements.all("applied_migrations", {})]

        return self.read_now(read)

    def missing_indexes(self) -> list[Index]:
        """The indexes that its migrations created and that are missing now."""
        found = self.read_now(lambda tx: [str(row[0]) for row in tx.statements.all("schema_indexes", {})])
        return missing_indexes(self.applied_migrations(), load_migrations("postgres"), found)

    def views(self) -> ViewReport:
        from holdfast.store.dashboard_views import compare_views

        found = self.read_now(lambda tx: tx.statements.all("taken_names", {}))
        return compare_views("postgres", {str(row[0]): row[1] for row in found})

    def held_why(self) -> str | None:
        """The server guards its own files, so resumes are held only if the ledger itself says so."""
        return self.read_now(lambda tx: tx.boots.fact("held"))

    def verify(self, *, on_rows: Callable[[int], None] = lambda _rows: None) -> list[str]:
        """Checks the catalog, then every digest and every count."""
        try:
            missing = problems_of_indexes(self.missing_indexes())
            return missing + verify(self.read_now, problems_of_catalog, on_rows=on_rows)
        except StoreUnavailable as error:
            return [str(error)]

    def backup(
        self,
        target: str,
        *,
        on_pages: Callable[[int, int], None] = lambda _done, _all: None,  # noqa: ARG002 - no progress to report
    ) -> None:
        raise Refused(
            "use PostgreSQL's own tools to back it up, while it is in use: "
            f"pg_dump --schema=holdfast --format=custom --file={target} DATABASE"
        )

    def facts(self) -> dict[str, object]:
        """What the server reports about itself, for operators."""
        self.read_now(lambda _tx: None)
        return {
            name: self._link.show(name) for name in ("server_version", "synchronous_commit", "data_checksums")
        }

    def close(self) -> None:
        self._link.close()


def _columns(tx: Tx) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in tx.statements.all("schema_columns", {})]
