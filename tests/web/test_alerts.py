"""The page of alerts: what is raised, the rules with their live figures, and silence for a time."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.audited import done_at_the_dashboard
from tests.web.conftest import Visits
from tests.web.sample_home import READ_ONLY
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def test_alerts_and_rules_say_what_is_so_now(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/alerts")

    raised = page.locator("section[aria-labelledby=raised]")
    expect(raised.locator("tbody tr").first).to_contain_text("many_failures")
    expect(raised.locator("tbody tr").first).to_contain_text("critical")
    expect(raised).to_contain_text("no channel leads to a person")
    rule = page.locator("section[aria-labelledby=rules] tbody tr", has_text="reviews_wait")
    expect(rule).to_contain_text("needs_review_count > 0")
    expect(rule).to_contain_text("needs review count")
    page.get_by_text("All figures that a condition may name").click()
    expect(page.locator("#all-figures")).to_contain_text("failed percent")
    visit.is_accessible()

    rule.get_by_role("link", name="reviews_wait").click()
    history = page.locator("section[aria-labelledby=history] tbody tr")
    expect(history.first).to_contain_text("reviews_wait")
    expect(history.filter(has_text="many_failures")).to_have_count(0)


def test_a_person_silences_a_rule_for_a_time_and_ends_it(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway

    def silenced_until() -> Any:
        rules = gateway.call("alerts.rules")["rules"]
        return next(one["silencedUntil"] for one in rules if one["name"] == "reviews_wait")

    visit = visits.sign_in(gateway)
    page = visit.page
    visit.goto("/dashboard/alerts?rule=reviews_wait")
    within = "section[aria-labelledby=rules] tr:has-text('reviews_wait')"

    told = visit.act("Silence…", within=within, confirm="Silence", duration="1h", reason="we know")
    assert told == "reviews_wait is silent for 1 hour."
    assert silenced_until() is not None
    expect(page.locator(within)).to_contain_text("silent until")
    told = visit.act("End the silence…", within=within, confirm="End the silence")
    assert told == "reviews_wait is no longer silent."
    assert silenced_until() is None

    assert done_at_the_dashboard(gateway, "reviews_wait") == ["alerts.silence", "alerts.silence"]


def test_a_visitor_who_may_only_read_sees_no_button(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway, link=filled.gateway.new_link(READ_ONLY))

    for path in ("/campaigns/survey", "/agents/row-042-analyzer", f"/flows/{filled.ids['flow']}", "/alerts"):
        visit.goto(f"/dashboard{path}")
        expect(visit.page.locator("#live button.act")).to_have_count(0)
