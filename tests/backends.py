"""On which databases a test runs whose cases differ in what no database can make different."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

# For the fixtures `store`, `stage` and `parts`: what the test shows is not the database's.
on_sqlite = pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)


def first_on_both(name: str, values: Sequence[Any], *, ledger: str = "ledger") -> pytest.MarkDecorator:
    """Each value on SQLite, and the first on PostgreSQL, too: there the others pass the same code."""
    pairs = [
        *(pytest.param("sqlite", value) for value in values),
        pytest.param("postgres", values[0], marks=pytest.mark.slow),
    ]
    ids = [*(f"sqlite-{_id_of(value)}" for value in values), f"postgres-{_id_of(values[0])}"]
    return pytest.mark.parametrize((ledger, name), pairs, ids=ids, indirect=[ledger])


def _id_of(value: object) -> str:
    return str(getattr(value, "__name__", value))
