"""The methods of campaigns and progress: an owner's bounds, pages, bad input, and the audit log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.stand_in import OWNER, OWNER_TOKEN, READ_TOKEN, ServedDoors

SECRET = "ghp_" + "C4n4ry" * 6
PHASES = [{"name": "analysis", "task": "analyse"}, {"name": "migration", "task": "migrate"}]


def call(house: ServedDoors, method: str, **params: Any) -> Any:
    answer = house.post(method, params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def filled(house: ServedDoors, count: int = 3, *, name: str = "rd-os", **more: Any) -> dict[str, Any]:
    call(house, "campaigns.create", name=name, phases=PHASES, **more)
    items = [
        {"id": f"repo-{number:03d}", "priority": f"P{number % 2}", "fields": {"token": SECRET}}
        for number in range(1, count + 1)
    ]
    added: dict[str, Any] = call(house, "campaigns.add", campaign=name, items=items)
    return added


def test_a_campaign_is_created_filled_started_and_read(house: ServedDoors) -> None:
    added = filled(house)
    again = filled(house)

    started = call(house, "campaigns.start", campaign="rd-os")
    paused = call(house, "campaigns.pause", campaign=added["campaign"]["id"], reason="lunch")
    resumed = call(house, "campaigns.resume", campaign="rd-os")
    retried = call(house, "campaigns.retry", campaign="rd-os")
    detail = call(house, "campaigns.get", campaign=added["campaign"]["id"][:12])
    item = house.post("campaigns.item", {"campaign": "rd-os", "itemId": "repo-002"})
    batches = call(house, "campaigns.batches", campaign="rd-os")

    assert (added["added"], added["known"]) == (3, 0)
    assert (again["added"], again["known"]) == (0, 3)
    assert started["campaign"]["status"] == resumed["campaign"]["status"] == "running"
    assert (paused["campaign"]["status"], paused["campaign"]["reason"]) == ("paused", "lunch")
    assert (retried["retried"], retried["hasMore"]) == (0, False)
    assert [one["needs"] for one in detail["phases"]] == [[], ["analysis"]]
    assert [one["phase"] for one in item.json()["phases"]] == ["analysis", "migration"]
    assert SECRET not in item.text
    assert [one["name"] for one in batches["groups"]] == ["batch-001", "batch-002"]


def test_progress_is_told_in_all_its_forms(house: ServedDoors) -> None:
    filled(house)
    call(house, "campaigns.start", campaign="rd-os")

    whole = call(house, "progress.get")
    one = call(house, "progress.get", campaign="rd-os", phase="migration")
    context = call(house, "progress.context")
    document = call(house, "progress.phase", phase="analysis")
    groups = call(house, "progress.batches", by="priority")
    sample = call(house, "progress.sample", size=2, status="pending", seed=1)

    assert [phase["name"] for phase in whole["phases"]] == ["analysis", "migration"]
    assert [phase["name"] for phase in one["phases"]] == ["migration"]
    assert context["overall"]["total"] == 3
    assert context["next_up"] == "P0 batch-001 (1 item)"
    assert document["summary"]["total_repos"] == 3
    assert [(group["name"], group["counts"]["total"]) for group in groups["groups"]] == [("P0", 1), ("P1", 2)]
    assert (len(sample["items"]), sample["of"]) == (2, 3)


def test_lists_are_paged(house: ServedDoors) -> None:
    for name in ("one", "two", "three"):
        filled(house, name=name)

    first = call(house, "campaigns.list", limit=2)
    rest = call(house, "campaigns.list", limit=2, pageToken=first["nextPageToken"])
    items = call(house, "campaigns.items", campaign="two", limit=2, phase="migration", status="pending")
    more = call(house, "campaigns.items", campaign="two", phase="migration", pageToken=items["nextPageToken"])

    assert [one["campaign"]["name"] for one in first["campaigns"] + rest["campaigns"]] == [
        "three",
        "two",
        "one",
    ]
    assert rest["nextPageToken"] is None
    assert [one["id"] for one in items["items"] + more["items"]] == ["repo-002", "repo-001", "repo-003"]
    assert call(house, "campaigns.list", status="running")["campaigns"] == []


def test_an_owners_token_sees_and_changes_only_its_own_campaigns(house: ServedDoors) -> None:
    theirs = filled(house, name="theirs", owner="ada")["campaign"]["id"]

    def ask(method: str, **params: Any) -> Any:
        return house.post(method, params, token=OWNER_TOKEN)

    nothing = ask("progress.get")
    mine = ask("campaigns.create", name="mine", phases=PHASES).json()["campaign"]
    added = ask("campaigns.add", campaign="mine", items=[{"id": "a"}])

    assert nothing.status_code == 404
    assert mine["owner"] == OWNER
    assert added.json()["added"] == 1
    assert [one["campaign"]["id"] for one in ask("campaigns.list").json()["campaigns"]] == [mine["id"]]
    assert ask("campaigns.list", owner="ada").json()["campaigns"] == []
    assert ask("campaigns.list").json()["counts"] == {}
    assert ask("progress.get").json()["campaign"]["id"] == mine["id"]
    for name in ("theirs", theirs, theirs[:8]):
        refused = [
            ask("campaigns.get", campaign=name),
            ask("campaigns.items", campaign=name),
            ask("campaigns.item", campaign=name, itemId="repo-001"),
            ask("campaigns.batches", campaign=name),
            ask("campaigns.add", campaign=name, items=[{"id": "a"}]),
            ask("campaigns.start", campaign=name),
            ask("campaigns.pause", campaign=name),
            ask("campaigns.resume", campaign=name),
            ask("campaigns.retry", campaign=name),
            ask("progress.get", campaign=name),
            ask("progress.context", campaign=name),
            ask("progress.phase", campaign=name),
            ask("progress.batches", campaign=name),
            ask("progress.sample", campaign=name),
        ]
        assert [answer.status_code for answer in refused] == [404] * len(refused)
    assert ask("campaigns.create", name="x", phases=PHASES, owner="ada").status_code == 400
    assert ask("campaigns.create", name="theirs", phases=PHASES).status_code == 409
    assert call(house, "campaigns.get", campaign="theirs")["campaign"]["status"] == "draft"


def test_a_token_that_may_only_read_changes_nothing(house: ServedDoors) -> None:
    filled(house)

    for method in ("campaigns.start", "campaigns.pause", "campaigns.resume", "campaigns.retry"):
        assert house.post(method, {"campaign": "rd-os"}, token=READ_TOKEN).status_code == 403
    assert house.post("progress.context", {}, token=READ_TOKEN).status_code == 200


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("campaigns.create", {"name": "../x", "phases": PHASES}),
        ("campaigns.create", {"name": "x", "phases": []}),
        ("campaigns.create", {"name": "x", "phases": [{"name": "a", "task": "agent.main"}]}),
        ("campaigns.create", {"name": "x", "phases": PHASES, "concurrency": 0}),
        ("campaigns.create", {"name": "x", "phases": PHASES, "batchSize": 10**9}),
        ("campaigns.create", {"name": "x", "phases": PHASES, "colour": "red"}),
        ("campaigns.add", {"campaign": "rd-os", "items": []}),
        ("campaigns.add", {"campaign": "rd-os", "items": [{"id": "a"}] * 1001}),
        ("campaigns.add", {"campaign": "rd-os", "items": [{"id": "a"}, {"id": "a"}]}),
        ("campaigns.add", {"campaign": "rd-os", "items": [{"id": "a/b"}]}),
        ("campaigns.add", {"campaign": "rd-os", "items": [{"id": "a", "priority": "high"}]}),
        ("campaigns.add", {"campaign": "rd-os", "items": [{"id": "a", "fields": [1]}]}),
        ("campaigns.add", {"campaign": "rd-os", "items": [{"id": "a", "fields": {"$secret": "A"}}]}),
        ("campaigns.start", {"campaign": "empty"}),
        ("campaigns.get", {"campaign": "\u0000"}),
        ("campaigns.items", {"campaign": "rd-os", "phase": "packing"}),
        ("campaigns.items", {"campaign": "rd-os", "status": "sleeping"}),
        ("campaigns.items", {"campaign": "rd-os", "pageToken": "nonsense"}),
        ("campaigns.items", {"campaign": "rd-os", "limit": 1001}),
        ("campaigns.list", {"pageToken": "nonsense"}),
        ("campaigns.retry", {"campaign": "rd-os", "phase": "packing"}),
        ("progress.context", {"campaign": "rd-os", "phase": "packing"}),
        ("progress.batches", {"by": "colour"}),
        ("progress.batches", {"by": "category", "pageToken": "7"}),
        ("progress.sample", {"size": 101}),
        ("progress.sample", {"seed": -1}),
    ],
)
def test_bad_input_names_the_field(house: ServedDoors, method: str, params: dict[str, Any]) -> None:
    filled(house)
    call(house, "campaigns.create", name="empty", phases=PHASES)

    answer = house.post(method, params)

    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["details"]["code"] in {"bad_input", "payload_too_large"}


def test_changes_of_campaigns_are_in_the_audit_log(house: ServedDoors) -> None:
    campaign_id = filled(house)["campaign"]["id"]
    call(house, "campaigns.start", campaign="rd-os")

    entries = call(house, "audit.list", subject=campaign_id)["entries"]

    assert [entry["action"] for entry in entries] == ["campaigns.start", "campaigns.add", "campaigns.create"]
