"""Takes the picture with which README begins, of a real gateway in a real browser: `make picture`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.web.browsers import HOW, find_browser, flags
from tests.web.gateways import REPOSITORY, LiveGateway

PICTURE = REPOSITORY / "docs" / "images" / "dashboard.png"
SETTINGS = """
tasks = ["picture_work:research", "picture_work:order", "picture_work:deploy", "picture_work:analyse"]

[gateway.restart]
readiness_gate_threshold = 2
"""


def _make_home(home: Path) -> Path:
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(SETTINGS)
    shutil.copy(Path(__file__).with_name("picture_work.py"), home / "picture_work.py")
    return home


def _fill(gateway: LiveGateway) -> None:
    for topic in ("tides", "sea ice"):
        gateway.call(
            "ledger.create", name="research", arguments={"topic": topic}, goal=f"Write a report about {topic}"
        )
    gateway.until(lambda: gateway.call("gateway.status")["inFlight"] == 2, "both run")
    before = gateway.pid
    gateway.call("gateway.restart", reason="version 2.4", force=True)
    gateway.until(lambda: gateway.is_serving_after(before), "another gateway serves")
    gateway.call("ledger.create", name="order", arguments={"licences": 3}, goal="Buy the missing licences")
    gateway.call("ledger.create", name="deploy", arguments={"version": "2.4"}, goal="Bring out version 2.4")
    phases = [{"name": "analysis", "task": "analyse"}]
    gateway.call("campaigns.create", name="repositories", phases=phases, concurrency=50)
    items = [
        {"id": f"repo-{number:03}", "priority": f"P{number // 100}", "category": "product"}
        for number in range(1, 401)
    ]
    gateway.call("campaigns.add", campaign="repositories", items=items)
    gateway.call("campaigns.start", campaign="repositories")
    gateway.until(lambda: gateway.call("ledger.overview")["openReviews"] == 1, "the order is in review")
    gateway.until(
        lambda: gateway.call("ledger.overview")["tasks"].get("succeeded", 0) >= 127, "items are done"
    )


def main() -> int:
    program = find_browser()
    if program is None:
        print(HOW, file=sys.stderr)
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, LiveGateway(_make_home(Path(folder) / "home")) as gateway:
        _fill(gateway)
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path=program, args=flags()) as browser,
        ):
            page = browser.new_page(viewport={"width": 1280, "height": 960}, locale="en-GB")
            page.goto(gateway.new_link())
            expect(page.locator("#live-state")).to_have_text("live")
            page.screenshot(path=PICTURE)
    print(PICTURE.relative_to(REPOSITORY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
