"""Fixtures of the tests of programs."""

from __future__ import annotations

import pytest

from tests.engine.program.sample_program import Kept


@pytest.fixture
def kept() -> Kept:
    return Kept()
