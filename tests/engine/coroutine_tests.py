"""Tests that are coroutines: each is run in an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect

import pytest


def run_coroutine_test(item: pytest.Function) -> bool | None:
    """What `pytest_pyfunc_call` of a directory with such tests returns: True when it was run here."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    wanted = {name: item.funcargs[name] for name in inspect.signature(item.obj).parameters}
    asyncio.run(item.obj(**wanted))
    return True
