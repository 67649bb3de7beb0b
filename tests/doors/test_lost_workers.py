"""A campaign whose last worker was really killed does not look healthy, in any door and on both databases."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.doors.calls import Run
from tests.doors.terminals import Beside
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

MODULE = str(Path(__file__).with_name("campaign_tasks.py"))


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options that name the ledger."""
    if request.param == "sqlite":
        return ()
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return ("--store", server.create_database())


def test_a_campaign_without_a_living_worker_says_so(
    run: Run, home: Path, tmp_path: Path, where: tuple[str, ...]
) -> None:
    items = tmp_path / "items.csv"
    items.write_text("id\nrepo-001\nrepo-002\n", encoding="utf-8")
    task = ("--phases", "analysis", "--task", f"{MODULE}:hold")
    created = run("campaign", "create", "k1", "--items", str(items), *task, "--start", *where)
    assert created.status == 0, created.err
    with Beside(home, "worker", MODULE, *where) as worker:
        for _ in range(2):
            worker.read_until("holds repo-")
        healthy = run("progress", "k1", "--context", *where).json
        worker.send(signal.SIGKILL)
        worker.end()

    context = run("progress", "k1", "--context", *where).json
    issues = context["issues"]
    screen = run("progress", "k1", *where).out
    shown = run("campaign", "show", "k1", *where).out
    agents = run("agents", "list", "--campaign", "k1", "--json", *where).json["agents"]
    agent = run("agents", "show", "repo-001-analyzer", *where).out
    status = run("status", "--json", *where).json

    assert healthy["issues"] == []
    assert context["eta"] is None
    assert issues[0].startswith("no process carries its 2 running items since 20")
    assert issues[0].endswith(" UTC: holdfast worker MODULE")
    assert issues[1:] == ["no worker knows the task hold: holdfast worker MODULE (the module of hold)"]
    assert "no process carries its 2 running items" in " ".join(screen.split())
    assert "no process carries its 2 running items" in " ".join(shown.split())
    assert [(one["status"], one["runStatus"]) for one in agents] == [("paused", "paused_for_restart")] * 2
    assert "has ended" in agents[0]["reason"]
    assert "has ended" in agent
    assert (status["line"], status["tasks"]) == ("2 queued", {"paused": 2})
