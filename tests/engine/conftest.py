"""Fixtures of the engine's tests: one life's parts over a store of each backend, with a clock that obeys."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.loops import run_coroutine_test
from tests.engine.parts import Parts


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine gets a loop of its own."""
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def parts(store: Store, clock: FakeClock) -> Parts:
    """The life of one process, begun."""
    return asyncio.run(Parts.begin(store, clock))


@pytest.fixture
def others(store: Store, clock: FakeClock) -> Parts:
    """The life of a second process on the same ledger."""
    return asyncio.run(Parts.begin(store, clock))
