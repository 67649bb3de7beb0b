"""The SQL views of seed 002: its queries word for word, every column, and names that the user has taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.core.campaign import Item, Phase
from holdfast.core.task import Failure
from holdfast.progress.projections import rebuild
from holdfast.store import Store
from holdfast.store.dashboard_views import compare_views
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_file import connect_beside
from holdfast.testing import FakeClock
from tests.repository_campaign import (
    AGENT_HEALTH,
    BY_PRIORITY,
    OVERALL,
    RECENT_FAILURES,
    RESULT,
    SIZES,
    begin,
    end,
    seed_campaign,
    seed_items,
    start,
)

if TYPE_CHECKING:
    from tests.conftest import Ledger

Ask = Callable[[str], list[dict[str, Any]]]

COLUMNS = {
    "repos": ("repo_id", "name", "priority", "category", "created_at", "updated_at"),
    "analysis_state": (
        "repo_id",
        "status",
        "progress_percent",
        "started_at",
        "completed_at",
        "result_json",
        "error_message",
    ),
    "migration_state": (
        "repo_id",
        "status",
        "phase",
        "progress_percent",
        "started_at",
        "completed_at",
        "result_json",
        "error_message",
    ),
    "agents": ("agent_id", "type", "assigned_repo_id", "status", "last_heartbeat"),
    "checkpoints": ("checkpoint_id", "checkpoint_type", "created_at", "state_snapshot", "recoverable"),
    "events": ("event_id", "timestamp", "event_type", "agent_id", "repo_id", "details"),
}
ADDED = ("updated_at", "checkpoint_id", "campaign_id")
ALL = {
    "repos": "campaign_repos",
    "analysis_state": "campaign_analysis_state",
    "migration_state": "campaign_migration_state",
    "agents": "campaign_agents",
    "checkpoints": "campaign_saved_checkpoints",
    "events": "campaign_events",
    "agent_states": "campaign_agent_states",
    "batch_progress": "campaign_batch_progress",
}


@pytest.fixture
def ask(ledger: Ledger, store: Store) -> Iterator[Ask]:
    """Asks as a dashboard does: on a connection of its own, which knows nothing of Holdfast."""
    path = getattr(store, "path", None)
    if path is not None:
        with closing(connect_beside(path)) as connection:

            def ask_file(sql: str) -> list[dict[str, Any]]:
                cursor = connection.execute(sql)
                rows = list(cursor)
                if not rows:
                    return []
                names = [one[0] for one in connection.execute(sql).get_description()]
                return [dict(zip(names, row, strict=True)) for row in rows]

            yield ask_file
        return

    def ask_server(sql: str) -> list[dict[str, Any]]:
        cursor = ledger._connection.execute(sql.encode())  # type: ignore[attr-defined]
        names = [one.name for one in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    yield ask_server


def columns_of(ask: Ask, view: str) -> list[str]:
    return list(ask(f"SELECT * FROM {view} LIMIT 1")[0])


# --- the dashboard


def test_the_four_queries_of_the_dashboard_run_word_for_word(
    store: Store, clock: FakeClock, ask: Ask
) -> None:
    campaign = seed_campaign(store, clock)

    overall = ask(OVERALL)
    by_priority = {row["priority"]: row for row in ask(BY_PRIORITY)}
    health = {row["status"]: row for row in ask(AGENT_HEALTH)}

    assert [{name: float(value) for name, value in row.items()} for row in overall] == [
        {"total": 400, "done": 150, "running": 50, "pending": 200, "percent": 37.5}
    ]
    assert {
        priority: (int(row["total"]), int(row["done"]), float(row["percent"]))
        for priority, row in by_priority.items()
    } == {"P0": (50, 50, 100.0), "P1": (100, 80, 80.0), "P2": (150, 20, 13.33), "P3": (100, 0, 0.0)}
    assert {status: row["count"] for status, row in health.items()} == {"active": 50, "idle": 750}
    assert health["active"]["last_activity"] == "2026-02-28T10:00:00.000000Z"
    assert health["idle"]["last_activity"] == "2026-02-28T10:15:00.000000Z"
    assert ask(RECENT_FAILURES) == []
    assert campaign.items == sum(total for total, _ in SIZES.values())


def test_the_newest_failures_come_first(store: Store, clock: FakeClock, ask: Ask) -> None:
    campaign = begin(store, clock, seed_items()[:14])
    for place in range(12):
        clock.advance(milliseconds=3)
        end(store, clock, campaign, [place], failure=Failure(kind="OSError", message=f"no disk {place}"))

    failures = ask(RECENT_FAILURES)

    assert [row["repo_id"] for row in failures] == [f"repo-{number:03d}" for number in range(12, 2, -1)]
    assert failures[0]["error_message"] == "OSError: no disk 11"
    assert sorted((row["updated_at"] for row in failures), reverse=True) == [
        row["updated_at"] for row in failures
    ]


# --- columns


@pytest.mark.parametrize("view", [one for one in COLUMNS if one != "checkpoints"])
def test_a_view_has_every_column_of_the_seed_first_and_then_its_own(
    store: Store, clock: FakeClock, ask: Ask, view: str
) -> None:
    begin(store, clock, seed_items()[:2])

    found = columns_of(ask, view)

    assert found[: len(COLUMNS[view])] == list(COLUMNS[view])
    assert set(found) == set(COLUMNS[view]) | set(ADDED)
    assert columns_of(ask, ALL[view]) == found


def test_an_item_that_is_done_is_shown_in_every_column(store: Store, clock: FakeClock, ask: Ask) -> None:
    campaign = seed_campaign(store, clock)

    repo = ask("SELECT * FROM repos WHERE repo_id = 'repo-001'")[0]
    state = ask("SELECT * FROM analysis_state WHERE repo_id = 'repo-001'")[0]
    migration = ask("SELECT * FROM migration_state WHERE repo_id = 'repo-001'")[0]
    agent = ask("SELECT * FROM agents WHERE agent_id = 'repo-001-analyzer'")[0]

    begun, ended = "2026-02-28T10:00:00.000000Z", "2026-02-28T10:15:00.000000Z"
    assert repo == {
        "repo_id": "repo-001",
        "name": "pingcap/tidb",
        "priority": "P0",
        "category": "product",
        "created_at": begun,
        "updated_at": ended,
        "checkpoint_id": None,
        "campaign_id": campaign.id,
    }
    assert msgspec.json.decode(state.pop("result_json")) == RESULT
    assert state == {
        "repo_id": "repo-001",
        "status": "done",
        "progress_percent": 100,
        "started_at": begun,
        "completed_at": ended,
        "error_message": None,
        "updated_at": ended,
        "checkpoint_id": None,
        "campaign_id": campaign.id,
    }
    assert (migration["status"], migration["phase"], migration["progress_percent"]) == ("pending", None, 0)
    assert agent == {
        "agent_id": "repo-001-analyzer",
        "type": "analyzer",
        "assigned_repo_id": "repo-001",
        "status": "idle",
        "last_heartbeat": ended,
        "updated_at": ended,
        "checkpoint_id": None,
        "campaign_id": campaign.id,
    }


def test_events_name_the_agent_and_the_item_and_those_of_the_campaign_name_neither(
    store: Store, clock: FakeClock, ask: Ask
) -> None:
    campaign = begin(store, clock, seed_items()[:2])

    of_item = ask("SELECT * FROM events WHERE repo_id = 'repo-001' ORDER BY event_id")
    others = ask("SELECT * FROM events WHERE repo_id IS NULL ORDER BY timestamp, event_id")

    assert {row["event_type"] for row in of_item} == {"task_created"}
    assert {row["agent_id"] for row in of_item} == {"repo-001-analyzer"}
    assert {row["event_type"] for row in others} == {"campaign_created", "campaign_grew", "campaign_moved"}
    assert {row["campaign_id"] for row in [*of_item, *others]} == {campaign.id}
    assert len({row["event_id"] for row in [*of_item, *others]}) == len([*of_item, *others])
    assert msgspec.json.decode(others[0]["details"])["name"] == "rd-os"


def test_phases_of_other_names_are_shown_by_their_order(store: Store, clock: FakeClock, ask: Ask) -> None:
    phases = [Phase(name="survey", task="a"), Phase(name="move", task="b"), Phase(name="analysis", task="c")]
    campaign = begin(store, clock, seed_items()[:1], phases=phases)
    end(store, clock, campaign, [0])
    start(store, clock, campaign)

    assert ask("SELECT status FROM analysis_state") == [{"status": "pending"}]
    assert ask("SELECT status FROM migration_state") == [{"status": "running"}]


def test_the_newest_campaign_is_shown_and_all_are_kept(store: Store, clock: FakeClock, ask: Ask) -> None:
    old = begin(store, clock, seed_items()[:3], name="old")
    clock.advance(minutes=1)
    new = begin(store, clock, seed_items()[:2], name="new")

    assert {row["campaign_id"] for row in ask("SELECT campaign_id FROM repos")} == {new.id}
    for view in ("analysis_state", "migration_state", "repos", "agents", "events", "agent_states"):
        found = ask(f"SELECT campaign_id FROM {ALL[view]}")
        assert {row["campaign_id"] for row in found} == {old.id, new.id}
    assert len(ask("SELECT * FROM campaign_repos")) == 5
    assert len(ask("SELECT * FROM analysis_state")) == 2


def test_without_a_campaign_every_view_is_empty(ask: Ask) -> None:
    for view in [*ALL, *ALL.values()]:
        assert ask(f"SELECT * FROM {view}") == []


def test_the_states_of_agents_and_the_progress_of_batches_are_documents(
    store: Store, clock: FakeClock, ask: Ask
) -> None:
    campaign = seed_campaign(store, clock)

    state = ask("SELECT * FROM agent_states WHERE agent_id = 'repo-001-analyzer'")[0]
    batches = {row["batch_id"]: row for row in ask("SELECT * FROM batch_progress")}

    assert state["updated_at"] == "2026-02-28T10:15:00.000000Z"
    document = msgspec.json.decode(state["state_json"])
    assert document["checkpoint_time"] == "2026-02-28T10:15:00Z"
    assert document["result"] == {
        "success": True,
        "output_path": "state/campaigns/rd-os/artifacts/repo-001-analysis.json",
        "summary": RESULT,
    }
    assert (state["campaign_id"], len(batches)) == (campaign.id, 40)
    assert msgspec.json.decode(batches["batch-001"]["progress_json"]) == {
        "batch_id": "batch-001",
        "priority": "P0",
        "phases": {
            "analysis": {
                "total": 10,
                "done": 10,
                "in_progress": 0,
                "pending": 0,
                "paused": 0,
                "failed": 0,
            },
            "migration": {
                "total": 10,
                "done": 0,
                "in_progress": 0,
                "pending": 10,
                "paused": 0,
                "failed": 0,
            },
        },
        "repos": [f"repo-{number:03d}" for number in range(1, 11)],
    }
    assert batches["batch-001"]["updated_at"] == "2026-02-28T10:15:00.000000Z"


def test_the_documents_of_agents_and_batches_equal_their_files(
    store: Store, clock: FakeClock, ask: Ask, tmp_path: Path
) -> None:
    seed_campaign(store, clock)
    agents = ask("SELECT * FROM agent_states")
    batches = ask("SELECT * FROM batch_progress")
    rebuild(tmp_path, store, clock)

    def file(*names: str) -> object:
        return msgspec.json.decode(tmp_path.joinpath("state", *names).read_bytes())

    assert len(agents) == 200
    for row in agents:
        name = f"{row['agent_id'].removesuffix('-analyzer')}.state.json"
        assert msgspec.json.decode(row["state_json"]) == file("agent-states", name)
    # A batch has a file once one of its items has begun.
    begun = [row for row in batches if row["batch_id"] <= "batch-020"]
    assert len(begun) == 20
    for row in begun:
        assert msgspec.json.decode(row["progress_json"]) == file("progress", f"{row['batch_id']}.json")


def test_a_batch_finds_its_items_through_an_index(quick_path: Path) -> None:
    store = SqliteStore(quick_path / "ledger.db", clock=FakeClock())
    with closing(connect_beside(quick_path / "ledger.db")) as connection:
        rows = list(connection.execute("EXPLAIN QUERY PLAN SELECT * FROM batch_progress"))
    store.close()

    of_items = [str(row[3]) for row in rows if str(row[3]).startswith(("SEARCH member", "SEARCH one_of"))]
    assert len(of_items) == 3
    assert all("campaign_items_by_batch (campaign_id=? AND batch=?)" in one for one in of_items), of_items


def test_a_secret_in_a_result_is_shown_in_no_view(store: Store, clock: FakeClock, ask: Ask) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2  # made up
    campaign = begin(store, clock, [Item(id="repo-001", fields={"token": secret})])
    end(store, clock, campaign, [0], result={"token": secret, "lines": 3})

    shown = repr([ask(f"SELECT * FROM {view}") for view in [*ALL, *ALL.values()]])

    assert secret not in shown
    assert "lines" in shown


# --- what they cost


@pytest.mark.parametrize("view", ["repos", "analysis_state", "migration_state", "agents", "events"])
def test_what_one_item_costs_does_not_grow_with_the_number_of_items(quick_path: Path, view: str) -> None:
    clock, path = FakeClock(), quick_path / "ledger.db"
    store = SqliteStore(path, clock=clock)
    column = "assigned_repo_id" if view == "agents" else "repo_id"
    sql = f"SELECT * FROM {view} WHERE {column} = 'repo-002'"
    begin(store, clock, seed_items()[:4], name="small", concurrency=400)
    clock.advance(seconds=1)
    small = steps_of(path, sql)

    begin(store, clock, seed_items(), name="large", concurrency=400)

    assert 0 < small < 5000
    assert steps_of(path, sql) < small + 300
    store.close()


def steps_of(path: Path, sql: str) -> int:
    """How many of its instructions SQLite takes."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 10
        return False

    with closing(connect_beside(path)) as connection:
        connection.set_progress_handler(count, 10)
        assert list(connection.execute(sql))
    return steps


