"""holdfast tasks: list by default, filters, names of tasks, cancel and notify with their exit statuses."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest

from holdfast.cli.groups import with_list
from holdfast.core.clock import SystemClock
from holdfast.core.session import Session
from holdfast.core.task import NotifyPolicy, Origin, RuntimeName
from holdfast.core.transitions import RunStatus
from holdfast.store import Tx, task_pages
from tests.builders import a_session, stored_run
from tests.doors.calls import Opens, Run

# --- list


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([], ["list"]),
        (["--json"], ["--json", "list"]),
        (["--home", "x", "--status", "failed"], ["--home", "x", "list", "--status", "failed"]),
        (["--home=x", "--wide", "--text", "show"], ["--home=x", "--wide", "list", "--text", "show"]),
        (["show", "x"], ["show", "x"]),
        (["--store", "list", "show"], ["--store", "list", "show"]),
        (["--help"], ["--help"]),
        (["--json", "-h"], ["--json", "-h"]),
    ],
)
def test_list_is_the_command_that_may_be_left_out(given: list[str], meant: list[str]) -> None:
    assert with_list(given) == meant


@pytest.mark.parametrize("noun", ["tasks", "sessions", "reviews", "questions", "deliveries", "checkpoints"])
def test_a_noun_alone_lists(run: Run, ledger: Opens, noun: str) -> None:
    with ledger() as store:
        stored_run(store)

    assert run(noun, "--json").json == run(noun, "list", "--json").json
    assert run(noun, "--json", "--limit", "1").status == 0


def test_sessions_of_every_agent_that_are_active_are_listed_without_a_further_word(
    run: Run, ledger: Opens
) -> None:
    now = SystemClock().now()
    with ledger() as store:
        for agent, minutes in (("ada", 2), ("bob", 5), ("eve", 20)):
            session = a_session(
                key=f"agent:{agent}:main", agent=agent, updated_at=now - timedelta(minutes=minutes)
            )
            store.write_now(functools.partial(create_session, session))

    found = run("sessions", "--all-agents", "--active", "10", "--json").json["sessions"]

    assert [one["key"] for one in found] == ["agent:ada:main", "agent:bob:main"]


def create_session(session: Session, tx: Tx) -> None:
    tx.sessions.create(session)


def test_every_filter_of_the_list_leaves_what_fits(run: Run, ledger: Opens) -> None:
    facts: dict[str, Any] = {
        "name": "report",
        "runtime": RuntimeName.CLI,
        "session_key": "agent:ada:main",
        "dedup_key": "monday",
        "owner": "bob",
        "goal": "count the lobsters",
    }
    with ledger() as store:
        wanted = stored_run(store, RunStatus.RUNNING, task=facts).task_id
        stored_run(store)

    for given in (
        ("--status", "running"),
        ("--runtime", "cli"),
        ("--name", "report"),
        ("--agent", "ada"),
        ("--session", "agent:ada:main"),
        ("--key", "monday"),
        ("--owner", "bob"),
        ("--text", "LOBSTER"),
        ("--name", "report", "--status", "running", "--text", "lobster"),
    ):
        found = run("tasks", *given, "--json").json["tasks"]
        assert [task["id"] for task in found] == [wanted], given
    assert len(run("tasks", "--older-than", "1d", "--json").json["tasks"]) == 2
    assert run("tasks", "--newer-than", "1d", "--json").json["tasks"] == []
    assert run("tasks", "--key", "tuesday").err.startswith("no tasks to show")


@pytest.mark.parametrize(
    "given",
    [
        ("--text", ""),
        ("--runtime", "none"),
        ("--newer-than", "soon"),
        ("--key", "a\x00b"),
        ("--text", "x" * 201),
    ],
)
def test_a_filter_that_cannot_be_is_refused(run: Run, ledger: Opens, given: tuple[str, ...]) -> None:
    with ledger() as store:
        stored_run(store)

    assert run("tasks", *given).status == 2


def test_a_search_that_looked_far_enough_says_how_to_go_on(
    run: Run, ledger: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_pages, "LOOKED_AT", 2)
    with ledger() as store:
        for _ in range(4):
            stored_run(store)

    called = run("tasks", "--text", "nothing like that")

    assert called.out == ""
    assert "to look at older ones, add --page task_" in called.err


# --- names


@pytest.mark.parametrize("command", [("show",), ("cancel",), ("wait", "--timeout", "0s"), ("notify",)])
def test_a_task_is_named_by_run_key_or_session(run: Run, ledger: Opens, command: tuple[str, ...]) -> None:
    with ledger() as store:
        one = stored_run(store, task={"dedup_key": "monday 1", "session_key": "agent:ada:main"})
    after = ("silent",) if command == ("notify",) else ()

    for name in (one.id, "monday 1", "agent:ada:main", one.task_id, one.task_id[5:]):
        called = run("tasks", command[0], name, *after, *command[1:], "--json")
        assert called.json["task"]["id"] == one.task_id, (name, called.err)


@pytest.mark.parametrize("noun", ["events", "checkpoints"])
def test_what_belongs_to_a_task_is_listed_by_any_name_of_it(run: Run, ledger: Opens, noun: str) -> None:
    with ledger() as store:
        stored_run(store, task={"dedup_key": "monday 1"})

    assert run(noun, "--task", "monday 1", "--json").status == 0
    assert run(noun, "--task", "tuesday", "--json").status == 4


def test_an_ambiguous_name_is_refused_with_the_candidates(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        ids = [stored_run(store, task={"dedup_key": "k", "owner": owner}).task_id for owner in ("ada", "bob")]

    called = run("tasks", "cancel", "k", "--json")

    assert (called.status, called.error["code"]) == (2, "ambiguous_id")
    assert all(one in called.err for one in ids)
    assert "give the id of one of them" in called.err


# --- cancel


def cancelled(called: Any) -> tuple[int, bool, bool, str, bool]:
    answer = called.json
    return (
        called.status,
        answer["found"],
        answer["cancelled"],
        answer["outcome"],
        answer["reason"] is not None,
    )


def test_a_cancel_answers_found_cancelled_and_reason_in_every_case(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        idle = stored_run(store).task_id
        busy = stored_run(store, RunStatus.RUNNING).task_id
        ended = stored_run(store, RunStatus.SUCCEEDED).task_id

    def cancel(name: str) -> tuple[int, bool, bool, str, bool]:
        return cancelled(run("tasks", "cancel", name, "--json"))

    assert cancel(idle) == (0, True, True, "cancelled", False)
    assert cancel(busy) == (0, True, True, "cancel_requested", True)
    assert cancel(ended) == (3, True, False, "already_ended", True)
    assert cancel("task_none") == (4, False, False, "not_found", True)
    # It is cancelled already, which is what was wanted.
    assert cancel(idle) == (0, True, False, "already_ended", True)


# --- notify


def test_what_is_told_is_set_and_audited(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = stored_run(store, task={"origin": Origin(channel="hook", peer="ada")}).task_id

    called = run("tasks", "notify", task_id[:20], "state_changes")

    assert (called.status, called.out, called.err) == (0, f"{task_id} notifies: state_changes\n", "")
    assert run("tasks", "show", task_id, "--json").json["task"]["notify"] == NotifyPolicy.STATE_CHANGES
    (entry,) = run("audit", "log", "--json").json["entries"]
    assert (entry["action"], entry["subject"]) == ("ledger.notify", task_id)


def test_a_change_without_effect_says_why(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        ended = stored_run(store, RunStatus.FAILED).task_id
        alone = stored_run(store).task_id

    late = run("tasks", "notify", ended, "silent")
    pointless = run("tasks", "notify", alone, "state_changes")

    assert late.status == 3
    assert late.err == "nothing changed: it has already ended as failed; its updates were decided then\n"
    assert (pointless.status, pointless.err) == (
        0,
        "no channel or person asked for it, so updates have no recipient\n",
    )
    assert run("tasks", "notify", "task_none", "silent").status == 4
    assert run("tasks", "notify", alone, "loudly").status == 2
