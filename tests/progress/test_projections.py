"""State files: field for field as in seed 002, written when something changed, rebuilt to the same files."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.campaign import ItemProgress, Phase
from holdfast.core.errors import BadInput, Conflict, HomeUnusable
from holdfast.core.task import Failure, Progress
from holdfast.engine.campaigns.changes import retrying_items
from holdfast.engine.campaigns.starting import ending_campaign
from holdfast.progress import file_tree, projections
from holdfast.progress.file_tree import FileTree
from holdfast.progress.projections import ProjectionWriter, rebuild
from holdfast.store import Store
from holdfast.store.queries import load_queries
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_file import connect_beside
from holdfast.testing import FakeClock
from tests.engine.tables import execute
from tests.repository_campaign import ANALYSIS, RESULT, begin, end, seed_campaign, seed_items, start

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(quick_path: Path) -> Path:
    return quick_path / "home"


def write(store: Store, clock: FakeClock, home: Path, *, writer: ProjectionWriter | None = None) -> int:
    """Passes until nothing is left; how many files were written."""
    writer = writer or ProjectionWriter(store, clock, home)
    files = 0
    while True:
        written = asyncio.run(writer.run_once())
        files += written.files
        if not written.has_more:
            return files


def document(home: Path, *names: str) -> Any:
    return msgspec.json.decode((home / "state" / Path(*names)).read_bytes())


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tree_of(home: Path) -> dict[str, bytes]:
    """Every file by its name below the campaigns, without what only the writer reads."""
    campaigns = (home / "state" / "campaigns").resolve()
    return {
        str(path.relative_to(campaigns)): path.read_bytes()
        for path in sorted(campaigns.rglob("*"))
        if path.is_file() and not path.name.startswith(".position")
    }


# --- the seed's documents, field for field


def test_the_file_of_an_agent_is_as_in_the_seed(store: Store, clock: FakeClock, home: Path) -> None:
    campaign = seed_campaign(store, clock)
    clock.set(datetime(2026, 2, 28, 10, 16, tzinfo=UTC))
    task_id = store.read_now(lambda tx: tx.item_phases.page(campaign.id, 0, limit=200))[130].task_id
    news = ItemProgress(
        progress=Progress(done=20, total=50, failed=0, subtask="dependency_mapping"),
        last_action="wrote_dependency_graph",
        last_action_at=clock.now(),
    )
    assert task_id is not None
    store.write_now(lambda tx: tx.item_phases.note({task_id: news}, now=clock.now()))

    write(store, clock, home)

    done = document(home, "agent-states", "repo-001.state.json")
    assert len(names_in(home / "state" / "agent-states")) == 200
    assert done == {
        "agent_id": "repo-001-analyzer",
        "repo_name": "pingcap/tidb",
        "status": "completed",
        "created_at": "2026-02-28T10:00:00Z",
        "updated_at": "2026-02-28T10:15:00Z",
        "work": {
            "phase": "analysis",
            "subtask": None,
            "progress_percent": 100,
            "items_total": 0,
            "items_completed": 0,
            "items_failed": 0,
        },
        "result": {
            "success": True,
            "output_path": "state/campaigns/rd-os/artifacts/repo-001-analysis.json",
            "summary": RESULT,
        },
        "checkpoint": {
            "last_action": None,
            "last_action_time": None,
            "can_resume": False,
            "resume_point": None,
        },
        "errors": [],
        "checkpoint_time": "2026-02-28T10:15:00Z",
    }
    assert list(done) == [
        "agent_id",
        "repo_name",
        "status",
        "created_at",
        "updated_at",
        "work",
        "result",
        "checkpoint",
        "errors",
        "checkpoint_time",
    ]
    running = document(home, "agent-states", "repo-131.state.json")
    assert running["status"] == "running"
    assert running["result"] is None
    assert running["work"] == {
        "phase": "analysis",
        "subtask": "dependency_mapping",
        "progress_percent": 40,
        "items_total": 50,
        "items_completed": 20,
        "items_failed": 0,
    }
    assert running["checkpoint"] == {
        "last_action": "wrote_dependency_graph",
        "last_action_time": "2026-02-28T10:16:00Z",
        "can_resume": True,
        "resume_point": "wrote_dependency_graph",
    }
    assert (home / done["result"]["output_path"]).exists()


def test_the_files_of_phases_batches_days_and_results_are_there(
    store: Store, clock: FakeClock, home: Path
) -> None:
    seed_campaign(store, clock)

    write(store, clock, home)

    analysis = document(home, "progress", "analysis-progress.json")
    assert analysis["summary"] == {
        "total_repos": 400,
        "analyzed": 150,
        "in_progress": 50,
        "pending": 200,
        "failed": 0,
        "progress_percent": 37.5,
    }
    assert document(home, "progress", "migration-progress.json")["summary"]["pending"] == 400
    batch = document(home, "progress", "batch-001.json")
    assert batch["repos"] == [f"repo-{number:03d}" for number in range(1, 11)]
    assert batch["priority"] == "P0"
    assert batch["phases"]["analysis"]["done"] == 10
    assert document(home, "progress", "daily-summary", "2026-02-28.json") == {
        "date": "2026-02-28",
        "campaign": "rd-os",
        "phases": {
            "analysis": {
                "done": 150,
                "failed": 0,
                "done_by_then": 150,
                "total": 400,
                "progress_percent": 37.5,
            },
            "migration": {
                "done": 0,
                "failed": 0,
                "done_by_then": 0,
                "total": 400,
                "progress_percent": 0.0,
            },
        },
    }
    artifact = document(home, "artifacts", "repo-001-analysis.json")
    assert (artifact["repo_id"], artifact["result"]) == ("repo-001", RESULT)
    report = document(home, "artifacts", "analysis-report.json")
    assert report["summary"]["done"] == 150
    assert report["by_priority"]["P1"]["done"] == 80
    assert len(report["results"]) == 150
    log = (home / "state" / "artifacts" / "analysis-log.jsonl").read_text().splitlines()
    assert len(log) == 150
    assert msgspec.json.decode(log[0])["status"] == "completed"
    memory = (home / "state" / "memory" / "2026-02-28.md").read_text()
    assert "- analysis: 150 done and 0 failed on this day; 150 of 400 done at its end (37.5 %)" in memory
    assert "campaign_moved" in memory


def test_a_failed_item_has_its_error_and_no_artifact(store: Store, clock: FakeClock, home: Path) -> None:
    campaign = begin(store, clock, seed_items()[:2])
    end(store, clock, campaign, [0], failure=Failure(kind="OSError", message="no disk"))

    write(store, clock, home)

    failed = document(home, "agent-states", "repo-001.state.json")
    assert (failed["status"], failed["errors"]) == ("failed", ["OSError: no disk"])
    assert failed["result"] == {"success": False, "output_path": None, "summary": None}
    assert failed["checkpoint"]["can_resume"] is True
    assert "OSError: no disk" in (home / "state" / "memory" / f"{clock.now():%Y-%m-%d}.md").read_text()


def test_a_milestone_has_a_snapshot_with_the_keys_of_the_seed(
    store: Store, clock: FakeClock, home: Path
) -> None:
    from tests.progress.milestones import save_milestone

    campaign = begin(store, clock, seed_items()[:4])
    end(store, clock, campaign, [0, 1])
    saved = save_milestone(store, clock, campaign, "analysis-half")
    write(store, clock, home)
    end(store, clock, campaign, [2])

    rebuild(home, store, clock)

    found = document(home, "checkpoints", saved.id, "snapshot.json")
    assert list(found) == [
        "milestone",
        "timestamp",
        "analysis_state",
        "migration_state",
        "agent_state",
        "progress_summary",
    ]
    assert found["milestone"] == "analysis-half"
    assert [(one["repo_id"], one["status"]) for one in found["analysis_state"]] == [
        ("repo-001", "done"),
        ("repo-002", "done"),
        ("repo-003", "running"),
        ("repo-004", "running"),
    ]
    assert found["analysis_state"][0]["result"] == RESULT
    assert {one["agent_id"] for one in found["agent_state"]} >= {"repo-001-analyzer", "repo-001-migrator"}


# --- when they are written


def test_only_what_changed_is_written_again(store: Store, clock: FakeClock, home: Path) -> None:
    campaign = seed_campaign(store, clock)
    writer = ProjectionWriter(store, clock, home)
    write(store, clock, home, writer=writer)
    # What changed a moment ago is read again, and every file is compared once more; then it is quiet.
    for _ in range(10):
        clock.advance(seconds=5)
        write(store, clock, home, writer=writer)
    before = inodes(home)

    clock.advance(seconds=5)
    assert write(store, clock, home, writer=writer) == 0
    end(store, clock, campaign, [130])
    write(store, clock, home, writer=writer)

    after = inodes(home)
    items = {name for name, inode in after.items() if before.get(name) != inode and "agent-states" in name}
    assert items == {"rd-os/agent-states/repo-131.state.json"}
    assert document(home, "agent-states", "repo-131.state.json")["status"] == "completed"
    assert before.keys() ^ after.keys() == {"rd-os/artifacts/repo-131-analysis.json"}


def inodes(home: Path) -> dict[str, int]:
    campaigns = (home / "state" / "campaigns").resolve()
    return {
        str(path.relative_to(campaigns)): path.stat().st_ino
        for path in campaigns.rglob("*")
        if path.is_file() and not path.name.startswith(".position")
    }


def test_a_rebuild_makes_the_same_files_as_following_did(store: Store, clock: FakeClock, home: Path) -> None:
    campaign = begin(store, clock, seed_items()[:30], concurrency=20)
    writer = ProjectionWriter(store, clock, home)
    for places in ([0, 1], [2, 3, 4], [7]):
        clock.advance(seconds=40)
        end(store, clock, campaign, places)
        start(store, clock, campaign)
        write(store, clock, home, writer=writer)
    end(store, clock, campaign, [5], failure=Failure(kind="OSError", message="no disk"))
    clock.advance(minutes=2)
    write(store, clock, home, writer=writer)
    followed = tree_of(home)

    rebuilt = rebuild(home, store, clock)

    assert tree_of(home) == followed
    assert rebuilt.campaigns == 1
    assert rebuilt.files >= len(followed)


def test_the_log_of_a_day_names_its_own_failures_the_newest_of_them(
    store: Store, clock: FakeClock, home: Path
) -> None:
    campaign = begin(store, clock, seed_items()[:130])
    day = clock.now()
    first, second, third = (f"{day + timedelta(days=number):%Y-%m-%d}" for number in range(3))
    for place in range(120):
        clock.set(day + timedelta(days=place // 60, seconds=place % 60))
        end(store, clock, campaign, [place], failure=Failure(kind="OSError", message=f"no disk {place}"))
    clock.set(day + timedelta(days=2))
    end(store, clock, campaign, [120], failure=Failure(kind="OSError", message="no disk 120"))
    write(store, clock, home)

    def failures(name: str) -> list[str]:
        text = (home / "state" / "memory" / f"{name}.md").read_text()
        return text.split("## Failures\n\n")[1].splitlines()

    rest = "- and 10 earlier in analysis: holdfast campaign items rd-os --phase analysis --status failed"
    assert failures(first) == [rest, *_named(range(10, 60))]
    assert failures(second) == [rest, *_named(range(70, 120))]
    assert failures(third) == _named([120])


def _named(places: Iterable[int]) -> list[str]:
    return [
        f"- 00:00:{place % 60:02d} repo-{place + 1:03d} analysis: OSError: no disk {place}"
        for place in places
    ]


@pytest.mark.parametrize("is_mended", [True, False], ids=["mended", "failed again"])
def test_a_retry_between_two_passes_is_in_the_report_and_the_log(
    store: Store, clock: FakeClock, home: Path, *, is_mended: bool
) -> None:
    campaign = begin(store, clock, seed_items()[:3], phases=(ANALYSIS,))
    writer = ProjectionWriter(store, clock, home)
    end(store, clock, campaign, [0, 1, 2], failure=Failure(kind="OSError", message="no disk"))
    store.write_now(ending_campaign(campaign.id, now=clock.now()))
    write(store, clock, home, writer=writer)
    clock.advance(minutes=1)
    store.write_now(retrying_items(campaign.id, now=clock.now()))
    failed = start(store, clock, campaign)
    again = None if is_mended else Failure(kind="OSError", message="no network")
    end(store, clock, failed, [0, 1, 2], failure=again)

    write(store, clock, home, writer=writer)

    report = document(home, "artifacts", "analysis-report.json")
    log = (home / "state" / "artifacts" / "analysis-log.jsonl").read_text()
    assert (report["summary"]["done"], report["summary"]["failed"]) == ((3, 0) if is_mended else (0, 3))
    assert "no disk" not in log
    followed = tree_of(home)
    rebuild(home, store, clock)
    assert tree_of(home) == followed


def test_a_campaign_that_is_no_longer_among_the_newest_is_followed_to_its_end(
    store: Store, clock: FakeClock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "NEWEST", 2)
    campaign = begin(store, clock, seed_items()[:2], phases=(ANALYSIS,))
    write(store, clock, home)
    for number in range(3):
        clock.advance(minutes=1)
        begin(store, clock, seed_items()[:1], name=f"later-{number}")
    # It ends while no process writes.
    end(store, clock, campaign, [0, 1])
    store.write_now(ending_campaign(campaign.id, now=clock.now()))

    write(store, clock, home)

    states = home / "state" / "campaigns" / "rd-os" / "agent-states"
    assert b'"completed"' in (states / "repo-002.state.json").read_bytes()


def test_a_damaged_campaign_keeps_the_files_of_no_other_from_being_written(
    store: Store, clock: FakeClock, home: Path
) -> None:
    campaigns = [begin(store, clock, seed_items()[:1], name=name) for name in ("one", "two", "three")]
    execute(store, f"UPDATE campaigns SET owner = 'eve' WHERE id = '{campaigns[1].id}'")

    write(store, clock, home)
    first = names_in(home / "state" / "campaigns")
    rebuild(home, store, clock)

    assert [name for name in first if not name.startswith(".")] == ["one", "three"]
    assert [one for one in names_in(home / "state" / "campaigns") if not one.startswith(".")] == [
        "one",
        "three",
    ]


def test_a_writer_that_starts_again_goes_on_where_it_was(store: Store, clock: FakeClock, home: Path) -> None:
    campaign = begin(store, clock, seed_items()[:3])
    write(store, clock, home)
    clock.advance(minutes=5)
    end(store, clock, campaign, [0])

    write(store, clock, home)

    assert document(home, "agent-states", "repo-001.state.json")["status"] == "completed"


def test_a_file_that_was_damaged_or_deleted_is_mended_by_the_next_writer(
    store: Store, clock: FakeClock, home: Path
) -> None:
    begin(store, clock, seed_items()[:3])
    write(store, clock, home)
    before = tree_of(home)
    (home / "state" / "agent-states" / "repo-001.state.json").write_bytes(b"")
    (home / "state" / "agent-states" / "repo-002.state.json").unlink()
    clock.advance(hours=1)

    write(store, clock, home)

    after = tree_of(home)
    for name in ("repo-001", "repo-002"):
        path = f"rd-os/agent-states/{name}.state.json"
        assert after[path] == before[path]


@pytest.mark.parametrize("jump", [{"days": 400}, {"days": -400}, {"seconds": -30}])
def test_a_clock_that_jumps_hides_no_change(
    store: Store, clock: FakeClock, home: Path, jump: dict[str, int]
) -> None:
    campaign = begin(store, clock, seed_items()[:4])
    writer = ProjectionWriter(store, clock, home)
    write(store, clock, home, writer=writer)

    clock.advance(**jump)
    end(store, clock, campaign, [0])
    write(store, clock, home, writer=writer)
    clock.advance(**{name: -value for name, value in jump.items()})
    end(store, clock, campaign, [1])
    for _ in range(3):
        clock.advance(seconds=5)
        write(store, clock, home, writer=writer)

    for name in ("repo-001", "repo-002"):
        assert document(home, "agent-states", f"{name}.state.json")["status"] == "completed"


# --- several campaigns, and where things lie


def test_the_names_of_the_seed_lead_to_the_newest_campaign_and_no_other_is_lost(
    store: Store, clock: FakeClock, home: Path
) -> None:
    begin(store, clock, seed_items()[:2], name="first")
    write(store, clock, home)
    assert (home / "state" / "progress").resolve().parent.name == "first"
    clock.advance(seconds=1)
    begin(store, clock, seed_items()[2:3], name="second")

    write(store, clock, home)

    assert names_in(home / "state" / "agent-states") == ["repo-003.state.json"]
    old = home / "state" / "campaigns" / "first" / "agent-states"
    assert names_in(old) == ["repo-001.state.json", "repo-002.state.json"]


def test_files_are_for_their_owner_alone(store: Store, clock: FakeClock, home: Path) -> None:
    begin(store, clock, seed_items()[:2])
    write(store, clock, home)

    for path in [home / "state", *(home / "state").rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if not path.is_symlink():
            assert mode & 0o077 == 0, path


def test_a_phase_whose_file_could_be_that_of_another_has_a_folder_of_its_own(
    store: Store, clock: FakeClock, home: Path
) -> None:
    items = [seed_items()[0].__class__(id=item_id) for item_id in ("a", "a-b", "survey")]
    phases = [Phase(name="b-c", task="x"), Phase(name="c", task="y"), Phase(name="report", task="z")]
    campaign = begin(store, clock, items, phases=phases)
    for phase in range(3):
        end(store, clock, campaign, [0, 1, 2], phase=phase, result={"phase": phase})
        start(store, clock, campaign)

    write(store, clock, home)

    found = {name for name in tree_of(home) if "/artifacts/" in name and name.endswith(".json")}
    assert len([name for name in found if not name.endswith("-report.json") or "/report/" in name]) == 9


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "..", ".", "", "/etc/passwd", "a\0b", ".lock", "-x", "x" * 300, "ä"]
)
def test_a_hostile_name_never_leaves_the_folder(home: Path, name: str) -> None:
    tree = FileTree(home)
    with tree.held() as is_ours:
        assert is_ours
        folder = tree.create()

        with pytest.raises(BadInput):
            folder.write(b"x", "rd-os", name)
        with pytest.raises(BadInput):
            folder.write(b"x", name, "x.json")
    assert list(folder.path.iterdir()) == []


def test_a_secret_is_in_no_file(store: Store, clock: FakeClock, home: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2  # made up
    campaign = begin(store, clock, seed_items()[:2])
    end(store, clock, campaign, [0], result={"token": secret, "lines": 3})
    end(store, clock, campaign, [1], failure=Failure(kind="OSError", message="no disk"))

    write(store, clock, home)

    assert [name for name, content in tree_of(home).items() if secret.encode() in content] == []


# --- one writer, kills, and disks that refuse


def test_of_two_writers_one_writes_and_a_rebuild_says_so(store: Store, clock: FakeClock, home: Path) -> None:
    begin(store, clock, seed_items()[:2])
    with FileTree(home).held() as is_ours:
        assert is_ours

        assert write(store, clock, home) == 0
        with pytest.raises(Conflict, match="another process is writing the state files"):
            rebuild(home, store, clock)


def test_a_folder_that_refuses_is_reported_once_and_written_when_it_can_be(
    store: Store,
    clock: FakeClock,
    home: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin(store, clock, seed_items()[:2])
    writer = ProjectionWriter(store, clock, home, every_s=0.001)

    def refuse(_file: int, _content: bytes) -> None:
        raise OSError(28, "No space left on device")

    async def run_a_while() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(writer.run())
            await asyncio.sleep(0)
            for _ in range(5):
                with pytest.raises(HomeUnusable, match="No space left on device"):
                    await writer.run_once()
            writer.stop()

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, logger="holdfast"):
        patch.setattr(file_tree, "_write_all", refuse)
        asyncio.run(run_a_while())

    assert len([one for one in caplog.records if "No space left" in one.getMessage()]) == 1
    assert not list((home / "state").rglob("*.state.json"))
    write(store, clock, home)
    assert len(names_in(home / "state" / "agent-states")) == 2


DIES = """
import os, signal, sys
from pathlib import Path
from holdfast.progress import file_tree, projections
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import FakeClock

