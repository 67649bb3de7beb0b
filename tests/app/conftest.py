"""Fixtures of the tests of the wiring: a test that is a coroutine gets a loop of its own."""

from __future__ import annotations

import sys

import pytest

from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)


@pytest.fixture(autouse=True)
def _own_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of a gateway adds its home to the search path of the process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
