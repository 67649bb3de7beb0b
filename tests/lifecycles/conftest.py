"""Fixtures of the lifecycles: a loop for each coroutine, and a ledger that several processes can open."""

from __future__ import annotations

import pytest

from tests.crash.conftest import place as place
from tests.engine.conftest import parts as parts
from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)
