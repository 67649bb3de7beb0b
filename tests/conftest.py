"""Fixtures for every test: a clock, a store on every backend, and one real PostgreSQL server at most.

A test that asks for `store` runs once on each backend and never names one.
"""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import hypothesis
import pytest

from holdfast.core.clock import to_micros
from holdfast.core.redaction import without_known_secrets
from holdfast.store import Store
from holdfast.store.outer_keys import VariableKey
from holdfast.store.sealing import Vault
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.servers import PostgresServer

if TYPE_CHECKING:
    import psycopg

    from tests.shared_ledgers import SharedLedger

# How long one example takes tells about the machine, not about the code.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

_WHOLLY_SLOW = "\npytestmark = pytest.mark.slow\n"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Before a commit, pytest does not even read what will not be run."""
    if config.getoption("-m") != "not slow" or collection_path.suffix != ".py":
        return None
    return True if _WHOLLY_SLOW in collection_path.read_text(encoding="utf-8") else None


@pytest.fixture(autouse=True, scope="session")
def one_key() -> Iterator[None]:
    """Tests on one server have many homes: like the hosts of a fleet they are given one key, and none is
    made in the home of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_KEY", secrets.token_hex(32))
        yield


def a_vault() -> Vault:
    """With that key, for a store that a test opens itself."""
    return Vault(VariableKey(os.environ))


@pytest.fixture(autouse=True)
def no_secret_is_known() -> Iterator[None]:
    """What one test keeps secret, in the process that all tests share, is no secret of the next."""
    with without_known_secrets():
        yield


@pytest.fixture
def hangups_are_heard() -> Iterator[None]:
    """Processes that the test starts hear SIGHUP, also when the tests run under nohup.

    A child inherits an ignored signal, but not a handler. With a handler that does nothing, the tests
    themselves still outlive their terminal.
    """
    before = signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    yield
    signal.signal(signal.SIGHUP, before)


class Ledger:
    """The ledger that the tests of a module use one after another, emptied after each.

    Its first store stays open, too. That takes 1 to 3 ms a test, where a new file takes 15, a new store on
    PostgreSQL 25 and a new database there 40.
    """

    # What the database raises when one of its constraints refuses a row.
    refusal: type[Exception]

    def __init__(self, clock: FakeClock) -> None:
        # Moves what the ledger takes for the time, too, where that is not the caller's clock.
        self.clock = clock
        self._start = clock.now()
        self._shared: Any = None
        self._others: list[Store] = []
        self._is_first = True

    def open(self) -> Store:
        """A store on this ledger, closed with the test. In memory each has a ledger of its own."""
        if not self._is_first:
            self._others.append(self.new_store())
            return self._others[-1]
        self._is_first = False
        if self._shared is None:
            self._shared = self.new_store()
        shared: Store = self._shared
        return shared

    def begin(self) -> None:
        self.clock.set(self._start)
        self._is_first = True

    def end(self) -> None:
        """Ready for the next test; a shared store that this one closed is not used again."""
        for store in self._others:
            store.close()
        self._others.clear()
        if self._shared is not None and self._shared._is_closed:
            self._shared = None
        self.empty(self._shared)

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()

    def new_store(self) -> Store:
        raise NotImplementedError

    def empty(self, shared: Any) -> None:
        raise NotImplementedError


class SqliteLedger(Ledger):
    refusal = apsw.ConstraintError

    def __init__(self, directory: Path | None) -> None:
        super().__init__(FakeClock())
        self._directory = directory
        self._files = 0

    def new_store(self) -> Store:
        path = None if self._directory is None else self._directory / f"{self._files}" / "ledger.db"
        return SqliteStore(path, clock=self.clock, vault=a_vault())

    def empty(self, shared: SqliteStore | None) -> None:
        if shared is None:
            self._files += 1
        else:
            shared._writer.exclusively(lambda session: self._delete_all(session.connection))  # type: ignore[attr-defined]

    def _delete_all(self, connection: apsw.Connection) -> None:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").get
        connection.execute(
            f"PRAGMA foreign_keys = OFF; BEGIN; {deletes(names)}; COMMIT; PRAGMA foreign_keys = ON"
        )


