"""Restarts, wakes and workers: what was interrupted and what became of it, alarms, and who carries runs."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.conftest import PATIENCE_MS, Visits
from tests.web.gateways import LiveGateway
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def test_a_restart_shows_its_manifest_against_the_outcome(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/restarts")

    now = visit.page.locator("section", has=visit.page.get_by_role("heading", name="A restart now"))
    expect(now).to_contain_text("would be refused")
    expect(now.get_by_role("link", name="Water the young trees through the night")).to_be_visible()
    start = visit.page.locator("section", has=visit.page.get_by_role("heading", name="found and did"))
    expect(start.locator("tbody tr")).to_have_count(5)
    expect(start.locator("tr", has_text="resume")).to_contain_text("1")

    visit.page.locator("tr", has_text="a new version of the orchard's tools").get_by_role("link").click()
    row = visit.page.locator("tr[id^=row-task_]", has_text="Water the young trees through the night")
    expect(row).to_contain_text("resumed")
    expect(row).to_contain_text("goes on in run")
    row.get_by_role("link", name="Water the young trees").click()
    expect(visit.page).to_have_url(f"{filled.gateway.url}/dashboard/tasks/{filled.ids['running']}")


def test_a_restart_that_interrupts_too_much_is_refused_until_it_is_forced(
    visits: Visits, own: LiveGateway
) -> None:
    visits.expected += ["Failed to load resource", "ERR_", "htmx:", "Response Status Error Code 409"]
    for number in range(3):
        own.call("ledger.create", name="tend", goal=f"Water row {number}", arguments={"minutes": 60})
    own.until(lambda: own.call("ledger.overview")["tasks"].get("running") == 3, "three tasks run")
    visit = visits.sign_in(own)
    visit.goto("/dashboard/restarts")
    pid = own.pid

    visit.page.get_by_role("button", name="Restart…").click()
    dialog = visit.page.locator("#dialog")
    expect(dialog.locator(".lines li")).to_have_count(3)
    dialog.locator("[name=reason]").fill("new tools")
    dialog.get_by_role("button", name="Restart", exact=True).click()
    expect(dialog.locator("[data-error]")).to_contain_text("3")
    assert own.pid == pid
    dialog.locator("[name=force]").check()
    dialog.get_by_role("button", name="Restart", exact=True).click()
    expect(dialog).to_be_hidden(timeout=PATIENCE_MS)

    own.until(lambda: own.is_serving_after(pid), "another gateway serves")
    visit.is_live()
    row = visit.page.locator("tr", has_text="new tools").first
    expect(row).to_contain_text("recovered", timeout=PATIENCE_MS)
    expect(row).to_contain_text("3 resumed")
    names = [(one["action"], one["outcome"]) for one in own.call("audit.list", limit=20)["entries"]]
    assert ("gateway.restart", "refused") in names
    assert ("gateway.restart", "asked") in names

    # The processes of before and after.
    visit.goto("/dashboard/workers")
    expect(visit.page.locator("tr", has_text="this gateway")).to_contain_text("alive")
    expect(visit.page.locator("tr", has_text="this gateway").locator("td[data-label=Runs]")).to_have_text("3")
    ended = visit.page.locator("section", has=visit.page.get_by_role("heading", name="Ended last"))
    expect(ended.locator("tr", has_text=str(pid))).to_be_visible()


def test_a_wake_is_shown_with_its_task_and_can_be_cancelled(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    task_id = gateway.call("ledger.create", name="inspect", arguments={}, goal="Count the nests")["taskId"]
    gateway.until(
        lambda: [one for one in gateway.call("wakes.list", taskId=task_id)["wakes"] if one["id"]],
        "the task is to be woken",
    )
    visit = visits.sign_in(gateway)
    visit.goto("/dashboard/wakes")
    expect(visit.page.locator("tr", has_text="Look at every tree")).to_contain_text("timeout recovery")
    expect(visit.page.locator("tr", has_text="Order compost")).to_contain_text("waits for a review")

    visit.goto(f"/dashboard/wakes?task={task_id}")
    expect(visit.page.locator("tbody tr")).to_have_count(1)
    assert visit.act("Cancel…", confirm="Cancel the wake", reason="no nests") == "The wake is cancelled."

    expect(visit.page.get_by_text("Nothing sleeps or waits.")).to_be_visible()
    visit.page.get_by_role("link", name="Past", exact=True).click()
    expect(visit.page.locator("tr", has_text="Count the nests")).to_contain_text("cancelled")
    assert "wakes.cancel" in [one["action"] for one in gateway.call("audit.list", limit=20)["entries"]]
