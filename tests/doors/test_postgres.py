"""The same doors on a ledger in PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast import app
from holdfast.core.clock import SystemClock
from holdfast.engine.ledger.ledger import NewTask, creating
from holdfast.engine.recovery.resume import Resumer
from tests.builders import BOOT, stored_checkpoint
from tests.doors.calls import Run
from tests.servers import PostgresServer, move_clock

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    url = postgres_server.create_database()
    monkeypatch.setenv("HOLDFAST_STORE", url)
    return url


def test_a_database_without_a_ledger_is_empty_and_stays_so(run: Run, url: str, home: Path) -> None:
    assert run("tasks", "list", "--json").json["tasks"] == []
    assert run("tasks", "cancel", "task_0").status == 4
    assert run("doctor").status == 0
    assert not home.exists()
    assert run("store", "migrate", "--json").json["isNew"] is True
    assert run("store", "migrate", "--json").json["applied"] == []
    assert [one.name for one in home.iterdir()] == ["key"]


def test_every_door_opens(run: Run, url: str) -> None:
    store = app.open_store(url, clock=SystemClock())
    now = SystemClock().now()
    task_id = store.write_now(creating([NewTask(name="n", goal="tides", key="k")], now=now))[0].id
    checkpoint = stored_checkpoint(store)

    assert run("tasks", "list", "--json").json["tasks"][0]["id"] in {task_id, checkpoint.task_id}
    assert run("tasks", "show", task_id, "--json").json["runs"][0]["number"] == 1
    assert run("checkpoints", "list", "--json").json["counts"] == {"paused_for_restart": 1}
    assert run("checkpoints", "show", checkpoint.id).status == 0
    assert run("checkpoints", "retry", checkpoint.id).status == 3
    assert run("tasks", "cancel", task_id[:20], "--json").json["outcome"] == "cancelled"
    events = run("events", "--json", "--task", task_id).json["events"]
    assert events[0]["kind"] == "task_created"
    assert run("events", "--after", events[0]["position"], "--json").status == 0
    assert run("store", "verify", "--json").json["isSound"] is True
    assert run("store", "accept", "--json").json["wasHeld"] is False
    assert run("doctor", "--json").json["verdict"] == "ok"
    asyncio.run(Resumer(store, SystemClock(), BOOT).resume_all())
    assert run("checkpoints", "show", checkpoint.id, "--json").json["status"] == "resumed"
    store.close()


def test_a_missing_column_and_a_missing_index_are_named(run: Run, url: str) -> None:
    assert run("store", "migrate").status == 0
    alter(url, "DROP INDEX holdfast.tasks_by_owner")

    verified, looked = run("store", "verify"), run("doctor", "--json").json
    migrated = run("store", "migrate")
    alter(url, "ALTER TABLE holdfast.tasks DROP COLUMN cancel_reason")
    refused = run("tasks", "list", "--json")

    assert "the index tasks_by_owner is missing" in verified.out
    (schema,) = [one for one in looked["checks"] if one["name"] == "schema"]
    assert (schema["verdict"], "tasks_by_owner" in schema["message"]) == ("warn", True)
    assert migrated.out.endswith(", index restored: tasks_by_owner\n")
    assert (refused.status, refused.error["code"]) == (1, "schema_mismatch")
    assert "lacks the column cancel_reason of the table tasks" in refused.error["message"]


def alter(url: str, sql: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


def test_a_clock_that_is_not_the_servers_is_a_finding_with_its_remedy(run: Run, url: str) -> None:
    run("store", "migrate")
    checks = {one["name"]: one for one in run("doctor", "--json").json["checks"]}
    assert checks["clock"]["verdict"] == "ok"

    for seconds, where in ((-45, "45.0 s ahead of"), (3600, "3,600.0 s behind")):
        move_clock(url, seconds=seconds)
        called = run("doctor", "--json")
        found = {one["name"]: one for one in called.json["checks"]}["clock"]

        assert (called.status, called.json["verdict"], found["verdict"]) == (0, "warn", "warn")
        assert (
            found["message"]
            == f"this machine's clock is {where} the database's; Holdfast uses the database's clock"
        )
        assert "NTP" in found["remedy"]
    assert "fix: have NTP set both clocks" in run("doctor").out


@pytest.mark.parametrize("hours", [-1, 1])
def test_what_commands_compare_has_the_time_of_the_server(run: Run, url: str, hours: int) -> None:
    run("store", "migrate")
    move_clock(url, hours=hours)

    called = run("run", "tests.doors.sample_tasks:gathers", "--key", "k")

    assert "found by its key" not in called.err
    assert "found by its key" in run("run", "tests.doors.sample_tasks:gathers", "--key", "k").err
    run("run", "tests.doors.sample_tasks:nothing", "--detach")
    for task_id in [one["id"] for one in run("tasks", "list", "--json").json["tasks"]]:
        created_at = run("tasks", "show", task_id, "--json").json["task"]["createdAt"]
        apart = datetime.fromisoformat(created_at) - SystemClock.now() - timedelta(hours=hours)
        assert abs(apart) < timedelta(minutes=1)
    assert run("checkpoints", "prune", "--older-than", "10s", "--json").status == 0


def test_a_backup_is_left_to_the_servers_own_tools(run: Run, url: str) -> None:
    run("store", "migrate")

    called = run("store", "backup", "copy.dump")

    assert called.status == 3
    assert "pg_dump --schema=holdfast" in called.err


def test_a_program_is_run_reviewed_and_answered(run: Run, url: str) -> None:
    sample_tasks = "tests.doors.sample_tasks"

    assert run("run", f"{sample_tasks}:gathers").json == ["one", "two"]
    task_id = run("run", f"{sample_tasks}:pays", "--json").json["id"]
    (review,) = run("reviews", "list", "--json").json["reviews"]
    effect_id = review["effect"]["id"]
    assert run("reviews", "show", effect_id[:14]).status == 0
    assert run("reviews", "resolve", effect_id[:14], "done", "--result", '"paid"').status == 0
    assert run("reviews", "resolve", effect_id, "done").status == 3
    assert run("run", "--resume", task_id, sample_tasks).out == "paid\n"
    assert run("tasks", "wait", task_id).status == 0
    detached = run("run", f"{sample_tasks}:nothing", "--detach").out.strip()
    detail = run("tasks", "show", detached, "--json").json
    assert (detail["task"]["status"], detail["problems"]) == ("queued", [])
    assert run("questions", "list", "--json").json["questions"] == []
    assert run("questions", "answer", "ques_0", "yes").status == 4
