"""`holdfast tasks flow`: what an operator sees and does, run as it stands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.core.clock import SystemClock
from holdfast.core.task import Failure
from holdfast.engine.client.flows import Flows
from holdfast.engine.ledger.flows import NewFlow, creating_flow
from holdfast.store import Store
from holdfast.store.sqlite import SqliteStore
from tests.builders import START
from tests.doors.calls import HOSTILE, UNFIT, Opens, Run, run_process
from tests.engine.flows import RELEASE, FlowWorker, a_definition, a_node
from tests.engine.parts import Parts


def blocked_flow(store: Store) -> str:
    """build has succeeded, test has failed, lint runs."""

    async def arrange() -> str:
        clock = SystemClock()
        flow = await store.write(creating_flow(NewFlow(definition=RELEASE, owner="ada"), now=clock.now()))
        worker = FlowWorker(await Parts.begin(store, clock))
        await worker.finish("build")
        await worker.fail("test")
        return flow.id

    return asyncio.run(arrange())


def test_a_list_has_the_fields_of_openclaws_list_and_a_page(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        for name in ("one", "two", "three"):
            store.write_now(creating_flow(NewFlow(name=name, mode="task_mirrored", owner=name), now=START))

    first = run("tasks", "flow", "list", "--json", "--limit", "2").json
    rest = run("tasks", "flow", "--json", "--page", first["nextPageToken"]).json
    queued = run("tasks", "flow", "list", "--json", "--status", "queued", "--owner", "two").json

    assert (first["count"], first["status"], len(first["flows"])) == (2, None, 2)
    assert (rest["count"], rest["nextPageToken"]) == (1, None)
    assert queued["status"] == "queued"
    assert [flow["name"] for flow in queued["flows"]] == ["two"]


def test_a_show_has_the_nodes_in_dependency_order_with_what_blocks_them(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)

    shown = run("tasks", "flow", "show", flow_id[:12])
    view = run("tasks", "flow", "show", flow_id, "--json").json

    assert [(node["id"], node["depth"], node["status"]) for node in view["nodes"]] == [
        ("build", 0, "succeeded"),
        ("test", 1, "failed"),
        ("lint", 1, "running"),
        ("publish", 2, "pending"),
    ]
    assert view["nodes"][3]["why"] == "blocked by test"
    assert view["waitsFor"]["command"] == f"holdfast tasks flow retry {flow_id}"
    assert [event["kind"] for event in view["events"]][-1] == "flow_blocked"
    assert "·· publish  pending" in shown.out


def test_a_page_of_a_show_ends_where_the_next_begins(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)

    first = run("tasks", "flow", "show", flow_id, "--json", "--limit", "3").json
    rest = run("tasks", "flow", "show", flow_id, "--json", "--page", first["nextPageToken"]).json

    assert [node["id"] for node in rest["nodes"]] == ["publish"]
    assert rest["nodes"][0]["why"] == "needs test, lint"
    assert [node["id"] for node in rest["blockers"]] == ["test"]
    assert rest["nextPageToken"] is None


def test_a_node_does_not_need_what_has_succeeded_on_another_page(run: Run, ledger: Opens) -> None:
    async def arrange(store: Store) -> str:
        clock = SystemClock()
        nodes = (a_node("a"), a_node("b"), a_node("c"), a_node("last", "a", "b", "c"), a_node("end", "last"))
        flow = await store.write(creating_flow(NewFlow(definition=a_definition(*nodes)), now=clock.now()))
        worker = FlowWorker(await Parts.begin(store, clock))
        await worker.finish("a")
        return flow.id

    with ledger() as store:
        flow_id = asyncio.run(arrange(store))

    middle = run("tasks", "flow", "show", flow_id, "--json", "--page", "00001").json["nodes"]
    last = run("tasks", "flow", "show", flow_id, "--json", "--page", "00002").json["nodes"]

    assert [node["why"] for node in middle] == [None, "needs c, and 1 of a, b", "needs last"]
    assert [node["why"] for node in last] == ["needs 2 of a, b, c", "needs last"]


def test_a_retry_of_an_unknown_node_names_the_flow(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)

    called = run("tasks", "flow", "retry", flow_id, "--node", "nosuch")

    assert called.status == 4
    assert f"no node 'nosuch' in {flow_id}; run `holdfast tasks flow show {flow_id}`" in called.err


def test_a_retry_of_a_blocked_flow_runs_only_the_node_that_failed(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)

    retried = run("tasks", "flow", "retry", flow_id, "--json").json
    again = run("tasks", "flow", "retry", flow_id)
    view = run("tasks", "flow", "show", flow_id, "--json").json

    assert [node["id"] for node in retried["nodes"]] == ["test"]
    assert retried["taskIds"] == [retried["nodes"][0]["taskId"]]
    assert view["flow"]["status"] == "running"
    assert {node["id"]: node["status"] for node in view["nodes"]} == {
        "build": "succeeded",
        "test": "running",
        "lint": "running",
        "publish": "pending",
    }
    assert again.status == 3
    assert "is running and cannot be retried: nothing blocks it" in again.err


def test_the_second_of_two_operators_with_the_same_revision_is_refused(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)
    read = str(run("tasks", "flow", "show", flow_id, "--json").json["flow"]["revision"])

    first = run("tasks", "flow", "retry", flow_id, "--revision", read)
    second = run("tasks", "flow", "cancel", flow_id, "--revision", read, "--json")

    assert first.status == 0
    assert second.status == 3
    assert second.error["code"] == "revision_mismatch"
    assert f"this change was made for revision {read}" in second.error["message"]
    assert "read it again" in second.error["message"]


def test_a_cancel_says_what_it_did_and_what_comes_next(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)
        mirror = store.write_now(creating_flow(NewFlow(name="empty", mode="task_mirrored"), now=START)).id

    requested = run("tasks", "flow", "cancel", flow_id, "--reason", "not today")
    ended = run("tasks", "flow", "cancel", mirror, "--json").json
    again = run("tasks", "flow", "cancel", mirror)
    logged = run("audit", "log", "--action", "flows.cancel", "--json").json

    assert requested.status == 0
    assert "1 task is alive, and asked to stop" in requested.out
    assert f"holdfast tasks flow show {flow_id}" in requested.err
    assert (ended["outcome"], ended["flow"]["status"]) == ("cancelled", "cancelled")
    assert again.status == 0
    assert "has already ended as cancelled" in again.out
    assert {entry["subject"] for entry in logged["entries"]} == {flow_id, mirror}


def test_the_task_of_a_node_names_its_flow_and_the_status_counts_it(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        flow_id = blocked_flow(store)
    blocker = run("tasks", "flow", "show", flow_id, "--json").json["flow"]["blockedByTaskId"]

    assert f"holdfast tasks flow show {flow_id}" in run("tasks", "show", blocker).out
    assert run("status", "--json").json["blockedFlows"] == 1
    assert "1 flow: `holdfast tasks flow list --status blocked`" in run("status").out


def test_a_flow_of_the_settings_starts_once_per_key(run: Run, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    flow = "release:\n  nodes:\n    build: {task: build}\n    test: {task: test, needs: [build]}\n"
    (home / "config" / "workflows.yaml").write_text(flow)

    first = run("tasks", "flow", "start", "release", "--key", "r1", "--json").json
    second = run("tasks", "flow", "start", "release", "--key", "r1", "--json").json
    unknown = run("tasks", "flow", "start", "nothing")
    nodes = run("tasks", "flow", "show", first["flow"]["id"], "--json").json["nodes"]

    assert first["flow"]["id"] == second["flow"]["id"]
    assert (first["isNew"], second["isNew"]) == (True, False)
    assert unknown.status == 4
    assert "no flow 'nothing'; the settings define release" in unknown.err
    assert [node["why"] for node in nodes] == ["queued for a worker that knows 'build'", "needs build"]


MODULE = """
import holdfast as hf

