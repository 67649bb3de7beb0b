"""A ledger that several stores open, each as a process of its own would."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from holdfast.core.seal_mode import SealMode
from holdfast.store import Store
from holdfast.store.sealing import MemoryKey, OuterKey, Vault
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.engine.stage import Stage
from tests.new_ledgers import put_new_ledger
from tests.servers import PostgresServer


class TickingClock(FakeClock):
    """Time passes with every look at it, as it does outside of tests: a fork tells by it what came first."""

    def now(self) -> datetime:
        return self.advance(milliseconds=1)


class SharedLedger:
    """One ledger. Each store that is opened on it has the key that lies outside of the database, and has to
    find the ledger's own key itself."""

    def __init__(self, home: Path, open_one: Callable[[FakeClock, Vault], Store]) -> None:
        self.home = home
        self.clock = TickingClock()
        self.outer: OuterKey = MemoryKey()
        self.mode = SealMode.SECRETS
        self._open = open_one
        self._opened = contextlib.ExitStack()

    def open(self) -> Store:
        store = self._open(self.clock, Vault(self.outer, self.mode))
        self._opened.callback(store.close)
        return store

    def stage(self) -> Stage:
        stage = Stage(self.open(), self.clock, self.home / "boots")
        self._opened.callback(stage.kill)
        return stage

    def close(self) -> None:
        """Every store; others may be opened afterwards."""
        self._opened.close()


@contextlib.contextmanager
def shared_sqlite_ledger(directory: Path | None = None) -> Iterator[SharedLedger]:
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir=directory or _quick()) as name:
        home = Path(name)
        put_new_ledger(home / "ledger.db")
        shared_ledger = SharedLedger(
            home, lambda clock, vault: SqliteStore(home / "ledger.db", clock=clock, vault=vault)
        )
        with contextlib.closing(shared_ledger):
            yield shared_ledger


def _quick() -> str | None:
    """In memory, where there is such a place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.contextmanager
def shared_postgres_ledger(server: PostgresServer, home: Path) -> Iterator[SharedLedger]:
    from holdfast.store.postgres import PostgresStore  # a quarter of a second that SQLite need not pay

    url = server.create_database()
    shared_ledger = SharedLedger(home, lambda clock, vault: PostgresStore(url, clock=clock, vault=vault))
    with contextlib.closing(shared_ledger):
        yield shared_ledger
    server.drop_database(url)
