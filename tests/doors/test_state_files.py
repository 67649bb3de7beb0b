"""state path, state rebuild, campaign recovery, and what the doctor says of SQL views."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.task import Failure
from holdfast.progress.file_tree import FileTree
from holdfast.store.sqlite_file import connect
from holdfast.testing import FakeClock
from tests.doors.calls import Opens, Run
from tests.repository_campaign import begin, end, seed_campaign, seed_items


def execute(home: Path, sql: str) -> None:
    with closing(connect(home / "ledger.db")) as connection:
        connection.execute(sql)


def view_check(run: Run) -> dict[str, Any]:
    found: list[dict[str, Any]] = run("doctor", "--json").json["checks"]
    return next(one for one in found if one["name"] == "views")


# --- state


def test_a_rebuild_writes_every_file_and_says_where(
    run: Run, ledger: Opens, clock: FakeClock, home: Path
) -> None:
    with ledger() as store:
        campaign = begin(store, clock, seed_items()[:3])
        end(store, clock, campaign, [0])

    called = run("state", "rebuild", "--json")
    said = run("state", "rebuild")

    assert called.json == {"path": str(home / "state"), "campaigns": 1, "files": called.json["files"]}
    assert said.out.endswith(f" of 1 campaign in {home / 'state'}\n")
    document = msgspec.json.decode((home / "state/agent-states/repo-001.state.json").read_bytes())
    assert document["status"] == "completed"
    assert (home / document["result"]["output_path"]).is_file()


def test_the_path_is_told_also_before_there_is_a_file_or_a_ledger(
    run: Run, ledger: Opens, clock: FakeClock, home: Path
) -> None:
    before = run("state", "path", "--json").json
    first = run("state", "path")
    with ledger() as store:
        begin(store, clock, seed_items()[:1])
    after = run("state", "path", "--json").json

    assert before == {
        "path": str(home / "state"),
        "campaigns": str(home / "state" / "campaigns"),
        "newestCampaign": None,
    }
    assert first.out == f"{home / 'state'}\n"
    assert "holdfast state rebuild" in first.err
    assert after["newestCampaign"] == "rd-os"


def test_a_rebuild_beside_another_one_is_refused(
    run: Run, ledger: Opens, clock: FakeClock, home: Path
) -> None:
    with ledger() as store:
        begin(store, clock, seed_items()[:1])
    with FileTree(home).held():
        called = run("state", "rebuild", "--json")

    assert called.status == 3
    assert "another process is writing the state files" in called.error["message"]


def test_a_folder_that_is_a_file_is_named_with_the_reason(
    run: Run, ledger: Opens, clock: FakeClock, home: Path
) -> None:
    with ledger() as store:
        begin(store, clock, seed_items()[:1])
    (home / "state").write_text("mine")

    called = run("state", "rebuild", "--json")

    assert called.status != 0
    assert str(home / "state") in called.error["message"]
    assert (home / "state").read_text() == "mine"


# --- campaign recovery


def test_the_recovery_document_has_the_four_keys_of_the_seed(
    run: Run, ledger: Opens, clock: FakeClock
) -> None:
    with ledger() as store:
        campaign = seed_campaign(store, clock)
        end(store, clock, campaign, [130], failure=Failure(kind="OSError", message="no disk"))

    found = run("campaign", "recovery", "rd-os", "--limit", "1000", "--json").json

    assert list(found) == ["analysis", "migration", "agents", "latest_checkpoint"]
    assert (len(found["analysis"]), len(found["migration"]), len(found["agents"])) == (250, 400, 50)
    assert found["analysis"][0] == {
        "repo_id": "repo-131",
        "status": "failed",
        "progress_percent": 0,
        "started_at": "2026-02-28T10:00:00Z",
        "completed_at": "2026-02-28T10:15:00Z",
        "result_json": None,
        "error_message": "OSError: no disk",
        "updated_at": "2026-02-28T10:15:00Z",
        "checkpoint_id": None,
        "campaign_id": found["analysis"][0]["campaign_id"],
    }
    assert found["agents"][0]["status"] == "error"
    assert found["latest_checkpoint"] is None


def test_a_large_campaign_comes_in_pages(run: Run, ledger: Opens, clock: FakeClock) -> None:
    with ledger() as store:
        begin(store, clock, seed_items()[:7])

    first = run("campaign", "recovery", "rd-os", "--limit", "4", "--json").json
    second = run(
        "campaign", "recovery", "rd-os", "--limit", "4", "--page", first["nextPageToken"], "--json"
    ).json
    printed = run("campaign", "recovery", "rd-os", "--limit", "4")

    items = [one["repo_id"] for page in (first, second) for one in page["analysis"]]
    assert items == [f"repo-{number:03d}" for number in range(1, 8)]
    assert "nextPageToken" not in second
    assert "repo-004" in printed.out
    assert first["nextPageToken"] in printed.err


@pytest.mark.parametrize("token", ["x", "-1", "1" * 30, "1.5"])
def test_a_page_token_that_is_none_is_refused(run: Run, ledger: Opens, clock: FakeClock, token: str) -> None:
    with ledger() as store:
        begin(store, clock, seed_items()[:1])

    called = run("campaign", "recovery", "rd-os", "--page", token, "--json")

    assert called.status == 2
    assert called.error["code"] == "bad_input"
    assert "page token" in called.error["message"]


# --- the doctor


def test_the_doctor_counts_the_views(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    assert view_check(run)["message"] == "16 SQL views for dashboards"


def test_the_doctor_names_a_view_that_is_missing_and_migrate_makes_it_anew(
    run: Run, ledger: Opens, home: Path
) -> None:
    with ledger():
        pass
    execute(home, "DROP VIEW repos")

    looked = view_check(run)
    migrated = run("store", "migrate")

    assert (looked["verdict"], looked["message"]) == (
        "warn",
        "SQL views for dashboards are missing or outdated: repos",
    )
    assert looked["remedy"].endswith("store migrate")
    assert ", 1 SQL view made anew" in migrated.out
    assert view_check(run)["verdict"] == "ok"


def test_the_doctor_says_which_name_is_the_users_own(run: Run, ledger: Opens, home: Path) -> None:
    with ledger():
        pass
    execute(home, "DROP VIEW repos; CREATE TABLE repos (mine TEXT); DROP VIEW events")
    execute(home, "CREATE TABLE events (mine TEXT); CREATE TABLE holdfast_events (mine TEXT)")

    run("store", "migrate")

    looked = view_check(run)
    assert looked["verdict"] == "ok"
    assert "repos is yours, so ours is holdfast_repos" in looked["message"]
    assert "events is left out: a table or view of yours has its name" in looked["message"]
