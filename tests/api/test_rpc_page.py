"""The guide to the doors is that of the code."""

from __future__ import annotations

import pytest

from holdfast.api.methods import METHODS
from tests.api.rpc_page import PAGE, filled

pytestmark = pytest.mark.slow


def test_the_guide_lists_every_method_and_every_code() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == filled(page), "run `python -m tests.api.rpc_page`"
    assert all(f"| `{name}` |" in page for name in METHODS)
