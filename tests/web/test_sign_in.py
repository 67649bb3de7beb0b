"""Signing in: a link works once, a token works, and a cookie ends with its token."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def test_the_link_of_a_start_signs_in_once(visits: Visits, filled: Filled) -> None:
    link = filled.gateway.new_link()
    visit = visits.sign_in(filled.gateway, link=link)
    expect(visit.page.get_by_role("heading", name="Overview")).to_be_visible()

    second = visits.open(filled.gateway.url)
    visits.expected.append("401 (Unauthorized)")
    second.page.goto(link)

    expect(second.page.locator("#say")).to_contain_text("this link was used already")
