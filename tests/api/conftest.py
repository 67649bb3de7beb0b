"""Fixtures for the doors over sockets: a house whose gateway serves, with a ledger of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.stand_in import ServedDoors, served_doors
from tests.conftest import quick_directory


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Short, because the path of a socket is."""
    with quick_directory(tmp_path) as directory:
        yield directory


@pytest.fixture
def house(home: Path) -> Iterator[ServedDoors]:
    with served_doors(home) as house:
        yield house
