"""Fixtures of the crash tests: a ledger of one's own on each database that other processes can open too."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.ledger_address import LedgerAddress
from tests.engine.coroutine_tests import run_coroutine_test

DATABASES = ["sqlite", "postgres"]


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest, quick_path: Path) -> Iterator[LedgerAddress]:
    """An empty ledger, on each database in turn."""
    if request.param == "sqlite":
        yield LedgerAddress.of_file(quick_path)
        return
    server = request.getfixturevalue("postgres_server")
    place = LedgerAddress(url=server.create_database(), home=quick_path)
    yield place
    server.drop_database(place.url)


@pytest.fixture
def seed() -> int:
    """Printed, so that a failure can be had again: HOLDFAST_SEED=… make test."""
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    return seed


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine gets a loop of its own."""
    return run_coroutine_test(pyfuncitem)
