"""Parts meet in one place: what `app` builds, no other module builds."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source import modules, tree_of

# Each class, and the only modules that make one.
BUILT_IN = {
    "Worker": {"app/workers.py"},
    "Gateway": {"app/gateway.py"},
    "PostgresStore": {"app/stores.py"},
    # The in-memory store of tests is a SQLite store.
    "SqliteStore": {"app/stores.py", "testing/stores.py"},
}


def builders_of(name: str) -> set[str]:
    """The modules that call the class by its name, alone or as an attribute of its module."""
    return {
        module.path
        for module in modules()
        for node in ast.walk(tree_of(module.path))
        if isinstance(node, ast.Call) and called_name(node) == name
    }


def called_name(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_class_is_built_only_where_parts_are_wired(name: str) -> None:
    assert builders_of(name) == BUILT_IN[name]
