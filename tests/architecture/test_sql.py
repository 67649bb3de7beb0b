"""The SQL files keep their rules: names, sentences, reasons, moves; and the two schemas agree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum

import msgspec
import pytest

from holdfast.core.alert import AlertActionKind, AlertSeverity, VerdictKind
from holdfast.core.campaign_checkpoint import CampaignCheckpointKind
from holdfast.core.checkpoint import CheckpointKind
from holdfast.core.effect import EffectClass
from holdfast.core.flow import FlowMode
from holdfast.core.message import Role
from holdfast.core.recorded import ScopeKind, TerminalOutcome
from holdfast.core.run import Queue
from holdfast.core.schedule import WakeReason
from holdfast.core.step import NoteKind
from holdfast.core.task import NotifyPolicy, RuntimeName
from holdfast.core.transitions import MOVES, REOPENS, RunStatus, is_terminal
from holdfast.store.queries import DIALECTS, load_queries, read_files
from tests.architecture.schema import Table, created, read_tables, sql_of
from tests.architecture.source import modules, tree_of

FOLDERS = ("common", *DIALECTS)
TABLE_OF = {
    "task": "tasks",
    "run": "runs",
    "checkpoint": "run_checkpoints",
    "effect": "effects",
    "delivery": "deliveries",
    "flow": "flows",
    "node": "flow_nodes",
    "campaign": "campaigns",
    "item": "item_phases",
    "alert": "alerts",
    "action": "alert_actions",
    "session": "sessions",
    "message": "messages",
    "firing": "firings",
    "wake": "wakes",
    "restart": "restarts",
}
NOUN_OF = {table: noun for noun, table in TABLE_OF.items()}
CHECKED_COLUMNS: list[tuple[str, str, type[StrEnum]]] = [
    ("tasks", "runtime", RuntimeName),
    ("tasks", "notify", NotifyPolicy),
    ("runs", "queue", Queue),
    ("notes", "kind", NoteKind),
    ("run_checkpoints", "kind", CheckpointKind),
    ("campaign_checkpoints", "kind", CampaignCheckpointKind),
    ("effects", "effect_class", EffectClass),
    ("flows", "mode", FlowMode),
    ("messages", "role", Role),
    ("wakes", "reason", WakeReason),
    ("alerts", "kind", VerdictKind),
    ("alerts", "severity", AlertSeverity),
    ("alert_actions", "action", AlertActionKind),
    ("alert_verdicts", "kind", VerdictKind),
    ("recorded_tasks", "scope", ScopeKind),
    ("recorded_tasks", "terminal_outcome", TerminalOutcome),
]
FREE_NAMES = {"repos", "analysis_state", "migration_state", "agents", "checkpoints", "events"}
# PostgreSQL has many writers and a wire: it needs to know which events are settled, counts without a hot row,
# and what became of a commit that was never answered.
ONLY_POSTGRES = {("ledger_events", "txid")}
ONLY_POSTGRES_TABLES = {"counter_deltas", "commit_receipts"}

MOVES_LINE = re.compile(r"^-- moves: (\w+) ([\w|]+) -> ([\w|]+)( \(reopen\))?$", re.MULTILINE)
UPDATE = re.compile(r"(?<!DO )(?<!FOR )(?<!NO KEY )\bUPDATE (\w+)")
SET_STATUS = re.compile(r"(?<![\w.])status = (?:'(\w+)'|:(\w+))")
STATUS_IS = re.compile(r"\bstatus (?:= '(\w+)'|IN \(([^)]*)\))")
SQL_TEXT = re.compile(
    r"\bSELECT\b.+\bFROM\b|\ASELECT\b|\bINSERT INTO\b|\bDELETE FROM\b|\bUPDATE \w+\s+SET\b"
    r"|\bCREATE (?:TABLE|INDEX|VIEW)\b|\bALTER TABLE\b|\bDROP TABLE\b"
    r"|\A(?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA)\b",
    re.DOTALL,
)
# The connections themselves (transactions, settings, migrations), and how a list parameter is unpacked.
# A foreign file has tables of another program, so its queries are made of the names that are found there.
MAY_SPEAK_SQL = re.compile(r"store/(?:sqlite\w*|postgres\w*|foreign_file|link|queries)\.py")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """One named query as it stands in its file."""

    folder: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.folder} {self.name}"

    @property
    def comments(self) -> list[str]:
        lines = self.text.strip().splitlines()
        return [line.removeprefix("--").strip() for line in lines if line.startswith("--")]

    @property
    def sql(self) -> str:
        return re.sub(r"--[^\n]*", "", self.text)

    def has_reason(self, word: str) -> bool:
        return any(re.match(rf"{word}: \S.{{10,}}", line) for line in self.comments)

    def status_updates(self) -> Iterator[tuple[str, str, str]]:
        """Of each UPDATE that sets a status: its table, its SET and its own WHERE, without subqueries."""
        for found in UPDATE.finditer(self.sql):
            statement = without_subqueries(enclosed(self.sql[found.start() :]))
            assigned, _, guard = statement.partition("WHERE")
            if found[1] in NOUN_OF and SET_STATUS.search(assigned):
                yield found[1], assigned, guard


def enclosed(text: str) -> str:
    """The text up to the bracket that closes what it stands in."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return text[:place]
    return text


