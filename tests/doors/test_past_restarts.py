"""gateway restarts, without a gateway."""

from __future__ import annotations

from tests.builders import a_restart
from tests.doors.calls import Opens, Run


def test_restarts_are_paged_newest_first_also_without_a_gateway(run: Run, ledger: Opens) -> None:
    made = [a_restart(id=f"rst_{number}") for number in range(3)]
    with ledger() as store:
        store.write_now(lambda tx: [tx.restarts.create(one) for one in made])

    first = run("gateway", "restarts", "--limit", "2", "--json").json
    last = run("gateway", "restarts", "--page", first["nextPageToken"], "--json").json
    assert [one["id"] for one in first["restarts"]] == ["rst_2", "rst_1"]
    assert [one["id"] for one in last["restarts"]] == ["rst_0"]
    assert last["nextPageToken"] is None
    assert f"--page {first['nextPageToken']}" in run("gateway", "restarts", "--limit", "2").err


def test_a_page_token_that_names_no_restart_is_refused(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    refused = run("gateway", "restarts", "--page", "task_1")

    assert (refused.status, "not a page token" in refused.err) == (2, True)
