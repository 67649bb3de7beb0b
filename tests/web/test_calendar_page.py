"""The calendar shows what was missed and what a restart queued again, and says in which zone it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway

pytestmark = pytest.mark.slow

AWAY = ("Failed to load resource", "htmx:", "Response Status Error Code")
TEND = {"kind": "task", "task": "tend", "arguments": {"minutes": 60}}
PHONE = 390


def firings(gateway: LiveGateway, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.call("cron.runs", id=name, limit=50)["entries"]
    return found


def test_missed_firings_and_one_that_a_restart_queued_again_are_on_the_calendar(
    visits: Visits, own: LiveGateway, screenshots: Path
) -> None:
    visits.expected += AWAY
    # It is due every second, and its first firing does not end.
    own.call(
        "cron.add", name="drip", schedule={"kind": "every", "everyMs": 1000}, payload=TEND, overlap="skip"
    )
    own.call("cron.add", name="watch", schedule={"kind": "cron", "expr": "0 5 1 1 *"}, payload=TEND)
    own.call("cron.run", id="watch")
    own.until(lambda: any(one.get("status") == "skipped" for one in firings(own, "drip")), "one is missed")
    own.until(lambda: own.call("ledger.overview")["tasks"].get("running") == 2, "one of each runs")
    own.call("cron.update", id="drip", patch={"enabled": False})
    pid = own.pid
    own.call("gateway.restart", reason="new tools", force=True)
    own.until(lambda: own.is_serving_after(pid), "another gateway serves")
    own.until(lambda: firings(own, "watch")[0].get("isRetry"), "it is queued again")

    visit = visits.sign_in(own)
    visit.goto("/dashboard/schedules?tz=UTC&view=month")
    # The first firing of a paused schedule waits; those of one day are told together if they are many.
    drip = visit.page.locator(".firing.waits", has_text="drip")
    expect(drip.filter(has_text="missed").first).to_be_visible()
    expect(drip.filter(has_text="queued again").first).to_be_visible()
    watch = visit.page.locator(".firing:not(.coming)", has_text="watch")
    expect(watch).to_contain_text("queued again")
    assert line_below(drip.first) == line_below(watch) == "none"
    # A schedule without a zone of its own is in UTC, and the page says so.
    row = visit.page.locator("section[aria-label=Schedules] tr", has_text="watch")
    expect(row).to_contain_text("0 5 1 1 * (UTC)")
    expect(visit.page.locator(".as-of")).to_contain_text("The calendar is in UTC.")
    visit.is_accessible()
    visit.fits()
    visit.shoot(screenshots, "calendar-missed-light")

    visit.goto("/dashboard/schedules/watch?tz=UTC")
    expect(visit.page.locator(".firing:not(.coming)")).to_contain_text("queued again")
    history = visit.page.locator("section", has=visit.page.get_by_role("heading", name="History"))
    expect(history).to_contain_text("queued again")

    visit.goto("/dashboard/schedules/drip?tz=UTC")
    expect(visit.page.locator(".firing.waits", has_text="missed").first).to_be_visible()
    expect(history).to_contain_text("missed")
    visit.page.set_viewport_size({"width": PHONE, "height": 844})
    visit.fits()
    visit.is_accessible()
    visit.shoot(screenshots, "calendar-missed-phone")


def line_below(firing: Locator) -> str:
    found: str = firing.locator("a").evaluate("(one) => getComputedStyle(one).textDecorationLine")
    return found
