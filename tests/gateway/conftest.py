"""Fixtures of the gateway's tests: programs that wait, and a loop for each test that is a coroutine."""

from __future__ import annotations

import pytest

from tests.engine.coroutine_tests import run_coroutine_test
from tests.gateway.waiting_programs import WaitingPrograms


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def programs() -> WaitingPrograms:
    return WaitingPrograms()
