"""The pages of tasks: the list and its filters, one task in full, and what a person does there."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.sample_home import READ_ONLY
from tests.web.sample_programs import HOSTILE
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def start(gateway: LiveGateway, name: str, arguments: dict[str, Any], **more: Any) -> str:
    found: str = gateway.call("ledger.create", name=name, arguments=arguments, goal=name, **more)["taskId"]
    return found


def status_of(gateway: LiveGateway, task_id: str) -> str:
    found: str = gateway.call("ledger.show", taskId=task_id)["task"]["status"]
    return found


def actions_of(gateway: LiveGateway, action: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.call("audit.list", action=action)["entries"]
    return found


def test_the_list_shows_all_tasks_and_its_filters_narrow_it(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    page, rows = visit.page, visit.page.locator("#live tbody tr")
    visit.goto("/dashboard/tasks")

    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()
    page.get_by_label("Status").or_(page.locator("nav.chips")).first.get_by_text("failed").first.click()
    expect(rows.first.locator(".badge")).to_have_text("failed")
    page.get_by_role("link", name="Show all tasks").click()
    page.get_by_role("searchbox").fill("compost before")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("for a review")
    page.get_by_text("More filters").click()
    page.get_by_label("Name").fill("harvest")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#live")).to_contain_text("No task fits these filters.")
    visit.goto("/dashboard/tasks?runtime=python&name=spray&newer=3600")
    expect(rows).not_to_have_count(0)
    expect(page.locator("select[name=runtime]")).to_have_value("python")

    page.goto(f"{visit.url}/dashboard/tasks?older=x")
    expect(page.locator("#live")).to_contain_text("is not a number of seconds")
    visits.expected.append("400 (Bad Request)")


def test_one_task_shows_its_steps_results_artifacts_decisions_and_events(
    visits: Visits, filled: Filled
) -> None:
    visit = visits.sign_in(filled.gateway)
    page, ids = visit.page, filled.ids
    visit.goto(f"/dashboard/tasks/{ids['done']}")

    expect(page.get_by_role("heading", name="harvest", level=1)).to_be_visible()
    expect(page.locator(".goal")).to_have_text("Pick every ripe apple in the lower orchard")
    steps = page.locator("table.steps tbody tr")
    expect(steps.filter(has_text="turns:3")).to_have_count(1)
    expect(steps.filter(has_text='{"tree":3,"kind":"apple","weight":10.5}')).to_have_count(1)
    # The newest first.
    expect(page.locator("table.steps tr.turn-head").last).to_contain_text("turns:1")
    page.get_by_role("region", name="Turns and steps").get_by_role("link", name="From the first one").click()
    expect(page.locator("table.steps tr.turn-head").first).to_contain_text("turns:1")
    page.get_by_role("region", name="Turns and steps").get_by_role("link", name="The newest").click()
    expect(page.locator("table.steps tr.turn-head").last).to_contain_text("turns:1")
    for panel, text in {
        "Result": '"trees": 6',
        "Notes and decisions": "the harvest of 6 trees is complete",
        "Artifacts": "harvest-6.txt",
        "What it keeps": "a list of 6",
        "Events": "task ended",
        "Progress": "6 of 6",
    }.items():
        expect(page.get_by_role("region", name=panel)).to_contain_text(text)
    expect(page.get_by_role("img", name="Timeline of harvest: run 1 succeeded")).to_be_visible()
    page.get_by_role("region", name="Events").get_by_role("link", name="From the first one").click()
    expect(page.get_by_role("region", name="Events")).to_contain_text("task created")

    visit.goto(f"/dashboard/tasks/{ids['failed 1']}")
    failure = page.get_by_role("region", name="Failure")
    expect(failure).to_contain_text("ConnectionAbortedError: pump 1 does not answer at 10.0.0.1")
    expect(failure).to_contain_text("in _broken_pump")
    visit.goto(f"/dashboard/tasks/{ids['asleep']}")
    expect(page.get_by_role("region", name="What it waits for")).to_contain_text("sleeps until")
    visit.goto(f"/dashboard/tasks/{ids['hostile']}")
    expect(page.locator(".goal")).to_have_text(HOSTILE)
    visits.expected.append("404 (Not Found)")
    page.goto(f"{visit.url}/dashboard/tasks/task_00000000000000000000000000")
    expect(page.locator("#live")).to_contain_text("after its retention")


def test_a_task_is_cancelled_retried_and_forked(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    visit = visits.sign_in(gateway)
    task_id = start(gateway, "tend", {"minutes": 60})
    visit.goto(f"/dashboard/tasks/{task_id}")

    said = visit.act("Cancel…", confirm="Cancel the task", reason="enough water")
    assert said.startswith(("Cancelled", "The cancel is requested"))
    gateway.until(lambda: status_of(gateway, task_id) == "cancelled", "the task is cancelled")
    assert gateway.call("ledger.show", taskId=task_id)["task"]["cancelReason"] == "enough water"
    expect(visit.page.locator(".page-head .badge")).to_have_text("cancelled")

    assert visit.act("Retry…", confirm="Retry the task").startswith("Retried")
    gateway.until(lambda: status_of(gateway, task_id) == "running", "the task runs again")
    expect(visit.page.locator(".lineage")).to_contain_text("Follow-up run 2")
    gateway.call("ledger.cancel", taskId=task_id)

    visit.goto(f"/dashboard/tasks/{filled.ids['done']}")
    row = visit.page.locator("tr.turn-head").filter(has_text="turns:3")
    row.get_by_role("button", name="Fork after it…").click()
    dialog = visit.page.locator("#dialog")
    expect(dialog.locator("input[name=at]").last).to_have_value("turns:3")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(dialog).to_be_hidden()
    made = visit.page.locator("#toasts .toast").last.get_by_role("link", name="Open harvest")
    fork = str(made.get_attribute("href")).rpartition("/")[2]
    made.click()
    expect(visit.page).to_have_url(f"{visit.url}/dashboard/tasks/{fork}")
    gateway.until(lambda: status_of(gateway, fork) == "succeeded", "the fork is done")
    turns = gateway.call("ledger.timeline", taskId=fork)["runs"][0]["turns"]
    assert [one["name"] for one in turns] == ["turns:4", "turns:5", "turns:6"]

    for action in ("ledger.cancel", "ledger.retry", "ledger.fork"):
        assert "operator (dashboard)" in {one["who"] for one in actions_of(gateway, action)}


def test_a_visitor_who_may_only_read_sees_no_button(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway, link=filled.gateway.new_link(READ_ONLY))

    for path in (
        f"/dashboard/tasks/{filled.ids['running']}",
        f"/dashboard/tasks/{filled.ids['question']}",
        "/dashboard/failures",
        f"/dashboard/reviews/{filled.ids['effect']}",
        "/dashboard/questions",
    ):
        visit.goto(path)
        expect(visit.page.locator("#live button")).to_have_count(0)
