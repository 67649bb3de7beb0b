"""Which columns and indexes the migrations create, and which of them a database lacks."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import SchemaMismatch

if TYPE_CHECKING:
    from holdfast.store.migrations import Migration

RESTORES = "stop every process that uses the ledger, then run `holdfast store migrate` to restore it"

_COMMENT = re.compile(r"--[^\n]*")
_TABLE = re.compile(r"\bCREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\w+)\s*\(")
_ADDED = re.compile(r"\bALTER TABLE (\w+) ADD COLUMN (\w+)")
_DROPPED = re.compile(r"\bDROP INDEX (\w+)")
_INDEX = re.compile(r"\bCREATE (UNIQUE )?INDEX (?:IF NOT EXISTS )?(\w+) ON [^;]+")
# Quoted text is matched as a whole, so that its signs do not count.
_SIGN = re.compile(r"'[^']*'|[(),]")
_NO_COLUMN = frozenset({"CHECK", "UNIQUE", "PRIMARY", "FOREIGN", "CONSTRAINT", "EXCLUDE", "LIKE"})


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """One index, and the statement that creates it. A unique index is also a constraint."""

    name: str
    sql: str
    is_unique: bool


class SchemaShape(msgspec.Struct, frozen=True, kw_only=True):
    """What migrations create: columns by table, and indexes."""

    columns: frozenset[tuple[str, str]]
    indexes: tuple[Index, ...]

    def check_columns(self, found: Iterable[tuple[str, str]]) -> None:
        """Raises SchemaMismatch if a column is missing; additional columns are allowed."""
        missing = sorted(self.columns - set(found))
        if missing:
            table, column = missing[0]
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise SchemaMismatch(
                f"the database lacks the column {column} of the table {table}{more}: something other than "
                "Holdfast has altered it; restore a backup"
            )

    def missing_indexes(self, found: Iterable[str]) -> list[Index]:
        names = set(found)
        return [index for index in self.indexes if index.name not in names]


def cannot_make(index: Index, error: Exception) -> SchemaMismatch:
    said = (str(error).strip().splitlines() or [""])[0]
    return SchemaMismatch(f"the index {index.name} cannot be restored: {said}; restore a backup")


def problems_of_indexes(missing: Sequence[Index]) -> list[str]:
    return [f"the index {index.name} is missing; {RESTORES}" for index in missing]


def shape_of(migrations: Sequence[Migration]) -> SchemaShape:
    return _read_shape(tuple(migration.sql for migration in migrations))


@functools.lru_cache(maxsize=8)
def _read_shape(migrations: tuple[str, ...]) -> SchemaShape:
    columns: set[tuple[str, str]] = set()
    indexes: list[Index] = []
    for text in migrations:
        sql = _COMMENT.sub("", text)
        for table in _TABLE.finditer(sql):
            columns |= {(table[1], column) for column in _columns(sql, table.end())}
        columns |= {(table, column) for table, column in _ADDED.findall(sql)}
        indexes += [
            Index(name=index[2], sql=index[0].strip(), is_unique=index[1] is not None)
            for index in _INDEX.finditer(sql)
        ]
        dropped = set(_DROPPED.findall(sql))
        indexes = [index for index in indexes if index.name not in dropped]
    return SchemaShape(columns=frozenset(columns), indexes=tuple(indexes))


def _columns(sql: str, start: int) -> Iterator[str]:
    """The first word of each item between the parentheses that begin there."""
    depth, item = 1, start
    for sign in _SIGN.finditer(sql, start):
        depth += {"(": 1, ")": -1}.get(sign[0], 0)
        if (sign[0] == "," and depth == 1) or depth == 0:
            name = sql[item : sign.start()].split(None, 1)[0].partition("(")[0]
            if name not in _NO_COLUMN:
                yield name
            item = sign.end()
        if depth == 0:
            return
