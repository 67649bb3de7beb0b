"""The pages of agents: the map by their last heartbeat, the table, one agent, and what a person may do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from playwright.sync_api import expect

from holdfast.views.agents import AgentLineView
from holdfast.web.pages.agents import cell_of
from tests.web.audited import done_at_the_dashboard
from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.visits import Filled

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def agent(**changes: Any) -> AgentLineView:
    given: dict[str, Any] = {
        "id": "row-1-analyzer",
        "kind": "campaign",
        "type": "analyzer",
        "status": "active",
        "campaign": "survey",
        "run_status": "running",
        "item_status": "running",
    }
    return AgentLineView(**(given | changes))


@pytest.mark.parametrize(
    ("line", "age_s", "text", "tone", "alarm"),
    [
        (agent(), 12, "12s", "good", ""),
        (agent(), 90, "1m", "waits", "late"),
        (agent(), 7200, "!2h", "bad", "silent"),
        (agent(run_status="waiting"), 7200, "2h", "busy", ""),
        (agent(status="error", run_status=None, item_status="failed"), 200_000, "2d", "bad", ""),
        (agent(status="paused", run_status=None), 5, "5s", "waits", ""),
        (agent(status="idle", run_status=None, item_status="done"), 60, "1m", "quiet", ""),
        (agent(kind="gateway", campaign=None, run_status=None), 400, "!6m", "bad", "silent"),
    ],
)
def test_a_cell_tells_age_and_status(
    line: AgentLineView, age_s: int, text: str, tone: str, alarm: str
) -> None:
    cell = cell_of(msgspec.structs.replace(line, last_heartbeat=NOON - timedelta(seconds=age_s)), NOON)

    assert (cell.text, cell.tone, cell.alarm) == (text, tone, alarm)
    assert line.id in cell.words
    assert line.status in cell.words
    assert alarm in cell.words


def test_an_agent_that_never_began_has_no_age() -> None:
    cell = cell_of(agent(status="idle", item_status="pending"), NOON)

    assert cell.words == "row-1-analyzer, survey, idle, pending, never heard"


def one(gateway: LiveGateway, name: str, campaign: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = gateway.call("agents.get", agent=name, campaign=campaign)["agent"]
    return found


@pytest.mark.slow
def test_the_map_leads_to_an_agent_and_the_table_filters(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/agents?campaign=survey")

    groups = page.locator("main section h2 .badge")
    expect(groups).to_have_text(["error", "active", "paused", "idle"])
    expect(page.locator("ul.cells a")).to_have_count(120)
    expect(page.locator("section", has_text="error").locator("a.cell.bad")).to_have_count(6)
    visit.is_accessible()
    cell = page.get_by_role("link", name="row-009-analyzer, survey, error")
    cell.click()
    expect(page.get_by_role("heading", name="row-009-analyzer")).to_be_visible()
    expect(page.locator(".problem")).to_have_text("ValueError: row 9 has no trees")
    expect(page.get_by_role("link", name="Row 9")).to_be_visible()
    visit.is_accessible()

    visit.goto("/dashboard/agents?view=table")
    expect(page.locator("tbody tr").first).to_contain_text("of the gateway")
    expect(page.get_by_role("link", name="Next page")).to_be_visible()
    page.get_by_label("Status").select_option("error")
    page.get_by_label("Type").fill("analyzer")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr", has_text="row-009-analyzer").first).to_be_visible()
    expect(page.locator("tbody tr .badge", has_not_text="error")).to_have_count(0)
    visit.is_accessible()


@pytest.mark.slow
def test_a_person_pauses_resumes_and_restarts_an_agent(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    gateway.call("campaigns.create", name="ponds", phases=[{"name": "analysis", "task": "survey"}])
    gateway.call("campaigns.add", campaign="ponds", items=[{"id": "pond-042", "name": "Pond 42"}])
    gateway.call("campaigns.start", campaign="ponds")
    name = "pond-042-analyzer"
    gateway.until(lambda: gateway.call("agents.get", agent=name)["runStatus"] == "running", "it runs")
    before = gateway.call("ledger.show", taskId=one(gateway, name)["taskId"])
    visit = visits.sign_in(gateway)
    page = visit.page
    visit.goto(f"/dashboard/agents/{name}?campaign=ponds")

    told = visit.act("Restart…", confirm="Restart", reason="it hangs")
    assert told.startswith(f"{name}: its run is cancelled")
    after = gateway.until(
        lambda: (
            found := gateway.call("ledger.show", taskId=before["task"]["id"]),
            found if len(found["runs"]) > len(before["runs"]) else None,
        )[1],
        "its task has another run",
    )
    assert after["task"]["id"] == before["task"]["id"]

    gateway.until(lambda: one(gateway, name)["status"] == "active", "it is active again")
    visit.goto(f"/dashboard/agents/{name}?campaign=ponds")
    told = visit.act("Pause…", confirm="Pause", reason="the water is high")
    assert "keeps what it saved" in told
    gateway.until(lambda: one(gateway, name)["status"] == "paused", "it is paused")
    expect(page.locator(".page-head .badge")).to_have_text("paused")
    expect(page.locator(".notice")).to_contain_text("the water is high")
    assert "it goes on after its last saved step" in visit.act("Resume…", confirm="Resume")
    gateway.until(lambda: one(gateway, name)["status"] == "active", "it goes on")

    assert done_at_the_dashboard(gateway, name) == ["agents.restart", "agents.pause", "agents.resume"]


@pytest.mark.slow
def test_a_person_pauses_an_agent_of_the_gateway(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/agents/sage")
    expect(visit.page.get_by_role("button", name="Restart…")).to_have_count(0)

    assert "they wait in their sessions" in visit.act("Pause…", confirm="Pause", reason="holiday")
    assert one(filled.gateway, "sage")["status"] == "paused"
    expect(visit.page.locator(".notice")).to_contain_text("holiday")
    assert "it answers the messages that waited" in visit.act("Resume…", confirm="Resume")
    assert one(filled.gateway, "sage")["status"] == "idle"
