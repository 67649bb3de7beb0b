"""Applies numbered migrations, under a lock, once."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast.core.errors import SchemaMismatch
from holdfast.core.patterns import compiled_late

# Imported where a schema is compared: a process that finds it as it was does not need it.
if TYPE_CHECKING:
    from holdfast.store.dashboard_views import ViewReport
    from holdfast.store.expected_schema import Index

SCHEMA_FILES = Path(__file__).parent / "schema"
_FILE_NAME = compiled_late(r"(\d{4})_(\w+)\.sql")


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
        """Number and digest of each applied migration; empty for a new database."""
        ...

    def apply(self, migration: Migration) -> None: ...

    def columns(self) -> Sequence[tuple[str, str]]:
        """Table and name of each existing column."""
        ...

    def indexes(self) -> Sequence[str]:
        """The name of each existing index."""
        ...

    def make_index(self, index: Index) -> None: ...

    def views(self) -> ViewReport:
        """How its views differ from those that this Holdfast makes."""
        ...

    def make_views(self, report: ViewReport) -> None:
        """Replace ours. What the database refuses is left out: no view keeps a ledger from being opened."""
        ...

    def is_as_checked(self) -> bool:
        """Whether columns and indexes are provably as they were when `note_checked` was last called."""
        ...

    def note_checked(self) -> None: ...


def load_migrations(dialect: str) -> list[Migration]:
    """Every migration of a database, in order."""
    return list(_read_folder(SCHEMA_FILES / dialect))


@functools.cache
def _read_folder(folder: Path) -> tuple[Migration, ...]:
    """Cached: a process may open many ledgers, or drop the privileges that it needs to read the files."""
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE_NAME().fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path.name}: a migration is named 0001_what_it_does.sql")
        found.append(Migration(number=int(match[1]), name=match[2], sql=path.read_text(encoding="utf-8")))
    return tuple(found)


def check_schema(applied: Sequence[tuple[int, str]], known: Sequence[Migration]) -> list[Migration]:
    """The missing migrations. Raises SchemaMismatch for a database that this Holdfast must not touch."""
    digests = {migration.number: migration.digest for migration in known}
    for number, digest in applied:
        if number not in digests:
            raise SchemaMismatch(
                f"the database has migration {number}, which this Holdfast does not know; upgrade Holdfast"
            )
        if digests[number] != digest:
            raise SchemaMismatch(f"migration {number} was changed after it was applied to this database")
    done = {number for number, _ in applied}
    return [migration for migration in known if migration.number not in done]


def check_readable(
    applied: Sequence[tuple[int, str]], known: Sequence[Migration], *, must_be_current: bool = True
) -> None:
    """Raises SchemaMismatch for a database that this Holdfast must not touch, or, if it must be current, for
    one that is older."""
    missing = check_schema(applied, known)
    if missing and must_be_current:
        raise _outdated(missing)


def missing_indexes(
    applied: Sequence[tuple[int, str]], known: Sequence[Migration], found: Sequence[str]
) -> list[Index]:
    """The indexes that the applied migrations created and that the database lacks."""
    from holdfast.store.expected_schema import shape_of

    done = {number for number, _ in applied}
    return shape_of([one for one in known if one.number in done]).missing_indexes(found)


def _outdated(missing: Sequence[Migration]) -> SchemaMismatch:
    return SchemaMismatch(
        f"the database lacks migration {missing[0].number} ({missing[0].name}); "
        "make a backup, then run `holdfast store migrate`"
    )


def migrate(database: Migrating, known: Sequence[Migration], *, may_upgrade: bool) -> list[Migration]:
    """Bring the database to the newest schema; returns the applied migrations.

    A new database is always set up. An older one, or one that lacks an index, is changed only with
    `may_upgrade`. Raises SchemaMismatch if a column is missing: its contents are gone.
    """
    applied = database.applied()
    missing = check_schema(applied, known)
    if applied and missing and not may_upgrade:
        raise _outdated(missing)
    for migration in missing:
        database.apply(migration)
    if missing or may_upgrade:
        _make_views(database, known)
    if not applied:
        database.note_checked()
    elif not database.is_as_checked():
        _mend(database, known, may_upgrade=may_upgrade)
    return missing


def _make_views(database: Migrating, known: Sequence[Migration]) -> None:
    from holdfast.store.dashboard_views import SINCE

    # Tests stop at an older schema, which lacks what the views show.
    if any(migration.number >= SINCE for migration in known):
        report = database.views()
        if not report.is_right:
            database.make_views(report)


def _mend(database: Migrating, known: Sequence[Migration], *, may_upgrade: bool) -> None:
    from holdfast.store.expected_schema import RESTORES, shape_of

    shape = shape_of(known)
    shape.check_columns(database.columns())
    is_whole = True
    for index in shape.missing_indexes(database.indexes()):
        if may_upgrade:
            database.make_index(index)
        elif index.is_unique:
            # Without a unique index a second run could start beside a live one, or a message be stored twice.
            raise SchemaMismatch(f"the database lacks the index {index.name}; {RESTORES}")
        else:
            is_whole = False
    if is_whole:
        database.note_checked()
