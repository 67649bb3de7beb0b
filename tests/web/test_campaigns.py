"""The pages of campaigns: progress, pace, items, and what a person does with a campaign."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.audited import done_at_the_dashboard
from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.visits import Filled

pytestmark = pytest.mark.slow

# Charts are private to the script; this keeps each one that is drawn.
KEEPS_CHARTS = """(() => {
    let real;
    window.charts = [];
    Object.defineProperty(window, "uPlot", {
        get: () => real,
        set: (made) => {
            real = new Proxy(made, {
                construct(target, given) {
                    const chart = new target(...given);
                    window.charts.push(chart);
                    return chart;
                },
            });
        },
    });
})();"""


def a_campaign(gateway: LiveGateway, name: str, *numbers: int) -> None:
    """A draft of a test's own: items with a number that nine divides fail."""
    gateway.call("campaigns.create", name=name, phases=[{"name": "analysis", "task": "survey"}])
    items = [{"id": f"row-{number:03}", "name": f"Row {number}"} for number in numbers]
    gateway.call("campaigns.add", campaign=name, items=items)


def counts(gateway: LiveGateway, name: str) -> dict[str, Any]:
    found: dict[str, Any] = gateway.call("progress.get", campaign=name)["counts"]
    return found


def status_of(gateway: LiveGateway, name: str) -> str:
    found: str = gateway.call("campaigns.get", campaign=name)["campaign"]["status"]
    return found


