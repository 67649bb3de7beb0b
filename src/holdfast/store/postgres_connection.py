"""One PostgreSQL connection: checks its settings, prepares statements once, explains failures in words."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import call
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import psycopg
from psycopg import errors, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.conninfo import conninfo_to_dict

from holdfast.core.errors import BadInput, PageDamaged, SettingsError, SqlFailed, StoreUnavailable
from holdfast.store.contract import Execute, Params, Row
from holdfast.store.queries import numbered
from holdfast.store.rows.effects import IN_ORDER
from holdfast.store.user_sql import DatabaseFailed, LentStatements, numbered_for_user, refused, sql_failed

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from holdfast.store.clock import LedgerClock

T = TypeVar("T")

SCHEMA = "holdfast"
OLDEST_SERVER = 14
# pg_temp comes last, so that no temporary table can hide one of ours.
SEARCH_PATH = f"{SCHEMA},pg_temp"

# Give up on a server that vanished silently after about ten seconds, not after the kernel's hours.
_CONNECTING: Mapping[str, object] = {
    "application_name": "holdfast",
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# What every session needs: plans that stay good while a table grows a thousandfold, and one isolation level.
_SETTINGS = {
    "search_path": SEARCH_PATH,
    "default_transaction_isolation": "read\\ committed",
    "enable_seqscan": "off",
    "jit": "off",
    "idle_in_transaction_session_timeout": "10s",
}

_EXPECTED = {
    "server_encoding": "UTF8",
    "standard_conforming_strings": "on",
    # Checked after connecting, because a proxy may have dropped what we asked for.
    "search_path": SEARCH_PATH,
    "default_transaction_isolation": "read committed",
}

IDLE = pq.TransactionStatus.IDLE
_BINARY = pq.Format.BINARY
_DONE = frozenset({pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK})
_TRANSACTION = frozenset({pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR})

# SQLSTATEs of a server that is stopping or starting, and of errors that a retry may avoid.
_SHUT = frozenset({"57P01", "57P02", "57P03"})
_PASSING = frozenset({"40001", "40P01", "55P03"})
_READ_ONLY = b"25006"
# Data and indexes that the server itself found damaged.
_DAMAGED = frozenset({"XX001", "XX002"})
_OF_THE_CALLER = (
    psycopg.IntegrityError,
    psycopg.DataError,
    psycopg.ProgrammingError,
    errors.InFailedSqlTransaction,
)
_REMEDIES = (
    ("25006", "it is read-only (a standby?); connect to the primary"),
    ("42501", "no permission; the role must own the schema `holdfast` or have all privileges in it"),
    ("42P01", "its tables are missing"),
    ("0A000", "its tables were changed while they were in use; restart Holdfast"),
    ("53100", "its disk is full; free some space, work then continues by itself"),
    ("53200", "it has no memory left"),
    ("55P03", "another transaction has held a lock for too long"),
    ("57014", "a statement took too long and was cancelled"),
    ("40", "the transaction conflicted with others again and again"),
    ("58", "its disk failed to read or write"),
    ("XX", "it found its own files damaged; run `holdfast store verify`, then restore a dump"),
)
_UNREACHABLE = "it cannot be reached; check that it runs, and its address"

_TIME = b"SELECT holdfast_now()"
_SHOW = "SELECT name, current_setting(name) FROM unnest(CAST($1 AS text[])) AS wanted (name)"
_PARAMETER_TYPES = """
SELECT CAST(CASE typtype WHEN 'd' THEN typbasetype ELSE pg_type.oid END AS bigint)
  FROM pg_prepared_statements,
       unnest(parameter_types) WITH ORDINALITY AS parameter (kind, place)
       JOIN pg_type ON pg_type.oid = parameter.kind
 WHERE name = $1
 ORDER BY place
"""

_BAD_URL = (
    "store: the PostgreSQL URL cannot be read; write postgresql://user:password@host:5432/database, "
    "and percent-encode special characters in the password (`@` is %40, `/` is %2F)"
)


def read_url(url: str) -> dict[str, Any]:
    """The parts of the URL. It may hold a password, so no error shows any part of it."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise SettingsError(_BAD_URL) from None
    # If a password is not percent-encoded, a part of it ends up in one of these, and so in messages.
    if "@" in f"{given.get('host') or ''}{given.get('dbname') or ''}":
        raise SettingsError(_BAD_URL)
    if not str(given.get("port") or "0").replace(",", "").isdigit():
        raise SettingsError(_BAD_URL)
    return given


