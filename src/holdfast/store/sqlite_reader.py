"""Reads a ledger's file while other processes write it; creates, migrates, locks and guards nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.core.clock import SystemClock
from holdfast.core.errors import NoLedger, PageDamaged, SchemaMismatch, StoreUnavailable
from holdfast.store import checksums
from holdfast.store.expected_schema import Index, problems_of_indexes, shape_of
from holdfast.store.migrations import check_readable, load_migrations, missing_indexes
from holdfast.store.queries import load_queries
from holdfast.store.sealing import NoKey, Vault
from holdfast.store.sqlite_file import (
    Snapshots,
    connect_beside,
    copy_whole,
    library_version,
    name_damaged_pages,
    problems_of_pages,
    why_held,
)
from holdfast.store.transaction import Tx
from holdfast.store.verify import verify

if TYPE_CHECKING:
    from holdfast.store.dashboard_views import ViewReport

T = TypeVar("T")

SMALLEST_BYTES = 512


class SqliteReader:
    """One read-only connection, for a command that reads and exits; not for the gateway's process."""

    def __init__(
        self,
        path: Path,
        *,
        must_be_current: bool = True,
        may_be_damaged: bool = False,
        vault: Vault | None = None,
    ) -> None:
        """Raises NoLedger if there is none, and SchemaMismatch if this Holdfast cannot read it.

        With `may_be_damaged`, a ledger whose schema cannot be read is opened all the same, to be verified.
        """
        self.path = path
        self.clock = SystemClock()
        if not path.exists():
            raise NoLedger(str(path))
        self.vault = Vault(NoKey(), is_lenient=True) if vault is None else vault
        self._snapshots = Snapshots(connect_beside(path), load_queries("sqlite"), self.vault)
        try:
            known = load_migrations("sqlite")
            check_readable(self.applied_migrations(), known, must_be_current=must_be_current)
            if must_be_current:
                shape_of(known).check_columns(self.read_now(_columns))
        except PageDamaged:
            if not may_be_damaged:
                self.close()
                raise
        except BaseException:
            self.close()
            raise

    def read_now(self, read: Callable[[Tx], T]) -> T:
        return self._snapshots.run(read)

    def applied_migrations(self) -> list[tuple[int, str]]:
        """Number and digest of each migration. An empty file that SQLite created is not a ledger yet."""

        def read(tx: Tx) -> list[tuple[int, str]]:
            if self._snapshots.connection.table_exists("main", "schema_migrations"):
                return [(row[0], row[1]) for row in tx.statements.all("applied_migrations", {})]
            if self._snapshots.connection.pragma("schema_version") == 0:
                # SQLite treats a file that was truncated to less than a page as a new one.
                if 0 < self.path.stat().st_size < SMALLEST_BYTES:
                    raise StoreUnavailable(f"SQLite: {self.path} is not a Holdfast database, or is truncated")
                raise NoLedger(str(self.path))
            raise SchemaMismatch(f"{self.path} is not a Holdfast database; choose another --store")

        return self.read_now(read)

    def missing_indexes(self) -> list[Index]:
        """The indexes that its migrations created and that are missing now."""
        found = self.read_now(lambda tx: [str(row[0]) for row in tx.statements.all("schema_indexes", {})])
        return missing_indexes(self.applied_migrations(), load_migrations("sqlite"), found)

    def views(self) -> ViewReport:
        from holdfast.store.dashboard_views import compare_views

        found = self.read_now(lambda tx: tx.statements.all("taken_names", {}))
        return compare_views("sqlite", {str(row[0]): row[1] for row in found})

    def held_why(self) -> str | None:
        """Why resumes are held, or the next gateway would hold them; None when they are not."""
        return self.read_now(lambda tx: why_held(self.path, tx))

    def verify(self, *, on_rows: Callable[[int], None] = lambda _rows: None) -> list[str]:
        """SQLite's own check of every page and index, then every digest and every count."""
        try:
            named = name_damaged_pages(self._snapshots.connection)
            with contextlib.suppress(PageDamaged):  # then the check of the tables below reports it
                named += problems_of_indexes(self.missing_indexes())
            return named + verify(self.read_now, problems_of_pages, on_rows=on_rows)
        except StoreUnavailable as error:
            return [str(error)]

    def backup(self, target: str, *, on_pages: Callable[[int, int], None] = lambda _done, _all: None) -> None:
        """A whole copy, page by page, while other processes write."""
        copy_whole(self._snapshots.connection, Path(target), on_pages=on_pages)

    def facts(self) -> dict[str, object]:
        """What SQLite reports about the file, for operators."""
        connection = self._snapshots.connection
        names = ("journal_mode", "page_count", "page_size", "freelist_count")
        facts: dict[str, object] = {name: connection.pragma(name) for name in names}
        return facts | {
            "sqlite_version": library_version(),
            "page_checksums": "on" if checksums.are_compared(connection) else "off",
        }

    def close(self) -> None:
        self._snapshots.close()


def _columns(tx: Tx) -> list[tuple[str, str]]:
    return [(str(row[0]), str(row[1])) for row in tx.statements.all("schema_columns", {})]