@hf.task(name="build-it")
async def build(run: hf.Run, target: str) -> str:
    return target
"""


def test_a_flow_of_the_settings_finds_its_tasks_in_the_home(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "harbour_tasks.py").write_text(MODULE)
    flow = "release:\n  nodes:\n    build: {task: 'harbour_tasks:build', args: {target: app}}\n"
    (home / "config" / "workflows.yaml").write_text(flow)

    started = run_process(home, "tasks", "flow", "start", "release", "--json")

    assert started.status == 0, started.err
    tasks = run_process(home, "tasks", "list", "--json").json["tasks"]
    assert [task["name"] for task in tasks] == ["build-it"]


def test_an_unknown_flow_creates_no_ledger(run: Run, home: Path) -> None:
    found = run("tasks", "flow", "start", "nothing")

    assert found.status == 4
    assert "no flow 'nothing'; define it in config/workflows.yaml" in found.err
    assert not (home / "ledger.db").exists()


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("show", "flow_zz"), 4),
        (("show", "../etc"), 2),
        (("cancel", "flow_zz"), 4),
        (("retry", "flow_zz"), 4),
        (("retry", "flow_zz", "--revision", "0"), 2),
        (("list", "--page", "nonsense"), 2),
        (("list", "--status", "sleeping"), 2),
        (("list", "--limit", "0"), 2),
        (("start", ""), 4),
    ],
)
def test_bad_input_has_a_documented_status(
    run: Run, ledger: Opens, arguments: tuple[str, ...], status: int
) -> None:
    with ledger():
        pass

    assert run("tasks", "flow", *arguments).status == status


def test_hostile_text_in_goals_and_documents_stays_text(run: Run, ledger: Opens) -> None:
    with ledger() as store:

        async def arrange() -> str:
            flows = Flows(store, SystemClock())
            new = NewFlow(name="mail", goal="[31m$(rm) `id`", controller="m", state={"text": HOSTILE})
            flow = await flows.create(new)
            flow = await flows.wait(flow.id, {HOSTILE: [HOSTILE]}, revision=flow.revision)
            failure = Failure(kind="odd", message="$(reboot)")
            return (await flows.block(flow.id, failure, revision=flow.revision)).id

        flow_id = asyncio.run(arrange())

    for called in (run("tasks", "flow"), run("tasks", "flow", "show", flow_id)):
        assert called.status == 0
        assert UNFIT.search(called.out) is None


def test_a_damaged_flow_is_told_and_hides_no_other(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        sound = store.write_now(creating_flow(NewFlow(name="one", mode="task_mirrored"), now=START)).id
        damaged = store.write_now(creating_flow(NewFlow(name="two", mode="task_mirrored"), now=START)).id
        damage(store, damaged)

    listed = run("tasks", "flow", "--json").json
    found = run("tasks", "audit", "--code", "restore_failed", "--json").json["findings"]

    assert [flow["id"] for flow in listed["flows"]] == [sound]
    assert damaged in listed["problems"][0]
    assert [(one["noun"], one["recordIds"]) for one in found] == [("flow", [damaged])]


def damage(store: SqliteStore, flow_id: str) -> None:
    connection: Any = store._writer.exclusively(lambda session: cast(Any, session).connection)
    connection.execute("UPDATE flows SET goal = 'other' WHERE id = ?", (flow_id,))
