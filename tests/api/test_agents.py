"""The methods of agents: one list of both kinds, pages, changes with their audit entry, and bad input."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.api.agents import AgentRestartAsked, restarting
from holdfast.core.campaign import Phase
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.views.agents import AgentChangedView
from holdfast.views.sessions import AgentPageView
from tests.api.stand_in import OWNER, OWNER_TOKEN, READ_TOKEN, ServedDoors
from tests.engine.campaigns.campaign_world import CampaignWorker, a_spec, begun, items
from tests.engine.parts import Parts

PHASES = [{"name": "analysis", "task": "analyse"}, {"name": "migration", "task": "migrate"}]


def call(house: ServedDoors, method: str, **params: Any) -> Any:
    answer = house.post(method, params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def a_campaign(house: ServedDoors, name: str = "rd-os", count: int = 3, **more: Any) -> None:
    call(house, "campaigns.create", name=name, phases=PHASES, **more)
    items = [{"id": f"repo-{number:03d}"} for number in range(1, count + 1)]
    call(house, "campaigns.add", campaign=name, items=items)


def names(page: Any) -> list[str]:
    return [one["id"] for one in page["agents"]]


def test_both_kinds_stand_in_one_list_and_openclaws_own_list_keeps_its_shape(house: ServedDoors) -> None:
    a_campaign(house, count=1)

    page = call(house, "agents.page")
    own = call(house, "agents.list")

    assert [(one["id"], one["kind"], one["type"], one["status"]) for one in page["agents"]] == [
        ("ada", "gateway", "conversation", "idle"),
        ("repo-001-analyzer", "campaign", "analyzer", "idle"),
        ("repo-001-migrator", "campaign", "migrator", "idle"),
    ]
    assert [one["id"] for one in own["agents"]] == ["ada"]
    assert set(own) >= {"agents", "mainKey", "scope"}


def test_pages_have_each_agent_once(house: ServedDoors) -> None:
    a_campaign(house)
    found: list[str] = []
    token = None
    while True:
        page = call(house, "agents.page", limit=2, pageToken=token)
        found += names(page)
        token = page["nextPageToken"]
        if token is None:
            break

    assert len(found) == len(set(found)) == 7


def test_filters_by_campaign_status_and_type(house: ServedDoors) -> None:
    a_campaign(house, count=2)
    call(house, "agents.pause", agent="repo-002-migrator", reason="not yet")

    assert names(call(house, "agents.page", status="paused")) == ["repo-002-migrator"]
    assert names(call(house, "agents.page", type="conversation")) == ["ada"]
    assert len(names(call(house, "agents.page", campaign="rd-os"))) == 4
    assert names(call(house, "agents.page", campaign="rd-os", type="migrator", status="idle")) == [
        "repo-001-migrator"
    ]


def test_an_agent_of_a_campaign_is_paused_resumed_and_restarted(house: ServedDoors) -> None:
    a_campaign(house, count=1)

    paused = call(house, "agents.pause", agent="repo-001-analyzer", reason="not yet")
    shown = call(house, "agents.get", agent="repo-001-analyzer")
    resumed = call(house, "agents.resume", agent="repo-001-analyzer", campaign="rd-os")
    restarted = call(house, "agents.restart", agent="repo-001-analyzer")
    entries = call(house, "audit.list")["entries"]

    assert (paused["agent"]["status"], paused["agent"]["reason"]) == ("paused", "not yet")
    assert shown["agent"]["itemStatus"] == "paused"
    assert resumed["agent"]["status"] == "idle"
    assert "when its campaign, which is draft, does" in resumed["outcome"]
    assert restarted["agent"]["itemStatus"] == "pending"
    assert {"agents.pause", "agents.resume", "agents.restart"} <= {one["action"] for one in entries}


def test_the_answer_to_a_restart_says_what_became_of_its_run(store: Store, clock: FakeClock) -> None:
    async def restart_twice() -> list[AgentChangedView]:
        parts = await Parts.begin(store, clock)
        campaign = await begun(store, clock, a_spec(Phase(name="analysis", task="analyse")), items(1))
        worker = CampaignWorker(parts, campaign)
        await worker.take()
        await parts.journal.save_step(worker.held["repo-001/analysis"].claim, "scan", "done")
        clock.set(clock.now() - timedelta(hours=1))
        asked = AgentRestartAsked(agent="repo-001-analyzer", campaign="rd-os")
        write = restarting(asked, AgentPageView(), now=clock.now())
        first = await store.write(write)
        await worker.stopped("repo-001/analysis")
        await worker.take()
        # The answer to its commit was lost, so it runs again.
        return [first, await store.write(write)]

    first, again = asyncio.run(restart_twice())

    assert first.outcome.startswith("its run is cancelled; then it goes on")
    assert first.agent.item_status == "pending"
    assert again.outcome == "the run that it had is over, and it goes on in a new one already"
    assert again.agent.item_status == "running"


def test_an_agent_of_the_gateway_is_paused_and_resumed_and_cannot_be_restarted(house: ServedDoors) -> None:
    paused = call(house, "agents.pause", agent="ada", reason="too loud")
    again = call(house, "agents.pause", agent="ada", reason="still")
    shown = call(house, "agents.get", agent="ada")
    refused = house.post("agents.restart", {"agent": "ada"})
    resumed = call(house, "agents.resume", agent="ada")

    assert paused["agent"]["status"] == again["agent"]["status"] == "paused"
    assert shown["agent"]["reason"].startswith("too loud (")
    assert shown["pausedAt"] is not None
    assert refused.json()["error"]["code"] == "REFUSED"
    assert "holdfast agents pause ada" in refused.json()["error"]["message"]
    assert resumed["agent"]["status"] == "idle"


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"agent": "repo-009-analyzer"}, 404),
        ({"agent": "repo-001-analyzer", "campaign": "nothing"}, 404),
        ({"agent": ""}, 400),
        ({"agent": "x" * 500}, 400),
        ({}, 400),
    ],
)
def test_bad_input_is_refused(house: ServedDoors, params: dict[str, Any], status: int) -> None:
    a_campaign(house, count=1)

    for method in ("agents.get", "agents.pause", "agents.resume", "agents.restart"):
        assert house.post(method, params).status_code == status


@pytest.mark.parametrize("token", ["x", "camp_x.0.1", "camp_0.99999999.1", "a.b.c"])
def test_a_page_token_that_no_page_gave_is_refused(house: ServedDoors, token: str) -> None:
    assert house.post("agents.page", {"pageToken": token}).status_code == 400


def test_a_token_of_an_owner_sees_only_agents_of_its_own_campaigns(house: ServedDoors) -> None:
    a_campaign(house, "theirs", count=1)
    a_campaign(house, "own", count=1, owner=OWNER)

    page = house.post("agents.page", token=OWNER_TOKEN).json()
    refused = house.post("agents.get", {"agent": "ada"}, token=OWNER_TOKEN)
    theirs = {"agent": "repo-001-analyzer", "campaign": "theirs"}
    other = house.post("agents.pause", theirs, token=OWNER_TOKEN)

    assert {one["campaign"] for one in page["agents"]} == {"own"}
    assert (refused.status_code, other.status_code) == (404, 404)
    assert house.post("agents.pause", {"agent": "ada"}, token=READ_TOKEN).status_code == 403


def test_what_each_step_of_a_start_did_is_told(house: ServedDoors) -> None:
    assert call(house, "gateway.recovery") == {"start": None, "earlier": []}
    assert house.post("gateway.recovery", {"bootId": "boot_none"}).status_code == 404
