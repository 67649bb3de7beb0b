"""What a person does about interrupted work that does not go on: release it, or retry a failed resume."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.web import shed
from tests.web.conftest import Visits
from tests.web.gateways import LiveGateway
from tests.web.sample_home import make_home
from tests.web.test_tasks import actions_of, start, status_of

pytestmark = pytest.mark.slow

# What a browser says of a gateway that is away.
AWAY = ("Failed to load resource", "htmx:", "Response Status Error Code")
CRASHES_UNTIL_HELD = 5


def crash(gateway: LiveGateway) -> None:
    pid = gateway.pid
    gateway.kill()
    gateway.until(partial(gateway.is_serving_after, pid), "another gateway serves")


def test_work_that_is_held_after_a_crash_loop_is_released_by_a_person(
    visits: Visits, own: LiveGateway
) -> None:
    visits.expected += AWAY
    for _ in range(CRASHES_UNTIL_HELD - 1):
        crash(own)
    task = start(own, "tend", {"minutes": 60})
    own.until(lambda: status_of(own, task) == "running", "it runs")
    visit = visits.sign_in(own)
    visit.goto("/")
    expect(visit.page.get_by_role("button", name="Release…")).to_have_count(0)

    crash(own)

    held = visit.page.get_by_role("alert").filter(has_text="crashed 5 times")
    expect(held).to_contain_text("holdfast gateway resume")
    visit.is_live()
    visit.is_accessible()
    assert status_of(own, task) == "paused"
    held.get_by_role("button", name="Release…").click()
    dialog = visit.page.locator("#dialog")
    expect(dialog).to_contain_text("each run goes on from its checkpoint")
    expect(dialog.locator(".lines li")).to_contain_text("crashed 5 times")
    dialog.get_by_role("button", name="Release", exact=True).click()
    expect(visit.page.locator("#toasts .toast").last).to_have_text("Released; 1 run goes on.")

    own.until(lambda: status_of(own, task) == "running", "it goes on")
    expect(held).to_have_count(0)
    assert [one["who"] for one in actions_of(own, "gateway.resume")] == ["operator (dashboard)"]


def home_with_shed(folder: Path) -> Path:
    home = make_home(folder)
    settings = home / "holdfast.toml"
    text = settings.read_text().replace("tasks = [", 'tasks = ["shed:thatch", ', 1)
    settings.write_text(
        text.replace("[gateway.restart]", "[gateway.restart]\nmax_attempts_without_progress = 2", 1)
    )
    shutil.copy(shed.__file__, home / "shed.py")
    return home


def test_a_resume_that_failed_is_retried_when_a_person_has_mended_its_cause(
    visits: Visits, tmp_path: Path
) -> None:
    visits.expected += AWAY
    with LiveGateway(home_with_shed(tmp_path / "home")) as gateway:
        created = gateway.call("ledger.create", name="thatch", goal="Thatch the shed", arguments={})
        task: str = created["taskId"]

        def is_given_up() -> bool:
            try:
                return status_of(gateway, task) == "failed"
            except httpx.TransportError:
                return False

        gateway.until(is_given_up, "its resume has failed")
        visit = visits.sign_in(gateway)
        visit.goto("/dashboard/failures")
        row = visit.page.get_by_role("region", name="Failed resumes").locator("tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("Thatch the shed")
        expect(row).to_contain_text("quarantined")
        visit.is_accessible()

        (gateway.home / shed.MENDED).touch()
        row.get_by_role("button", name="Retry…").click()
        dialog = visit.page.locator("#dialog")
        expect(dialog).to_contain_text("The resume failed: quarantined")
        dialog.get_by_role("button", name="Retry the resume", exact=True).click()
        expect(visit.page.locator("#toasts .toast").last).to_contain_text("Retried")

        gateway.until(lambda: status_of(gateway, task) == "succeeded", "the task is done")
        expect(visit.page.get_by_text("None: all interrupted work was resumed.")).to_be_visible()
        entries = actions_of(gateway, "checkpoints.retry")
        assert [one["who"] for one in entries] == ["operator (dashboard)"]
        visits.close()