def without_subqueries(text: str) -> str:
    while found := re.search(r"\(\s*SELECT\b", text):
        inner = enclosed(text[found.start() + 1 :])
        text = text[: found.start()] + text[found.start() + 1 + len(inner) + 1 :]
    return text


QUERIES = [
    Query(folder=folder, name=name, text=text)
    for folder in FOLDERS
    for name, text in read_files(folder).items()
]
STATUS_QUERIES = [query for query in QUERIES if list(query.status_updates())]


def names_in(folder: str) -> set[str]:
    return {query.name for query in QUERIES if query.folder == folder}


# --- names, sentences, reasons


def test_every_query_begins_with_a_sentence() -> None:
    firsts = {str(query): query.comments[0] if query.comments else "" for query in QUERIES}
    wrong = [
        query
        for query, first in firsts.items()
        if not first.endswith((".", "?")) or first.startswith(("Differs:", "Only:", "moves:"))
    ]

    assert wrong == []


@pytest.mark.parametrize("query", [one for one in QUERIES if one.folder != "common"], ids=str)
def test_a_query_of_one_database_says_why_it_differs_or_why_the_other_has_none(query: Query) -> None:
    others = set.union(*(names_in(folder) for folder in FOLDERS if folder != query.folder))

    assert query.has_reason("Differs" if query.name in others else "Only")


def test_a_shared_query_gives_no_reason_to_differ_and_no_cast_of_one_database() -> None:
    wrong = [
        str(query)
        for query in QUERIES
        if query.folder == "common"
        and (query.has_reason("Differs") or query.has_reason("Only") or "::" in query.sql)
    ]

    assert wrong == []


def test_both_databases_answer_the_same_names() -> None:
    only = {query.name for query in QUERIES if query.has_reason("Only")}
    sqlite, postgres = (set(load_queries(dialect).names) for dialect in DIALECTS)

    assert sqlite - only == postgres - only


def test_a_query_takes_the_same_parameters_on_both_databases() -> None:
    shared = {query.name: query for query in QUERIES if query.folder == "common"}
    differing = {
        str(query): parameters(query) ^ parameters(shared[query.name])
        for query in QUERIES
        if query.folder != "common" and query.name in shared
    }
    # On PostgreSQL the feed is ordered by transaction first, and leases follow the database's own clock.
    tolerated = {"txid", "now"}

    assert {name: odd - tolerated for name, odd in differing.items() if odd - tolerated} == {}


def parameters(query: Query) -> set[str]:
    return set(re.findall(r"(?<![:\w]):(\w+)", query.sql))


# --- Python and SQL know each other by name


def called_queries() -> Iterator[tuple[str, str]]:
    """Where a query is run by its name, and the name. (Tools run commands, which is something else.)"""
    for module in (one for one in modules() if one.part != "tools"):
        for node in ast.walk(tree_of(module.path)):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr in {"one", "all", "run", "many"}:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield module.path, first.value


def mentioned_queries() -> list[re.Pattern[str]]:
    """Every string of the store that could name a query; holes of f-strings fit any word."""
    found = []
    for module in modules():
        for node in ast.walk(tree_of(module.path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.append(re.compile(re.escape(node.value)))
            elif isinstance(node, ast.JoinedStr):
                pattern = "".join(_pattern_of(piece) for piece in node.values)
                if re.search(r"[a-z]_|_[a-z]", pattern):
                    found.append(re.compile(pattern))
    return found


def _pattern_of(piece: ast.expr) -> str:
    return re.escape(str(piece.value)) if isinstance(piece, ast.Constant) else r"\w+"


def test_every_query_that_python_runs_exists() -> None:
    known = {query.name for query in QUERIES}
    missing = [(path, name) for path, name in called_queries() if name not in known]

    assert missing == []


def test_every_query_is_used() -> None:
    mentioned = mentioned_queries()
    unused = [str(query) for query in QUERIES if not any(name.fullmatch(query.name) for name in mentioned)]

    assert unused == []


def test_no_sql_stands_in_python() -> None:
    found = [
        (module.path, text)
        for module in modules()
        if not MAY_SPEAK_SQL.fullmatch(module.path)
        for text in texts_in(module.path)
        if SQL_TEXT.search(text)
    ]

    assert found == []


def texts_in(path: str) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant):
            text = node.value.decode("ascii", "replace") if isinstance(node.value, bytes) else node.value
            if isinstance(text, str):
                yield text


# --- moves


def test_there_are_queries_that_move_a_status() -> None:
    assert len(STATUS_QUERIES) > 15


@pytest.mark.parametrize("query", STATUS_QUERIES, ids=str)
def test_a_query_that_sets_a_status_moves_it_only_as_the_tables_allow(query: Query) -> None:
    declared = [
        (noun, sources.split("|"), targets.split("|"), bool(is_reopen))
        for noun, sources, targets, is_reopen in MOVES_LINE.findall(query.text)
    ]
    is_generic = ":sources[]" in query.sql

    assert declared or is_generic, "it has no `-- moves:` line"
    for noun, sources, targets, is_reopen in declared:
        table = REOPENS[noun] if is_reopen else MOVES[noun]
        moves = {(status.value, to.value) for status, ways in table.items() for to in ways}
        claimed = {(status, to) for status in sources for to in targets}
        assert claimed <= moves, f"{noun}: {claimed - moves}"


@pytest.mark.parametrize("query", STATUS_QUERIES, ids=str)
def test_the_outer_guard_of_a_move_lists_exactly_the_statuses_it_comes_from(query: Query) -> None:
    declared = MOVES_LINE.findall(query.text)
    for table, assigned, guard in query.status_updates():
        if ":sources[]" in guard:
            continue
        mine = [(sources, targets) for noun, sources, targets, _ in declared if TABLE_OF[noun] == table]
        guarded = {
            status
            for one, several in STATUS_IS.findall(guard)
            for status in ([one] if one else re.findall(r"'(\w+)'", several))
        }

        assert guarded == {status for sources, _ in mine for status in sources.split("|")}
        literal = {value for value, _ in SET_STATUS.findall(assigned) if value}
        if literal:
            assert literal == {to for _, targets in mine for to in targets.split("|")}


@pytest.mark.parametrize("query", STATUS_QUERIES, ids=str)
def test_a_generic_move_is_guarded_by_the_sources_that_python_gives(query: Query) -> None:
    for _, _, guard in query.status_updates():
        assert re.search(r"status IN :sources\[\]", guard) or STATUS_IS.search(guard)


# --- schemas


def table_in(dialect: str, name: str) -> Table:
    return next(table for table in read_tables(dialect) if table.name == name)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("noun", MOVES)
def test_a_status_column_allows_exactly_the_statuses_of_its_noun(noun: str, dialect: str) -> None:
    assert table_in(dialect, TABLE_OF[noun]).allowed("status") == {status.value for status in MOVES[noun]}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("table", "column", "values"), CHECKED_COLUMNS, ids=str)
