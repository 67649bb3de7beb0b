"""Migrations: applied once, in order, whole or not at all, and never to a database that we do not know."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from holdfast.api.steps import StepsAsked, _StepReader
from holdfast.core.errors import HoldfastError, SchemaMismatch
from holdfast.store import Store
from holdfast.store.expected_schema import shape_of
from holdfast.store.migrations import Migration, check_schema, load_migrations
from holdfast.store.queries import DIALECTS, load_queries
from holdfast.store.rows.flows import row_from_flow
from holdfast.store.rows.journal import row_from_step, row_from_turn
from holdfast.store.sealing import CLOSED
from holdfast.store.sqlite import SqliteStore, migrate_file
from holdfast.store.sqlite_file import connect
from holdfast.testing import FakeClock
from tests.builders import a_flow, a_run, a_step, a_task
from tests.servers import PostgresServer
from tests.store.program_records import a_summary, a_turn

ROOT = Path(__file__).parents[2]

NEXT = Migration(
    number=9001, name="add_colours", sql="CREATE TABLE colours (name TEXT); CREATE TABLE hues (n TEXT)"
)
UNIQUE = Migration(
    number=9001,
    name="add_colours",
    sql="CREATE TABLE colours (name TEXT); CREATE UNIQUE INDEX colours_once ON colours (name)",
)
LAST = Migration(number=9002, name="add_shapes", sql="CREATE TABLE shapes (name TEXT)")


# A record alone, without its task: foreign keys are off for this one statement.
_RECORD = (
    "INSERT INTO recorded_tasks (task_id, scope, source_id, beat_timeout_s, created_at, digest, "
    "tool_use_count, last_event_at) VALUES ('task_1', 'system', 'job-7', 300, 1, CAST('x' AS {blob}), 0, 1)"
)
ADDS_A_RECORD = {
    "sqlite": "PRAGMA foreign_keys = OFF; " + _RECORD.format(blob="BLOB"),
    "postgres": "SET session_replication_role = replica; " + _RECORD.format(blob="BYTEA"),
}

# Databases with these schemas are in use, and know them by these digests. A change is a migration of its own.
FROZEN = {
    "sqlite": {
        1: "e0585d12fa2360c826a072d600e2274f46c022b00c9dbc72bf7016132cc7e02f",
        2: "b524d73fb305879994e6af095c850886d9760581b0fae3c55c5ecad1f5c053db",
        3: "890515ca27c7d85e185973696d3f60ee697dd8742b2bbdd07e1322dbfc7686ba",
        4: "371c6aa568b5cb663e25aa1bb275d82f075ecd49dcd9fdecba4258c1a4999774",
        5: "16be2b7cc17b4472683bfb111207a982f5b38f0ac819f1e24e48c997dc50ed62",
        6: "fec5b21845c263bd1ef3600fcdc21a233a441299626010f3c196c36c755eb72d",
        7: "ccaa4fd8b6cc412b158881acf63575d7936a095943cc1d27f20861727dcfa7d2",
        8: "a52b4d6a0960a786d0fcf82014885ebe7a3eda825fc5c38a3c08c1b379394bab",
        9: "7a4d29f71047cf4e9df351411b0cc516c175bf21c31ca09585d501979e62c339",
        10: "0ce07ff0db1a129bfcc11a3b380eef0a41587db1966aa0168a3a4c809418ced4",
        11: "f272ea14e4a58bb1e82dd726fa94945b0b127bfb6a37351bade5d879754de921",
        12: "1d7a294998b0b466fe747f2d0e640a74ccc1c8415537eb320503774bebbd976b",
        13: "c3b19284ded56f3b73c5de9a68ed55f3b51f47b595824703e5150bc2091beebb",
        14: "9b9351b023fe102a5adede7df805cb977ca43e4203c14865bebaeaeb07aa563d",
        15: "a6d3d3a8911e3ad15ca3a347cf91cac9ce92edd8a35236b5e7cd9476fa897d51",
        16: "b8d458eb291b751c27e4508d6860fcdb12e9fd41675fdc877de1f21d9824d4c3",
        17: "94a166ab2e5ce2f221bd717daa7558ab0b30c14302c0806b391eef242361ae29",
    },
    "postgres": {
        1: "18a3c71cdf5cbbefab7cf326c24332638b40bfd844c2387045ceed5a59b5069f",
        2: "596ef6a8cb857a21e333fabdd41818bda0d81d5416f71e6189a229deb4e73ef0",
        3: "0a5851bd36c9affcdd494ce24b76aad3bdc102fcf3b5956cb9245e07a47f4543",
        4: "371c6aa568b5cb663e25aa1bb275d82f075ecd49dcd9fdecba4258c1a4999774",
        5: "c54c0a6fe43d3709b672d7e4b54e4ed908f4def46c77077e63ae10b723cb5d09",
        6: "35f20e544386e973c830c47b33d59b5e4fc709717446b45198d39efaa4f6e343",
        7: "7e0ca0feb5474023dd678c0b3561966e60f06e68bf69ab6c379efa735d970868",
        8: "6f7575842be5fccf8197c697ad96fa56d8944967eb903d25243918673fa96aee",
        9: "877034710388026d8fcb646ba92c8aa3ec3d80cc9b1b76bbf625f52a081cf4b5",
        10: "eebc44bfec9958d16867df5f110ae4e6c82c8cae62c3cc298079fcfda69d7513",
        11: "1c837b4b18e60e3d66375ef0ce01a0a6dfa69f3fd4bf0d8691a4ae215c93dfe4",
        12: "2dc0f2b491b5e2fb9e109644df20ae02b45d1ca625b4bf35b59dfce920ee7459",
        13: "48be939b0bf60bc450d605ae572095b75748121dfb538c8598d4babc6c016e8e",
        14: "8147dd6c034f1b1ef06d68cdbf7bdc9def01f3cde183b5696c96fad12132b66d",
        15: "a6d3d3a8911e3ad15ca3a347cf91cac9ce92edd8a35236b5e7cd9476fa897d51",
        16: "7d76b088b5db454796ad3ca272d6ceb5641c6aac5c3087991e3c93d0fdf8679e",
        17: "78aed450678ebfaf7780a67a0cc533f8e6942920b7ecfecc0e42b73b760db7e4",
    },
}


class Database(Protocol):
    """One database of a dialect, migrated by one short connection at a time."""

    dialect: str
    address: str

    def migrate(self, known: Sequence[Migration], *, may_upgrade: bool = False) -> list[Migration]: ...

    def tables(self) -> set[str]: ...

    def ask(self, sql: str) -> list[tuple[object, ...]]: ...

    def open(self) -> Store: ...


class SqliteDatabase:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.address = str(path)

    def migrate(self, known: Sequence[Migration], *, may_upgrade: bool = False) -> list[Migration]:
        with closing(connect(Path(self.address))) as connection:
            return migrate_file(connection, may_upgrade=may_upgrade, known=known)

    def tables(self) -> set[str]:
        return {str(row[0]) for row in self.ask("SELECT name FROM sqlite_schema WHERE type = 'table'")}

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        with closing(connect(Path(self.address))) as connection:
            return list(connection.execute(sql))

    def open(self) -> Store:
        return SqliteStore(Path(self.address), clock=FakeClock())


class PostgresDatabase:
    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.address = url

    def migrate(self, known: Sequence[Migration], *, may_upgrade: bool = False) -> list[Migration]:
        import psycopg

        from holdfast.store.postgres import migrate_database
        from holdfast.store.postgres_connection import PostgresConnection, read_url, unavailable

        with closing(PostgresConnection(read_url(self.address), load_queries("postgres"))) as link:
            link.open()
            try:
                return migrate_database(link, may_upgrade=may_upgrade, known=known)
            except psycopg.Error as error:
                raise unavailable(error) from error

    def tables(self) -> set[str]:
        return {
            str(row[0]) for row in self.ask("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
        }

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self.address, options="-c search_path=holdfast", autocommit=True) as connection:
            found = connection.execute(sql.encode())
            return [] if found.description is None else list(found)

    def open(self) -> Store:
        from holdfast.store.postgres import PostgresStore

        return PostgresStore(self.address, clock=FakeClock())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, quick_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield SqliteDatabase(quick_path / "ledger.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield PostgresDatabase(url)
    server.drop_database(url)


@pytest.fixture
def released(database: Database) -> list[Migration]:
    """What the schema of this Holdfast consists of."""
    return load_migrations(database.dialect)


def applied(database: Database) -> list[tuple[object, ...]]:
    return database.ask("SELECT number, name, digest FROM schema_migrations ORDER BY number")


def recorded(migrations: Sequence[Migration]) -> list[tuple[object, ...]]:
    return [(one.number, one.name, one.digest) for one in migrations]


# --- new, known, newer, altered


def test_a_new_database_is_set_up_whole_and_remembers_each_migration(
    database: Database, released: list[Migration]
) -> None:
    assert database.migrate([*released, NEXT]) == [*released, NEXT]

    assert applied(database) == recorded([*released, NEXT])
    assert {"tasks", "runs", "run_checkpoints", "ledger_events", "colours", "hues"} <= database.tables()


def test_a_database_that_is_up_to_date_is_left_alone(database: Database, released: list[Migration]) -> None:
    database.migrate(released)
    before = database.ask("SELECT * FROM ledger_facts ORDER BY name")

    assert database.migrate(released) == []
    assert database.migrate(released, may_upgrade=True) == []

    assert database.ask("SELECT * FROM ledger_facts ORDER BY name") == before


def test_an_older_database_is_changed_only_when_the_caller_says_so(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(released)

    with pytest.raises(SchemaMismatch, match=r"lacks migration 9001 \(add_colours\).*holdfast store migrate"):
        database.migrate([*released, NEXT, LAST])
    assert applied(database) == recorded(released)
    assert "colours" not in database.tables()

    assert database.migrate([*released, NEXT, LAST], may_upgrade=True) == [NEXT, LAST]
    assert applied(database) == recorded([*released, NEXT, LAST])
    assert {"colours", "shapes"} <= database.tables()


def test_an_upgrade_keeps_what_the_ledger_knows(database: Database, released: list[Migration]) -> None:
    database.migrate(released)
    ledger_id = database.ask("SELECT value FROM ledger_facts WHERE name = 'ledger_id'")

    database.migrate([*released, NEXT], may_upgrade=True)

    assert database.ask("SELECT value FROM ledger_facts WHERE name = 'ledger_id'") == ledger_id


def test_records_of_producers_from_before_late_reports_are_kept_and_have_none(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(released[:4])
    database.ask(ADDS_A_RECORD[database.dialect])

    database.migrate(released, may_upgrade=True)

    found = database.ask("SELECT source_id, late_report, dropped_reports FROM recorded_tasks")
    assert found == [("job-7", None, 0)]


@pytest.mark.parametrize("may_upgrade", [False, True])
def test_a_database_of_a_newer_holdfast_is_refused(
    database: Database, released: list[Migration], may_upgrade: bool
) -> None:
    database.migrate([*released, NEXT])

    with pytest.raises(SchemaMismatch, match=r"9001.*upgrade Holdfast"):
        database.migrate(released, may_upgrade=may_upgrade)

    assert applied(database) == recorded([*released, NEXT])


@pytest.mark.parametrize("may_upgrade", [False, True])
def test_a_migration_that_was_changed_after_it_was_applied_is_refused(
    database: Database, released: list[Migration], may_upgrade: bool
) -> None:
    database.migrate([*released, NEXT])
    altered = msgspec.structs.replace(NEXT, sql=NEXT.sql + " ")

    with pytest.raises(SchemaMismatch, match="9001 was changed"):
        database.migrate([*released, altered, LAST], may_upgrade=may_upgrade)

    assert "shapes" not in database.tables()


def test_a_migration_that_fails_leaves_the_old_schema_whole(
    database: Database, released: list[Migration]
) -> None:
    database.migrate(released)
    broken = msgspec.structs.replace(
        LAST, sql="CREATE TABLE shapes (name TEXT); CREATE TABLE shapes (name TEXT)"
    )

    with pytest.raises(HoldfastError):
        database.migrate([*released, NEXT, broken], may_upgrade=True)

    assert applied(database) == recorded(released)
    assert {"colours", "shapes"} & database.tables() == set()
    assert database.migrate([*released, NEXT, LAST], may_upgrade=True) == [NEXT, LAST]


def test_a_database_whose_set_up_failed_is_as_new_as_before(
    database: Database, released: list[Migration]
) -> None:
    broken = msgspec.structs.replace(NEXT, sql="CREATE NONSENSE")
    with pytest.raises(HoldfastError):
        database.migrate([*released, broken])

    assert database.tables() == set()
    assert database.migrate(released) == released


def test_a_store_opens_only_a_database_that_it_knows(quick_path: Path) -> None:
    database = SqliteDatabase(quick_path / "ledger.db")
    released = load_migrations("sqlite")
    database.migrate([*released, NEXT])

    with pytest.raises(SchemaMismatch):
        SqliteStore(quick_path / "ledger.db", clock=FakeClock(), may_upgrade=True)

    assert applied(database) == recorded([*released, NEXT])


# --- altered by something else


def test_a_database_lacks_nothing_of_what_its_migrations_make(
    database: Database, released: list[Migration]
) -> None:
    """What is read from the schema files is what the database has then."""
    database.migrate(released)

    assert database.migrate(released) == []
    assert indexes_of(database) >= {index.name for index in shape_of(released).indexes}


def indexes_of(database: Database) -> set[str]:
    return {str(row[0]) for row in database.ask(load_queries(database.dialect)["schema_indexes"])}


@pytest.mark.parametrize("may_upgrade", [False, True])
def test_a_database_that_lacks_a_column_is_refused(
    database: Database, released: list[Migration], may_upgrade: bool
) -> None:
    database.migrate(released)
    database.ask("ALTER TABLE tasks DROP COLUMN cancel_reason")

    with pytest.raises(SchemaMismatch, match="lacks the column cancel_reason of the table tasks"):
        database.migrate(released, may_upgrade=may_upgrade)


def test_an_index_is_restored_when_the_caller_says_so(database: Database, released: list[Migration]) -> None:
    database.migrate(released)
    for index in ("tasks_by_owner", "runs_alive"):
        database.ask(f"DROP INDEX {index}")

    with pytest.raises(SchemaMismatch, match=r"lacks the index runs_alive; .*`holdfast store migrate`"):
        database.migrate(released)
    database.migrate(released, may_upgrade=True)

    assert {"tasks_by_owner", "runs_alive"} <= indexes_of(database)


def test_an_index_that_its_rows_forbid_is_not_restored_and_says_so(
    database: Database, released: list[Migration]
) -> None:
    database.migrate([*released, UNIQUE])
    database.ask("DROP INDEX colours_once")
    database.ask("INSERT INTO colours VALUES ('red'), ('red')")

    with pytest.raises(SchemaMismatch, match=r"index colours_once cannot be restored.*restore a backup"):
        database.migrate([*released, UNIQUE], may_upgrade=True)


# --- the list itself


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_are_numbered_from_one_without_a_gap(dialect: str) -> None:
    numbers = [migration.number for migration in load_migrations(dialect)]

    assert numbers == list(range(1, len(numbers) + 1))


def test_both_databases_have_the_same_migrations() -> None:
    names = [[(one.number, one.name) for one in load_migrations(dialect)] for dialect in DIALECTS]

    assert names[0] == names[1]


def test_what_is_missing_is_in_order_whatever_was_applied() -> None:
    first = msgspec.structs.replace(NEXT, number=1)

    assert check_schema([], [first, NEXT, LAST]) == [first, NEXT, LAST]
    assert check_schema([(1, first.digest)], [first, NEXT, LAST]) == [NEXT, LAST]
    assert check_schema([(9001, NEXT.digest), (1, first.digest)], [first, NEXT, LAST]) == [LAST]


# --- with real processes

OPENS = """
import sys
from holdfast.testing import FakeClock
dialect, address = sys.argv[1:]
if dialect == "sqlite":
    from pathlib import Path
    from holdfast.store.sqlite import SqliteStore
    open_store = lambda: SqliteStore(Path(address), clock=FakeClock())
