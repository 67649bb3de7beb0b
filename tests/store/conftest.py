"""A guarded file of a ledger: by a guard that looks, and by one that is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.store.guard import FileGuard
from tests.conftest import Ledger
from tests.store.guarded_files import open_ledger, tell


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in ("memory", "postgres"))]
)
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """The ledger of the other tests, and also the one in memory."""
    ledger: Ledger = request.getfixturevalue(f"{request.param}_ledger")
    ledger.begin()
    yield ledger
    ledger.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def connection(path: Path) -> Iterator[apsw.Connection]:
    with closing(open_ledger(path)) as connection:
        yield connection


@pytest.fixture
def watch(path: Path, connection: apsw.Connection) -> Iterator[FileGuard]:
    watch = FileGuard.watch(path)
    yield watch
    connection.close()
    watch.release()


@pytest.fixture
def told(path: Path, watch: FileGuard) -> FileGuard:
    tell(watch, path)
    return watch


@pytest.fixture(params=["looking", "told"])
def either(request: pytest.FixtureRequest, path: Path, watch: FileGuard) -> FileGuard:
    if request.param == "told":
        tell(watch, path)
    return watch
