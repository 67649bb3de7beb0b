"""import openclaw: a database that the real OpenClaw has made, whose tasks its own command lists."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock
from tests.conftest import a_vault
from tests.engine.tables import query
from tests.integrations.import_doors import StoreDoor, run_import
from tests.integrations.openclaw_databases import active_row, flow_row, task_row

pytestmark = pytest.mark.slow


class RealOpenClaw:
    """OpenClaw's own command, with a state directory of its own."""

    def __init__(self, node: Path, program: Path, path: Path) -> None:
        self.path = path
        self._command = (str(node), str(program))

    def call(self, *arguments: str) -> Any:
        """What the command answers as JSON."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.path)}
        done = subprocess.run(
            [*self._command, *arguments, "--json"],
            env=environ | {"OPENCLAW_STATE_DIR": str(self.path), "NO_COLOR": "1"},
            capture_output=True,
            check=True,
            timeout=120,
        )
        return msgspec.json.decode(done.stdout)

    def insert(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Rows in the tables that OpenClaw itself has created."""
        with closing(apsw.Connection(str(self.path / "state" / "openclaw.sqlite"))) as connection:
            for row in rows:
                names, marks = ", ".join(row), ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))


@pytest.fixture
def openclaw(tmp_path: Path) -> RealOpenClaw:
    packages = pytest.importorskip("tests.openclaw.packages")
    try:
        found = packages.installed()
    except packages.NpmAway as away:
        pytest.skip(str(away))
    path = tmp_path / "openclaw"
    path.mkdir(mode=0o700)
    return RealOpenClaw(found.node, found.openclaw, path)


def test_what_openclaw_lists_is_what_the_ledger_has_after_the_import(
    openclaw: RealOpenClaw, tmp_path: Path
) -> None:
    assert openclaw.call("tasks", "list")["tasks"] == []  # it creates the database
    mirrored = flow_row(1, sync_mode="task_mirrored", controller_id=None, wait_json=None, status="running")
    # OpenClaw's own command deletes what has ended long ago.
    tasks = [
        task_row(1, cleanup_after=None),
        task_row(2, status="failed", error="no tide", terminal_outcome=None, cleanup_after=None),
        active_row(3, parent_flow_id=mirrored["flow_id"]),
    ]
    openclaw.insert("flow_runs", [mirrored, flow_row(2)])
    openclaw.insert("task_runs", tasks)
    listed = openclaw.call("tasks", "list")["tasks"]
    flows = openclaw.call("tasks", "flow", "list")["flows"]
    before = {one.name: one.stat().st_mtime_ns for one in (openclaw.path / "state").iterdir()}

    with closing(SqliteStore(tmp_path / "ledger.db", clock=FakeClock(), vault=a_vault())) as store:
        report = run_import(openclaw.path, StoreDoor(store, FakeClock()))
        found = query(store, "SELECT source_id FROM imported_records ORDER BY source_id")
        goals = query(store, "SELECT goal FROM tasks ORDER BY goal")

    assert report.is_complete
    assert report.unknown_columns == set()
    assert {row[0] for row in found} == {one["taskId"] for one in listed} | {one["flowId"] for one in flows}
    assert [row[0] for row in goals] == sorted(one["task"] for one in listed)
    assert {one.name: one.stat().st_mtime_ns for one in (openclaw.path / "state").iterdir()} == before