class ServerClock(FakeClock):
    """A clock that the server's leases follow, through a connection of its own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__()
        self._connection = connection

    def set(self, moment: datetime) -> None:
        super().set(moment)
        self._connection.execute("UPDATE public.test_clock SET micros = %s", (to_micros(moment),))


class PostgresLedger(Ledger):
    def __init__(self, url: str) -> None:
        import psycopg

        self.refusal = psycopg.errors.IntegrityError
        self._url = url
        self._connection: psycopg.Connection[Any] = psycopg.connect(
            url, autocommit=True, options="-c search_path=holdfast"
        )
        names = self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
        self._deletes = deletes([name for (name,) in names])
        # As SQLite does without foreign keys: otherwise the order of the tables would matter.
        self._connection.execute("SET session_replication_role = replica")
        super().__init__(ServerClock(self._connection))

    def new_store(self) -> Store:
        from holdfast.store.postgres import PostgresStore

        return PostgresStore(self._url, clock=self.clock, vault=a_vault())

    def empty(self, shared: Any) -> None:  # noqa: ARG002 - other stores of other processes have written, too
        self._connection.execute(self._deletes)

    def close(self) -> None:
        super().close()
        self._connection.close()


def deletes(tables: list[str]) -> str:
    """Quicker than TRUNCATE, which makes new files for every table and index."""
    kept = {"schema_migrations", "ledger_facts", "sqlite_sequence"}
    # Sorted: `counter_deltas` come before `counters`, as the code that folds one into the other takes them.
    deletes = [f"DELETE FROM {table}" for table in sorted(tables) if table not in kept]
    return "; ".join([*deletes, "DELETE FROM ledger_facts WHERE name NOT IN ('ledger_id', 'mark')"])


@contextmanager
def quick_directory(otherwise: Path) -> Iterator[Path]:
    """In memory, where there is such a place: for tests of what is stored, not of what survives."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK | os.X_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir=shared) as directory:
        yield Path(directory)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    with quick_directory(tmp_path) as directory:
        yield directory


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The server that all tests share; those that stop it start one of their own."""
    with PostgresServer.start(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """A database with our schema, whose leases follow the clock of a test."""
    import psycopg

    from holdfast.store.postgres import PostgresStore

    url = postgres_server.create_database()
    PostgresStore(url, clock=FakeClock()).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.test_clock AS SELECT CAST(0 AS bigint) AS micros")
        connection.execute(
            "CREATE OR REPLACE FUNCTION holdfast.holdfast_now() RETURNS BIGINT LANGUAGE sql VOLATILE"
            " AS $$ SELECT micros FROM public.test_clock $$"
        )
    return url


@pytest.fixture(scope="module")
def postgres_ledger(postgres_url: str) -> Iterator[Ledger]:
    ledger = PostgresLedger(postgres_url)
    yield ledger
    ledger.close()


@pytest.fixture(scope="module")
def sqlite_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with quick_directory(tmp_path_factory.mktemp("ledger")) as directory:
        ledger = SqliteLedger(directory)
        yield ledger
        ledger.close()


@pytest.fixture(scope="module")
def memory_ledger() -> Iterator[Ledger]:
    ledger = SqliteLedger(None)
    yield ledger
    ledger.close()


# What is tried on several backends is tried on one of them before every commit. The suite of the store is
# tried in memory, too (its conftest): it shows that both do the same, so for the rest once is enough.
@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    ledger: Ledger = request.getfixturevalue(f"{request.param}_ledger")
    ledger.begin()
    yield ledger
    ledger.end()


@pytest.fixture
def clock(ledger: Ledger) -> FakeClock:
    return ledger.clock


@pytest.fixture
def store(ledger: Ledger) -> Store:
    return ledger.open()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def shared_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedLedger]:
    """A ledger that several stores open one after another, each with the same key outside of it."""
    # Only a test that needs it pays for the engine.
    from tests.shared_ledgers import shared_postgres_ledger, shared_sqlite_ledger

    if request.param == "sqlite":
        with shared_sqlite_ledger() as shared_ledger:
            yield shared_ledger
        return
    with shared_postgres_ledger(request.getfixturevalue("postgres_server"), tmp_path) as shared_ledger:
        yield shared_ledger


@pytest.fixture
def refusal(ledger: Ledger) -> type[Exception]:
    """What the database raises when one of its constraints refuses a row."""
    return ledger.refusal
