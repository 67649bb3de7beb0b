"""audit log."""

from __future__ import annotations

import getpass

from tests.builders import a_run, a_task, put
from tests.doors.calls import Opens, Run


def test_a_command_without_a_gateway_is_recorded_with_the_user_and_shown(run: Run, ledger: Opens) -> None:
    task = a_task()
    with ledger() as store:
        store.write_now(lambda tx: put(tx, task, a_run(task)))
    run("tasks", "cancel", task.id)
    run("tasks", "retry", task.id, "--cancelled")

    shown = run("audit", "log", "--json").json
    assert [(one["who"], one["door"], one["action"], one["subject"]) for one in shown["entries"]] == [
        (getpass.getuser(), "command", "ledger.retry", task.id),
        (getpass.getuser(), "command", "ledger.cancel", task.id),
    ]
    text = run("audit", "log", "--action", "ledger.cancel").out
    assert "ledger.cancel" in text
    assert "ledger.retry" not in text
    first = run("audit", "log", "--limit", "1", "--json").json
    older = run("audit", "log", "--page", first["nextPageToken"], "--json").json
    assert [one["action"] for one in older["entries"]] == ["ledger.cancel"]


def test_two_filters_at_once_are_refused_and_an_empty_log_says_so(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    both = run("audit", "log", "--who", "ada", "--action", "ledger.cancel")
    assert (both.status, "give only one of them" in both.err) == (2, True)
    assert "the audit log has no such entries" in run("audit", "log").err