else:
    from holdfast.store.postgres import PostgresStore
    open_store = lambda: PostgresStore(address, clock=FakeClock())
print("ready", flush=True)
sys.stdin.readline()
store = open_store()
print(store.read_now(lambda tx: tx.boots.fact("ledger_id")), flush=True)
store.close()
"""

DIES = """
import os, signal, sys
from holdfast.store import postgres, sqlite
from tests.migration.test_migrations import LAST, NEXT, PostgresDatabase, SqliteDatabase, load_migrations

dialect, address, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
module = sqlite if dialect == "sqlite" else postgres
apply = module._Migrating.apply

def apply_and_die(self, migration):
    apply(self, migration)
    if migration.number == number:
        os.kill(os.getpid(), signal.SIGKILL)

module._Migrating.apply = apply_and_die
database = SqliteDatabase(address) if dialect == "sqlite" else PostgresDatabase(address)
database.migrate([*load_migrations(dialect), NEXT, LAST], may_upgrade=True)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a child that runs a program; none outlives the test."""
    children: list[subprocess.Popen[str]] = []

    def start_one(program: str, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )
        children.append(child)
        return child

    yield start_one
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.mark.slow
def test_of_several_processes_that_open_a_new_database_one_sets_it_up_and_the_others_wait(
    database: Database, start: Callable[..., subprocess.Popen[str]]
) -> None:
    children = [start(OPENS, database.dialect, database.address) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"

    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    ends = [child.communicate(timeout=60) for child in children]

    assert [child.returncode for child in children] == [0] * 3, [error for _, error in ends]
    ledger_ids = {output.strip() for output, _ in ends}
    assert len(ledger_ids) == 1
    assert ledger_ids != {"None"}
    assert applied(database) == recorded(load_migrations(database.dialect))


@pytest.mark.slow
def test_a_process_killed_in_the_middle_of_an_upgrade_leaves_the_old_schema_whole(
    database: Database,
    released: list[Migration],
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    database.migrate(released)
    before = database.tables()

    # One migration is made by then, and the other, too, but not the end.
    child = start(DIES, database.dialect, database.address, str(LAST.number))
    _, error = child.communicate(timeout=60)

    assert child.returncode == -signal.SIGKILL, error
    assert database.migrate(released) == []
    assert applied(database) == recorded(released)
    assert database.tables() == before
    assert database.migrate([*released, NEXT, LAST], may_upgrade=True) == [NEXT, LAST]


@pytest.mark.slow
def test_a_process_killed_while_it_sets_up_a_new_database_leaves_it_new(
    database: Database, released: list[Migration], start: Callable[..., subprocess.Popen[str]]
) -> None:
    child = start(DIES, database.dialect, database.address, "1")
    _, error = child.communicate(timeout=60)

    assert child.returncode == -signal.SIGKILL, error
    assert database.migrate(released) == released


# --- from the schema before

BEFORE = """
import os, signal, sys
from holdfast.store import postgres, sqlite
from tests.migration.test_migrations import PostgresDatabase, SqliteDatabase, load_migrations

