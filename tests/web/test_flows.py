"""The pages of flows: the graph with what blocks it, large flows, documents, and what a person may do."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.audited import done_at_the_dashboard
from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.sample_programs import HOSTILE
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def flow_of(gateway: LiveGateway, flow_id: str) -> dict[str, Any]:
    found: dict[str, Any] = gateway.call("flows.get", flowId=flow_id)["flow"]
    return found


def test_the_graph_lights_what_blocks_the_flow(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/flows?status=blocked")
    page.locator("tbody tr").last.get_by_role("link", name="spring").click()

    expect(page.locator(".notice")).to_contain_text("leaves (blight) is failed: ValueError")
    graph = page.locator(".graph svg")
    expect(graph.locator("rect.node")).to_have_count(4)
    expect(graph.locator("rect.node.blocker.bad")).to_have_count(1)
    expect(graph.locator("path.edge")).to_have_count(4)
    expect(graph.locator("path.edge.lit")).to_have_count(1)
    expect(graph.get_by_role("link", name="leaves, failed, blocks the flow")).to_be_visible()
    expect(page.locator("tbody tr", has_text="blossom")).to_contain_text("blocked by leaves")
    expect(page.locator(".feed")).to_contain_text("flow blocked")
    visit.is_accessible()


def test_a_flow_too_large_to_draw_has_a_summary_and_pages(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto(f"/dashboard/flows/{filled.ids['large flow']}")

    expect(page.locator(".graph")).to_have_count(0)
    expect(page.locator(".figures")).to_contain_text("230")
    expect(page.locator("#nodes")).to_be_visible()
    expect(page.locator("section[aria-labelledby=nodes] tbody tr")).to_have_count(200)
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("section[aria-labelledby=nodes] tbody tr")).to_have_count(31)


def test_a_flow_with_a_controller_shows_its_documents(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto(f"/dashboard/flows/{filled.ids['controlled flow']}")

    expect(page.locator("main > p.dim").first).to_have_text(HOSTILE)
    expect(page.get_by_text("its controller 'keeper' updates it")).to_be_visible()
    page.locator("#state-document summary").click()
    expect(page.locator("#state-document pre")).to_contain_text("<script>alert(1)</script>")
    visit.is_accessible()


def test_a_person_starts_retries_and_cancels_a_flow(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    visit = visits.sign_in(gateway)
    page = visit.page
    visit.goto("/dashboard/flows")

    told = visit.act("Start a flow…", confirm="Start", name="spring", goal="A second spring")
    assert told == "Started. Open spring"
    made = visit.page.locator("#toasts a", has_text="Open spring")
    flow_id = str(made.get_attribute("href")).rpartition("/")[2]
    assert flow_of(gateway, flow_id)["goal"] == "A second spring"
    gateway.until(lambda: flow_of(gateway, flow_id)["status"] == "blocked", "its leaves are brown")
    visit.goto(f"/dashboard/flows/{flow_id}")

    revision = flow_of(gateway, flow_id)["revision"]
    assert visit.act("Retry leaves…", confirm="Retry") == "1 task goes on."
    gateway.until(lambda: flow_of(gateway, flow_id)["revision"] > revision + 1, "it failed once more")
    gateway.until(lambda: flow_of(gateway, flow_id)["status"] == "blocked", "it is blocked again")
    visit.goto(f"/dashboard/flows/{flow_id}")
    assert visit.act("Retry…", within=".page-head", confirm="Retry") == "1 task goes on."
    gateway.until(lambda: flow_of(gateway, flow_id)["status"] == "blocked", "it is blocked again")

    visit.goto(f"/dashboard/flows/{flow_id}")
    assert visit.act("Cancel…", confirm="Cancel the flow", reason="no spring") == "Cancelled."
    assert flow_of(gateway, flow_id)["cancelReason"] == "no spring"
    # The page reads again by itself.
    expect(page.locator(".page-head .badge")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)
    expect(page.get_by_role("heading", name="What blocks it")).to_have_count(0)
    visit.goto("/dashboard/flows?status=cancelled")
    expect(page.locator(f"[id='row-{flow_id}']")).not_to_contain_text("blocked by")

    assert done_at_the_dashboard(gateway, flow_id) == [
        "flows.start",
        "flows.retry",
        "flows.retry",
        "flows.cancel",
    ]
