"""One PostgreSQL connection: settings seen to hold, statements prepared once, failures in words."""

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
from holdfast.store.user_sql import DatabaseFailed, Lent, numbered_for_user, refused, sql_failed

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from holdfast.store.clock import LedgerClock

T = TypeVar("T")

SCHEMA = "holdfast"
OLDEST_SERVER = 14
# pg_temp stands last, so that no temporary table can take the place of one of ours.
SEARCH_PATH = f"{SCHEMA},pg_temp"

# A server that vanished without a word is given up after some ten seconds, not after the kernel's hours.
_CONNECTING: Mapping[str, object] = {
    "application_name": "holdfast",
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# What every session needs: plans that stay right while a table grows a thousandfold, and one isolation.
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
    # Two of ours: a proxy may have swallowed what we asked for.
    "search_path": SEARCH_PATH,
    "default_transaction_isolation": "read committed",
}

IDLE = pq.TransactionStatus.IDLE
_BINARY = pq.Format.BINARY
_DONE = frozenset({pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK})
_TRANSACTION = frozenset({pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR})

# SQLSTATEs: of a server that is stopping or starting, and of what may go better the next time.
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
    ("0A000", "its tables were changed under us; restart"),
    ("53100", "its disk is full; free some space, work goes on by itself"),
    ("53200", "it has no memory left"),
    ("55P03", "another transaction has held what we need for too long"),
    ("57014", "a statement took too long and was cancelled"),
    ("40", "it conflicted with other transactions again and again"),
    ("58", "its disk failed to read or write"),
    ("XX", "it found its own files damaged; run `holdfast store verify`, then restore a dump"),
)
_UNREACHABLE = "it cannot be reached; work goes on by itself once it answers"

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
    """What the URL says. It may hold a password, so no error shows any part of it."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise SettingsError(_BAD_URL) from None
    # Where a password was not encoded, a piece of it lands in one of these, and from there in messages.
    if "@" in f"{given.get('host') or ''}{given.get('dbname') or ''}":
        raise SettingsError(_BAD_URL)
    if not str(given.get("port") or "0").replace(",", "").isdigit():
        raise SettingsError(_BAD_URL)
    return given


class PostgresConnection:
    """A connection that can be opened again. One thread uses it at a time."""

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
        # libpq's own; None while there is none.
        self.raw: PGconn | None = None
        self._transformer = Transformer()
        self._prepared: dict[str, _Prepared] = {}

    # --- the connection

    def open(self) -> None:
        """Connect anew. Raises psycopg.Error, or StoreUnavailable for a server that we cannot use."""
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
        """Whether it is open, and no transaction is. (libpq knows no such status of a lost connection.)"""
        return self.raw is not None and self.raw.transaction_status == IDLE

    @property
    def has_transaction(self) -> bool:
        """Also one that failed and waits for its ROLLBACK."""
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
                raise StoreUnavailable(f"PostgreSQL has {name}={found[name]}; {value} is needed")
        if self._is_durable and found["synchronous_commit"] == "off":
            self.command(b"SET synchronous_commit = on")
            if self.show("synchronous_commit") == "off":
                raise StoreUnavailable("PostgreSQL keeps synchronous_commit=off; writes could be lost")

    # --- statements

    def command(self, sql: bytes) -> PGresult:
        """Something without parameters, in the quickest way there is."""
        result = self.pgconn.exec_(sql)
        if result.status not in _DONE:
            raise self._failure(result)
        return result

    def ask(self, sql: str, *values: str) -> list[Row]:
        """A statement that is too rare to be prepared."""
        texts = [value.encode() for value in values]
        result = self.pgconn.exec_params(sql.encode(), texts, result_format=_BINARY)
        if result.status not in _DONE:
            raise self._failure(result)
        return self.rows(result)

    def ask_time(self, clock: LedgerClock) -> None:
        """Twice, because the first answer may have waited for something."""
        for _ in range(2):
            asked = clock.steady_ns()
            clock.learn(asked, time_in(self.command(_TIME)))

    def show(self, setting: str) -> str:
        return str(self.ask("SELECT current_setting($1)", setting)[0][0])

    def execute(self, query: str, params: Params) -> PGresult:
        """A named query; prepared when it is first used on this connection."""
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
        """As `execute`, for a statement of IN_ORDER: whether it changed its row."""
        prepared = self._prepared.get(query) or self._prepare(query)
        try:
            values: list[Any] = list(map(call, prepared.encoders, row))  # without a frame: every step is here
        except (TypeError, struct.error):  # None, or what no database could take
            values = [
                None if value is None else encode(value)
                for encode, value in zip(prepared.encoders, row, strict=True)
            ]
        pgconn = self.raw or self.pgconn
        result = pgconn.exec_prepared(prepared.name, values, prepared.formats, _BINARY)
        if result.status not in _DONE:
            raise self._failure(result)
        # The tag says it: rows that it returned would cost a message more, and the server a receiver.
        return result.command_tuples == 1

    def say(self, sql: str, values: Sequence[object]) -> list[Row]:
        """A statement of somebody else's, with values of any type; the protocol takes no second one."""
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
        # Asked in SQL, because libpq's own way to ask keeps Python's other threads waiting.
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
                self.close()  # it became a standby; connecting again may find the primary
            return errors.error_from_result(result)
        # Said by libpq and not by the server: there is nobody at the other end.
        said = result.error_message.decode("utf-8", "replace").strip()
        self.close()
        return psycopg.OperationalError(said or "the connection was lost")


