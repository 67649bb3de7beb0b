"""The methods of flows: a controller's updates, the bounds of an owner's token, and bad input."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.stand_in import OWNER, OWNER_TOKEN, READ_TOKEN, ServedDoors

SECRET = "ghp_" + "C4n4ry" * 6
RELEASE: list[dict[str, Any]] = [
    {"id": "build", "task": "build"},
    {"id": "test", "task": "test", "needs": ["build"], "results": [{"to": ["path"], "node": "build"}]},
]


def call(house: ServedDoors, method: str, **params: Any) -> Any:
    answer = house.post(method, params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def controlled(house: ServedDoors, **more: Any) -> dict[str, Any]:
    flow: dict[str, Any] = call(house, "flows.create", name="trip", controller="planner", **more)["flow"]
    return flow


def test_a_controller_takes_its_flow_from_create_to_finish(house: ServedDoors) -> None:
    flow = controlled(house, state={"token": SECRET})

    waiting = call(house, "flows.wait", flowId=flow["id"], expectedRevision=1, wait={"for": "visa"})["flow"]
    documents = call(house, "flows.state", flowId=flow["id"])
    call(house, "flows.resume", flowId=flow["id"], expectedRevision=2, currentStep="book")
    step = {"flowId": flow["id"], "status": "blocked", "failure": {"message": "full"}}
    blocked = call(house, "flows.update", expectedRevision=3, **step)["flow"]
    call(house, "flows.update", flowId=flow["id"], expectedRevision=4, status="running", state=None)
    done = call(house, "flows.finish", flowId=flow["id"], expectedRevision=5, state={"ok": True})["flow"]

    assert (waiting["status"], waiting["revision"]) == ("waiting", 2)
    assert documents["state"] == {"token": SECRET}
    assert documents["wait"] == {"for": "visa"}
    assert (blocked["currentStep"], blocked["failure"]["message"]) == ("book", "full")
    assert done["status"] == "succeeded"
    assert SECRET not in house.post("flows.get", {"flowId": flow["id"]}).text
    assert house.post("flows.state", {"flowId": flow["id"]}, token=READ_TOKEN).status_code == 403


def test_the_second_update_for_one_revision_is_refused_with_both_revisions(house: ServedDoors) -> None:
    flow = controlled(house)
    asked = {"flowId": flow["id"], "expectedRevision": 1, "message": "no"}

    first = house.post("flows.resume", {"flowId": flow["id"], "expectedRevision": 1})
    second = house.post("flows.fail", asked)

    error = second.json()["error"]
    assert first.status_code == 200
    assert second.status_code == 409
    assert error["details"]["code"] == "revision_mismatch"
    assert "is at revision 2, and this change was made for revision 1" in error["message"]


def test_a_flow_of_nodes_cannot_be_updated_and_is_cancelled_whole(house: ServedDoors) -> None:
    made = call(house, "flows.create", name="release", nodes=RELEASE, key="r1")
    again = call(house, "flows.create", name="release", nodes=RELEASE, key="r1")
    flow_id = made["flow"]["id"]

    blended = house.post("flows.update", {"flowId": flow_id, "expectedRevision": 1, "status": "running"})
    nodes = call(house, "flows.nodes", flowId=flow_id)["nodes"]
    tasks = call(house, "flows.tasks", flowId=flow_id)["tasks"]
    cancelled = call(house, "flows.cancel", flowId=flow_id[:14], reason="enough")
    retried = house.post("flows.retry", {"flowId": flow_id})

    assert (again["flow"]["id"], again["isNew"]) == (flow_id, False)
    assert blended.json()["error"]["details"]["code"] == "flows_blended"
    assert [(node["id"], node["needs"]) for node in nodes] == [("build", []), ("test", ["build"])]
    assert [task["flowId"] for task in tasks] == [flow_id]
    assert (cancelled["outcome"], cancelled["flow"]["status"]) == ("cancelled", "cancelled")
    assert retried.status_code == 409


def test_an_owners_token_sees_and_changes_only_its_own_flows(house: ServedDoors) -> None:
    theirs = controlled(house, owner="ada")["id"]
    task_id = call(house, "ledger.create", name="a", goal="a", owner="ada")["taskId"]

    def ask(method: str, **params: Any) -> Any:
        return house.post(method, params, token=OWNER_TOKEN)

    mine = ask("flows.create", name="mine", controller="c").json()["flow"]

    assert mine["owner"] == OWNER
    assert [flow["id"] for flow in ask("flows.list").json()["flows"]] == [mine["id"]]
    assert ask("flows.list", owner="ada").json()["flows"] == []
    assert ask("flows.list").json()["counts"] == {}
    refused = [
        ask("flows.get", flowId=theirs),
        ask("flows.state", flowId=theirs),
        ask("flows.nodes", flowId=theirs),
        ask("flows.tasks", flowId=theirs),
        ask("flows.cancel", flowId=theirs),
        ask("flows.retry", flowId=theirs),
        ask("flows.resume", flowId=theirs, expectedRevision=1),
        ask("flows.create", name="m", mode="task_mirrored", taskIds=[task_id]),
    ]
    assert [answer.status_code for answer in refused] == [404] * len(refused)
    assert ask("flows.create", name="x", controller="c", owner="ada").status_code == 400
    assert call(house, "flows.get", flowId=theirs)["flow"]["status"] == "queued"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("flows.create", {"name": "x"}),
        ("flows.create", {"name": "x", "nodes": [{"id": "a", "task": "a", "needs": ["a"]}]}),
        ("flows.create", {"name": "x", "nodes": [{"id": "a", "task": "a", "needs": ["b"]}]}),
        ("flows.create", {"name": "x", "nodes": [{"id": "a", "task": "agent.main"}]}),
        ("flows.create", {"name": "x", "nodes": [{"id": "a", "task": "a", "arguments": [1]}]}),
        (
            "flows.create",
            {"name": "x", "nodes": [RELEASE[0], RELEASE[1] | {"results": [{"to": [], "node": "build"}]}]},
        ),
        ("flows.create", {"name": "x\x1b", "controller": "c"}),
        ("flows.create", {"name": "x", "mode": "both"}),
        ("flows.create", {"name": "x", "controller": "c", "state": "x" * 300_000}),
        ("flows.create", {"name": "x", "controller": "c", "state": [{"$secret": "A"}]}),
        ("flows.create", {"name": "x", "nodes": [{"id": "a", "task": "a", "arguments": {"$secret": "A"}}]}),
        ("flows.wait", {"flowId": "flow_x", "expectedRevision": 1, "wait": {"$secret": "A"}}),
        ("flows.list", {"pageToken": "nonsense"}),
        ("flows.list", {"status": ["sleeping"]}),
        ("flows.get", {"flowId": "../x"}),
        ("flows.update", {"flowId": "flow_x"}),
        ("flows.update", {"flowId": "flow_x", "expectedRevision": 0}),
        ("flows.update", {"flowId": "flow_x", "expectedRevision": 1, "status": "cancelled"}),
        ("flows.cancel", {}),
    ],
)
def test_bad_input_names_the_field(house: ServedDoors, method: str, params: dict[str, Any]) -> None:
    answer = house.post(method, params)

    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["details"]["code"] in {"bad_input", "payload_too_large"}


def test_changes_of_flows_are_in_the_audit_log(house: ServedDoors) -> None:
    flow_id = controlled(house)["id"]
    call(house, "flows.cancel", flowId=flow_id)

    entries = call(house, "audit.list", subject=flow_id)["entries"]

    assert [entry["action"] for entry in entries] == ["flows.cancel", "flows.create"]
