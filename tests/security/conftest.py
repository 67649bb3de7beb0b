"""Fixtures for attacks on the doors: a house, a short home for its sockets, and a loop for coroutines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.stand_in import ServedDoors, served_doors
from tests.conftest import quick_directory
from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Short, because the path of a socket is."""
    with quick_directory(tmp_path) as directory:
        yield directory


@pytest.fixture
def house(home: Path) -> Iterator[ServedDoors]:
    with served_doors(home) as house:
        yield house
