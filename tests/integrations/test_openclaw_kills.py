"""import openclaw under kills: whatever statement it dies at, the next import completes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.clock import SystemClock
from holdfast.store import Store, Tx
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import Crashed, FailingStore, FakeClock
from tests.conftest import Ledger, a_vault
from tests.doors.calls import environment, run_process
from tests.engine.tables import query
from tests.integrations.import_doors import import_from
from tests.integrations.openclaw_databases import OpenClawHome, active_row, flow_row, task_row

pytestmark = pytest.mark.slow

# What an import has stored, without what differs from one import to the next.
FACTS = (
    "SELECT id, owner, status, goal, notify, flow_id, parent_task_id, ended_at FROM tasks ORDER BY id",
    "SELECT id, task_id, status, fence, started_at, ended_at FROM runs ORDER BY id",
    "SELECT task_id, progress_summary, terminal_summary, alive_until FROM recorded_tasks ORDER BY task_id",
    "SELECT id, task_id, idempotency_key, status, target FROM deliveries ORDER BY id",
    "SELECT id, status, live, succeeded, failed, lost, ended_at FROM flows ORDER BY id",
    "SELECT noun, source_id, record_id, source_run_id FROM imported_records ORDER BY noun, source_id",
)


def facts_of(store: Store) -> list[Any]:
    return [*(query(store, sql) for sql in FACTS), store.read_now(counts_of)]


def counts_of(tx: Tx) -> dict[str, dict[str, int]]:
    return {noun: tx.events.counts(noun) for noun in ("task", "run", "flow")}


def fill(state: OpenClawHome) -> None:
    """Flows with live and ended tasks, a parent with its child, and an update that is still owed."""
    flow = {"parent_flow_id": flow_row(1)["flow_id"]}
    mirrored = {"sync_mode": "task_mirrored", "controller_id": None, "wait_json": None, "status": "running"}
    state.add_flows(flow_row(1) | mirrored, flow_row(2))
    state.add(active_row(1) | flow, active_row(2, "queued"), task_row(3, delivery_status="pending"))
    state.add(task_row(4, parent_task_id=task_row(3)["task_id"]) | flow)


def move_on(state: OpenClawHome) -> None:
    """Everything that was in flight has ended."""
    ended = {"status": "succeeded", "ended_at": flow_row()["updated_at"], "wait_json": None}
    flow = {"parent_flow_id": flow_row(1)["flow_id"]}
    state.add_flows(
        flow_row(1) | {"sync_mode": "task_mirrored", "controller_id": None} | ended, flow_row(2) | ended
    )
    state.change(task_row(1) | flow)
    state.change(task_row(2, status="failed", error="no tide"))


@pytest.mark.parametrize("has_moved_on", [False, True], ids=["first", "later"])
def test_an_import_that_dies_at_any_statement_is_completed_by_the_next_one(
    has_moved_on: bool, tmp_path: Path, ledger: Ledger, clock: FakeClock
) -> None:
    state, earlier = OpenClawHome(tmp_path / "now"), OpenClawHome(tmp_path / "earlier")
    fill(state)
    fill(earlier)
    if has_moved_on:
        move_on(state)

    def begin() -> Store:
        """The ledger as it is before the import that dies."""
        ledger.end()
        ledger.begin()
        store = ledger.open()
        if has_moved_on:
            import_from(earlier, store, clock)
        return store

    recording = FailingStore(begin())
    import_from(state, recording, clock)
    whole, points = facts_of(recording.inner), recording.failpoints()

    for point in points:
        store = begin()
        dying = FailingStore(store, [point])
        with pytest.raises(Crashed):
            import_from(state, dying, clock)
        import_from(state, store, clock)

        assert facts_of(store) == whole, str(point)

    assert len(points) > 20


def test_a_command_that_is_killed_between_two_batches_is_completed_by_the_next_one(tmp_path: Path) -> None:
    state, home = OpenClawHome(tmp_path / "openclaw"), tmp_path / "home"
    state.add(*(task_row(number) for number in range(1200)))
    program = (
        "import os, signal, sys\n"
        "from holdfast.cli import imports, main\n"
        "take, done = imports.LedgerDoor.take, []\n"
        "def take_and_die(self, batch_id, tasks):\n"
        "    done.append(take(self, batch_id, tasks))\n"
        "    if len(done) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return done[-1]\n"
        "imports.LedgerDoor.take = take_and_die\n"
        "sys.exit(main.main(sys.argv[1:]))\n"
    )

    killed = subprocess.run(
        [sys.executable, "-c", program, "import", "openclaw", str(state.path)],
        env=environment(home, TMPDIR=str(tmp_path)),
        capture_output=True,
        check=False,
        timeout=120,
    )
    completed = run_process(home, "import", "openclaw", str(state.path), "--json")

    assert killed.returncode == -signal.SIGKILL
    assert (completed.json["tasks"]["unchanged"], completed.json["tasks"]["created"]) == (1000, 200)
    assert run_process(home, "store", "verify").status == 0
    assert list(state.database.parent.iterdir()) == [state.database]
    with closing(SqliteStore(home / "ledger.db", clock=SystemClock(), vault=a_vault())) as store:
        assert store.read_now(lambda tx: tx.events.counts("task")) == {"succeeded": 1200}