home, ledger, at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
writes, write_all = 0, file_tree._write_all

def write_and_die(file, content):
    global writes
    writes += 1
    if writes == at:
        os.write(file, content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    write_all(file, content)

file_tree._write_all = write_and_die
store = SqliteStore(ledger, clock=FakeClock())
getattr(projections, sys.argv[4])(home, store, store.clock)
"""
FOLLOWS = """
import asyncio
projections.follow = lambda home, store, clock: asyncio.run(
    projections.ProjectionWriter(store, clock, home).run_once()
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["follow", "rebuild"])
@pytest.mark.parametrize("at", [1, 4, 9, 13])
def test_a_writer_that_is_killed_leaves_no_half_file(quick_path: Path, home: Path, at: int, how: str) -> None:
    clock, ledger = FakeClock(), quick_path / "ledger.db"
    store = SqliteStore(ledger, clock=clock)
    campaign = begin(store, clock, seed_items()[:6])
    end(store, clock, campaign, [0, 1])
    if how == "rebuild":
        write(store, clock, home)
    before = tree_of(home) if how == "rebuild" else {}
    store.close()
    program = DIES.replace("store = Sqlite", f"{FOLLOWS}\nstore = Sqlite")

    child = subprocess.run(
        [sys.executable, "-c", program, str(home), str(ledger), str(at), how],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert child.returncode == -signal.SIGKILL, child.stderr
    if how == "rebuild":
        assert tree_of(home) == before
    for path in (home / "state").rglob("*.json"):
        msgspec.json.decode(path.read_bytes())
    store = SqliteStore(ledger, clock=clock)
    write(store, clock, home)
    rebuilt_by_following = tree_of(home)
    rebuild(home, store, clock)
    assert tree_of(home) == rebuilt_by_following
    left = [path.name for path in (home / "state").iterdir() if path.name.startswith(".tree-")]
    assert len(left) == 1
    store.close()


# --- what a pass costs


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("changed_items", "item_phases_by_change (campaign_id=? AND (updated_at,phase,place)>(?,?,?))"),
        (
            "items_of_phase_in_status",
            "item_phases_by_status (campaign_id=? AND phase=? AND status=? AND place>?)",
        ),
        ("failures_by_day", "item_phases_by_status (campaign_id=? AND phase=? AND status=?)"),
        ("failures_between", "item_phases_by_status (campaign_id=? AND phase=? AND status=?)"),
        ("begun_phases_of_items", "campaign_items_by_id (campaign_id=? AND item_id=?)"),
        ("items_of_batch", "campaign_items_by_batch (campaign_id=? AND batch=? AND place>?)"),
    ],
)
def test_a_pass_finds_its_rows_through_an_index(quick_path: Path, query: str, index: str) -> None:
    store = SqliteStore(quick_path / "ledger.db", clock=FakeClock())
    sql = load_queries("sqlite")[query]

    with closing(connect_beside(quick_path / "ledger.db")) as connection:
        given = dict.fromkeys(re.findall(r":(\w+)", sql))
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]

    store.close()
    assert any(line.endswith(index) for line in plan), plan
