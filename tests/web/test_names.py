"""Pages show the name of a record where it is known, the time zone of their times, and commands as code."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def test_tasks_have_names_and_times_have_a_zone(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page

    visit.goto(f"/dashboard/flows/{filled.ids['flow']}")
    events = page.get_by_role("region", name="Events")
    expect(events.get_by_role("link", name="leaves", exact=True).first).to_be_visible()
    expect(events).not_to_contain_text("task_")

    visit.goto("/dashboard/agents/row-009-analyzer?campaign=survey")
    expect(page.get_by_role("link", name="analysis", exact=True)).to_be_visible()
    visit.goto("/dashboard/campaigns/survey/items/row-009")
    expect(page.get_by_role("link", name="analysis", exact=True)).to_be_visible()
    visit.goto("/dashboard/schedules")
    recent = page.get_by_role("region", name="Last firings").locator("tr", has_text="monthly")
    expect(recent.first.get_by_role("link", name="blight")).to_be_visible()
    visit.goto("/dashboard/schedules/monthly")
    expect(page.locator("dd").get_by_role("link", name="blight")).to_be_visible()

    # The browser of the tests is in Berlin.
    expect(page.locator(".as-of")).to_contain_text("Times are shown in your time zone (Europe/Berlin).")


def test_commands_in_the_settings_are_code(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/settings?q=store.url")

    row = visit.page.locator("[id='row-store.url']")
    expect(row.locator(".sub code")).to_have_text("ledger.db")
    expect(row).not_to_contain_text("`")
