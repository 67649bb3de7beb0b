"""The page of questions: each with its choices, answered by one of them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.sample_programs import HOSTILE
from tests.web.test_tasks import actions_of, start
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def test_a_question_is_answered_once_and_its_task_goes_on(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    asked = "May I sell the plums?"
    task_id = start(gateway, "ask_owner", {"question": asked})
    gateway.until(
        lambda: gateway.call("ledger.show", taskId=task_id)["questions"], "the task asks its question"
    )
    visit = visits.sign_in(gateway)
    page = visit.page
    visit.goto("/dashboard/questions")

    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    visit.is_accessible()
    expect(page.get_by_role("region", name="May I cut the old pear tree?")).to_contain_text("Make room")
    question = page.get_by_role("region", name=asked)
    question.get_by_role("button", name="no…").click()
    dialog = page.locator("#dialog")
    expect(dialog.locator("input[type=radio][value=no]")).to_be_checked()
    dialog.get_by_role("button", name="Answer", exact=True).click()
    expect(page.locator("#toasts .toast").last).to_contain_text("Answered")
    expect(question).to_have_count(0)

    result = gateway.call("ledger.result", taskId=task_id, waitMs=20_000)
    assert (result["status"], result["result"]) == ("succeeded", "no")
    assert actions_of(gateway, "questions.answer")[0]["who"] == "operator (dashboard)"
