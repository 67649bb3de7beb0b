"""What every page must be: clean, accessible, narrow enough for a phone, and stored text stays text."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page as Tab

from holdfast.web.page_kinds import ADMIN, Page
from holdfast.web.tables import ACTIONS, MENU, PAGES
from tests.web.conftest import Visits
from tests.web.places import PLACES
from tests.web.sample_home import READ_ONLY
from tests.web.visits import Filled

pytestmark = pytest.mark.slow

PHONE = 390
# Beside the menu there is little room.
TABLET = 800

# What a page shows if it is asked otherwise.
VIEWS = [
    "/dashboard/agents?view=table",
    "/dashboard/agents?campaign=survey&status=error",
    "/dashboard/tasks?name=water&status=failed",
    "/dashboard/tasks/{review}",
    "/dashboard/tasks/{question}",
    "/dashboard/tasks/{long}",
    "/dashboard/tasks/{done}?events=0.0",
    "/dashboard/tasks/{running}/timeline",
    "/dashboard/campaigns/survey?phase=migration&hours=48",
    "/dashboard/campaigns/survey/items?status=failed",
    "/dashboard/campaigns/hedges",
    "/dashboard/flows?status=blocked",
    "/dashboard/flows/{large flow}",
    "/dashboard/flows/{controlled flow}",
    "/dashboard/deliveries?which=owed",
    "/dashboard/schedules?view=month",
    "/dashboard/schedules/monthly",
    "/dashboard/wakes?which=history",
    "/dashboard/wakes?task={long}",
    "/dashboard/alerts?rule=reviews_wait",
    "/dashboard/audit?by=action&value=flows.start",
    "/dashboard/findings?severity=warning",
    "/dashboard/settings?only=set",
]


def address_of(page: Page, filled: Filled) -> str:
    if page.path == "/":
        return "/"
    if "{" not in page.path:
        return f"/dashboard{page.path}"
    return re.sub(r"\{(.+?)\}", lambda found: filled.ids[found[1]], PLACES[page.path])


def name_of(page: Page) -> str:
    return re.sub(r"[^a-z]+", "-", page.path).strip("-") or "overview"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_clean_accessible_and_fits_in_light_in_dark_and_on_a_phone(
    page: Page, visits: Visits, filled: Filled, screenshots: Path | None
) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto(address_of(page, filled))
    assert visit.page.title().endswith(" · Holdfast")
    is_not_refused(visit.page)
    visit.is_accessible()
    visit.fits()
    lays_out_tables(visit.page)
    visit.shoot(screenshots, f"{name_of(page)}-light")

    visit.page.set_viewport_size({"width": TABLET, "height": 900})
    visit.fits()
    visit.shoot(screenshots, f"{name_of(page)}-tablet")

    visit.page.emulate_media(color_scheme="dark")
    visit.shoot(screenshots, f"{name_of(page)}-dark")
    visit.page.set_viewport_size({"width": PHONE, "height": 844})
    visit.fits()
    visit.is_accessible()
    visit.shoot(screenshots, f"{name_of(page)}-phone")
    runs_nothing(visit.page)


@pytest.mark.parametrize("path", VIEWS, ids=lambda path: re.sub(r"[^a-z]+", "-", path).strip("-"))
def test_another_view_of_a_page_is_clean_accessible_and_fits(
    path: str, visits: Visits, filled: Filled, screenshots: Path | None
) -> None:
    """Its parts are those of the pages above: it is read once, each second one as on a phone in the dark."""
    visit = visits.sign_in(filled.gateway)
    visit.goto(path.format_map(filled.ids))
    is_not_refused(visit.page)
    lays_out_tables(visit.page)
    is_dark = VIEWS.index(path) % 2 == 1
    if not is_dark:
        visit.is_accessible()
    visit.shoot(screenshots, f"view-{re.sub(r'[^a-z]+', '-', path).strip('-')}")
    visit.page.emulate_media(color_scheme="dark")
    for width in (TABLET, PHONE):
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.fits()
    if is_dark:
        visit.is_accessible()


@pytest.mark.parametrize(("theme", "width"), [("dark", 1280), ("light", PHONE)])
def test_what_only_one_width_shows_can_be_read_in_both_colours(
    theme: str, width: int, visits: Visits, filled: Filled
) -> None:
    """The others read a wide page in light and a narrow one in dark. What one width alone shows (the menu and
    its button, heads of tables, between the bars of a timeline, the twigs of a campaign) is alike on all."""
    visit = visits.sign_in(filled.gateway, theme=theme, width=width)
    for path in (
        "/dashboard/tasks?name=water",
        "/dashboard/tasks/{running}/timeline",
        "/dashboard/campaigns/survey",
        "/dashboard/sessions/agent:main:main",
        "/dashboard/schedules?view=month",
    ):
        visit.goto(path.format_map(filled.ids))
        visit.fits()
        visit.can_be_read()
    if width == PHONE:
        visit.page.locator(".menu-button").click()
        visit.can_be_read()


def is_not_refused(tab: Tab) -> None:
    assert tab.locator("#live .panel.problem[role=alert]").count() == 0, tab.locator("#live").inner_text()


def lays_out_tables(tab: Tab) -> None:
    """No style meant for another part has turned a table into something else."""
    shown = "(tables) => tables.map((one) => getComputedStyle(one).display)"
    assert set(tab.locator("#live table:not(.u-legend)").evaluate_all(shown)) <= {"table"}


def runs_nothing(tab: Tab) -> None:
    """The hostile texts of the sample home have become no elements."""
    # A screenshot leaves an empty style behind in each field; the script gives charts their sizes.
    styled = "#live [style]:not([style='']):not([data-chart] *)"
    made = f"#live script, #live img, #live iframe, #live [onerror], {styled}"
    assert tab.locator(made).count() == 0
    assert "49" not in tab.locator("#live").inner_text().split("{{7*7}}")[0][-3:]


def test_the_sign_in_is_clean_accessible_and_fits(
    visits: Visits, filled: Filled, screenshots: Path | None
) -> None:
    # The page asks whether it is signed in, and is not.
    visits.expected.append("401 (Unauthorized)")
    visit = visits.open(filled.gateway.url)
    visit.page.goto(f"{filled.gateway.url}/dashboard/sign-in")
    visit.is_accessible()
    visit.shoot(screenshots, "sign-in-light")
    visit.page.emulate_media(color_scheme="dark")
    visit.is_accessible()
    visit.page.set_viewport_size({"width": PHONE, "height": 844})
    visit.fits()
    visit.shoot(screenshots, "sign-in-phone")


def test_a_reader_sees_every_page_and_no_button_that_changes_something(filled: Filled) -> None:
    with httpx.Client(base_url=filled.gateway.url, timeout=60) as http:
        code = filled.gateway.new_link(READ_ONLY).partition("#")[2]
        answer = http.post(
            "/dashboard/sign-in",
            data={"code": code},
            headers={"origin": filled.gateway.url, "hx-request": "true"},
        )
        assert answer.status_code == 200
        for page in PAGES:
            found = http.get(address_of(page, filled))
            assert found.status_code == 200, (page.path, found.text)
            assert "/dashboard/ask/" not in found.text, page.path
            assert "/dashboard/do/" not in found.text, page.path
        for action in ACTIONS:
            refused = http.post(
                f"/dashboard/do/{action.name}",
                data={"x": "x"},
                headers={"origin": filled.gateway.url, "hx-request": "true"},
            )
            assert refused.status_code == 403, action.name


def test_an_action_without_its_fields_is_refused(filled: Filled) -> None:
    """The restart and the release of held work act on the gateway itself, and need no record."""
    with httpx.Client(base_url=filled.gateway.url, timeout=60) as http:
        code = filled.gateway.new_link().partition("#")[2]
        headers = {"origin": filled.gateway.url, "hx-request": "true"}
        assert http.post("/dashboard/sign-in", data={"code": code}, headers=headers).status_code == 200
        for action in ACTIONS:
            if action.needs == ADMIN:
                continue
            refused = http.post(f"/dashboard/do/{action.name}", data={"x": "x"}, headers=headers)
            assert refused.status_code in (400, 404), (action.name, refused.status_code, refused.text)
            asked = http.get(f"/dashboard/ask/{action.name}", headers=headers)
            assert asked.status_code == 200, (action.name, asked.status_code)
        refused = http.post("/dashboard/do/schedules.run", data={"x": "x"}, headers=headers)
        assert refused.json()["error"] == "the field “id” is missing"


def test_every_entry_of_the_menu_leads_to_a_page(filled: Filled) -> None:
    paths = {address_of(page, filled) for page in PAGES if "{" not in page.path}

    assert [entry.href for entry in MENU if entry.href not in paths] == []
    assert len({entry.key for entry in MENU}) == len(MENU)
