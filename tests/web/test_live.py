"""An open page stays true: through changes, kills, restarts, freezes, and the end of its sign-in."""

from __future__ import annotations

import os
import re
import signal
from functools import partial

import pytest
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.visits import Filled

pytestmark = pytest.mark.slow

# What a browser says of a gateway that is away, or that no longer knows its cookie.
AWAY = ("Failed to load resource", "htmx:", "Response Status Error Code")


def says(tab: Tab, what: str) -> None:
    expect(tab.locator("#live-state")).to_have_text(what)


def count_of(tab: Tab, status: str) -> str:
    return tab.locator(f"a[href='/dashboard/tasks?status={status}'] b").inner_text()


def start(gateway: LiveGateway, name: str, **arguments: object) -> str:
    created = gateway.call("ledger.create", name=name, goal=f"{name} it", arguments=arguments)
    task: str = created["taskId"]
    return task


def test_what_happens_appears_without_a_reload(visits: Visits, own: LiveGateway) -> None:
    visit = visits.sign_in(own)
    visit.goto("/")
    expect(visit.page.locator("#live")).to_contain_text("No task yet")

    start(own, "ask_owner", question="May I?")

    expect(visit.page.locator("#live")).to_contain_text("May I?")
    expect(visit.page.get_by_role("button", name="Answer…")).to_be_visible()


def test_a_killed_gateway_comes_back_and_the_page_shows_the_truth(visits: Visits, own: LiveGateway) -> None:
    visits.expected += AWAY
    start(own, "tend", minutes=60)
    own.until(lambda: own.call("gateway.status")["inFlight"] == 1, "it runs")
    visit = visits.sign_in(own)
    visit.goto("/")
    for number in range(2):
        before = own.pid
        own.kill()
        own.until(partial(own.is_serving_after, before), "another gateway serves")
        # This happened while the page was, or may have been, without a gateway.
        start(own, "ask_owner", question=f"May I {number}?")
        says(visit.page, "live")
        expect(visit.page.locator("#live")).to_contain_text(f"May I {number}?")
        expect(visit.page.locator("#live")).to_contain_text("crash")


def test_while_the_gateway_is_away_the_page_says_so(visits: Visits, own: LiveGateway) -> None:
    visits.expected += AWAY
    visit = visits.sign_in(own)
    visit.goto("/")

    own.stop()
    says(visit.page, "reconnecting")
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()

    with LiveGateway(own.home, port=own.port):
        says(visit.page, "live")


def test_a_restart_is_asked_once_shows_who_is_interrupted_and_is_audited(
    visits: Visits, own: LiveGateway
) -> None:
    visits.expected += AWAY
    tasks = [start(own, "tend", minutes=60) for _ in range(4)]
    own.until(lambda: own.call("gateway.status")["inFlight"] == 4, "all run")
    visit = visits.sign_in(own)
    visit.goto("/")
    before = own.pid

    visit.page.get_by_role("button", name="Restart…").click()
    dialog = visit.page.locator("#dialog")
    expect(dialog).to_contain_text("tend it")
    # More is in flight than the settings allow: without the tick the gateway refuses.
    dialog.get_by_role("button", name="Restart", exact=True).click()
    expect(dialog.locator("[data-error]")).to_be_visible()
    assert own.pid == before
    dialog.get_by_role("checkbox").check()
    dialog.get_by_role("button", name="Restart", exact=True).click()

    own.until(lambda: own.is_serving_after(before), "another gateway serves")
    says(visit.page, "live")
    expect(visit.page.locator("#live")).to_contain_text("4 resumed")
    assert {own.call("ledger.show", taskId=one)["task"]["status"] for one in tasks} == {"running"}
    entries = own.call("audit.list", action="gateway.restart")["entries"]
    assert {one["who"] for one in entries} == {"operator (dashboard)"}


def test_a_frozen_gateway_is_noticed(visits: Visits, own: LiveGateway) -> None:
    visits.expected += AWAY
    visit = visits.open(own.url)
    visit.page.clock.install()
    visit.page.goto(own.new_link())
    visit.page.wait_for_url(f"{own.url}/")
    says(visit.page, "live")
    frozen = own.pid
    os.kill(frozen, signal.SIGSTOP)
    try:
        visit.page.clock.run_for(45_000)
        says(visit.page, "reconnecting")
    finally:
        os.kill(frozen, signal.SIGCONT)
    visit.page.clock.run_for(15_000)
    says(visit.page, "live")


