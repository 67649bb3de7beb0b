"""Fixtures for the doors: a home of their own, a ledger in it, and the program run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.app import homes
from holdfast.cli.main import main
from holdfast.store.outer_keys import FileKey
from holdfast.store.sealing import Vault
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.doors.calls import Call, Opens, Run

VARIABLES = (
    "HOLDFAST_HOME",
    "HOLDFAST_KEY",
    "HOLDFAST_NEW_KEY",
    "HOLDFAST_SEAL",
    "HOLDFAST_STORE",
    "HOLDFAST_TOKEN",
    "HOLDFAST_URL",
    "NO_COLOR",
    "XDG_STATE_HOME",
    "_HOLDFAST_COMPLETE",
)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(homes, "LOCK_PATIENCE_S", 0.0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the program on that home and returns its status, stdout and stderr."""
    monkeypatch.setenv("HOLDFAST_HOME", str(home))

    def call(*arguments: str) -> Call:
        capfd.readouterr()
        status = main(arguments)
        out, err = capfd.readouterr()
        return Call(status=status, out=out, err=err)

    return call


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(home: Path, clock: FakeClock) -> Opens:
    """Opens the ledger of the home, to be closed before the program looks at it."""

    @contextmanager
    def opened() -> Iterator[SqliteStore]:
        store = SqliteStore(home / "ledger.db", clock=clock, vault=Vault(FileKey(home / "key")))
        try:
            yield store
        finally:
            store.close()

    return opened
