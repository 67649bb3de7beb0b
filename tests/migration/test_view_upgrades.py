"""SQL views: made with the schema, whole or not at all, and never in the place of something of the user's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.dashboard_views import SINCE, ViewReport, compare_views
from holdfast.store.migrations import Migration
from holdfast.store.queries import load_queries
from tests.migration.test_migrations import ROOT, Database, database, released

__all__ = ["database", "released"]

DIES_AMONG_VIEWS = """
import os, signal, sys
from holdfast.store import postgres, sqlite
from tests.migration.test_migrations import PostgresDatabase, SqliteDatabase, load_migrations

dialect, address = sys.argv[1:]
module = sqlite if dialect == "sqlite" else postgres
make_views = module._Migrating.make_views

def make_and_die(self, report):
    make_views(self, report)
    os.kill(os.getpid(), signal.SIGKILL)

module._Migrating.make_views = make_and_die
database = SqliteDatabase(address) if dialect == "sqlite" else PostgresDatabase(address)
database.migrate(load_migrations(dialect), may_upgrade=True)
"""


def views_of(database: Database) -> ViewReport:
    found = database.ask(load_queries(database.dialect)["taken_names"])
    return compare_views(database.dialect, {str(row[0]): row[1] for row in found})  # type: ignore[misc]


def older(released: list[Migration]) -> list[Migration]:
    return [one for one in released if one.number < SINCE]


def test_a_new_database_has_every_view(database: Database, released: list[Migration]) -> None:
    database.migrate(released)

    found = views_of(database)

    assert found.is_right
    assert (found.renamed, found.homeless, len(found.present)) == ((), (), 16)
    assert database.ask("SELECT * FROM analysis_state") == []


def test_an_older_database_gets_the_views_with_its_upgrade(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(older(released))
    assert views_of(database).present == ()

    database.migrate(released, may_upgrade=True)

    assert views_of(database).is_right


def test_what_the_user_has_made_is_left_alone_and_the_view_gets_another_name(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(older(released))
    for statement in (
        "CREATE TABLE repos (mine TEXT)",
        "INSERT INTO repos VALUES ('kept')",
        "CREATE VIEW agents AS SELECT mine FROM repos",
        "CREATE TABLE checkpoints (mine TEXT)",
        "CREATE TABLE holdfast_checkpoints (mine TEXT)",
    ):
        database.ask(statement)

    database.migrate(released, may_upgrade=True)
    database.migrate(released, may_upgrade=True)

    found = views_of(database)
    assert found.is_right
    assert {view.wanted: view.name for view in found.renamed} == {
        "repos": "holdfast_repos",
        "agents": "holdfast_agents",
    }
    assert found.homeless == ("checkpoints",)
    assert database.ask("SELECT * FROM repos") == [("kept",)]
    assert database.ask("SELECT * FROM agents") == [("kept",)]
    assert database.ask("SELECT * FROM holdfast_repos") == []
    assert database.ask("SELECT * FROM holdfast_agents") == []


def test_a_view_of_the_user_that_shows_one_of_ours_outlives_the_next_upgrade(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(released)
    database.ask("CREATE VIEW mine AS SELECT repo_id FROM analysis_state")
    database.ask("DROP VIEW batch_progress")

    database.migrate(released, may_upgrade=True)

    assert database.ask("SELECT * FROM mine") == []
    assert views_of(database).is_right


def test_a_dropped_view_is_made_anew_when_the_caller_says_so(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(released)
    database.ask("DROP VIEW repos")

    database.migrate(released)
    lacking = [view.name for view in views_of(database).lacking]
    database.migrate(released, may_upgrade=True)

    assert lacking == ["repos"]
    assert views_of(database).is_right


def test_a_view_that_another_holdfast_made_is_replaced(database: Database, released: list[Migration]) -> None:
    database.migrate(released)
    database.ask("DROP VIEW repos")
    if database.dialect == "sqlite":
        database.ask("CREATE VIEW repos AS /* Holdfast view 0123456789abcdef */ SELECT 1 AS old")
        database.ask("CREATE VIEW gone AS /* Holdfast view 0123456789abcdef */ SELECT 1 AS old")
    else:
        database.ask("CREATE VIEW repos AS SELECT 1 AS old")
        database.ask("COMMENT ON VIEW repos IS 'Holdfast view 0123456789abcdef'")
        database.ask("CREATE VIEW gone AS SELECT 1 AS old")
        database.ask("COMMENT ON VIEW gone IS 'Holdfast view 0123456789abcdef'")

    database.migrate(released, may_upgrade=True)

    found = views_of(database)
    assert found.is_right
    assert "gone" not in found.present


@pytest.mark.slow
def test_a_process_killed_among_the_views_leaves_the_old_schema_whole(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(older(released))

    child = subprocess.run(
        [sys.executable, "-c", DIES_AMONG_VIEWS, database.dialect, database.address],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert child.returncode == -signal.SIGKILL, child.stderr
    assert database.migrate(older(released)) == []
    assert views_of(database).present == ()
    database.migrate(released, may_upgrade=True)
    assert views_of(database).is_right


@pytest.mark.slow
def test_any_sqlite_reads_the_views(tmp_path: Path) -> None:
    """Also the one of Python, which knows nothing of our pages' checksums."""
    from holdfast.store.sqlite import SqliteStore
    from holdfast.testing import FakeClock
    from tests.repository_campaign import OVERALL, seed_campaign

    clock = FakeClock()
    store = SqliteStore(tmp_path / "ledger.db", clock=clock)
    seed_campaign(store, clock)
    store.close()
    program = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall())"

    child = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "ledger.db"), OVERALL],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert child.stdout == "[(400, 150, 50, 200, 37.5)]\n", child.stderr
