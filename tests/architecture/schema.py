"""Reads tables, columns and checks out of the schema files of one database."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from holdfast.store.migrations import load_migrations

_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)\n\)[^;]*;", re.DOTALL)
_ADDED = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (.+?);", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*")
_CREATED = re.compile(r"CREATE (?:UNIQUE )?(TABLE|VIEW|INDEX|TRIGGER|FUNCTION) (?:IF NOT EXISTS )?(\w+)")
_DOMAIN = re.compile(r"CREATE DOMAIN (\w+) AS (.*?)\s+CHECK \(VALUE (.*?)\);", re.DOTALL)
_NOT_COLUMN = re.compile(r"(?:CHECK|UNIQUE|PRIMARY|FOREIGN|CONSTRAINT)\b")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table as its CREATE says: its columns in order, each column's own text, and what spans columns."""

    name: str
    columns: tuple[str, ...]
    texts: dict[str, str]
    checks: tuple[str, ...]

    def allowed(self, column: str) -> set[str] | None:
        """The values that the column's own CHECK lists; None when it has none."""
        text = " ".join(self.texts[column].split())
        found = re.search(rf"CHECK \({column} IN \(([^)]*)\)\)", text)
        # Or compares with, one by one.
        found = found or re.search(rf"CHECK \(({column} = '\w+'(?: OR {column} = '\w+')*)\)", text)
        return None if found is None else set(re.findall(r"'([^']*)'", found[1]))


@cache
def sql_of(dialect: str) -> str:
    """All migrations of a database, one after another, without comments; domains as what they stand for."""
    sql = _COMMENT.sub("", "\n".join(migration.sql for migration in load_migrations(dialect)))
    for name, kind, rule in _DOMAIN.findall(sql):
        sql = re.sub(rf"^( +)(\w+)( +){name}\b", rf"\1\2\3{kind} CHECK (\2 {rule})", sql, flags=re.MULTILINE)
    return sql


@cache
def read_tables(dialect: str) -> tuple[Table, ...]:
    tables: dict[str, list[str]] = {}
    for name, body in _TABLE.findall(sql_of(dialect)):
        tables[name] = _split(body)
    for name, item in _ADDED.findall(sql_of(dialect)):
        tables[name].append(" ".join(item.split()))
    return tuple(_table(name, items) for name, items in sorted(tables.items()))


def _table(name: str, items: list[str]) -> Table:
    texts = {item.split()[0]: item for item in items if not _NOT_COLUMN.match(item)}
    checks = tuple(item for item in items if _NOT_COLUMN.match(item))
    return Table(name=name, columns=tuple(texts), texts=texts, checks=checks)


def created(dialect: str, kind: str) -> set[str]:
    """Names of everything of a kind that the migrations create."""
    return {name for found, name in _CREATED.findall(sql_of(dialect)) if found == kind}


def _split(body: str) -> list[str]:
    """The items between the commas that stand outside all brackets."""
    items, depth, begin = [], 0, 0
    for place, character in enumerate(body):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            items.append(body[begin:place])
            begin = place + 1
    return [" ".join(item.split()) for item in [*items, body[begin:]] if item.strip()]
