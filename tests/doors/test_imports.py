"""A listing starts in a blink: nothing heavy stands in its way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import stored_run
from tests.doors.calls import Opens, environment

# Each costs more than the listing itself, or starts something that a reader does not need.
HEAVY = {
    "asyncio",
    "concurrent.futures",
    "cronsim",
    "importlib.metadata",
    "json",
    "jsonschema",
    "logging",
    "multiprocessing",
    "platformdirs",
    "psycopg",
    "rich",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "tomllib",
    "yaml",
    "zoneinfo",
    "zstandard",
}
LOOK = """
import sys
from holdfast.cli.main import main
status = main(sys.argv[1:])
print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
sys.exit(status)
"""


def modules_after(home: Path, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "list"),
        ("tasks", "list", "--json"),
        ("checkpoints", "list"),
        ("reviews", "list"),
        ("questions", "list"),
        ("events",),
        ("sessions", "list"),
        ("gateway", "restarts"),
        ("status",),
        ("version",),
    ],
    ids=" ".join,
)
def test_a_listing_imports_nothing_heavy(ledger: Opens, home: Path, arguments: tuple[str, ...]) -> None:
    with ledger() as store:
        stored_run(store)

    assert modules_after(home, *arguments) & HEAVY == set()


@pytest.mark.parametrize("noun", ["tasks", "reviews", "questions", "checkpoints"])
def test_a_listing_imports_neither_the_engine_nor_the_writer(ledger: Opens, home: Path, noun: str) -> None:
    with ledger() as store:
        stored_run(store)

    found = modules_after(home, noun, "list")

    assert not {name for name in found if name.startswith("holdfast.engine")}
    assert not {"holdfast.store.sqlite", "holdfast.store.writer", "holdfast.store.postgres"} & found


def test_a_listing_reads_of_the_settings_only_where_the_ledger_is(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        stored_run(store)
    (home / "holdfast.toml").write_text('store = "sqlite:///ledger.db"')

    found = modules_after(home, "tasks", "list")

    assert found & HEAVY == {"tomllib"}
    assert {name for name in found if name.startswith("holdfast.config.")} == {
        "holdfast.config.documents",
        "holdfast.config.places",
    }


def test_showing_a_task_needs_no_event_loop(ledger: Opens, home: Path) -> None:
    with ledger() as store:
        task_id = stored_run(store).task_id

    assert modules_after(home, "tasks", "show", task_id) & {"asyncio", "rich"} == set()


def test_the_package_itself_imports_next_to_nothing() -> None:
    code = "import sys; import holdfast; print(*sorted(m for m in sys.modules if m.startswith('holdfast')))"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["holdfast"]
