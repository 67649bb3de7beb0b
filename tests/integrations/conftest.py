"""Tests of integrations may be coroutines."""

from __future__ import annotations

import pytest

from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)
