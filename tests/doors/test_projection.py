"""A task whose worker was really killed does not read as running, in any door and on both databases."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast import app
from holdfast.app import read_settings
from holdfast.core.transitions import TaskStatus
from tests.doors.calls import Run
from tests.doors.terminals import Beside
from tests.doors.test_leaving import Tally
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options that name the ledger."""
    if request.param == "sqlite":
        return ()
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return ("--store", server.create_database())


def stored_status(home: Path, where: tuple[str, ...]) -> TaskStatus:
    settings = read_settings({}, home=str(home), store=where[1] if where else None)
    reader = app.open_reader(settings.store, vault=app.vault_of(settings, is_lenient=True))
    try:
        (task,) = reader.read_now(lambda tx: tx.tasks.page(limit=2))
    finally:
        reader.close()
    return task.status


def test_a_killed_worker_leaves_no_task_that_reads_as_running(
    run: Run, home: Path, tmp_path: Path, where: tuple[str, ...]
) -> None:
    with Beside(home, "run", *Tally(tmp_path).arguments, *where) as beside:
        beside.read_until("noted 3")
        (alive,) = run("tasks", "list", "--json", *where).json["tasks"]
        beside.send(signal.SIGKILL)
        beside.end()

    (listed,) = run("tasks", "list", "--json", *where).json["tasks"]
    shown = run("tasks", "show", listed["id"], "--json", *where).json
    in_words = run("tasks", "show", listed["id"], *where).out

    assert (alive["status"], alive["projection"]) == ("running", None)
    assert (listed["status"], listed["projection"]["storedStatus"]) == ("paused", "running")
    assert (shown["task"]["status"], shown["runs"][0]["status"]) == ("paused", "paused_for_restart")
    assert "has ended" in in_words
    assert stored_status(home, where) is TaskStatus.RUNNING


def test_a_frozen_worker_is_alive_so_its_task_reads_as_running(
    run: Run, home: Path, tmp_path: Path, where: tuple[str, ...]
) -> None:
    with Beside(home, "run", *Tally(tmp_path).arguments, *where) as beside:
        beside.read_until("noted 3")
        beside.send(signal.SIGSTOP)
        (frozen,) = run("tasks", "list", "--json", *where).json["tasks"]

    assert (frozen["status"], frozen["projection"]) == ("running", None)
