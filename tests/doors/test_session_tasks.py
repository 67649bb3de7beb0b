"""sessions tasks: the snapshot of a session's tasks, for operators and for the commands of agents."""

from __future__ import annotations

import pytest

from holdfast.core.transitions import RunStatus, TaskStatus
from tests.builders import START, a_session, a_task, put, stored_run
from tests.doors.calls import Opens, Run

KEY = "agent:scholar:main"


def given(ledger: Opens) -> None:
    with ledger() as store:
        for owner, goal in ((KEY, "fetch <b>milk</b>"), ("agent:scholar:other", "not hers")):
            task = a_task(owner=owner, goal=goal, status=TaskStatus.RUNNING)
            store.write_now(lambda tx, task=task: put(tx, task))  # type: ignore[misc]


def test_a_session_shows_its_own_tasks(run: Run, ledger: Opens) -> None:
    given(ledger)

    view, screen = run("sessions", "tasks", KEY, "--json").json, run("sessions", "tasks", KEY)

    assert (view["session_key"], view["line"], view["more"]) == (KEY, "1 running", 0)
    assert [one["title"] for one in view["tasks"]] == ["fetch ‹b›milk‹/b›"]  # noqa: RUF001 - no tags
    assert screen.status == 0
    assert "not hers" not in screen.out


def test_the_command_of_an_agent_need_not_name_its_session(
    run: Run, ledger: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(ledger)
    monkeypatch.setenv("HOLDFAST_SESSION_KEY", KEY)

    assert run("sessions", "tasks", "--json").json["line"] == "1 running"


def test_without_a_session_it_says_what_to_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_SESSION_KEY", raising=False)

    call = run("sessions", "tasks")

    assert call.status == 2
    assert "name a session" in call.err


def test_a_task_whose_worker_is_gone_does_not_read_as_running(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        store.write_now(lambda tx: tx.sessions.create(a_session(key=KEY, agent="scholar")))
        stored_run(
            store, RunStatus.RUNNING, task={"owner": KEY}, claimed_by="boot_gone", lease_until=START, fence=1
        )

    assert run("sessions", "tasks", KEY, "--json").json["tasks"][0]["status"] == "paused"
    assert run("sessions", "show", KEY, "--json").json["line"] == "1 queued"
