"""The dialogs of actions: one confirmation does one thing, however the button is pressed."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page as Tab
from playwright.sync_api import Route, expect

from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.test_tasks import start, status_of
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def answer_late(tab: Tab) -> None:
    """The gateway needs a while for each action."""

    def late(route: Route) -> None:
        tab.wait_for_timeout(300)
        route.continue_()

    tab.route("**/dashboard/do/*", late)


def forks_of(gateway: LiveGateway, goal: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.call("ledger.list", text=goal, limit=10)["tasks"]
    return found


def test_a_double_click_confirms_once(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    task = gateway.call("ledger.create", name="graft", arguments={"pair": 5}, goal="A pair for two clicks")
    gateway.until(lambda: status_of(gateway, task["taskId"]) == "succeeded", "the task is done")
    visit = visits.sign_in(gateway)
    visit.goto(f"/dashboard/tasks/{task['taskId']}")
    answer_late(visit.page)

    visit.page.get_by_role("button", name="Fork…", exact=True).click()
    dialog = visit.page.locator("#dialog")
    button = dialog.get_by_role("button", name="Fork", exact=True)
    button.dblclick()
    expect(button).to_be_disabled()
    expect(dialog).to_be_hidden()
    # A request that was queued behind the first one would be sent now, and answered before this one.
    visit.page.reload()
    visit.is_live()

    assert len(forks_of(gateway, "A pair for two clicks")) == 2  # the task and its only fork


def test_a_firing_whose_answer_is_lost_is_asked_for_again_and_fires_once(
    visits: Visits, filled: Filled
) -> None:
    gateway = filled.gateway
    times = {"kind": "cron", "expr": "0 5 1 1 *", "tz": "Europe/Berlin"}
    payload = {"kind": "task", "task": "graft", "arguments": {"pair": 8}}
    gateway.call("cron.add", name="espalier", schedule=times, payload=payload)
    visit = visits.sign_in(gateway)
    visits.expected += ["ERR_FAILED", "htmx:"]
    visit.goto("/dashboard/schedules")

    def lost(route: Route) -> None:
        route.fetch()
        route.abort()

    visit.page.route("**/dashboard/do/schedules.run", lost)
    visit.page.locator("tr", has_text="espalier").get_by_role("button", name="Run now…").first.click()
    dialog = visit.page.locator("#dialog")
    dialog.get_by_role("button", name="Run now", exact=True).click()
    expect(dialog.locator("[data-error]")).to_be_visible()
    visit.page.unroute("**/dashboard/do/schedules.run")
    dialog.get_by_role("button", name="Run now", exact=True).click()
    expect(dialog).to_be_hidden()

    def firings() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = gateway.call("cron.runs", id="espalier")["entries"]
        return found

    gateway.until(firings, "it fired")
    assert len(firings()) == 1
    # Asked for anew, it fires again.
    said = visit.act("Run now…", within="tr:has-text('espalier')", confirm="Run now")
    assert said == "espalier fires now. Its firings"
    gateway.until(lambda: len(firings()) == 2, "it fired again")
    gateway.call("cron.remove", id="espalier")


def test_a_wake_is_cancelled_only_by_a_person_who_knows_that_its_task_fails(
    visits: Visits, filled: Filled
) -> None:
    gateway = filled.gateway
    task_id = start(gateway, "inspect", {})
    gateway.until(
        lambda: [one for one in gateway.call("wakes.list", taskId=task_id)["wakes"] if one["id"]],
        "the task is to be woken",
    )
    visit = visits.sign_in(gateway)
    visit.goto(f"/dashboard/wakes?task={task_id}")

    visit.page.get_by_role("button", name="Cancel…").click()
    dialog = visit.page.locator("#dialog")
    expect(dialog).to_contain_text("The task inspect fails, because nothing would resume it")
    expect(dialog.locator(".lines")).to_contain_text("inspect")
    dialog.get_by_role("button", name="Cancel the wake").click()
    expect(dialog).to_be_hidden()

    gateway.until(lambda: status_of(gateway, task_id) == "failed", "the task has failed")
    visit.goto(f"/dashboard/tasks/{task_id}")
    assert visit.act("Retry…", confirm="Retry the task").startswith("Retried")
    gateway.until(lambda: status_of(gateway, task_id) in ("running", "paused"), "the task goes on")
    gateway.call("ledger.cancel", taskId=task_id)
