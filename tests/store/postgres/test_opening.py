"""How a store on PostgreSQL is opened and closed, and that no error shows its password."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.core.errors import Refused, SettingsError, StoreUnavailable
from holdfast.store import postgres_connection as link_module
from holdfast.store.migrations import load_migrations
from holdfast.store.postgres import PostgresStore
from holdfast.testing import FakeClock
from tests.servers import PostgresServer
from tests.store.postgres.sessions import SOON_S, ask, emit, feed

pytestmark = pytest.mark.slow


def test_stores_that_open_an_empty_database_together_set_it_up_once(
    open_store: Callable[..., PostgresStore], url: str, threads: ThreadPoolExecutor
) -> None:
    opened = [threads.submit(open_store) for _ in range(4)]
    for one in opened:
        one.result(SOON_S)

    numbers = [(one.number,) for one in load_migrations("postgres")]
    assert ask(url, "SELECT number FROM schema_migrations ORDER BY number") == numbers
    assert ask(url, "SELECT count(*) FROM ledger_facts WHERE name = 'ledger_id'") == [(1,)]


def test_everything_is_in_a_schema_of_its_own(store: PostgresStore, url: str) -> None:
    found = ask(
        url,
        "SELECT DISTINCT schemaname FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )

    assert found == [("holdfast",)]


def test_commits_are_durable_whatever_the_database_says(
    open_store: Callable[..., PostgresStore], url: str
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())

    store = open_store()
    found = store._writer.exclusively(lambda session: session._link.show("synchronous_commit"))  # type: ignore[attr-defined]

    assert found == "on"


def test_a_server_that_is_too_old_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "OLDEST_SERVER", 99)

    with pytest.raises(StoreUnavailable, match=r"PostgreSQL \d+ is too old; Holdfast needs 99 or newer"):
        PostgresStore(url, clock=FakeClock())


def test_a_closed_store_is_closed_and_leaves_no_thread(url: str) -> None:
    before = set(threading.enumerate())  # those of ledgers that other modules share
    store = PostgresStore(url, clock=FakeClock())
    emit(store, "wakes the thread that tells others")

    for _ in range(2):
        store.close()

    for use in (
        lambda: emit(store, "x"),
        lambda: feed(store),
        lambda: asyncio.run(store.wait_for("runs", 1)),
    ):
        with pytest.raises(StoreUnavailable, match="closed"):
            use()
    new = set(threading.enumerate()) - before
    assert [thread.name for thread in new if "holdfast" in thread.name] == []


def test_a_backup_is_left_to_the_tools_of_postgresql(store: PostgresStore) -> None:
    with pytest.raises(Refused, match="pg_dump --schema=holdfast"):
        store.backup("ledger.dump")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ada:SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:SESAME@/ledger?host=/nowhere",
        "postgresql://ada:SES AME@127.0.0.1/ledger",
        "postgresql://ada:%zzSESAME@127.0.0.1/ledger",
        "postgresql://ada:x@SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:SESAME/x@127.0.0.1:1/ledger",
        "postgresql://ada:x/SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:x?SESAME@127.0.0.1:1/ledger",
        "postgresql://ada:SESAME@127.0.0.1:1/ledger?no_such_option=1",
        "host=127.0.0.1 port=1 password='SESAME",
    ],
)
def test_no_error_shows_any_part_of_the_password(address: str) -> None:
    with pytest.raises((StoreUnavailable, SettingsError)) as caught:
        PostgresStore(address, clock=FakeClock())

    assert "SES" not in "".join(traceback.format_exception(caught.value))


def test_a_refused_login_does_not_show_the_password(postgres_server: PostgresServer, url: str) -> None:
    address = url.replace("postgres@", "nobody_we_know:SESAME@")
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore(address, clock=FakeClock())

    assert "nobody_we_know" in str(caught.value)
    assert "SESAME" not in "".join(traceback.format_exception(caught.value))