# --- names that are taken


def dialect_of(store: Store) -> str:
    return "postgres" if getattr(store, "path", None) is None else "sqlite"


def test_a_name_that_is_taken_goes_to_no_view_and_the_view_gets_another(store: Store) -> None:
    found: dict[str, str | None] = {"Repos": None, "campaign_agents": None, "holdfast_campaign_agents": None}

    report = compare_views(dialect_of(store), found)

    assert [(view.wanted, view.name) for view in report.renamed] == [("repos", "holdfast_repos")]
    assert report.homeless == ("campaign_agents", "agents")
    assert report.present == ()


def test_views_that_are_as_they_should_be_are_left_alone(store: Store) -> None:
    names = names_in(store)

    report = compare_views(dialect_of(store), names)

    assert report.is_right
    assert len(report.present) == 16


def names_in(store: Store) -> dict[str, str | None]:
    rows = store.read_now(lambda tx: tx.statements.all("taken_names", {}))
    return {row[0]: row[1] for row in rows}


# --- the same as the files


def test_the_view_of_agents_and_the_state_files_say_the_same(
    store: Store, clock: FakeClock, ask: Ask, quick_path: Path
) -> None:
    campaign = begin(store, clock, seed_items()[:6])
    clock.advance(minutes=2)
    end(store, clock, campaign, [0, 1], result={"lines": 3, "text": 'a "quoted" ü'})
    end(store, clock, campaign, [2], failure=Failure(kind="OSError", message="no 'disk'"))
    start(store, clock, campaign)
    rebuild(quick_path / "home", store, clock)

    shown = {
        row["agent_id"]: msgspec.json.decode(row["state_json"]) for row in ask("SELECT * FROM agent_states")
    }

    files = [
        msgspec.json.decode(path.read_bytes())
        for path in sorted((quick_path / "home/state/agent-states").iterdir())
    ]
    assert len(files) == 6
    assert [shown[one["agent_id"]] for one in files] == files
    assert {one["status"] for one in shown.values()} == {"completed", "failed", "running"}


@pytest.mark.parametrize(
    "names", [("analysis", "report"), ("x", "re-x"), ("my-report", "plan"), ("scan", "rescan")], ids="-".join
)
def test_the_view_of_agents_names_the_artifacts_that_are_there(
    store: Store, clock: FakeClock, ask: Ask, quick_path: Path, names: tuple[str, str]
) -> None:
    home = quick_path / "home"
    phases = tuple(Phase(name=name, task="do") for name in names)
    campaign = begin(store, clock, seed_items()[:2], phases=phases)
    for number in range(2):
        end(store, clock, campaign, [0, 1], phase=number)
        start(store, clock, campaign)
    rebuild(home, store, clock)

    shown = [msgspec.json.decode(row["state_json"]) for row in ask("SELECT * FROM agent_states")]

    paths = {home / one["result"]["output_path"] for one in shown}
    assert len(paths) == 4
    assert [path for path in paths if not path.is_file()] == []