def test_a_column_of_fixed_words_allows_exactly_those(
    table: str, column: str, values: type[StrEnum], dialect: str
) -> None:
    assert table_in(dialect, table).allowed(column) == {value.value for value in values}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("noun", ["task", "run", "flow"])
def test_a_record_has_an_end_exactly_when_its_status_is_terminal(noun: str, dialect: str) -> None:
    checks = " ".join(table_in(dialect, TABLE_OF[noun]).checks)
    found = re.search(r"CHECK \(\(ended_at IS NOT NULL\) = \(status IN \(([^)]*)\)\)\)", checks)

    assert found is not None
    assert set(re.findall(r"'(\w+)'", found[1])) == {
        status.value for status in MOVES[noun] if is_terminal(status)
    }


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_task_can_have_only_one_run_that_has_not_ended(dialect: str) -> None:
    found = re.search(
        r"CREATE UNIQUE INDEX runs_alive ON runs \(task_id\)\s+WHERE status IN \(([^)]*)\)", sql_of(dialect)
    )

    assert found is not None
    assert set(re.findall(r"'(\w+)'", found[1])) == {
        status.value for status in RunStatus if not is_terminal(status)
    }


def test_both_schemas_have_the_same_tables_with_the_same_columns_in_the_same_order() -> None:
    sqlite = {table.name: list(table.columns) for table in read_tables("sqlite")}
    postgres = {
        table.name: [column for column in table.columns if (table.name, column) not in ONLY_POSTGRES]
        for table in read_tables("postgres")
        if table.name not in ONLY_POSTGRES_TABLES
    }

    assert sqlite == postgres


def test_every_table_whose_rows_have_a_digest_is_verified() -> None:
    scans = [
        load_queries("sqlite")[name] for name in load_queries("sqlite").names if name.startswith("scan_")
    ]
    scanned = {table for sql in scans for table in re.findall(r"FROM (\w+)", sql)}
    with_digest = {table.name for table in read_tables("sqlite") if "digest" in table.columns}

    # In these the digest is that of what they refer to.
    assert with_digest - scanned == {"blob_uses", "alert_verdicts"}


def test_a_column_may_be_null_in_both_schemas_or_in_neither() -> None:
    nullable = {
        dialect: {
            (table.name, column)
            for table in read_tables(dialect)
            for column, text in table.texts.items()
            if "NOT NULL" not in text
        }
        for dialect in DIALECTS
    }
    extra = {(table, column) for table, column in nullable["postgres"] if table in ONLY_POSTGRES_TABLES}

    assert nullable["sqlite"] == nullable["postgres"] - extra - ONLY_POSTGRES


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_six_names_of_later_views_are_free(dialect: str) -> None:
    assert FREE_NAMES & {table.name for table in read_tables(dialect)} == set()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_guarded_updates_enforce_the_moves_and_no_trigger_does(dialect: str) -> None:
    assert created(dialect, "TRIGGER") == set()


def test_every_table_is_read_by_this_test() -> None:
    for dialect in DIALECTS:
        assert {table.name for table in read_tables(dialect)} == created(dialect, "TABLE")