class PostgresConnection:
    """A connection that can be reopened. Only one thread may use it at a time."""

    def __init__(self, address: Mapping[str, Any], queries: Mapping[str, str], **settings: str) -> None:
        self._queries = queries
        # An acknowledged commit must survive a crash of the server, whatever the role's default says.
        self._is_durable = "synchronous_commit" not in settings
        options = " ".join(f"-c {name}={value}" for name, value in (_SETTINGS | settings).items())
        self._address = {
            **_CONNECTING,
            **address,
            "options": f"{address.get('options') or ''} {options}".strip(),
            "client_encoding": "UTF8",
        }
        self._connection: psycopg.Connection[Any] | None = None
        # libpq's connection; None while not connected.
        self.raw: PGconn | None = None
        self._transformer = Transformer()
        self._prepared: dict[str, _Prepared] = {}

    # --- the connection

    def open(self) -> None:
        """Connect or reconnect. Raises psycopg.Error, or StoreUnavailable for an unusable server."""
        self.close()
        self._connection = psycopg.connect(**self._address, autocommit=True)
        self.raw = self._connection.pgconn
        self._transformer = Transformer(self._connection)
        self._prepared = {}
        try:
            self._check_server()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Safe twice."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self.raw = None

    @property
    def is_open(self) -> bool:
        return self.raw is not None and self.raw.status == pq.ConnStatus.OK

    @property
    def pgconn(self) -> PGconn:
        if self.raw is None:
            raise psycopg.OperationalError("not connected")
        return self.raw

    @property
    def is_idle(self) -> bool:
        """Whether it is open without a transaction. (libpq never reports this status when it is lost.)"""
        return self.raw is not None and self.raw.transaction_status == IDLE

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open, also a failed one that waits for its ROLLBACK."""
        return self.is_open and self.pgconn.transaction_status in _TRANSACTION

    def _check_server(self) -> None:
        version = self.pgconn.server_version // 10_000
        if version < OLDEST_SERVER:
            raise StoreUnavailable(
                f"PostgreSQL {version} is too old; Holdfast needs {OLDEST_SERVER} or newer"
            )
        names = f"{{synchronous_commit,{','.join(_EXPECTED)}}}"
        found = {row[0]: row[1] for row in self.ask(_SHOW, names)}
        for name, value in _EXPECTED.items():
            if found[name] != value:
                raise StoreUnavailable(f"PostgreSQL has {name}={found[name]}; Holdfast needs {value}")
        if self._is_durable and found["synchronous_commit"] == "off":
            self.command(b"SET synchronous_commit = on")
            if self.show("synchronous_commit") == "off":
                raise StoreUnavailable(
                    "PostgreSQL refuses to turn synchronous_commit on, so writes could be lost; "
                    "set it to on for this role"
                )

    # --- statements

    def command(self, sql: bytes) -> PGresult:
        """Execute SQL without parameters, in the fastest way."""
        result = self.pgconn.exec_(sql)
        if result.status not in _DONE:
            raise self._failure(result)
        return result

    def ask(self, sql: str, *values: str) -> list[Row]:
        """Execute a statement that is too rare to be prepared."""
        texts = [value.encode() for value in values]
        result = self.pgconn.exec_params(sql.encode(), texts, result_format=_BINARY)
        if result.status not in _DONE:
            raise self._failure(result)
        return self.rows(result)

    def ask_time(self, clock: LedgerClock) -> None:
        """Ask twice, because the first answer may have been delayed."""
        for _ in range(2):
            asked = clock.steady_ns()
            clock.learn(asked, time_in(self.command(_TIME)))

    def show(self, setting: str) -> str:
        return str(self.ask("SELECT current_setting($1)", setting)[0][0])

    def execute(self, query: str, params: Params) -> PGresult:
        """Execute a named query, which is prepared on its first use on this connection."""
        prepared = self._prepared.get(query) or self._prepare(query)
        values: list[Any] = [
            None if (value := params[name]) is None else encode(value)
            for name, encode in zip(prepared.names, prepared.encoders, strict=True)
        ]
        result = self.pgconn.exec_prepared(prepared.name, values, prepared.formats, _BINARY)
        if result.status not in _DONE:
            raise self._failure(result)
        return result

    def guarded(self, query: str, row: Row) -> bool:
        """Like `execute`, for a statement of IN_ORDER; True if it changed its row."""
        prepared = self._prepared.get(query) or self._prepare(query)
        try:
            values: list[Any] = list(map(call, prepared.encoders, row))  # no frame per value: hot path
        except (TypeError, struct.error):  # a None, or a value that no database could take
            values = [
                None if value is None else encode(value)
                for encode, value in zip(prepared.encoders, row, strict=True)
            ]
        pgconn = self.raw or self.pgconn
        result = pgconn.exec_prepared(prepared.name, values, prepared.formats, _BINARY)
        if result.status not in _DONE:
            raise self._failure(result)
        # Read from the command tag: returning rows would cost another message, and the server more work.
        return result.command_tuples == 1

    def say(self, sql: str, values: Sequence[object]) -> list[Row]:
        """Execute a program's own statement, with values of any type; the protocol allows only one."""
        transformer = Transformer(self._connection)
        dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        result = self.pgconn.exec_params(
            sql.encode(), dumped, transformer.types, transformer.formats, pq.Format.TEXT
        )
        if result.status not in _DONE:
            raise self._failure(result)
        transformer.set_pgresult(result)
        found: list[Row] = list(transformer.load_rows(0, result.ntuples, tuple))
        return found

    @property
    def is_in_good_order(self) -> bool:
        """Whether a transaction is open in which nothing has failed."""
        return self.is_open and self.pgconn.transaction_status == pq.TransactionStatus.INTRANS

    def rows(self, result: PGresult) -> list[Row]:
        self._transformer.set_pgresult(result)
        found: list[Row] = list(self._transformer.load_rows(0, result.ntuples, tuple))
        return found

    def prepare(self, query: str) -> None:
        """Prepare a query that a command will EXECUTE by its name."""
        if query not in self._prepared:
            self._prepare(query)

    def _prepare(self, query: str) -> _Prepared:
        sql, names = numbered(self._queries[query], IN_ORDER.get(query, ()))
        result = self.pgconn.prepare(query.encode(), sql.encode())
        if result.status not in _DONE:
            raise self._failure(result)
        # Asked in SQL, because libpq's function for it blocks Python's other threads.
        types = [row[0] for row in self.ask(_PARAMETER_TYPES, query)]
        unknown = [f":{name}" for name, kind in zip(names, types, strict=True) if kind not in _ENCODE]
        if unknown:
            raise TypeError(
                f"query {query}: cast {', '.join(unknown)} to text, bigint, bytea or a list of them"
            )
        prepared = _Prepared(
            name=query.encode(),
            names=names,
            encoders=tuple(_ENCODE[kind] for kind in types),
            formats=[_BINARY] * len(names),
        )
        self._prepared[query] = prepared
        return prepared

    def _failure(self, result: PGresult) -> psycopg.Error:
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        if self.is_open and state is not None:
            if state == _READ_ONLY:
                self.close()  # it became a standby; reconnecting may find the primary
            return errors.error_from_result(result)
        # The message is libpq's own, not the server's: the connection is gone.
        said = result.error_message.decode("utf-8", "replace").strip()
        self.close()
        return psycopg.OperationalError(said or "the connection was lost")


