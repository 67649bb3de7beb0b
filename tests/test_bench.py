"""What the benches write by themselves is what the ledger's own code would have written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from bench.__main__ import open_postgres, open_sqlite
from bench.dashboard import IDS, LEAST_OF_EACH, NAMED, ON_POSTGRES, fill_records
from bench.operators import IN_FLIGHT, fill_postgres, fill_sqlite
from holdfast.api.reviews import read_page
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
    named = {name for page in PAGES for name in NAMED.findall(page.path)}

    assert named == set(IDS)
    assert set(ON_POSTGRES) <= {page.path for page in PAGES}


def test_the_records_of_the_bench_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(open_sqlite(path)) as store:
        fill_records(store, 5)

        assert store.verify() == []
        assert len(store.read_now(lambda tx: read_page(tx, after="", limit=200)).reviews) == LEAST_OF_EACH
