"""Fixtures of the channels' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.channels.receiver import Receiver
from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().listening() as receiver:
        yield receiver
