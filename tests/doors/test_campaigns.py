"""`holdfast campaign`: from a file of items to a retry, run as it stands."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from holdfast.api import campaign_changes as campaign_api
from holdfast.api.campaign_changes import ItemsAddAsked
from holdfast.cli import campaign_changes
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import CampaignStatus
from holdfast.store import Store, Write
from holdfast.views.campaigns import ItemsAddedView
from tests.api.stand_in import served_doors
from tests.conftest import quick_directory
from tests.doors.calls import Opens, Run
from tests.engine.campaigns.campaign_world import CampaignWorker
from tests.engine.parts import Parts

TASKS = str(Path(__file__).with_name("campaign_tasks.py"))


def write_items(path: Path, count: int, *, first: int = 1) -> str:
    lines = [
        msgspec.json.encode(
            {
                "id": f"repo-{number:03d}",
                "name": f"org/{number}",
                "priority": f"P{number % 2}",
                "stars": number,
            }
        )
        for number in range(first, first + count)
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


def create(run: Run, path: str, *more: str) -> None:
    made = run(
        "campaign", "create", "rd-os", "--items", path, "--phases", "analysis", "--task", "analyse", *more
    )
    assert made.status == 0, made.err


def fail_first(store: Store) -> None:
    """The first item fails; all others stay in progress."""

    async def act() -> None:
        campaign = await store.read(lambda tx: tx.campaigns.in_status(CampaignStatus.RUNNING)[0])
        worker = CampaignWorker(await Parts.begin(store, SystemClock()), campaign)
        await worker.take()
        await worker.fail("repo-002/analysis")

    asyncio.run(act())


def end_all(store: Store, *, fails: bool) -> None:
    """All items come to their end, and the campaign ends."""

    async def act() -> None:
        campaign = await store.read(lambda tx: tx.campaigns.in_status(CampaignStatus.RUNNING)[0])
        worker = CampaignWorker(await Parts.begin(store, SystemClock()), campaign)
        for name in await worker.take():
            await (worker.fail(name) if fails else worker.finish(name))
        await worker.start()

    asyncio.run(act())


_CREATE = ("campaign", "create", "rd-os", "--phases", "analysis", "--task", "analyse")


# --- create and add


def test_a_campaign_is_made_from_a_file_with_its_phases_and_limits(run: Run, tmp_path: Path) -> None:
    path = write_items(tmp_path / "repos.jsonl", 25)

    made = run(
        *("campaign", "create", "rd-os", "--items", path, "--phases", "analysis,migration,report"),
        *("--task", "analyse", "--task", "migration=migrate", "--stages", "migration=prep,transfer"),
        *("--needs", "report=analysis", "--wait-for-all", "report", "--role", "migration=mover"),
        *("--phase-concurrency", "migration=3", "--host-concurrency", "7", "--concurrency", "20"),
        *("--batch-size", "5", "--goal", "move it", "--owner", "ada", "--checkpoint-every", "2m", "--json"),
    ).json
    shown = run("campaign", "show", "rd-os", "--json").json

    assert (made["added"], made["known"], made["isNew"]) == (25, 0, True)
    assert made["campaign"]["status"] == "draft"
    assert (made["campaign"]["items"], made["campaign"]["batches"], made["campaign"]["owner"]) == (
        25,
        6,
        "ada",
    )
    assert [(one["name"], one["task"], one["role"], one["needs"]) for one in shown["phases"]] == [
        ("analysis", "analyse", "analyzer", []),
        ("migration", "migrate", "mover", ["analysis"]),
        ("report", "analyse", "report", ["analysis"]),
    ]
    assert shown["phases"][1]["stages"] == ["prep", "transfer"]
    assert shown["phases"][1]["concurrency"] == 3
    assert shown["phases"][2]["waitsForAll"] is True
    assert (shown["batchSize"], shown["concurrency"], shown["hostConcurrency"]) == (5, 20, 7)
    assert shown["checkpointEveryS"] == 120


def test_module_and_task_become_the_tasks_own_name(run: Run, tmp_path: Path) -> None:
    path = write_items(tmp_path / "repos.jsonl", 2)
    common = ("campaign", "create", "rd-os", "--items", path, "--phases", "analysis")

    made = run(*common, "--task", f"{TASKS}:analyse", "--start")
    itemless = run(*common, "--task", f"{TASKS}:itemless")
    shown = run("campaign", "show", "rd-os", "--json").json

    assert made.out == "rd-os\n"
    assert f"to run its items: holdfast worker {TASKS}" in made.err
    assert "to follow it: holdfast progress rd-os" in made.err
    assert shown["phases"][0]["task"] == "analyse"
    assert itemless.status == 2
    assert "it must take `item`" in itemless.err


def test_a_task_that_no_worker_knows_is_said_with_the_command(run: Run, tmp_path: Path) -> None:
    create(run, write_items(tmp_path / "repos.jsonl", 2), "--start")

    shown, progress = run("campaign", "show", "rd-os"), run("progress")
    issues = run("progress", "--context").json["issues"]

    for text in (shown.out, progress.out, *issues):
        assert "no worker knows the task analyse" in text
        assert "holdfast worker MODULE" in text
    assert run("campaign", "show", "rd-os", "--json").json["phases"][0]["isTaskKnown"] is False


def test_the_same_command_again_adds_only_what_is_missing(run: Run, tmp_path: Path) -> None:
    create(run, write_items(tmp_path / "repos.jsonl", 3))
    path = write_items(tmp_path / "repos.jsonl", 5)

    common = ("campaign", "create", "rd-os", "--items", path, "--phases", "analysis", "--task", "analyse")
    again = run(*common)
    added = run("campaign", "add", "rd-os", write_items(tmp_path / "late.jsonl", 2, first=5), "--json").json
    other = run(*common, "--batch-size", "3")

    assert "it exists already; 2 items added, 3 were there already" in again.err
    assert (added["added"], added["known"], added["campaign"]["items"]) == (1, 1, 6)
    assert other.status == 3
    assert "has another spec" in other.err


def test_the_same_command_after_the_end_finds_the_campaign_as_it_is(
    run: Run, ledger: Opens, tmp_path: Path
) -> None:
    path = write_items(tmp_path / "repos.jsonl", 1)
    create(run, path, "--start")
    with ledger() as store:
        end_all(store, fails=False)

    create(run, path, "--start")
    done = run("campaign", "show", "rd-os", "--json").json
    paused = run("campaign", "pause", "rd-os")
    create(run, write_items(tmp_path / "more.jsonl", 2), "--start")
    grown = run("campaign", "show", "rd-os", "--json").json

    assert (done["campaign"]["status"], done["campaign"]["items"]) == ("done", 1)
    assert "campaign rd-os is done and cannot become paused" in paused.err
    assert (grown["campaign"]["status"], grown["campaign"]["items"]) == ("running", 2)


def test_the_same_command_after_a_failure_says_how_to_retry(run: Run, ledger: Opens, tmp_path: Path) -> None:
    path = write_items(tmp_path / "repos.jsonl", 1)
    create(run, path, "--start")
    with ledger() as store:
        end_all(store, fails=True)

    again = run(*_CREATE, "--items", path, "--start")

    assert again.status == 0, again.err
    assert "holdfast campaign retry rd-os" in again.err


def test_a_campaign_without_items_is_not_created_to_be_started(run: Run, tmp_path: Path) -> None:
    refused = run(*_CREATE, "--start")
    listed = run("campaign", "list", "--json").json
    drafted = run(*_CREATE)
    empty = run(*_CREATE, "--start")
    create(run, write_items(tmp_path / "repos.jsonl", 1))
    started = run(*_CREATE, "--start")

    assert (refused.status, empty.status) == (2, 2)
    assert "has no items; add some: --items FILE" in refused.err
    assert listed["campaigns"] == []
    assert (drafted.status, started.status) == (0, 0)
    assert run("campaign", "show", "rd-os", "--json").json["campaign"]["status"] == "running"


def test_a_campaign_with_another_spec_names_what_differs(run: Run, tmp_path: Path) -> None:
    path = write_items(tmp_path / "repos.jsonl", 1)
    create(run, path, "--concurrency", "5", "--stages", "analysis=read,count")

    refused = run(*_CREATE, "--concurrency", "7", "--batch-size", "3", "--stages", "analysis=read").err
    others = run(*_CREATE[:3], "--phases", "analysis,report", "--task", "analyse").err

    assert "its batch_size is 10, not 3; its concurrency is 5, not 7; " in refused
    assert "in phase analysis its stages is read,count, not read; " in refused
    assert "holdfast campaign show rd-os" in refused
    assert "its phases are analysis, not analysis,report" in others


def test_a_mistake_in_a_small_file_leaves_nothing_behind(run: Run, tmp_path: Path, home: Path) -> None:
    path = tmp_path / "repos.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b", "priority": "urgent"}\n')

    made = run("campaign", "create", "x", "--items", str(path), "--phases", "a", "--task", "t", "--json")

    assert made.status == 2
    assert made.error["message"].startswith(f"{path}:2: its priority is 'urgent'; use P0 (first)")
    assert not (home / "ledger.db").exists()


def test_a_mistake_further_on_says_how_far_it_came_and_the_same_command_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign_changes, "_CHUNK_ITEMS", 2)
    path = tmp_path / "repos.csv"
    path.write_text("id,name\na,A\nb,B\nc,C\nd,D\ne\n")
    common = ("campaign", "create", "x", "--items", str(path), "--phases", "a", "--task", "t")

    cut_off = run(*common)
    path.write_text("id,name\na,A\nb,B\nc,C\nd,D\ne,E\n")
    whole = run(*common, "--json").json

    assert cut_off.status == 2
    assert f"{path}:6: it has 1 cells, and the header has 2" in cut_off.err
    assert "4 items of " in cut_off.err
    assert "the same command again adds what is missing" in cut_off.err
    assert (whole["added"], whole["known"]) == (1, 4)


def test_an_item_with_other_contents_is_refused_with_its_line(run: Run, tmp_path: Path) -> None:
    create(run, write_items(tmp_path / "repos.jsonl", 3))
    changed = tmp_path / "changed.jsonl"
    changed.write_text('{"id": "repo-009"}\n{"id": "repo-002", "name": "other"}\n')

    refused = run("campaign", "add", "rd-os", str(changed))

    assert refused.status == 3
    assert f"{changed}:2: item repo-002 exists with other contents" in refused.err
    assert "0 items of " in refused.err
    assert run("campaign", "show", "rd-os", "--json").json["campaign"]["items"] == 3


def test_a_million_lines_go_in_by_chunks(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def adding(asked: ItemsAddAsked, *, now: datetime) -> Write[ItemsAddedView]:
        sizes.append(len(asked.items))
        return campaign_api.adding(asked, now=now)

    monkeypatch.setattr(campaign_changes, "adding", adding)
    create(run, write_items(tmp_path / "repos.jsonl", 2500))

    assert sizes == [1000, 1000, 500]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task", "b=t"], "there is no phase 'b'; --phases has a"),
        (["--task", "t", "--task", "u"], "given twice"),
        (["--task", "t", "--stages", "b=x"], "there is no phase 'b'"),
        (["--task", "t", "--stages", "a"], "write --stages PHASE=VALUE"),
        (["--task", "t", "--phase-concurrency", "a=many"], "'many' is not a number"),
        (["--task", "t", "--wait-for-all", "b"], "there is no phase 'b'"),
        (["--task", "agent.main"], "tasks of agents cannot be created directly"),
        (["--task", "no_such_module:t"], "no such module"),
        (["--task", "t", "--needs", "a=a"], "it needs 'a', which does not stand before it"),
        (["--task", "t", "--phases", " , "], "a campaign has at least one phase"),
        (["--task", "t", "--phases", "a,a"], "two phases have this name"),
        (["--task", "t", "--phases", "A B"], "is no name"),
    ],
)
def test_a_wrong_option_is_named_with_the_fix(run: Run, options: list[str], words: str) -> None:
    made = run("campaign", "create", "x", "--phases", "a", *options)

    assert made.status == 2, made.err
    assert words in made.err


def test_a_wrong_name_is_refused_before_anything_is_read(run: Run) -> None:
    for command in (["show"], ["start"], ["items"], ["create", "--phases", "a", "--task", "t"]):
        refused = run("campaign", command[0], "../x", *command[1:])
        assert refused.status == 2
        assert "is no name of a campaign" in refused.err


# --- look and change


def test_a_campaign_is_started_paused_resumed_and_retried(run: Run, ledger: Opens, tmp_path: Path) -> None:
    create(run, write_items(tmp_path / "repos.jsonl", 3))

    started = run("campaign", "start", "rd-os")
    with ledger() as store:
        fail_first(store)
    failed = run("campaign", "items", "rd-os", "--status", "failed")
    paused = run("campaign", "pause", "rd-os", "--reason", "lunch", "--json").json
    resumed = run("campaign", "resume", "rd-os")
    retried = run("campaign", "retry", "rd-os", "repo-002", "--phase", "analysis")
    nothing = run("campaign", "retry", "rd-os")
    unknown = run("campaign", "retry", "rd-os", "nope")
    logged = {entry["action"] for entry in run("audit", "log", "--json").json["entries"]}

    assert started.out == "rd-os is running\n"
    assert "repo-002" in failed.out
    assert "it broke" in failed.out
    assert (paused["campaign"]["status"], paused["campaign"]["reason"]) == ("paused", "lunch")
    assert resumed.out == "rd-os is running\n"
    assert retried.out == "1 item to be started again; rd-os is running\n"
    assert nothing.out == "nothing failed; rd-os is running\n"
    assert "no item 'nope' in rd-os; run `holdfast campaign items rd-os`" in unknown.err
    assert {f"campaigns.{verb}" for verb in ("create", "add", "start", "pause", "resume", "retry")} <= logged


def test_a_list_and_its_items_are_paged(run: Run, tmp_path: Path) -> None:
    path = write_items(tmp_path / "repos.jsonl", 5)
    for name in ("one", "two", "three"):
        run("campaign", "create", name, "--items", path, "--phases", "a", "--task", "t")

    first = run("campaign", "list", "--limit", "2", "--json").json
    rest = run("campaign", "--page", first["nextPageToken"], "--json").json
    items = run("campaign", "items", "two", "--limit", "3", "--json").json
    more = run("campaign", "items", "two", "--page", items["nextPageToken"], "--json").json
    wrong = run("campaign", "items", "two", "--page", "x")

    assert [one["campaign"]["name"] for one in first["campaigns"]] == ["three", "two"]
    assert [one["campaign"]["name"] for one in rest["campaigns"]] == ["one"]
    assert first["counts"] == {"draft": 3}
    # P0 stands before P1.
    assert [one["id"] for one in items["items"] + more["items"]] == [
        f"repo-{number:03d}" for number in (2, 4, 1, 3, 5)
    ]
    assert more["nextPageToken"] is None
    assert wrong.status == 2


def test_one_item_is_shown_through_all_phases_without_its_secrets(run: Run, tmp_path: Path) -> None:
    secret = "ghp_" + "C4n4ry" * 6
    path = tmp_path / "repos.jsonl"
    path.write_text(f'{{"id": "a", "name": "Alpha", "category": "tool", "key": "{secret}"}}\n')
    run("campaign", "create", "x", "--items", str(path), "--phases", "analysis,migration", "--task", "t")

    shown, view = run("campaign", "item", "x", "a"), run("campaign", "item", "x", "a", "--json")
    missing = run("campaign", "item", "x", "b")

    assert [one["phase"] for one in view.json["phases"]] == ["analysis", "migration"]
    assert [one["agentId"] for one in view.json["phases"]] == ["a-analyzer", "a-migrator"]
    assert (view.json["name"], view.json["category"], view.json["number"]) == ("Alpha", "tool", 1)
    assert "1 phase before it" in shown.out
    assert secret not in shown.out + view.out
    assert missing.status == 4
    assert "holdfast campaign items" in missing.err


def test_the_status_has_a_line_for_running_campaigns(run: Run, ledger: Opens, tmp_path: Path) -> None:
    path = write_items(tmp_path / "repos.jsonl", 3)
    create(run, path, "--start")
    run("campaign", "create", "later", "--items", path, "--phases", "a", "--task", "t")
    with ledger() as store:
        fail_first(store)

    shown, view = run("status").out, run("status", "--json").json

    assert "rd-os: 0 of 3 done (0%), 1 failed: `holdfast progress rd-os`" in shown
    assert "also 1 not started: `holdfast campaign list`" in shown
    assert [one["campaign"]["name"] for one in view["runningCampaigns"]] == ["rd-os"]
    assert view["campaigns"] == {"draft": 1, "running": 1}


def test_everything_works_through_a_gateway_elsewhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.api.stand_in import TOKEN

    path = write_items(tmp_path / "repos.jsonl", 1200)
    with quick_directory(tmp_path) as directory, served_doors(directory / "there") as house:
        monkeypatch.setenv("HOLDFAST_URL", house.url)
        monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
        create(run, path, "--start")
        again = run("campaign", "add", "rd-os", path, "--json").json
        context = run("progress", "--context").json
        progress = run("progress")
        sample = run("progress", "--sample", "3", "--status", "pending", "--seed", "1", "--json").json
        paused = run("campaign", "pause", "rd-os")
        document = run("progress", "--document").json
        by = run("progress", "--by", "priority", "--json").json

    assert (again["added"], again["known"]) == (0, 1200)
    assert context["overall"]["total"] == 1200
    assert "0 of 1,200" in progress.out
    assert len(sample["items"]) == 3
    assert paused.out == "rd-os is paused\n"
    assert document["summary"]["total_repos"] == 1200
    assert [one["name"] for one in by["groups"]] == ["P0", "P1"]
