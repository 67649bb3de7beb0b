"""A page that reads itself again keeps what a person chose there, and does not move a record under a hand."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.test_tasks import start
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def count_readings(tab: Tab) -> None:
    """Counts in the page how often it has read itself since."""
    tab.evaluate(
        """() => {
            window.readings = 0;
            document.body.addEventListener("htmx:afterSettle", (event) => {
                if (event.detail.target.id === "live" || event.target.id === "live") window.readings += 1;
            });
        }"""
    )


def has_read_again(tab: Tab) -> None:
    before = tab.evaluate("() => window.readings")
    # It is read again every 20 seconds, or when something happens that it follows.
    tab.wait_for_function(f"() => window.readings > {before}", timeout=60_000)


def test_a_filter_that_is_being_filled_in_stays(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/tasks")
    page.get_by_text("More filters").click()
    page.get_by_label("Runtime").select_option("python")
    page.get_by_label("Name").fill("harv")
    page.get_by_label("Name").blur()
    count_readings(page)

    start(filled.gateway, "graft", {"pair": 31})
    has_read_again(page)

    expect(page.locator("#live tbody tr").first).to_contain_text("graft")
    expect(page.get_by_label("Name")).to_have_value("harv")
    expect(page.get_by_label("Runtime")).to_have_value("python")
    expect(page.locator("#more-filters")).to_have_attribute("open", "")


def test_parts_stay_closed_and_open_as_a_person_left_them(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/tasks?name=graft")
    filters = page.locator("#more-filters")
    expect(filters).to_have_attribute("open", "")
    page.get_by_text("More filters").click()
    expect(filters).not_to_have_attribute("open", "")
    count_readings(page)
    start(filled.gateway, "graft", {"pair": 32})
    has_read_again(page)
    expect(filters).not_to_have_attribute("open", "")

    visit.goto("/dashboard/failures")
    group = page.locator(".failure details").first
    group.locator("summary").click()
    name = group.get_attribute("id")
    count_readings(page)
    start(filled.gateway, "graft", {"pair": 34})
    has_read_again(page)
    expect(page.locator(f"[id='{name}']")).to_have_attribute("open", "")


def test_a_focused_link_stays_with_its_record(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/tasks")
    page.locator("#live tbody tr a.main").nth(2).focus()
    href = page.locator(":focus").get_attribute("href")
    count_readings(page)

    start(filled.gateway, "graft", {"pair": 33})
    has_read_again(page)

    expect(page.locator("#live tbody tr a.main").nth(2)).not_to_have_attribute("href", str(href))
    expect(page.locator(":focus")).to_have_attribute("href", str(href))


@pytest.mark.parametrize("path", ["tasks", "failures", "agents", "workers", "audit", "questions", "settings"])
def test_keys_go_from_row_to_row(path: str, visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto(f"/dashboard/{path}")
    row = "() => document.activeElement.closest('[data-row], tbody tr')"

    page.keyboard.press("j")
    first = page.evaluate_handle(row)
    assert first.evaluate("(row) => row !== null && document.querySelector('#live').contains(row)")
    page.keyboard.press("j")
    second = page.evaluate_handle(row)
    is_only = page.locator("#live [data-row], #live tbody tr").count() == 1
    assert first.evaluate("(one, other) => one === other", second) is is_only
    page.keyboard.press("k")
    assert page.evaluate_handle(row).evaluate("(one, other) => one === other", first)


def test_every_row_has_a_name_of_its_own(visits: Visits, filled: Filled) -> None:
    """Rows are told apart by their ids when a page is read again."""
    visit = visits.sign_in(filled.gateway)
    for path in (
        "/",
        "/dashboard/tasks",
        f"/dashboard/tasks/{filled.ids['done']}",
        f"/dashboard/tasks/{filled.ids['running']}/timeline",
        "/dashboard/failures",
        "/dashboard/reviews",
        "/dashboard/campaigns",
        "/dashboard/campaigns/survey",
        "/dashboard/campaigns/survey/items",
        "/dashboard/agents?view=table",
        "/dashboard/flows",
        f"/dashboard/flows/{filled.ids['flow']}",
        f"/dashboard/flows/{filled.ids['large flow']}",
        "/dashboard/sessions",
        "/dashboard/deliveries",
        "/dashboard/schedules",
        "/dashboard/schedules/often",
        "/dashboard/wakes",
        "/dashboard/alerts",
        "/dashboard/restarts",
        f"/dashboard/restarts/{filled.ids['restart']}",
        "/dashboard/workers",
        "/dashboard/audit",
        "/dashboard/findings",
        "/dashboard/settings",
    ):
        visit.goto(path)
        names = visit.page.evaluate(
            "() => [...document.querySelectorAll('#live tbody tr:not(.u-series)')].map((row) => row.id)"
        )
        assert all(names), (path, names)
        every = visit.page.evaluate("() => [...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(every) == len(set(every)), (path, [one for one in every if every.count(one) > 1])
