"""The pages of reviews: the evidence, and each of the four decisions."""

from __future__ import annotations

from functools import partial

import pytest
from playwright.sync_api import expect

from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.test_tasks import actions_of, start
from tests.web.visits import Filled

pytestmark = pytest.mark.slow


def effect_of(gateway: LiveGateway, task_id: str) -> str | None:
    """The effect of a task that waits for a decision."""
    found = gateway.call("ledger.show", taskId=task_id)["effects"]
    return next((one["id"] for one in found if one["status"] == "unknown"), None)


def test_each_decision_about_an_effect_has_its_consequence(visits: Visits, filled: Filled) -> None:
    gateway = filled.gateway
    tasks = {
        decision: start(gateway, "buy", {"amount": number, "of": decision})
        for number, decision in enumerate(("done", "retry", "skip", "compensate"), 1)
    }
    effects = {
        name: gateway.until(partial(effect_of, gateway, task_id), f"{name} waits for a person")
        for name, task_id in tasks.items()
    }
    visit = visits.sign_in(gateway)
    page = visit.page
    visit.goto("/dashboard/reviews")

    row = page.locator("#live tbody tr").filter(has_text="amount=1")
    expect(row).to_contain_text("the shop did not answer within 30 s")
    row.get_by_role("link", name="order").click()
    expect(page.get_by_role("region", name="Evidence")).to_contain_text("effect in doubt")
    visit.is_accessible()
    page.get_by_role("button", name="Done…").click()
    dialog = page.locator("#dialog")
    dialog.locator("textarea[name=result]").fill("not JSON")
    dialog.get_by_role("button", name="Decide").click()
    expect(dialog.locator("[data-error]")).to_contain_text("the result is not JSON")
    visits.expected += ["400 (Bad Request)", "Error Code 400"]
    dialog.locator("textarea[name=result]").fill('"three sacks"')
    dialog.locator("input[name=note]").fill("seen on the bill")
    dialog.get_by_role("button", name="Decide").click()
    expect(page.get_by_role("region", name="Decision")).to_contain_text("decided: done")

    visit.goto(f"/dashboard/reviews/{effects['skip']}")
    assert "skipped" in visit.act("Skip…", confirm="Decide")
    visit.goto(f"/dashboard/reviews/{effects['compensate']}")
    assert "compensation" in visit.act("Compensate…", confirm="Decide")
    visit.goto(f"/dashboard/tasks/{tasks['retry']}")
    assert "performed again" in visit.act("Decide…", confirm="Decide", decision="retry")

    ended = {"done": "succeeded", "skip": "succeeded", "compensate": "failed"}
    for name, status in ended.items():

        def is_so(task_id: str = tasks[name], status: str = status) -> bool:
            return bool(gateway.call("ledger.show", taskId=task_id)["task"]["status"] == status)

        gateway.until(is_so, f"after {name} the task is {status}")
    assert gateway.call("ledger.result", taskId=tasks["done"])["result"] == "three sacks"
    assert len(actions_of(gateway, "reviews.resolve")) >= 4

    def performed_again() -> str | None:
        found = gateway.call("ledger.show", taskId=tasks["retry"])["effects"]
        return next(
            (one["id"] for one in found if one["status"] == "unknown" and one["generation"] > 1), None
        )

    again = gateway.until(performed_again, "it was performed again, and its outcome is unknown again")
    # Leave nothing behind that other tests would count.
    gateway.call("reviews.resolve", effectId=again, decision="skip")