def test_a_campaign_shows_its_progress_its_pace_and_its_limits(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/campaigns")
    row = page.locator("tbody tr", has_text="survey")
    expect(row).to_contain_text("Count the trees of every row")
    row.get_by_role("link", name="survey").click()

    expect(page.get_by_role("heading", name="survey")).to_be_visible()
    expect(page.locator(".notice")).to_contain_text("6 items failed")
    tree = page.locator("details.tree[open]")
    expect(tree).to_contain_text("Works on batch-")
    expect(tree.locator("a.branch", has_text="P0")).to_contain_text("6 failed")
    expect(tree.locator("a.branch", has_text="plum")).to_contain_text("of 20")
    expect(tree.locator("a.branch", has_text="batch-001")).to_contain_text("of 10")
    expect(page.locator("[data-chart] canvas")).to_have_count(2)
    expect(page.get_by_role("region", name="Checkpoints")).to_contain_text("before-frost")
    expect(page.get_by_role("region", name="Limits")).to_contain_text("of at most 8")
    visit.is_accessible()

    page.get_by_text("Its batches and its pace").dispatch_event("click")
    expect(page.get_by_role("heading", name="Pace of migration")).to_be_visible()
    page.get_by_role("link", name="24 h").click()
    expect(page.get_by_role("link", name="24 h")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("heading", name="Pace of migration")).to_be_visible()


def test_charts_show_one_moment_in_24_hours_and_change_with_the_colours(
    visits: Visits, filled: Filled
) -> None:
    visit = visits.sign_in(filled.gateway, fresh=True)
    page = visit.page
    page.add_init_script(KEEPS_CHARTS)
    # All that was done was done in the first five minutes.
    visit.goto("/dashboard/campaigns/survey?phase=analysis&hours=1")
    expect(page.locator("[data-chart] canvas")).to_have_count(2)

    drawn = page.evaluate("() => window.charts.at(-1).data[0].length")
    low, high = page.evaluate("() => [window.charts.at(-1).scales.x.min, window.charts.at(-1).scales.x.max]")
    assert high - low <= max(600, 300 * drawn), "minutes, not years"
    at = page.evaluate("() => window.charts.at(-1).series[0].value(window.charts.at(-1), 1795122900, 0, 0)")
    assert re.fullmatch(r"2026-11-19 \d\d:\d\d", at)
    stroke = "() => window.charts.at(-1).series[1].stroke()"
    light = page.evaluate(stroke)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => ({stroke})() !== {light!r}")


def test_a_campaign_that_has_ended_stays_on_the_overview(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    a_campaign(gateway, "meadow", 1, 2)
    gateway.call("campaigns.start", campaign="meadow")
    gateway.until(lambda: status_of(gateway, "meadow") == "done", "the campaign is done")
    visit = visits.sign_in(gateway)
    visit.goto("/")

    ended = visit.page.locator("#live li", has_text="meadow")
    expect(ended).to_contain_text("2 of 2 done; ended")
    ended.get_by_role("link", name="meadow").click()
    expect(visit.page.get_by_role("heading", name="meadow")).to_be_visible()


def test_items_are_found_by_what_they_are(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page = visit.page
    visit.goto("/dashboard/campaigns/survey")
    page.locator("details.tree[open]").get_by_role("link", name="6 failed", exact=True).click()

    expect(page.locator("tbody tr")).to_have_count(6)
    page.get_by_label("Batch").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.get_by_label("Status")).to_have_value("failed")
    visit.is_accessible()
    page.get_by_role("link", name="Row 9", exact=True).click()

    expect(page.get_by_role("heading", name="Row 9")).to_be_visible()
    expect(page.locator(".error")).to_have_text("ValueError: row 9 has no trees")
    expect(page.get_by_role("region", name="migration")).to_contain_text("1 phase before this one")
    expect(page.get_by_role("link", name="row-009-analyzer")).to_be_visible()
    visit.is_accessible()

    visit.goto("/dashboard/campaigns/survey/items")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_role("link", name="First page").click()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_a_person_starts_pauses_resumes_retries_and_saves_a_campaign(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    a_campaign(gateway, "terrace", 1, 2, 9, 18, 27, 36, 41)
    visit = visits.sign_in(gateway)
    page = visit.page
    visit.goto("/dashboard/campaigns/terrace")

    assert visit.act("Start…", confirm="Start") == "terrace is running."
    gateway.until(lambda: counts(gateway, "terrace")["failed"] == 4, "its items failed")
    # The page reads again by itself.
    expect(page.locator("summary")).to_contain_text("2 of 7")

    assert visit.act("Pause…", confirm="Pause", reason="rain") == "terrace is paused."
    expect(page.locator(".page-head")).to_contain_text("rain")
    assert visit.act("Resume…", confirm="Resume") == "terrace is running."
    expect(page.locator(".page-head .badge")).to_have_text("running")
    told = visit.act("Save a milestone…", confirm="Save", name="after-rain")
    assert told.startswith("Saved checkpoint-after-rain")
    expect(page.get_by_role("region", name="Checkpoints")).to_contain_text("after-rain")

    visit.goto("/dashboard/campaigns/terrace/items/row-009")
    assert visit.act("Retry…", confirm="Retry") == "1 item starts again."
    expect(page.get_by_text("attempt 2")).to_be_visible()
    visit.goto("/dashboard/campaigns/terrace")
    assert visit.act("Retry failed items…", confirm="Retry").endswith("start again.")
    gateway.until(lambda: counts(gateway, "terrace")["failed"] == 4, "they failed again")

    campaign_id = gateway.call("campaigns.get", campaign="terrace")["campaign"]["id"]
    assert done_at_the_dashboard(gateway, campaign_id) == [
        "campaigns.start",
        "campaigns.pause",
        "campaigns.resume",
        "campaigns.retry",
        "campaigns.retry",
    ]
    assert done_at_the_dashboard(gateway, "after-rain") == ["campaigns.milestone"]


def test_a_refused_milestone_says_why_and_changes_nothing(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visits.expected += ["400 (Bad Request)", "Response Status Error Code 400"]
    page = visit.page
    visit.goto("/dashboard/campaigns/hedges")
    expect(page.locator("main > p.dim").first).to_contain_text("<img src=x")
    page.get_by_role("button", name="Save a milestone…").click()
    name = page.locator("#dialog [name=name]")
    name.fill("NOT A NAME")
    page.locator("#dialog").get_by_role("button", name="Save").click()
    assert name.evaluate("(field) => field.validity.patternMismatch")

    # What the browser lets through, the gateway refuses.
    name.evaluate("(field) => field.removeAttribute('pattern')")
    page.locator("#dialog").get_by_role("button", name="Save").click()
    expect(page.locator("#dialog [data-error]")).to_have_text(
        "the field “name” has characters or a form that is not allowed here"
    )
    saved = filled.gateway.call("campaigns.checkpoints", campaign="hedges")
    assert saved["checkpoints"] == []
