"""Fixtures of the tests of the analysis: coroutines that run, and items made of real trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.campaign import Item
from tests.engine.coroutine_tests import run_coroutine_test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine gets a loop of its own."""
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def artifacts(quick_path: Path) -> Path:
    return quick_path / "artifacts"


@pytest.fixture
def item_of(artifacts: Path) -> Callable[[Path], Item]:
    def make(folder: Path) -> Item:
        fields = {"path": str(folder), "artifacts": str(artifacts)}
        return Item(id="one", name="One", campaign="rd-os", phase="analysis", fields=fields)

    return make
