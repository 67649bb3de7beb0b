"""Fixtures for the doors over sockets: a house whose gateway serves, with a ledger of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.stand_in import House, a_house
from tests.conftest import quick_directory


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Short, because the path of a socket is."""
    with quick_directory(tmp_path) as directory:
        yield directory


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    with a_house(home) as house:
        yield house
