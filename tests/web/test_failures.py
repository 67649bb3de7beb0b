"""The page of failures: groups by cause, and a retry of all tasks of one group."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.test_tasks import actions_of, start
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def test_failures_with_one_cause_are_one_group_and_are_retried_together(
    visits: Visits, filled: Filled
) -> None:
    gateway = filled.gateway
    ours = [start(gateway, "spray", {"field": f"west {number}"}) for number in (1, 2)]

    def of_ours() -> list[dict[str, Any]]:
        return [gateway.call("ledger.show", taskId=one) for one in ours]

    gateway.until(lambda: all(one["task"]["status"] == "failed" for one in of_ours()), "both have failed")
    visit = visits.sign_in(gateway)
    visit.goto("/dashboard/failures")
    page = visit.page

    pumps = page.get_by_role("region", name="ConnectionAbortedError: pump # does not answer at #")
    expect(pumps.locator(".failure-count")).to_contain_text("5")
    expect(pumps).to_contain_text("orchard.py in _broken_pump")
    pumps.locator("summary").click()
    expect(pumps.locator("tbody tr")).to_have_count(5)
    visit.is_accessible()
    group = page.get_by_role("region", name="PermissionError: no licence for the field west #")
    group.get_by_role("button", name="Retry all…").click()
    dialog = page.locator("#dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Retry 2 tasks?")
    expect(dialog.locator(".lines li")).to_have_count(2)
    dialog.get_by_role("button", name="Retry 2 tasks").click()
    expect(page.locator("#toasts .toast").last).to_have_text("Retried 2 tasks.")

    gateway.until(
        lambda: all(len(one["runs"]) == 2 and one["task"]["status"] == "failed" for one in of_ours()),
        "each was tried once more",
    )
    assert actions_of(gateway, "failures.retry")[0]["who"] == "operator (dashboard)"
