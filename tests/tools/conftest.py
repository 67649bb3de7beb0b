"""Fixtures of the tools' tests: a place for receipts, and coroutines that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine gets a loop of its own."""
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def receipts(quick_path: Path) -> str:
    return str(quick_path / "home" / "receipts")
