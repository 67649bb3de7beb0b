"""Fixtures of the tests of alerts: a test that is a coroutine gets a loop of its own."""

from __future__ import annotations

import pytest

from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.alerts.watched_campaign import WatchedCampaign
from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def watched(store: Store, clock: FakeClock) -> WatchedCampaign:
    """A running campaign of ten items, and gateways that watch it."""
    return WatchedCampaign(store, clock)