def test_a_revoked_token_signs_its_browsers_out(visits: Visits, own: LiveGateway) -> None:
    visits.expected += AWAY
    own.command("tokens", "create", "guest", "--scope", "read")
    visit = visits.sign_in(own, link=own.new_link("guest"))

    own.command("tokens", "revoke", "guest")

    visit.page.wait_for_url(re.compile("/dashboard/sign-in"))
    expect(visit.page.get_by_label("Token")).to_be_visible()


def test_signing_out_and_in_again_with_a_token_comes_back_to_the_page(visits: Visits, filled: Filled) -> None:
    visits.expected += AWAY
    visit = visits.sign_in(filled.gateway)
    visit.goto("/")
    visit.page.get_by_role("button", name="Sign out").click()
    visit.page.wait_for_url(re.compile("/dashboard/sign-in"))

    visit.page.goto(f"{filled.gateway.url}/?from=here")
    visit.page.wait_for_url(re.compile("next="))
    visit.page.get_by_label("Token").fill("wrong")
    visit.page.get_by_role("button", name="Sign in").click()
    expect(visit.page.locator("#say")).to_contain_text("does not know this token")
    visit.page.get_by_label("Token").fill(filled.gateway.token)
    visit.page.get_by_role("button", name="Sign in").click()

    visit.page.wait_for_url(f"{filled.gateway.url}/?from=here")
    says(visit.page, "live")


def test_the_sign_in_leads_to_no_other_site(visits: Visits, filled: Filled) -> None:
    visits.expected += AWAY
    for there in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        visit = visits.open(filled.gateway.url)
        visit.page.goto(f"{filled.gateway.url}/dashboard/sign-in?next={there}")
        visit.page.get_by_label("Token").fill(filled.gateway.token)
        visit.page.get_by_role("button", name="Sign in").click()
        visit.page.wait_for_url(f"{filled.gateway.url}/")


def test_a_button_says_that_the_gateway_does_not_answer(visits: Visits, own: LiveGateway) -> None:
    visits.expected += AWAY
    visit = visits.sign_in(own)
    visit.goto("/")
    page = visit.page
    button = page.get_by_role("button", name="Restart…")
    stale = page.locator("#stale")
    expect(stale).to_be_hidden()

    # Frozen, it takes the request and is silent; the page does not wait for long.
    page.evaluate("() => { htmx.config.timeout = 300; }")
    frozen = own.pid
    os.kill(frozen, signal.SIGSTOP)
    try:
        button.click()
        expect(page.locator("#toasts .toast").last).to_contain_text("The gateway does not answer")
        says(page, "reconnecting")
        expect(stale).to_contain_text("The gateway does not answer. This is as of")
    finally:
        os.kill(frozen, signal.SIGCONT)
    says(page, "live")
    expect(stale).to_be_hidden()

    own.stop()
    page.locator("#toasts").evaluate("(toasts) => toasts.replaceChildren()")
    button.click()
    expect(page.locator("#toasts .toast").last).to_contain_text("The gateway does not answer")
    expect(stale).to_be_visible()


def test_the_keyboard_and_the_colours(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/")
    visit.page.keyboard.press("?")
    expect(visit.page.locator("#help")).to_be_visible()
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator("#help")).to_be_hidden()

    visit.page.keyboard.press("Tab")
    expect(visit.page.locator(":focus")).to_have_text("Skip to the content")

    background = "() => getComputedStyle(document.documentElement).backgroundColor"
    light = visit.page.evaluate(background)
    colours = visit.page.get_by_role("button", name="Change between light, dark and automatic colours")
    colours.click()
    assert visit.page.evaluate(background) == light
    colours.click()
    dark = visit.page.evaluate(background)
    assert dark != light
    visit.page.reload()
    assert visit.page.evaluate(background) == dark

    visit.page.keyboard.press("g")
    visit.page.keyboard.press("s")
    visit.page.wait_for_url(re.compile("/dashboard/sessions"))
