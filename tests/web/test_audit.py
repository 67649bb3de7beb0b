"""The audit log with its filters, the findings of the ledger, and the settings with their sources."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def test_the_audit_log_is_filtered_and_leads_to_records(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/audit")
    expect(visit.page.locator("tbody tr").first).to_be_visible()
    # How long ago, and when: a phone has no tooltip.
    moment = visit.page.locator("tbody tr").first.locator("time[data-moment]")
    expect(moment).to_have_text(re.compile(r"\d{1,2} \w+ 20\d\d, \d\d:\d\d:\d\d"))

    visit.page.locator("select[name=by]").select_option("action")
    visit.page.get_by_role("searchbox", name="is").fill("flows.start")
    visit.page.get_by_role("button", name="Filter").click()
    # Other tests start flows, too; this one was started first.
    rows = visit.page.locator("tbody tr")
    started = filled.gateway.call("audit.list", action="flows.start", limit=100)["entries"]
    expect(rows).to_have_count(len(started))
    expect(rows.filter(has_not_text="flows.start")).to_have_count(0)
    expect(rows.last.locator("a.id")).to_have_attribute("href", f"/dashboard/flows/{filled.ids['flow']}")

    visit.goto(f"/dashboard/audit?subject={filled.ids['done']}")
    expect(visit.page.locator("tbody tr")).to_have_count(1)
    expect(visit.page.locator("tbody tr")).to_contain_text("ledger.create")
    visit.page.get_by_role("link", name="Show all").click()
    expect(visit.page.locator("tbody tr").nth(5)).to_be_visible()

    visit.goto("/dashboard/audit?by=who&value=nobody")
    expect(visit.page.get_by_text("No entry matches")).to_be_visible()


def test_the_findings_are_those_of_an_audit(visits: Visits, filled: Filled) -> None:
    audited = filled.gateway.call("upkeep.audit", limit=200)
    found = audited["summary"]
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/audit")

    visit.page.get_by_role("link", name="Findings").click()

    expect(visit.page.get_by_role("heading", name="errors")).to_have_text(
        re.compile(rf"{found['errors']} errors?, {found['warnings']} warnings?")
    )
    # Those of one kind are told together, and only the first ones are open.
    kinds = Counter((one["code"], one["severity"]) for one in audited["findings"])
    expect(visit.page.locator(".finding")).to_have_count(len(kinds))
    rest = visit.page.locator(".finding details:not([open])")
    expect(rest).to_have_count(sum(number > 3 for number in kinds.values()))


def test_settings_say_where_they_come_from_and_hide_secrets(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/settings")

    row = visit.page.locator("tr", has_text="gateway.restart.readiness_gate_threshold")
    expect(row).to_contain_text("2")
    expect(row).to_contain_text("default: 0")
    expect(row).to_contain_text("holdfast.toml")
    expect(visit.page.locator("tr", has_text="gateway.restart.drain_timeout_s")).to_contain_text("default")
    assert "5e5e5e" not in visit.page.content()
    # The gateway of the tests is started with --port 0.
    port = visit.page.locator("[id='row-gateway.port']")
    expect(port.locator("td[data-label=Value]")).to_contain_text("0")
    expect(port.locator("td[data-label=From]")).to_have_text("the command line")
    (told,) = filled.gateway.call("config.get", key="gateway.port")["settings"]
    assert (told["value"], told["source"]) == (0, "the command line")

    search = visit.page.get_by_role("searchbox")
    search.fill("agents.sage")
    search.press("Enter")
    expect(visit.page.locator("section.panel h2")).to_have_text("agents")
    visit.page.locator("tr", has_text="agents.sage.callable").get_by_role("link").click()
    expect(visit.page).to_have_url(f"{filled.gateway.url}/dashboard/agents/sage")
    visit.goto("/dashboard/settings?q=nothing+like+this")
    expect(visit.page.get_by_text("No setting matches.")).to_be_visible()
    visit.goto("/dashboard/settings?only=set")
    expect(visit.page.locator("tr", has_text="drain_timeout_s")).to_have_count(0)
