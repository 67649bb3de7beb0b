"""What the benches write by themselves is what the ledger's own code would have written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from bench.__main__ import open_postgres, open_sqlite
from bench.dashboard import IDS, ITEM, NAMED
from bench.operators import IN_FLIGHT, fill_postgres, fill_sqlite
from holdfast.core.clock import SystemClock
from holdfast.web.tables import PAGES
from tests.servers import PostgresServer


def test_bulk_rows_on_sqlite_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    open_sqlite(path).close()
    fill_sqlite(path, 200, SystemClock().now(), failed=50)

    with closing(open_sqlite(path)) as store:
        assert store.verify() == []
        counts = store.read_now(lambda tx: tx.events.counts("task"))
    assert (counts["failed"], counts["succeeded"], sum(counts.values())) == (50, 150, 200 + IN_FLIGHT)


@pytest.mark.slow
def test_bulk_rows_on_postgresql_are_valid(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    open_postgres(url).close()
    fill_postgres(url, 200, SystemClock().now())

    with closing(open_postgres(url)) as store:
        assert store.verify() == []


def test_the_bench_of_the_dashboard_knows_the_address_of_each_page() -> None:
    known = dict.fromkeys(IDS, "x")

    assert [
        page.path for page in PAGES if "{" in NAMED.sub(lambda one: known.get(one[1], ITEM), page.path)
    ] == []
