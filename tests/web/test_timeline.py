"""The timeline of a task: its runs, and the restart of the gateway between them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.test_tasks import start

pytestmark = pytest.mark.slow


def test_the_timeline_shows_the_runs_and_the_restart_between(visits: Visits, own: LiveGateway) -> None:
    task_id = start(own, "tend", {"minutes": 60})
    own.until(lambda: own.call("ledger.timeline", taskId=task_id)["runs"][0]["turns"], "a turn is done")
    visit = visits.sign_in(own)
    visits.expected += ["Failed to load resource", "ERR_"]
    own.call("gateway.restart", reason="new settings", force=True)
    own.until(lambda: len(_runs(own, task_id)) == 2, "the task goes on in a second run")

    visit.page.goto(f"{own.url}/dashboard/tasks/{task_id}/timeline")
    page = visit.page
    picture = page.get_by_role("img", name="Timeline of tend")
    expect(picture).to_contain_text("Run 1 · resumed")
    expect(picture).to_contain_text("Run 2")
    expect(picture.locator(".band")).to_have_count(1)
    expect(page.get_by_role("link", name="Gateway: restart")).to_be_visible()
    page.get_by_role("link", name="run 2").click()
    expect(picture).not_to_contain_text("Run 1 ·")
    page.get_by_role("link", name="tend").click()
    expect(page.locator(".lineage .between")).to_contain_text("explicit restart")
    expect(page.locator(".lineage .run-box")).to_have_count(2)
    visit.page.set_viewport_size({"width": 390, "height": 844})
    visit.fits()


def _runs(gateway: LiveGateway, task_id: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = gateway.call("ledger.show", taskId=task_id)["runs"]
    except (AssertionError, httpx.HTTPError):
        # The gateway is away for a moment.
        return []
    return found
