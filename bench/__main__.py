"""Runs the benches: `make bench`, or `python -m bench [--quick] [--only TEXT] [--json]`."""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import sys
import tempfile
from pathlib import Path

import apsw
import msgspec

from bench import (
    campaigns,
    dashboard,
    flows,
    gateway,
    history,
    hostile,
    kept_steps,
    operators,
    programs,
    recovery,
    scanner,
    schedules,
    sealing,
    wakes,
    writes,
)
from bench.measure import Report
from holdfast.core.clock import SystemClock
from holdfast.store import Store
from holdfast.store.outer_keys import VariableKey
from holdfast.store.postgres import PostgresStore
from holdfast.store.sealing import Vault
from holdfast.store.sqlite import SqliteStore
from tests.servers import PostgresServer


def open_sqlite(path: Path) -> Store:
    return SqliteStore(path, clock=SystemClock(), vault=Vault(VariableKey(os.environ)))


def open_postgres(url: str) -> Store:
    return PostgresStore(url, clock=SystemClock(), vault=Vault(VariableKey(os.environ)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: a look, not a measurement")
    parser.add_argument("--only", metavar="TEXT", help="only rows whose name contains TEXT")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON at the end")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the databases (a real disk)")
    options = parser.parse_args()
    # One for us and for the gateways that we start, each with a home of its own.
    os.environ.setdefault("HOLDFAST_KEY", secrets.token_hex(32))
    print(
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {platform.machine()}; "
        "every row: ours, raw, ours / raw (median of rounds taken in turns)",
        flush=True,
    )
    report = Report(only=options.only)
    size, sizes, finished = (300, (300,), 20_000) if options.quick else (2000, (1000, 10_000), 1_000_000)
    nodes, small_flows = (200, 100) if options.quick else (1000, 10_000)
    campaign_items = 400 if options.quick else 10_000
    scanner.bench(report, size=100_000 if options.quick else 1_000_000)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.dir) as name:
        directory = Path(name)
        writes.bench_sqlite(report, directory, open_sqlite, size=size)
        recovery.bench_sqlite(report, directory, open_sqlite, sizes=sizes)
        programs.bench_sqlite(
            report, directory, open_sqlite, size=size, sizes=sizes, finished=min(finished, 100_000)
        )
        kept_steps.bench_sqlite(report, directory, open_sqlite, size=size)
        flows.bench_sqlite(report, directory, open_sqlite, nodes=nodes, flows=small_flows)
        campaigns.bench_sqlite(
            report, directory, open_sqlite, count=campaign_items, many=20_000 if options.quick else 1_000_000
        )
        sealing.bench(report, directory, size=size)
        stored = 5_000 if options.quick else 100_000

        def new_file(name: str) -> Store:
            return open_sqlite(directory / name / "ledger.db")

        wakes.bench(report, new_file, kind="SQLite", stored=stored)
        gateway.bench_sqlite(
            report, directory, open_sqlite, size=size, runs=sizes[0], finished=min(finished, 100_000)
        )
        operators.bench_sqlite(report, directory, open_sqlite, finished=finished)
        dashboard_items = 1000 if options.quick else 100_000
        dashboard.bench_sqlite(report, directory, open_sqlite, finished=finished, items=dashboard_items)
        schedules.bench(report, new_file, kind="SQLite")
        hostile.bench(report, directory, calls=20 if options.quick else 40)
        if options.only is None or "SQLite" not in options.only:
            with PostgresServer.start(directory / "postgres", durable=True) as server:
                writes.bench_postgres(report, directory, server.create_database, open_postgres, size=size)
                recovery.bench_postgres(report, directory, server.create_database, open_postgres, sizes=sizes)
                programs.bench_postgres(report, server.create_database, open_postgres, size=size, sizes=sizes)
                kept_steps.bench_postgres(report, server.create_database, open_postgres, size=size)
                flows.bench_postgres(
                    report, server.create_database, open_postgres, nodes=nodes, flows=small_flows
                )
                campaigns.bench_postgres(report, server.create_database, open_postgres, count=campaign_items)
                gateway.bench_postgres(
                    report, directory, server.create_database, open_postgres, size=size, runs=sizes[0]
                )
                operators.bench_postgres(
                    report, directory, server.create_database, open_postgres, finished=finished
                )
                dashboard.bench_postgres(
                    report,
                    directory,
                    server.create_database,
                    open_postgres,
                    finished=min(finished, 100_000),
                    items=min(dashboard_items, 10_000),
                )

                def new_database(_name: str) -> Store:
                    return open_postgres(server.create_database())

                wakes.bench(report, new_database, kind="PostgreSQL", stored=stored)
                schedules.bench(report, new_database, kind="PostgreSQL")
        history.bench(report, directory, open_sqlite, finished=finished)
    if options.json:
        print(msgspec.json.encode(report.rows).decode())
    wanted = [row for row in report.rows if row.target is not None]
    missed = [row.name for row in wanted if not row.is_met]
    print(f"{len(wanted) - len(missed)} of {len(wanted)} targets met", flush=True)
    return 1 if missed and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
