"""Fixtures of the chat commands' tests: a test that is a coroutine gets a loop of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.coroutine_tests import run_coroutine_test
from tests.engine.stage import Stage


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()
