"""Pages beyond the limit of live streams: they say so, are read again all the same, and become live later."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from holdfast.api.live_limits import MAX_STREAMS_OF_TOKEN
from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.visits import Visit

pytestmark = pytest.mark.slow

REFUSED = ("429 (Too Many Requests)",)
PHONE = 390
# The page asks for room after at most twice the time that the gateway names.
LATEST_MS = 31_000


def streams(gateway: LiveGateway, number: int) -> contextlib.ExitStack:
    """So many other pages of the same token, which are live."""
    held = contextlib.ExitStack()
    headers = {"origin": gateway.url, "hx-request": "true"}
    limits = httpx.Limits(max_connections=None)
    http = held.enter_context(httpx.Client(base_url=gateway.url, timeout=60, trust_env=False, limits=limits))
    http.post("/dashboard/sign-in", data={"token": gateway.token}, headers=headers).raise_for_status()
    for _ in range(number):
        stream = held.enter_context(http.stream("GET", "/dashboard/live"))
        assert stream.status_code == 200
    return held


def is_crowded(visit: Visit) -> None:
    expect(visit.page.locator("#live-state")).to_have_text("not live")
    expect(visit.page.locator("#crowded")).to_contain_text("close other pages to make it live")
    expect(visit.page.locator("#stale")).to_be_hidden()


def test_a_page_beyond_the_limit_says_so_reads_itself_and_is_live_when_there_is_room(
    visits: Visits, own: LiveGateway, screenshots: Path
) -> None:
    visits.expected += REFUSED
    visit = visits.sign_in(own)
    visit.page.clock.install()
    with streams(own, MAX_STREAMS_OF_TOKEN - 1):
        # Its own stream ends with the page, and another one takes its place.
        visit.page.goto("about:blank")
        own.until(lambda: has_room(own), "its stream has ended")
        with streams(own, 1):
            visit.page.goto(f"{own.url}/")
            is_crowded(visit)
            visit.is_accessible()
            visit.shoot(screenshots, "crowded-light")
            visit.page.set_viewport_size({"width": PHONE, "height": 844})
            visit.fits()
            visit.shoot(screenshots, "crowded-phone")

            # It is read again although nothing tells it to.
            own.call("ledger.create", name="ask_owner", goal="ask", arguments={"question": "May I?"})
            own.until(lambda: own.call("questions.list")["questions"], "the task asks")
            visit.page.clock.run_for(25_000)
            expect(visit.page.locator("#live")).to_contain_text("May I?")
            is_crowded(visit)
            visit.page.clock.run_for(LATEST_MS)
            is_crowded(visit)

    own.until(lambda: has_room(own), "the other pages are closed")
    visit.page.clock.run_for(LATEST_MS)
    visit.is_live()
    expect(visit.page.locator("#crowded")).to_be_hidden()


def has_room(gateway: LiveGateway) -> bool:
    headers = {"origin": gateway.url, "hx-request": "true"}
    with httpx.Client(base_url=gateway.url, timeout=60, trust_env=False) as http:
        http.post("/dashboard/sign-in", data={"token": gateway.token}, headers=headers).raise_for_status()
        return http.head("/dashboard/live").status_code == 200