dialect, address = sys.argv[1:]
module = sqlite if dialect == "sqlite" else postgres
apply = module._Migrating.apply

def apply_and_die(self, migration):
    apply(self, migration)
    os.kill(os.getpid(), signal.SIGKILL)

module._Migrating.apply = apply_and_die
database = SqliteDatabase(address) if dialect == "sqlite" else PostgresDatabase(address)
database.migrate(load_migrations(dialect), may_upgrade=True)
"""


@pytest.mark.slow
def test_a_ledger_of_the_first_schema_is_brought_to_the_newest_also_after_a_kill(
    database: Database, released: list[Migration], start: Callable[..., subprocess.Popen[str]]
) -> None:
    database.migrate(released[:1])
    # SQLite's count of the changes of the schema is among the facts, too, and changes with it.
    facts = "SELECT name, value FROM ledger_facts WHERE name <> 'checked_schema' ORDER BY name"
    known = database.ask(facts)
    tables = database.tables()

    child = start(BEFORE, database.dialect, database.address)
    _, error = child.communicate(timeout=60)

    assert child.returncode == -signal.SIGKILL, error
    assert (applied(database), database.tables()) == (recorded(released[:1]), tables)
    assert database.migrate(released, may_upgrade=True) == released[1:]
    assert "audit_log" in database.tables()
    assert database.ask(facts) == known


@pytest.mark.slow
def test_tasks_of_an_older_ledger_are_counted_by_their_runtimes(
    database: Database, released: list[Migration]
) -> None:
    database.migrate([one for one in released if one.name != "upkeep_indexes"][:4])
    values = "'ada', {}, 'n', 'g', {}, NULL, NULL, NULL, NULL, NULL, 'silent', 1, {}, 'queued'"
    empty = "x''" if database.dialect == "sqlite" else "''"
    for number, runtime in enumerate(["'python'", "'cron'", "'python'"]):
        given = values.format(runtime, empty, empty)
        database.ask(
            "INSERT INTO tasks (id, owner, runtime, name, goal, arguments, origin, session_key, "
            "parent_task_id, flow_id, dedup_key, notify, created_at, digest, status, priority, updated_at) "
            f"VALUES ('task_{number}', {given}, 5, 1) RETURNING id"
        )

    database.migrate(released, may_upgrade=True)

    found = database.ask("SELECT status, amount FROM counters WHERE noun = 'runtime' ORDER BY status")
    assert found == [("cron", 1), ("python", 2)]


def test_the_steps_of_a_ledger_from_before_they_were_kept_are_shown(
    database: Database, released: list[Migration], tmp_path: Path
) -> None:
    """Its rows have no arguments, and its turns keep only how each result begins."""
    database.migrate([one for one in released if one.name != "kept_steps"])
    run = a_run(a_task())
    step = row_from_step(a_step(run, name="open", result=b'"high"'), CLOSED)[:11]
    turn = a_turn(run, steps=(a_summary("fetch", preview='["tide"', size_bytes=900),))
    insert(database, "steps", step)
    insert(database, "turns", row_from_turn(turn, CLOSED).values())

    database.migrate(released, may_upgrade=True)

    with closing(database.open()) as store:
        page = store.read_now(lambda tx: _StepReader(tx, run.task_id, StepsAsked(task_id=run.task_id)).read())
        problems = [one for one in store.verify() if "step" in one or "turn" in one]
    assert [(one.name, one.arguments, one.preview, one.is_kept) for one in page.steps] == [
        ("fetch", "", '["tide"', False),
        ("open", "", '"high"', True),
    ]
    assert problems == []


def test_a_flow_of_an_older_ledger_is_counted_and_read(database: Database, released: list[Migration]) -> None:
    database.migrate([one for one in released if one.number < 9])
    flow = a_flow(contents=b'{"step": 1}')
    insert(database, "flows", list(row_from_flow(flow, CLOSED).values())[:15])

    database.migrate(released, may_upgrade=True)

    with closing(database.open()) as store:
        assert store.read_now(lambda tx: tx.flows.get(flow.id)) == flow
        assert store.verify() == []


def insert(database: Database, table: str, row: Iterable[object]) -> None:
    def literal(value: object) -> str:
        if isinstance(value, bytes):
            return f"X'{value.hex()}'" if database.dialect == "sqlite" else f"'\\x{value.hex()}'"
        return "NULL" if value is None else repr(value)

    database.ask(f"INSERT INTO {table} VALUES ({', '.join(map(literal, row))})")


# --- what is never changed again


@pytest.mark.parametrize("dialect", sorted(FROZEN))
def test_a_schema_that_is_in_use_is_never_edited(dialect: str) -> None:
    found = {one.number: one.digest for one in load_migrations(dialect)}

    assert {number: found.get(number) for number in FROZEN[dialect]} == FROZEN[dialect]


def test_every_migration_is_frozen_for_both_databases() -> None:
    assert {dialect: [one.number for one in load_migrations(dialect)] for dialect in FROZEN} == {
        dialect: list(digests) for dialect, digests in FROZEN.items()
    }
    assert len({tuple(digests) for digests in FROZEN.values()}) == 1
