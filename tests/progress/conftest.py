"""Fixtures of the tests of progress: a test that is a coroutine gets a loop of its own."""

from __future__ import annotations

import pytest

from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)
