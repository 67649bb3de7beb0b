"""Applies numbered migrations, under a lock, once."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.core.errors import SchemaMismatch
from holdfast.store.shape import RESTORES, Index, Shape, shape_of

SCHEMA_FILES = Path(__file__).parent / "schema"
_FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Migrating(Protocol):
    """A connection that holds the migration lock of its database inside one transaction."""

    def applied(self) -> Sequence[tuple[int, str]]:
        """Number and digest of each migration that was applied; empty for a new database."""
        ...

    def apply(self, migration: Migration) -> None: ...

    def columns(self) -> Sequence[tuple[str, str]]:
        """Table and name of each column that there is."""
        ...

    def indexes(self) -> Sequence[str]:
        """The name of each index that there is."""
        ...

    def make_index(self, index: Index) -> None: ...


def load_migrations(dialect: str) -> list[Migration]:
    """Every migration of a database, in order."""
    return list(_read_folder(SCHEMA_FILES / dialect))


@functools.cache
def _read_folder(folder: Path) -> tuple[Migration, ...]:
    """Read once: a process that opens many ledgers, or gives up its rights, needs the files only once."""
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path.name}: a migration is named 0001_what_it_does.sql")
        found.append(Migration(number=int(match[1]), name=match[2], sql=path.read_text(encoding="utf-8")))
    return tuple(found)


def check_schema(applied: Sequence[tuple[int, str]], known: Sequence[Migration]) -> list[Migration]:
    """The migrations that are missing; raises SchemaMismatch for a database we must not touch."""
    digests = {migration.number: migration.digest for migration in known}
    for number, digest in applied:
        if number not in digests:
            raise SchemaMismatch(
                f"the database has migration {number}, which this Holdfast does not know; use a newer one"
            )
        if digests[number] != digest:
            raise SchemaMismatch(f"migration {number} was changed after it was applied to this database")
    done = {number for number, _ in applied}
    return [migration for migration in known if migration.number not in done]


def check_readable(
    applied: Sequence[tuple[int, str]], known: Sequence[Migration], *, must_be_current: bool = True
) -> None:
    """Raises SchemaMismatch for a database that we must not touch or, if it must be current, not read yet."""
    missing = check_schema(applied, known)
    if missing and must_be_current:
        raise _outdated(missing)


def missing_indexes(
    applied: Sequence[tuple[int, str]], known: Sequence[Migration], found: Sequence[str]
) -> list[Index]:
    """Those that the migrations of this database have made, and that it has not."""
    done = {number for number, _ in applied}
    return shape_of([one for one in known if one.number in done]).missing_indexes(found)


def _outdated(missing: Sequence[Migration]) -> SchemaMismatch:
    return SchemaMismatch(
        f"the database lacks migration {missing[0].number} ({missing[0].name}); "
        "run `holdfast store migrate` after a backup"
    )


def migrate(database: Migrating, known: Sequence[Migration], *, may_upgrade: bool) -> list[Migration]:
    """Bring the database to the newest schema; returns what was applied.

    A new database is always set up. An older one is changed only when the caller says so, and so is one that
    has lost an index. Raises SchemaMismatch for one that lacks a column: what was in it is gone.
    """
    applied = database.applied()
    missing = check_schema(applied, known)
    if applied and missing and not may_upgrade:
        raise _outdated(missing)
    for migration in missing:
        database.apply(migration)
    if applied:
        _mend(database, shape_of(known), may_upgrade=may_upgrade)
    return missing


def _mend(database: Migrating, shape: Shape, *, may_upgrade: bool) -> None:
    shape.check_columns(database.columns())
    for index in shape.missing_indexes(database.indexes()):
        if may_upgrade:
            database.make_index(index)
        elif index.is_unique:
            # What it forbids would happen: a second run beside a living one, a message twice.
            raise SchemaMismatch(f"the database lacks the index {index.name}; {RESTORES}")
