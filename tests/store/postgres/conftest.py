"""A database of its own for each test, stores on it, and a second connection to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast.store import Store
from holdfast.store.postgres import PostgresStore
from holdfast.testing import FakeClock
from tests.servers import PostgresServer
from tests.store.postgres.sessions import Rival


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database, gone with the test."""
    created = postgres_server.create_database()
    yield created
    postgres_server.drop_database(created)


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[..., PostgresStore]]:
    with contextlib.ExitStack() as stores:

        def open_one(at: str = url, **settings: Any) -> PostgresStore:
            store = PostgresStore(at, clock=FakeClock(), **settings)
            stores.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(open_store: Callable[..., PostgresStore]) -> PostgresStore:
    return open_store()


@pytest.fixture
def rival(url: str, store: Store) -> Iterator[Rival]:
    """Another session in the same ledger, whose transactions stay open until the test ends them."""
    with psycopg.connect(url, options="-c search_path=holdfast") as connection:
        yield connection


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool
