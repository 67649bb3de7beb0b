"""Schedules: the list, the calendar, the history of one, and what a person does with them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.sample_programs import HOSTILE
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def schedule(gateway: LiveGateway, name: str) -> Any:
    return gateway.call("cron.get", id=name)


def test_schedules_show_when_they_fire_and_how_the_last_firing_ended(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/schedules")

    monthly = visit.page.locator("section[aria-label=Schedules] tr", has_text="monthly")
    expect(monthly).to_contain_text("30 6 1 * * (Europe/Berlin)")
    expect(monthly).to_contain_text("failed")
    expect(monthly).to_contain_text("the leaves are brown")
    expect(visit.page.locator(".day.today")).to_contain_text("done")
    expect(visit.page.locator(".day.today")).to_contain_text("failed")

    visit.page.get_by_role("link", name="Month", exact=True).click()
    assert visit.page.locator(".day").count() in (28, 35, 42)
    visit.page.get_by_role("link", name="Later").click()
    expect(visit.page.locator(".calendar")).to_contain_text("03:00 nightly to come")
    visit.page.get_by_role("link", name="UTC", exact=True).click()
    expect(visit.page.locator(".firing", has_text="nightly").first).to_contain_text("0")
    expect(visit.page.locator(".chips a[aria-current]", has_text="UTC")).to_be_visible()


def test_a_calendar_of_one_schedule_is_right_when_clocks_change(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/schedules/nightly?view=month&day=2027-03-01")

    # On 28 March there are 23 hours, and three o'clock comes after one.
    days = visit.page.locator(".day:not(.beside)")
    expect(days).to_have_count(31)
    for number in range(31):
        expect(days.nth(number).locator(".firing")).to_have_count(1)
        expect(days.nth(number).locator(".firing")).to_contain_text("03:00")


def test_a_person_runs_pauses_resumes_and_removes_a_schedule(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    gateway.call(
        "cron.add",
        name="mulch",
        description=HOSTILE,
        schedule={"kind": "cron", "expr": "0 5 * * sun", "tz": "Europe/Berlin"},
        payload={"kind": "task", "task": "graft", "arguments": {"pair": 7}},
    )
    visit = visits.sign_in(gateway)
    visit.goto("/dashboard/schedules/mulch")
    expect(visit.page.get_by_text("It has not fired yet.")).to_be_visible()
    expect(visit.page.locator("#live")).to_contain_text("<script>alert(1)</script>")

    assert visit.act("Run now…", confirm="Run now") == "mulch fires now. Its firings"
    expect(visit.page.locator("section", has_text="History").locator("tbody tr")).to_contain_text("done")
    assert [one["status"] for one in gateway.call("cron.runs", id="mulch")["entries"]] == ["ok"]

    assert visit.act("Pause…", confirm="Pause") == "mulch is paused."
    expect(visit.page.get_by_text("not while it is paused")).to_be_visible()
    assert schedule(gateway, "mulch")["enabled"] is False

    assert visit.act("Resume…", confirm="Resume") == "mulch fires again."
    expect(visit.page.get_by_role("button", name="Pause…")).to_be_visible()
    assert schedule(gateway, "mulch")["enabled"] is True

    assert "removed" in visit.act("Remove…", confirm="Remove")
    expect(visit.page.get_by_text("This schedule was removed.")).to_be_visible()
    expect(visit.page.locator("tbody tr")).to_contain_text("done")
    names = {one["action"] for one in gateway.call("audit.list", limit=50)["entries"]}
    assert {"cron.run", "cron.update", "cron.remove"} <= names


def test_a_schedule_of_the_settings_cannot_be_removed_here(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/schedules/nightly")

    expect(visit.page.get_by_role("button", name="Pause…")).to_be_visible()
    assert visit.page.get_by_role("button", name="Remove…").count() == 0
    visit.page.get_by_role("link", name="the settings").click()
    expect(visit.page.locator("tr", has_text="schedules.nightly.prompt")).to_contain_text("Which trees")
