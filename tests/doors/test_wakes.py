"""wakes list, history, cancel; tasks show --trail."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.api.tasks import read_detail
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.doors.calls import Opens, Run
from tests.engine.stage import Stage

KEY = "smartwake_repo_scan_20260301T120000Z"


async def _carry(store: Store, clock: FakeClock, locks: Path, *, cycles: int, key: str | None = KEY) -> str:
    """A task that is saved before its limit, woken so often, and waits; and one that sleeps."""
    stage = Stage(store, clock, locks)

    async def work(number: int) -> int:
        clock.advance(minutes=4)
        return number

    pages = hf.holds(lambda _: True, name="every page is read")

    @hf.task(run_timeout="10m", smart_wake="always", wake_after="5m", done=[pages])
    async def scan(run: hf.Run) -> None:
        async for item in run.plan([f"page {number}" for number in range(1, 11)]):
            await item.step(work, item.number)

    @hf.task
    async def dreamer(run: hf.Run) -> None:
        await run.sleep("1d", reason="poll the build")

    await stage.open(scan, dreamer)
    await stage.start(dreamer())
    handle = await stage.start(scan(), key=key)
    await stage.settle()
    for _ in range(cycles):
        await stage.pass_time(minutes=5)
        await stage.settle()
    stage.kill()
    return str(handle.id)


@pytest.fixture
def saved(ledger: Opens, clock: FakeClock, tmp_path: Path) -> str:
    with ledger() as store:
        return asyncio.run(_carry(store, clock, tmp_path / "boots", cycles=1))


def test_wakes_and_sleeps_are_in_one_list_the_first_due_first(run: Run, saved: str) -> None:
    (wake, sleep) = run("wakes", "list", "--json").json["wakes"]
    first = run("wakes", "list", "--limit", "1", "--json").json
    second = run("wakes", "list", "--page", first["nextPageToken"], "--json").json

    assert (wake["taskId"], wake["reason"], wake["status"]) == (saved, "timeout_recovery", "pending")
    assert (sleep["id"], sleep["reason"]) == (None, "poll the build")
    assert sleep["waitsOn"] == "sleep:poll the build"
    assert ([*first["wakes"], *second["wakes"]], second["nextPageToken"]) == ([wake, sleep], None)
    assert run("wakes", "list", "--task", KEY, "--json").json["wakes"] == [wake]
    assert run("wakes", "list", "--page", "nonsense").status == 2
    assert "timeout_recovery" in run("wakes").out


def test_the_history_of_a_task_has_a_report_in_eight_fields_for_each_cycle(run: Run, saved: str) -> None:
    history = run("wakes", "history", "--task", KEY, "--json").json

    assert [wake["status"] for wake in history["wakes"]] == ["pending", "fired"]
    (first, second) = history["reports"]
    assert first.keys() - {"at", "wakeId"} == {
        "taskId",
        "status",
        "progressPct",
        "currentStep",
        "resumedFromCheckpoint",
        "nextWakeScheduled",
        "nextWakeAt",
        "notes",
    }
    assert (first["taskId"], first["progressPct"], second["progressPct"]) == (KEY, 30, 60)
    assert (first["resumedFromCheckpoint"], second["resumedFromCheckpoint"]) == (False, True)
    assert second["currentStep"] == "page 7"


def test_a_task_shows_its_document_and_its_trail(run: Run, saved: str) -> None:
    detail = run("tasks", "show", KEY, "--json").json

    document: dict[str, Any] = detail["document"]
    assert (document["taskId"], document["status"], document["retryCount"]) == (KEY, "waiting", 0)
    assert (document["currentStep"], document["nextActions"][0]) == ("page 7", "page 7")
    assert len(document["lastCompleted"]) == 6
    assert len(document) == 11
    assert [one["what"] for one in detail["trail"]] == [
        *("run", "checkpoint", "checkpoint", "wake", "wake fired", "resume", "checkpoint", "wake")
    ]
    assert "wake fired" in run("tasks", "show", saved, "--trail").out


def test_a_task_shows_the_packet_that_its_follow_up_run_is_told(run: Run, saved: str) -> None:
    detail = run("tasks", "show", KEY, "--json").json

    newest = detail["checkpoints"][-1]["id"]
    assert detail["resumePacket"] == {
        "task": "Resume long-running task",
        "taskId": KEY,
        "wakeMode": "cron",
        "resume": {
            "from": "latest_checkpoint",
            "currentStep": "page 7",
            "nextActions": ["page 7", "page 8", "page 9", "page 10"],
        },
        "doneCriteria": ["every page is read"],
        "objective": "scan()",
        "checkpoint": newest,
        "reason": "timeout_recovery",
        "unmet": [],
    }
    (dreamer,) = [one["taskId"] for one in run("wakes", "list", "--json").json["wakes"] if one["id"] is None]
    assert run("tasks", "show", dreamer, "--json").json["resumePacket"] is None


@pytest.mark.parametrize("key", [KEY, None, "firing:fire_01", "message:msg_01"])
def test_a_task_has_one_id_in_its_document_its_packet_and_its_reports(
    run: Run, ledger: Opens, clock: FakeClock, tmp_path: Path, key: str | None
) -> None:
    with ledger() as store:
        task_id = asyncio.run(_carry(store, clock, tmp_path / "boots", cycles=1, key=key))

    detail = run("tasks", "show", task_id, "--json").json
    reports = run("wakes", "history", "--task", task_id, "--json").json["reports"]

    said = {
        detail["document"]["taskId"],
        detail["resumePacket"]["taskId"],
        *(one["taskId"] for one in reports),
    }
    assert said == {KEY if key == KEY else task_id}


def test_a_cancelled_wake_names_the_way_back(run: Run, saved: str) -> None:
    (wake, _) = run("wakes", "list", "--json").json["wakes"]

    called = run("wakes", "cancel", wake["id"], "--reason", "no disk")

    assert called.out == f"{wake['id']} is cancelled; its task {saved} does not go on\n"
    assert f"holdfast checkpoints retry {wake['checkpointId']}\n" in called.err
    assert run("wakes", "cancel", wake["id"]).status == 0
    assert run("wakes", "cancel", "wake_none").status == 4
    assert run("tasks", "show", saved, "--json").json["task"]["status"] == "failed"
    assert run("checkpoints", "retry", wake["checkpointId"]).status == 0


def test_the_hint_of_a_cancelled_wake_names_the_home_of_the_call(
    run: Run, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wake, _) = run("wakes", "list", "--json").json["wakes"]
    home = os.environ["HOLDFAST_HOME"]
    monkeypatch.delenv("HOLDFAST_HOME")

    called = run("wakes", "cancel", wake["id"], "--home", home)

    assert f"holdfast checkpoints retry {wake['checkpointId']} --home {home}\n" in called.err


def test_a_wake_that_there_is_not_points_to_the_list_of_wakes(run: Run, saved: str) -> None:
    called = run("wakes", "cancel", "wake_nope")

    assert (called.status, called.err) == (
        4,
        "holdfast: no wake 'wake_nope'; run `holdfast wakes list` to see what there is\n",
    )


def test_retry_count_counts_cycles_without_progress_and_begins_anew_with_progress(
    ledger: Opens, clock: FakeClock, tmp_path: Path
) -> None:
    with ledger() as store:
        counted = asyncio.run(_count_idle_cycles(store, clock, tmp_path / "boots"))

    assert counted == [("waiting", 1), ("waiting", 2), ("waiting", 0), ("waiting", 0)]


async def _count_idle_cycles(store: Store, clock: FakeClock, locks: Path) -> list[tuple[str, int]]:
    """What the document of a task says after each cycle; it makes no progress in its first two."""
    stage, counted = Stage(store, clock, locks), []
    idle_cycles = 2

    async def work(number: int) -> int:
        clock.advance(minutes=4)
        return number

    @hf.task(run_timeout="10m", smart_wake="always")
    async def scan(run: hf.Run) -> None:
        nonlocal idle_cycles
        if idle_cycles:
            idle_cycles -= 1
            clock.advance(minutes=9)  # it comes to its first step too late
        async for item in run.plan([f"page {number}" for number in range(1, 11)]):
            await item.step(work, item.number)

    await stage.open(scan)
    handle = await stage.start(scan())
    for _ in range(4):
        await stage.settle()
        detail = store.read_now(lambda tx: read_detail(tx, handle.id, clock.now()))
        assert detail.document is not None
        counted.append((detail.document.status, detail.document.retry_count))
        await stage.pass_time()
    stage.kill()
    return counted