def time_in(answer: PGresult) -> int:
    """The server's time in the answer to a command."""
    return int(answer.get_value(0, 0) or b"")


# A statement with one of these could reach our tables, or change where names are looked up. U& can encode any
# name.
_OURS = re.compile(rf"""\b{SCHEMA}"?\s*\.|\bsearch_path\b|\bset_config\b|\bU&["']""", re.IGNORECASE)
# No permission, no such table: for a program's own tables, that is an error of the program.
_OF_THE_PROGRAM = frozenset({"42501", "42P01"})


class PostgresStatements:
    """Named queries on one connection."""

    def __init__(self, link: PostgresConnection) -> None:
        self._link = link

    def one(self, query: str, params: Params) -> Row | None:
        found = self.all(query, params)
        return found[0] if found else None

    def all(self, query: str, params: Params) -> list[Row]:
        result = self._link.execute(query, params)
        return self._link.rows(result) if result.ntuples else []

    def run(self, query: str, params: Params) -> None:
        self._link.execute(query, params)

    def many(self, query: str, rows: Iterable[Params]) -> None:
        """All rows in one statement: `<query>_many` takes a list for each parameter."""
        given = list(rows)
        if len(given) > 1:
            self._link.execute(f"{query}_many", {name: [row[name] for row in given] for name in given[0]})
        elif given:
            self._link.execute(query, given[0])

    def guarded(self, query: str, row: Row) -> bool:
        return self._link.guarded(query, row)

    def save_steps(self, rows: Sequence[Row]) -> list[bool]:
        """One statement for all; which steps it saved matters only if it did not save every one."""
        columns = zip(*rows, strict=True)
        result = self._link.execute("save_steps", dict(zip(IN_ORDER["save_step"], columns, strict=True)))
        if result.ntuples == len(rows):
            return [True] * len(rows)
        saved = {tuple(row) for row in self._link.rows(result)}
        return [(*row[:4], row[10]) in saved for row in rows]

    def pack(self, values: Sequence[str]) -> object:
        return values

    def lend(self, act: Callable[[Execute], T]) -> T:
        """The search path hides our tables, and no statement may contain the name of their schema."""
        self._link.command(b"SET LOCAL search_path = public")
        answer = LentStatements(self._say).use(act)
        if not self._link.is_in_good_order:
            raise SqlFailed(
                "InFailedSqlTransaction",
                "a statement failed and the step caught its error; let the error propagate",
            )
        self._link.command(f"SET LOCAL search_path = {SEARCH_PATH}".encode())
        return answer

    def _say(self, sql: str, params: Params) -> list[Row]:
        if _OURS.search(sql):
            raise refused("it names the ledger's own schema, or changes the search path")
        text, names = numbered_for_user(sql)
        missing = [name for name in names if name not in params]
        if missing:
            raise BadInput("params", f"there is no value for :{missing[0]}")
        try:
            return self._link.say(text, [params[name] for name in names])
        except psycopg.Error as error:
            if may_retry(error) or (explain(error) is not None and error.sqlstate not in _OF_THE_PROGRAM):
                raise DatabaseFailed(error) from error
            raise sql_failed(error) from error


