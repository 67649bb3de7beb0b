"""The SQL that a program may execute in the ledger's database: one statement of its own at a time."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.errors import BadInput, SqlFailed
from holdfast.store.contract import Execute, Params, Row
from holdfast.store.migrations import load_migrations

T = TypeVar("T")

# All other statements control transactions, settings, other files or the server.
_ALLOWED = frozenset({"select", "values", "with", "insert", "replace", "update", "delete", "merge"}) | {
    "create",
    "alter",
    "drop",
    "truncate",
}
# Compiled when a program first executes a statement.
_CREATED_TABLE = r"(?m)^CREATE\s+TABLE\s+(\w+)"
_COMMENTS_FIRST = r"(?s)(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
# Skips text that may hold a colon (quoted text, comments, casts) and matches parameters.
_PARAMETER = r"""(?xs)
    '(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | ::
    | (?<!\w):(?P<name>[A-Za-z_]\w*)"""

_REMEDY = (
    "a transactional step may SELECT, INSERT, UPDATE, DELETE and the like on tables of its own; "
    "the ledger's tables, transactions, settings and other files are off limits"
)


class DatabaseFailed(BaseException):
    """The database itself failed. A BaseException, so that no `except Exception` of a program hides it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@functools.cache
def our_tables(dialect: str) -> frozenset[str]:
    """The names of the ledger's own tables."""
    texts = (migration.sql for migration in load_migrations(dialect))
    return frozenset({"schema_migrations"}.union(*(re.findall(_CREATED_TABLE, text) for text in texts)))


def refused(why: str) -> BadInput:
    return BadInput("sql", f"{why}; {_REMEDY}")


def check_statement(sql: object) -> str:
    """The statement, if it begins like one that a program may execute. Raises BadInput."""
    if not isinstance(sql, str):
        raise BadInput("sql", f"text is needed, not {type(sql).__name__}")
    begins_at = re.match(_COMMENTS_FIRST, sql)
    assert begins_at is not None
    word = re.match(r"\w*", sql[begins_at.end() :])
    assert word is not None
    if word[0].lower() not in _ALLOWED:
        raise refused(f"{word[0].upper() or 'an empty statement'} is not allowed here")
    return sql


def numbered_for_user(sql: str) -> tuple[str, tuple[str, ...]]:
    """The text with `$1` for its first parameter and so on, and the parameters' names in that order."""
    places: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name = found["name"]
        return found[0] if name is None else f"${places.setdefault(name, len(places) + 1)}"

    return re.sub(_PARAMETER, number, sql), tuple(places)


class LentStatements:
    """Executes statements while one function of a program runs."""

    def __init__(self, say: Callable[[str, Params], list[Row]]) -> None:
        self._say = say
        self._is_over = False
        self._failure: Exception | None = None

    def execute(self, sql: str, params: Params | None = None) -> list[Row]:
        if self._is_over:
            raise BadInput("sql", "the transaction has ended; do not use `tx` after the step has returned")
        try:
            return self._say(check_statement(sql), {} if params is None else params)
        except DatabaseFailed as failed:
            self._failure = failed.error
            raise

    def use(self, act: Callable[[Execute], T]) -> T:
        """The function's result. Raises the failure of the database, even if the function caught it."""
        try:
            answer = act(self.execute)
        except DatabaseFailed as failed:
            raise failed.error from failed
        finally:
            self._is_over = True
        if self._failure is not None:
            raise self._failure
        return answer


def sql_failed(error: Exception) -> SqlFailed:
    """The error for a program's own mistake, or for a constraint of its own tables."""
    said: Any = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return SqlFailed(type(error).__name__, said)
