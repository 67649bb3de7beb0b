"""Parts meet in one place: what `app` builds, no other module builds."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import pytest

from tests.architecture.source import modules, tree_of

# Each class, and the only modules that make one.
BUILT_IN = {
    "Worker": {"app/workers.py"},
    "Gateway": {"app/gateway.py"},
    "Outbox": {"app/gateway.py"},
    "Inbox": {"app/gateway.py"},
    "AlertWatch": {"app/gateway.py"},
    "Conversations": {"app/gateway.py"},
    "Pruner": {"app/gateway.py"},
    "CampaignSaver": {"app/campaigns.py", "app/gateway.py"},
    "ProjectionWriter": {"app/gateway.py"},
    "TokenWatch": {"app/gateway.py"},
    "CertificateWatch": {"app/gateway.py"},
    "Reload": {"app/gateway.py"},
    "Dashboard": {"app/doors.py"},
    "Sweep": {"app/sweeps.py"},
    "Stopper": {"app/gateway.py", "app/library.py", "app/runtimes.py", "app/serving.py"},
    "CliRuntime": {"app/runtimes.py"},
    "CronRuntime": {"app/runtimes.py"},
    "SubagentRuntime": {"app/runtimes.py"},
    # The parts of a process; a worker and the library's handles have a ledger each, over the same store.
    "Ledger": {
        "app/parts.py",
        "app/runtimes.py",
        "engine/client/handles.py",
        "engine/worker/worker.py",
    },
    "PostgresStore": {"app/stores.py"},
    # The in-memory store of tests is a SQLite store.
    "SqliteStore": {"app/stores.py", "testing/stores.py"},
}


@cache
def builders() -> Mapping[str, set[str]]:
    """The modules that call each of these classes by its name, alone or as an attribute of its module."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules():
        for node in ast.walk(tree_of(module.path)):
            if isinstance(node, ast.Call) and (name := called_name(node)) in BUILT_IN:
                found[str(name)].add(module.path)
    return found


def called_name(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_class_is_built_only_where_parts_are_wired(name: str) -> None:
    assert builders()[name] == BUILT_IN[name]
