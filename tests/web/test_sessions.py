"""Sessions and their chat: what is sent arrives once, also while the gateway is away; and deliveries."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.web.conftest import PATIENCE_MS, Visits
from tests.web.gateways import LiveGateway
from tests.web.sample_home import READ_ONLY, send
from tests.web.sample_programs import HOSTILE
from tests.web.visits import Filled, Visit

pytestmark = pytest.mark.slow


def texts(gateway: LiveGateway, session: str) -> list[str]:
    found = gateway.call("sessions.transcript", sessionKey=session)["messages"]
    return [one["text"] for one in found if one["role"] == "user"]


def actions(gateway: LiveGateway) -> list[str]:
    return [one["action"] for one in gateway.call("audit.list", limit=100)["entries"]]


def write(visit: Visit, text: str) -> None:
    visit.page.get_by_label("Message to").fill(text)
    visit.page.get_by_role("button", name="Send", exact=True).click()


def test_sessions_show_their_last_message_and_lead_to_a_chat(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway)
    visit.goto("/dashboard/sessions")

    row = visit.page.locator("tr", has_text="agent:main:main")
    expect(row).to_contain_text("You said: Which trees need water?")
    row.get_by_role("link", name="agent:main:main").click()

    log = visit.page.get_by_role("log")
    expect(log).to_contain_text("Good morning")
    expect(log).to_contain_text(f"You said: {HOSTILE}")
    expect(visit.page.get_by_role("heading", name="Its tasks")).to_be_visible()
    visit.page.get_by_role("link", name="All of them").click()
    expect(visit.page.locator("#live tbody tr")).not_to_have_count(0)
    owners = visit.page.locator("#live tbody tr td[data-label=For]")
    assert set(owners.all_inner_texts()) == {"agent:main:main"}

    visit.goto("/dashboard/sessions")
    said = visit.act(
        "New conversation…",
        confirm="Send",
        agent="sage",
        name="plans for May",
        message="What shall we plant?",
    )
    assert "plans-for-May" in said
    expect(visit.page.locator("tbody tr").first).to_contain_text("agent:sage:plans-for-May")
    assert texts(filled.gateway, "agent:sage:plans-for-May") == ["What shall we plant?"]


def test_a_chat_sends_once_and_shows_the_answer(visits: Visits, filled: Filled) -> None:
    session = "agent:sage:orchard"
    visit = visits.sign_in(filled.gateway)
    visit.goto(f"/dashboard/sessions/{session}")
    expect(visit.page.get_by_text("No message yet")).to_be_visible()

    box = visit.page.get_by_label("Message to sage")
    box.fill("First")
    box.press("Control+Enter")
    expect(visit.page.get_by_text("You said: First")).to_be_visible()
    expect(box).to_have_value("")

    # A double click, with an answer that comes late.
    def late(route: Route) -> None:
        visit.page.wait_for_timeout(300)
        route.continue_()

    visit.page.route("**/dashboard/do/chat.send", late)
    box.fill("Second")
    visit.page.get_by_role("button", name="Send", exact=True).dblclick()
    expect(visit.page.get_by_text("You said: Second")).to_be_visible()
    visit.page.unroute("**/dashboard/do/chat.send")

    # An answer that is lost: the message arrived, and the same text again does not arrive twice.
    visits.expected += ["ERR_FAILED", "htmx:"]

    def lost(route: Route) -> None:
        route.fetch()
        route.abort()

    visit.page.route("**/dashboard/do/chat.send", lost)
    write(visit, "Third")
    expect(visit.page.locator("[data-error]")).to_contain_text("The gateway does not answer")
    expect(box).to_have_value("Third")
    visit.page.unroute("**/dashboard/do/chat.send")
    visit.page.get_by_role("button", name="Send", exact=True).click()
    expect(box).to_have_value("")

    # What is being written stays while the page is read again.
    box.fill("half a sen")
    filled.gateway.call("chat.send", sessionKey=session, message="From elsewhere", idempotencyKey="elsewhere")
    expect(visit.page.get_by_text("You said: From elsewhere")).to_be_visible()
    expect(box).to_have_value("half a sen")
    expect(box).to_be_focused()
    assert texts(filled.gateway, session) == ["First", "Second", "Third", "From elsewhere"]


def test_older_messages_come_on_demand(visits: Visits, filled: Filled) -> None:
    session = "agent:sage:long"
    for number in range(21):
        filled.gateway.call(
            "chat.send", sessionKey=session, message=f"n {number}.", idempotencyKey=str(number)
        )
    filled.gateway.until(
        lambda: len(filled.gateway.call("sessions.transcript", sessionKey=session)["messages"]) == 42,
        "all are answered",
    )
    visit = visits.sign_in(filled.gateway)
    visit.goto(f"/dashboard/sessions/{session}")

    assert visit.page.locator(".message").count() == 40
    visit.page.get_by_role("link", name="Show older messages").click()

    expect(visit.page.locator(".message")).to_have_count(42)


def test_a_reader_has_no_box(visits: Visits, filled: Filled) -> None:
    visit = visits.sign_in(filled.gateway, link=filled.gateway.new_link(READ_ONLY))
    visit.goto("/dashboard/sessions/agent:main:main")

    expect(visit.page.get_by_text("Your token may only read")).to_be_visible()
    assert visit.page.locator("textarea").count() == 0


def test_a_chat_works_while_the_gateway_restarts_and_is_killed(visits: Visits, own: LiveGateway) -> None:
    visits.expected += ["Failed to load resource", "ERR_", "htmx:"]
    session = "agent:main:slow"
    visit = visits.sign_in(own)
    visit.goto(f"/dashboard/sessions/{session}")
    write(visit, "wait for me")
    expect(visit.page.get_by_text("main is working")).to_be_visible()
    write(visit, "and this comes next")
    expect(visit.page.locator(".message").last).to_contain_text("queued")

    own.kill()
    write(visit, "sent while it is away")
    error = visit.page.locator("[data-error]")
    while error.is_visible():
        # Nothing is lost: the text is still there, and the same button sends it.
        expect(visit.page.get_by_label("Message to")).to_have_value("sent while it is away")
        visit.page.get_by_role("button", name="Send", exact=True).click()
        visit.page.wait_for_timeout(500)
    # The supervisor keeps the connection until the next gateway has started.
    expect(visit.page.get_by_label("Message to")).to_have_value("", timeout=PATIENCE_MS)
    visit.is_live()

    said = visit.act("Stop…", confirm="Stop", clear="yes")
    assert "2 queued messages were taken out" in said
    # An agent gets some seconds to notice it.
    expect(visit.page.get_by_text("main is working")).to_be_hidden(timeout=PATIENCE_MS)
    assert texts(own, session) == ["wait for me", "and this comes next", "sent while it is away"]
    assert "sessions.abort" in actions(own)


def delivery(gateway: LiveGateway, peer: str, which: str = "failed") -> dict[str, Any] | None:
    found = gateway.call("deliveries.list", which=which, limit=100)["deliveries"]
    return next((one for one in found if one["peer"] == peer), None)


def test_failed_deliveries_are_sent_again_confirmed_or_dropped(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    for peer in ("moody Eve", "doubtful Max", "stern Kim"):
        send(gateway, peer, f"for {peer}")
    for peer in ("moody Eve", "doubtful Max", "stern Kim"):
        gateway.until(partial(delivery, gateway, peer), f"the delivery to {peer} has failed")
    visit = visits.sign_in(gateway)
    visit.goto("/dashboard/deliveries")
    expect(visit.page.locator("tr", has_text="Ada on desk")).to_contain_text("<img src=x")

    assert "sends it now" in act_on(visit, "moody Eve", "Send again…", "Send again")
    expect(visit.page.locator("tr", has_text="moody Eve on desk")).to_have_count(0)
    assert "it is delivered" in act_on(visit, "doubtful Max", "It arrived…", "It arrived")
    assert "will not be sent" in act_on(visit, "stern Kim", "Drop…", "Drop")
    expect(visit.page.locator("tr", has_text="stern Kim on desk")).to_have_count(0)

    assert [delivery(gateway, one) for one in ("moody Eve", "doubtful Max", "stern Kim")] == [None] * 3
    assert {"deliveries.retry", "deliveries.confirm", "deliveries.dismiss"} <= set(actions(gateway))
    visit.page.get_by_role("link", name="Still to be sent").click()
    expect(visit.page.locator("tr", has_text="later Tom on desk")).to_contain_text(
        re.compile("pending|attempting")
    )


def act_on(visit: Visit, row: str, button: str, confirm: str) -> str:
    visit.page.locator("tr", has_text=f"{row} on desk").get_by_role("button", name=button).click()
    dialog = visit.page.locator("#dialog")
    expect(dialog).to_contain_text(row)
    expect(dialog).to_contain_text(f"for {row}")
    dialog.get_by_role("button", name=confirm, exact=True).click()
    expect(dialog).to_be_hidden()
    return visit.page.locator("#toasts .toast").last.inner_text()
