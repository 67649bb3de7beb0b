"""Fixtures of the engine's tests: one life's parts over a store of each backend, with a clock that obeys."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.worker import carrying, in_flight
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.conftest import Ledger
from tests.engine.coroutine_tests import run_coroutine_test
from tests.engine.parts import Parts
from tests.engine.stage import Stage
from tests.engine.workers import GateAndNotes
from tests.engine.world import World


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine gets a loop of its own."""
    return run_coroutine_test(pyfuncitem)


@pytest.fixture
def parts(store: Store, clock: FakeClock) -> Parts:
    """The life of one process, begun."""
    return asyncio.run(Parts.begin(store, clock))


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    """For programs, on each backend; no process has begun yet."""
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


@pytest.fixture
def quick(memory_ledger: Ledger, tmp_path: Path) -> Iterator[Stage]:
    """The same in memory only, for what no database can make different."""
    memory_ledger.begin()
    stage = Stage(memory_ledger.open(), memory_ledger.clock, tmp_path / "boots")
    yield stage
    stage.kill()
    memory_ledger.end()


@pytest.fixture
def gate() -> GateAndNotes:
    return GateAndNotes()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def seed() -> int:
    """Printed, so that a failure can be had again: HOLDFAST_SEED=…"""
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"HOLDFAST_SEED={seed}")
    return seed


@pytest.fixture
def others(store: Store, clock: FakeClock) -> Parts:
    """The life of a second process on the same ledger."""
    return asyncio.run(Parts.begin(store, clock))


@pytest.fixture
def quick_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not want to stop is interrupted more often than every second."""
    monkeypatch.setattr(in_flight, "FORCE_EVERY_S", 0.02)
    monkeypatch.setattr(carrying, "FORCE_EVERY_S", 0.02)
