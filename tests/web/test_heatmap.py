"""The map of a thousand agents by their last heartbeat: each is there, legible, and the page stays light."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from playwright.sync_api import expect

from holdfast.web.pages.agents import MAPPED
from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.visits import Visit

pytestmark = pytest.mark.slow

# `survey` looks at the last part of an id: 9 fails, 41 sleeps, 42 works on until it is cancelled.
FAILS, SLEEPS, WORKS, ENDS = 9, 41, 42, 1
FAILED, ASLEEP, WORKING = 30, 20, 6
# More agents than the map shows.
AGENTS = MAPPED + 50
PHONE = 390
# A person must be able to hit a cell with a finger, and to read it.
LEAST_PX, LEAST_FONT_PX = 24, 11
MOST_BYTES = 600_000


def start(gateway: LiveGateway) -> None:
    kinds = [FAILS] * FAILED + [SLEEPS] * ASLEEP + [WORKS] * WORKING
    kinds += [ENDS] * (AGENTS - len(kinds))
    gateway.call(
        "campaigns.create",
        name="forest",
        phases=[{"name": "analysis", "task": "survey"}],
        concurrency=100,
    )
    items = [
        {"id": f"tree-{number:04}-{kind}", "name": f"Tree {number}"} for number, kind in enumerate(kinds)
    ]
    for part in (items[:MAPPED], items[MAPPED:]):
        gateway.call("campaigns.add", campaign="forest", items=part)
    gateway.call("campaigns.start", campaign="forest")

    def has_settled() -> bool:
        counts = gateway.call("progress.get", campaign="forest")["phases"][0]["counts"]
        return bool(counts["done"] == AGENTS - FAILED - ASLEEP - WORKING and counts["failed"] == FAILED)

    gateway.until(has_settled, "all agents have done what they do")


def make_older(home: Path) -> None:
    """The ended ones were last heard of at times from seconds to weeks ago."""
    with contextlib.closing(sqlite3.connect(home / "ledger.db", timeout=30)) as ledger, ledger:
        ledger.execute(
            "UPDATE item_phases SET updated_at = updated_at - 3000000 * place * place"
            " WHERE status IN ('done', 'failed')"
        )


def test_a_thousand_agents_are_shown_legibly_fit_on_a_phone_and_stay_while_they_are_read_again(
    visits: Visits, own: LiveGateway, screenshots: Path
) -> None:
    start(own)
    make_older(own.home)
    visit = visits.sign_in(own)
    page = visit.page
    answers: list[int] = []
    page.on("response", lambda one: answers.append(len(one.body())) if "/agents" in one.url else None)
    visit.goto("/dashboard/agents?campaign=forest")

    cells = page.locator("ul.cells a.cell")
    expect(cells).to_have_count(MAPPED)
    # Those that need a person are all there, although there is no room for all the others.
    error = page.locator("section", has=page.locator("h2 .badge", has_text="error"))
    expect(error.locator("a.cell.bad")).to_have_count(FAILED)
    active = page.locator("section", has=page.locator("h2 .badge", has_text="active"))
    expect(active.locator("a.cell")).to_have_count(ASLEEP + WORKING)
    expect(active.locator("a.cell.good")).to_have_count(WORKING)
    idle = page.locator("section", has=page.locator("h2 .badge", has_text="idle"))
    expect(idle.get_by_role("heading")).to_contain_text("shown")
    expect(idle.get_by_role("link", name="All of them as a table")).to_be_visible()
    told = cells.all_inner_texts()
    assert {text[-1] for text in told} == {"s", "m", "h", "d"}
    assert answers
    assert max(answers) < MOST_BYTES
    visit.is_accessible()
    visit.fits()
    is_legible(page)
    visit.shoot(screenshots, "thousand-agents-light")
    page.emulate_media(color_scheme="dark")
    visit.is_accessible()
    visit.shoot(screenshots, "thousand-agents-dark")

    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": PHONE, "height": 844})
    visit.fits()
    is_legible(page)
    visit.shoot(screenshots, "thousand-agents-phone")

    cells.first.focus()
    page.keyboard.press("j")
    expect(cells.nth(1)).to_be_focused()
    cells.first.click()
    expect(page.get_by_role("heading", name="tree-0000-9-analyzer")).to_be_visible()

    page.set_viewport_size({"width": 1280, "height": 900})
    stays_while_it_is_read_again(own, visit)


def is_legible(page: object) -> None:
    """Each cell is large enough, its text is large enough, and none of it is cut off or underlined."""
    found = page.locator("ul.cells a.cell").evaluate_all(  # type: ignore[attr-defined]
        """(cells) => cells.map((one) => {
            const box = one.getBoundingClientRect(), style = getComputedStyle(one);
            return [Math.min(box.width, box.height), parseFloat(style.fontSize),
                    one.scrollWidth - one.clientWidth, style.textDecorationLine];
        })"""
    )
    assert min(one[0] for one in found) >= LEAST_PX
    assert min(one[1] for one in found) >= LEAST_FONT_PX
    assert max(one[2] for one in found) <= 0
    assert {one[3] for one in found} == {"none"}


def stays_while_it_is_read_again(gateway: LiveGateway, visit: Visit) -> None:
    page = visit.page
    visit.goto("/dashboard/agents?campaign=forest")
    cells = page.locator("ul.cells a.cell")
    cells.nth(500).focus()
    href = cells.nth(500).get_attribute("href")

    gateway.call(
        "agents.pause", agent=f"tree-{FAILED + ASLEEP:04}-{WORKS}-analyzer", campaign="forest", reason="x"
    )

    expect(page.locator("section h2 .badge", has_text="paused")).to_be_visible()
    expect(cells).to_have_count(MAPPED)
    expect(page.locator(":focus")).to_have_attribute("href", str(href))
