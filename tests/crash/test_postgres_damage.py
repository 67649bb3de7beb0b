"""A page of PostgreSQL's that lost a bit while the server was stopped: named, and nothing happens again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast.core.clock import SystemClock
from holdfast.store.postgres import PostgresStore
from tests.engine.bit_flips import Shop, go_on_with, result_of
from tests.engine.workers import carrying, until
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

NAMES = ["anchor", "buoy"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """One of our own: it is stopped, and its files are changed."""
    with PostgresServer.start(tmp_path) as server:
        yield server


@pytest.mark.parametrize("relation", ["steps", "steps_pkey", "effects"])
async def test_a_flipped_bit_on_a_server_with_checksums_is_named_and_charges_no_customer_twice(
    server: PostgresServer, relation: str
) -> None:
    shop, clock, url = Shop(), SystemClock(), server.create_database()
    with closing(PostgresStore(url, clock=clock)) as store:
        async with carrying(store, clock, order := shop.order()) as process:
            handles = {name: await process.holdfast.start(order(name), key=name) for name in NAMES}
            await until(lambda: sorted(shop.arrived) == NAMES)
            process.worker.hurry()
    file = file_of(server, url, relation)
    server.stop()
    content = bytearray(file.read_bytes())
    content[len(content) - 40] ^= 1  # near the end of its last page, where the rows are
    file.write_bytes(content)
    server.start_again()
    shop.door.set()

    tasks = {name: handle.id for name, handle in handles.items()}
    outcomes = await go_on_with(shop, lambda: PostgresStore(url, clock=clock), clock, tasks)

    assert sorted(shop.charges) == NAMES
    assert any("damaged" in str(outcome) for outcome in outcomes.values())
    assert all(outcomes[name] == result_of(name) or "damaged" in str(outcomes[name]) for name in NAMES)
    with closing(PostgresStore(url, clock=clock)) as store:
        assert any("PostgreSQL: invalid page" in problem for problem in store.verify())


def file_of(server: PostgresServer, url: str, relation: str) -> Path:
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SHOW data_checksums").fetchone() == ("on",)
        found = connection.execute("SELECT pg_relation_filepath(%s)", (f"holdfast.{relation}",)).fetchone()
    assert found is not None
    return server.file(found[0])
