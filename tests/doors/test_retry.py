"""tasks retry and tasks fork: here, through the gateway, one task or many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast import app
from holdfast.cli import task_retry
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.ledger.retention import pruning
from holdfast.store import Store, task_pages
from tests.api.stand_in import OWNER, OWNER_TOKEN, ServedDoors, served_doors
from tests.builders import later, stored_run
from tests.doors.calls import Opens, Run
from tests.servers import PostgresServer

SETTINGS = '[agents.ada]\ncallable = "tests.api.stand_in:agents"\n'


@pytest.fixture
def house(home: Path) -> Iterator[ServedDoors]:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(SETTINGS, encoding="utf-8")
    with served_doors(home) as house:
        yield house


def failed_task(store: Store, status: RunStatus = RunStatus.FAILED, **changes: Any) -> str:
    return stored_run(store, status, task=changes).task_id


# --- one task


def test_a_failed_task_goes_on(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = failed_task(store)

    called = run("tasks", "retry", task_id[:16], "--json")

    assert called.status == 0
    assert (called.json["task"]["id"], called.json["task"]["status"]) == (task_id, "queued")
    runs = run("tasks", "show", task_id, "--json").json["runs"]
    assert [one["status"] for one in runs] == ["failed", "queued"]
    assert runs[1]["id"] == called.json["runId"]


def test_it_says_which_run_goes_on(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = failed_task(store)

    called = run("tasks", "retry", task_id)

    assert called.out.startswith(f"{task_id} is retried: run_")
    assert called.out.endswith(" is queued\n")


def test_a_second_retry_ends_with_status_3_and_says_that_it_goes_on(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = failed_task(store)
    run("tasks", "retry", task_id)

    called = run("tasks", "retry", task_id, "--json")

    assert (called.status, called.error["code"]) == (3, "illegal_move")
    assert "it goes on already" in called.error["message"]


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.SUCCEEDED])
def test_what_has_not_failed_ends_with_status_3(run: Run, ledger: Opens, status: RunStatus) -> None:
    with ledger() as store:
        task_id = failed_task(store, status)

    assert run("tasks", "retry", task_id).status == 3


def test_an_unknown_id_ends_with_status_4(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        failed_task(store)

    assert run("tasks", "retry", "task_none").status == 4
    assert run("tasks", "fork", "task_none", "--at", "start").status == 4


def test_a_task_that_was_pruned_ends_with_status_4_and_the_reason(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = failed_task(store, cleanup_after=later())
        store.write_now(pruning(now=later(hours=1), events_kept=timedelta(days=1)))

    called = run("tasks", "retry", task_id, "--json")

    assert (called.status, called.error["code"]) == (4, "pruned")


def test_a_cancelled_task_goes_on_only_with_its_flag(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = failed_task(store, RunStatus.CANCELLED)

    refused = run("tasks", "retry", task_id)

    assert refused.status == 3
    assert f"holdfast tasks retry {task_id} --cancelled" in refused.err
    assert run("tasks", "retry", task_id, "--cancelled").status == 0


@pytest.mark.parametrize(
    "arguments",
    [(), ("--name", "x"), ("task_1", "--status", "failed"), ("task_1", "--name", "x")],
    ids=" ".join,
)
def test_one_task_or_several_must_be_named_and_not_both(
    run: Run, ledger: Opens, arguments: tuple[str, ...]
) -> None:
    assert run("tasks", "retry", *arguments).status == 2


# --- several


def test_all_failed_tasks_of_a_name_go_on(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        reports = [failed_task(store, name="report") for _ in range(3)]
        other = failed_task(store, name="other")
        slow = failed_task(store, RunStatus.TIMED_OUT, name="report")

    called = run("tasks", "retry", "--status", "failed", "--name", "report", "--json")

    assert called.status == 0
    assert called.json == {
        "count": 3,
        "taskIds": sorted(reports, reverse=True),
        "refused": [],
        "nextPageToken": None,
    }
    assert statuses(run) == dict.fromkeys(reports, "queued") | {other: "failed", slow: "timed_out"}


def statuses(run: Run) -> dict[str, str]:
    return {one["id"]: one["status"] for one in run("tasks", "list", "--json").json["tasks"]}


def test_it_says_how_many_go_on_and_page_by_page_how_far_it_is(
    run: Run, ledger: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_retry, "RETRIED_AT_ONCE", 2)
    with ledger() as store:
        found = [failed_task(store) for _ in range(5)]

    called = run("tasks", "retry", "--status", "failed")

    assert called.out.splitlines() == sorted(found, reverse=True)
    assert called.err.splitlines() == ["2 tasks so far", "4 tasks so far", "5 tasks retried"]


def test_a_limit_bounds_it_and_the_next_call_goes_on_there(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        found = sorted((failed_task(store) for _ in range(5)), reverse=True)

    first = run("tasks", "retry", "--status", "failed", "--limit", "3", "--json").json
    second = run("tasks", "retry", "--status", "failed", "--page", first["nextPageToken"], "--json").json

    assert (first["taskIds"], second["taskIds"]) == (found[:3], found[3:])


def test_one_that_is_refused_stops_no_other_and_is_named(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        good = failed_task(store)
        answer = failed_task(store, session_key="agent:ada:main")

    called = run("tasks", "retry", "--status", "failed", "--json")

    assert called.status == 0
    assert called.json["taskIds"] == [good]
    (refused,) = called.json["refused"]
    assert (refused["taskId"], refused["code"]) == (answer, "refused")
    assert run("tasks", "retry", "--status", "failed").status == 3


def test_rare_names_are_found_page_after_page(
    run: Run, ledger: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_pages, "LOOKED_AT", 4)
    monkeypatch.setattr(task_pages, "FEW", 0)
    with ledger() as store:
        rare = failed_task(store, name="rare")
        for _ in range(9):
            failed_task(store)

    assert run("tasks", "retry", "--status", "failed", "--name", "rare", "--json").json["taskIds"] == [rare]


def test_cancelled_ones_go_on_only_with_the_flag(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        task_id = failed_task(store, RunStatus.CANCELLED)

    assert run("tasks", "retry", "--status", "cancelled").status == 2
    assert run("tasks", "retry", "--status", "cancelled", "--cancelled").out == f"{task_id}\n"


def test_nothing_to_retry_is_no_error(run: Run, ledger: Opens) -> None:
    with ledger():
        pass

    called = run("tasks", "retry", "--status", "failed")

    assert (called.status, called.out, called.err) == (0, "", "0 tasks retried\n")


# --- through the gateway


def test_tasks_are_retried_through_the_gateway(run: Run, house: ServedDoors) -> None:
    store = house.gateway.store
    one, *others = [failed_task(store, name="report") for _ in range(3)]

    assert run("tasks", "retry", one).status == 0
    assert run("tasks", "retry", one).status == 3
    assert run("tasks", "retry", "task_none").status == 4
    several = run("tasks", "retry", "--status", "failed", "--name", "report", "--json").json

    assert several["taskIds"] == sorted(others, reverse=True)
    tasks = store.read_now(lambda tx: tx.tasks.get_many([one, *others]))
    assert {task.status for task in tasks.values()} == {TaskStatus.QUEUED}


def test_a_token_bound_to_an_owner_retries_and_forks_only_its_own(house: ServedDoors) -> None:
    store = house.gateway.store
    mine, other = failed_task(store, owner=OWNER), failed_task(store, owner="somebody else")

    def ask(method: str, **params: Any) -> Any:
        return house.post(method, params, token=OWNER_TOKEN)

    assert ask("ledger.retry", taskId=other).status_code == 404
    assert ask("ledger.fork", taskId=other, at="start").status_code == 404
    several = {"status": ["failed"], "owner": "somebody else"}
    assert ask("ledger.retry_page", **several).json()["taskIds"] == []
    assert ask("ledger.retry_page", status=["failed"]).json()["taskIds"] == [mine]
    assert store.read_now(lambda tx: tx.tasks.get(other)).status is TaskStatus.FAILED
    assert ask("ledger.fork", taskId=mine, at="start").json()["task"]["owner"] == OWNER


# --- fork


@hf.task
async def counts(run: hf.Run) -> int:
    total = run.list("total")
    async for turn in run.turns(max=4):
        total.append(turn.number)
        await turn.step(_add, turn.number)
    return sum(total)


async def _add(number: int) -> int:
    return number


@hf.opaque
async def pay() -> str:
    return "paid"


@hf.task
async def pays(run: hf.Run) -> str:
    async for turn in run.turns(max=2):
        await turn.step(_add, 1)
        if turn.number == 2:
            await turn.tool(pay)
    return "done"


def carried(store_url: str, task: Any, home: Path) -> str:
    """A task of that kind that has ended, in the ledger."""

    async def carry() -> str:
        async with app.open(store_url, tasks=[task], home=home) as holdfast:
            handle = await holdfast.start(task())
            await handle.result()
            return handle.id

    return asyncio.run(carry())


def test_a_task_is_forked_after_one_of_its_turns(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    task_id = carried(f"sqlite:///{home / 'ledger.db'}", counts, home)

    called = run("tasks", "fork", task_id[:20], "--at", "turn:2", "--key", "again", "--json")
    second = run("tasks", "fork", task_id, "--at", "turn:2", "--key", "again", "--json").json

    assert called.status == 0
    assert (called.json["sourceTaskId"], called.json["at"]) == (task_id, "turn:2")
    assert (called.json["isNew"], second["isNew"]) == (True, False)
    assert called.json["task"]["id"] == second["task"]["id"]
    shown = run("tasks", "show", called.json["task"]["id"], "--json").json
    assert shown["loops"][0]["turnsDone"] == 2
    assert run("tasks", "show", task_id, "--json").json["task"]["status"] == "succeeded"


def test_effects_in_the_way_end_with_status_3_until_it_is_said_what_becomes_of_them(
    run: Run, home: Path
) -> None:
    home.mkdir(mode=0o700)
    task_id = carried(f"sqlite:///{home / 'ledger.db'}", pays, home)

    refused = run("tasks", "fork", task_id, "--at", "turn:1", "--json")
    kept = run("tasks", "fork", task_id, "--at", "turn:1", "--effects", "keep")

    assert (refused.status, refused.error["code"]) == (3, "effects_in_the_way")
    assert kept.status == 0
    assert kept.err.endswith(f"forked from {task_id} at turn:1\n")


def test_a_turn_that_never_was_ends_with_status_2(run: Run, home: Path) -> None:
    home.mkdir(mode=0o700)
    task_id = carried(f"sqlite:///{home / 'ledger.db'}", counts, home)

    assert run("tasks", "fork", task_id, "--at", "turn:99").status == 2


def test_a_task_is_forked_through_the_gateway(run: Run, house: ServedDoors) -> None:
    task_id = failed_task(house.gateway.store)

    forked = run("tasks", "fork", task_id, "--at", "start", "--json").json["task"]["id"]

    assert house.gateway.store.read_now(lambda tx: tx.tasks.get(forked)).status is TaskStatus.QUEUED


@pytest.mark.slow
def test_both_work_on_a_ledger_in_postgresql(
    run: Run, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    url = postgres_server.create_database()
    monkeypatch.setenv("HOLDFAST_STORE", url)
    home.mkdir(mode=0o700)
    task_id = carried(url, counts, home)
    store = app.open_store(url, clock=SystemClock())
    failed, *others = [failed_task(store, name="report") for _ in range(3)]
    store.close()

    assert run("tasks", "retry", failed).status == 0
    assert run("tasks", "retry", failed).status == 3
    assert run("tasks", "retry", "--status", "failed", "--json").json["taskIds"] == sorted(
        others, reverse=True
    )
    assert run("tasks", "fork", task_id, "--at", "turn:2").status == 0