def time_in(answer: PGresult) -> int:
    """The server's time, which a command was answered with."""
    return int(answer.get_value(0, 0) or b"")


# A statement that names them could reach our tables, or have names looked for elsewhere. U& spells in code.
_OURS = re.compile(rf"""\b{SCHEMA}"?\s*\.|\bsearch_path\b|\bset_config\b|\bU&["']""", re.IGNORECASE)
# No permission, no such table: of a program's own tables, that is its own affair.
_OF_THE_PROGRAM = frozenset({"42501", "42P01"})


class PostgresStatements:
    """Named queries on one link."""

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
        """One statement for all; which ones it saved matters only when it was not every one."""
        columns = zip(*rows, strict=True)
        result = self._link.execute("save_steps", dict(zip(IN_ORDER["save_step"], columns, strict=True)))
        if result.ntuples == len(rows):
            return [True] * len(rows)
        saved = {tuple(row) for row in self._link.rows(result)}
        return [(*row[:4], row[10]) in saved for row in rows]

    def pack(self, values: Sequence[str]) -> object:
        return values

    def lend(self, act: Callable[[Execute], T]) -> T:
        """Ours are hidden by the search path and by their schema's name, which no statement may hold."""
        self._link.command(b"SET LOCAL search_path = public")
        answer = Lent(self._say).use(act)
        if not self._link.is_in_good_order:
            raise SqlFailed(
                "InFailedSqlTransaction", "a statement failed and the step went on; let its error pass"
            )
        self._link.command(f"SET LOCAL search_path = {SEARCH_PATH}".encode())
        return answer

    def _say(self, sql: str, params: Params) -> list[Row]:
        if _OURS.search(sql):
            raise refused("it names the ledger's own schema, or where names are looked for")
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
    """Whether the connection is gone, or was never there."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith("08") or error.sqlstate in _SHUT


def may_retry(error: Exception) -> bool:
    """Whether the same again may go better: after a lost connection, a deadlock, a lock held too long."""
    return is_lost(error) or (isinstance(error, psycopg.OperationalError) and error.sqlstate in _PASSING)


def explain(error: Exception) -> Exception | None:
    """For a failure of the database StoreUnavailable, or PageDamaged; None for what the caller did itself."""
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
    """The database's failure in words for the person who must mend it."""
    state = error.sqlstate or ""
    words = next((text for start, text in _REMEDIES if state.startswith(start)), _UNREACHABLE)
    said = (str(error).strip().splitlines() or [""])[0]
    return StoreUnavailable(f"PostgreSQL: {words} ({said})")


# --- values, in PostgreSQL's binary format: exact, quick, and no text that ends at a NUL

Encode = Callable[[Any], bytes]

_TEXT, _BIGINT, _BYTEA = 25, 20, 17
_TEXTS, _BIGINTS, _BYTEAS = 1009, 1016, 1001
_NULL_ITEM = struct.pack("!i", -1)
_array_head = struct.Struct("!iiIii").pack
_bigint = struct.Struct("!q").pack
_bigint_item = struct.Struct("!iq").pack


# The value itself; and a TypeError for whatever is not bytes.
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
    # Of its parameters, in their order.
    names: tuple[str, ...]
    encoders: tuple[Encode, ...]
    formats: list[int]