# --- failures


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost, or could not be opened."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith("08") or error.sqlstate in _SHUT


def may_retry(error: Exception) -> bool:
    """Whether a retry may succeed: after a lost connection, a deadlock or a lock timeout."""
    return is_lost(error) or (isinstance(error, psycopg.OperationalError) and error.sqlstate in _PASSING)


def explain(error: Exception) -> Exception | None:
    """StoreUnavailable or PageDamaged for a failure of the database; None for an error of the caller."""
    if isinstance(error, StoreUnavailable):
        return error
    if not isinstance(error, psycopg.Error):
        return None
    if error.sqlstate in _DAMAGED:
        return PageDamaged(f"PostgreSQL: {(str(error).strip().splitlines() or [''])[0]}")
    if isinstance(error, _OF_THE_CALLER) and error.sqlstate not in ("42501", "42P01"):
        return None
    return unavailable(error)


def unavailable(error: psycopg.Error) -> StoreUnavailable:
    """The database's failure in words for the operator who must fix it."""
    state = error.sqlstate or ""
    words = next((text for start, text in _REMEDIES if state.startswith(start)), _UNREACHABLE)
    said = (str(error).strip().splitlines() or [""])[0]
    return StoreUnavailable(f"PostgreSQL: {words} ({said})")


# --- values, in PostgreSQL's binary format: exact, fast, and safe for text with a NUL

Encode = Callable[[Any], bytes]

_TEXT, _BIGINT, _BYTEA = 25, 20, 17
_TEXTS, _BIGINTS, _BYTEAS = 1009, 1016, 1001
_NULL_ITEM = struct.pack("!i", -1)
_array_head = struct.Struct("!iiIii").pack
_bigint = struct.Struct("!q").pack
_bigint_item = struct.Struct("!iq").pack


# Returns the value itself, and raises TypeError if it is not bytes.
_bytea = b"".__add__


def _bytes_item(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _text_item(value: str) -> bytes:
    return _bytes_item(str.encode(value))


def _array(kind: int, item: Encode, values: Sequence[Any]) -> bytes:
    items = [_NULL_ITEM if value is None else item(value) for value in values]
    return b"".join([_array_head(1, 1, kind, len(items), 1), *items])


_ENCODE: dict[int, Encode] = {
    _TEXT: str.encode,
    _BIGINT: _bigint,
    _BYTEA: _bytea,
    _TEXTS: partial(_array, _TEXT, _text_item),
    _BIGINTS: partial(_array, _BIGINT, partial(_bigint_item, 8)),
    _BYTEAS: partial(_array, _BYTEA, _bytes_item),
}


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    name: bytes
    # The names of its parameters, in order.
    names: tuple[str, ...]
    encoders: tuple[Encode, ...]
    formats: list[int]
