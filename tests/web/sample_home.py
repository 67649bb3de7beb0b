"""The sample home: a gateway whose ledger has something of everything that the dashboard shows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.web.gateways import LiveGateway
from tests.web.orchard import HOSTILE

READ_ONLY = "board"
READ_ONLY_TOKEN = "hf_board_" + "7c" * 32

SETTINGS = """
tasks = ["orchard:harvest", "orchard:tend", "orchard:water", "orchard:spray", "orchard:buy",
         "orchard:ask_owner", "orchard:rest", "orchard:graft", "orchard:blight", "orchard:survey",
         "orchard:prune"]

[gateway]
rate_limit_per_s = 100000

[gateway.restart]
readiness_gate_threshold = 2

[upkeep]
alerts_every_s = 1

[agents.main]
callable = "orchard:answer"

[agents.sage]
callable = "orchard:answer"

[tokens.board]
token_file = "board.token"
scopes = ["operator.read"]

[schedules.nightly]
cron = "0 3 * * *"
tz = "Europe/Berlin"
agent = "sage"
prompt = "Which trees need water?"

[schedules.often]
every = "1h"
task = "graft"
args = { pair = 1 }
"""

WORKFLOWS = """
spring:
  goal: Get the orchard ready for spring.
  nodes:
    cut: {task: graft, args: {pair: 1}}
    graft: {task: graft, args: {pair: 2}, needs: [cut]}
    leaves: {task: blight, needs: [cut]}
    blossom: {task: graft, args: {pair: 3}, needs: [graft, leaves]}
"""

ALERTS = """
alerts:
  - name: reviews_wait
    condition: "needs_review_count > 0"
    severity: warning
    action: notify_human
  - name: many_failures
    condition: "failed_percent > 1"
    severity: critical
    action: notify_human
"""


def make_home(home: Path) -> Path:
    home.mkdir(mode=0o700)
    (home / "config").mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(SETTINGS)
    (home / "config" / "workflows.yaml").write_text(WORKFLOWS)
    (home / "config" / "alerts.yaml").write_text(ALERTS)
    token = home / "board.token"
    token.touch(mode=0o600)
    token.write_text(READ_ONLY_TOKEN + "\n")
    shutil.copy(Path(__file__).with_name("orchard.py"), home / "orchard.py")
    return home


def fill(gateway: LiveGateway) -> dict[str, str]:
    """Start work of every kind, and wait until each is where a page shows it. Returns ids by name."""
    ids: dict[str, str] = {}

    def start(alias: str, name: str, arguments: dict[str, Any], **more: Any) -> None:
        ids[alias] = gateway.call("ledger.create", name=name, arguments=arguments, **more)["taskId"]

    start("done", "harvest", {"trees": 6}, goal="Pick every ripe apple in the lower orchard")
    start("running", "tend", {"minutes": 60}, goal="Water the young trees through the night")
    for number in range(1, 6):
        start(f"failed {number}", "water", {"number": number}, goal=f"Start pump {number}")
    start("failed", "spray", {"field": "north"}, goal="Spray the north field")
    start("review", "buy", {"amount": 3, "of": "sacks of compost"}, goal="Order compost before Friday")
    start("question", "ask_owner", {"question": "May I cut the old pear tree?"}, goal="Make room")
    start("asleep", "rest", {}, goal="Look again in the morning")
    start("hostile", "ask_owner", {"question": HOSTILE}, goal=HOSTILE, key=HOSTILE[:60])
    ids["flow"] = gateway.call("flows.start", name="spring")["flow"]["id"]
    gateway.call(
        "campaigns.create",
        name="survey",
        goal="Count the trees of every row",
        phases=[
            {"name": "analysis", "task": "survey"},
            {"name": "migration", "task": "prune", "stages": ["prep", "saw"]},
        ],
        batchSize=10,
        concurrency=8,
    )
    items = [
        {"id": f"row-{number:03}", "name": f"Row {number}", "priority": f"P{number % 3}", "category": kind}
        for number in range(1, 61)
        for kind in [("apple", "pear", "plum")[number % 3]]
    ]
    gateway.call("campaigns.add", campaign="survey", items=items)
    gateway.call("campaigns.start", campaign="survey")
    for text in ("Good morning", HOSTILE, "Which trees need water?"):
        gateway.call("chat.send", sessionKey="main", message=text, idempotencyKey=text[:40])
    gateway.call("cron.run", id="often")

    def is_filled() -> bool:
        counts = gateway.call("ledger.overview")
        return bool(
            counts["openReviews"] >= 1
            and counts["openQuestions"] >= 2
            and counts["tasks"].get("failed", 0) >= 7
            and counts["tasks"].get("succeeded", 0) >= 3
            and counts["blockedFlows"] >= 1
            and counts["raisedAlerts"] >= 2
        )

    gateway.until(is_filled, "the sample home is filled")
    ids["effect"] = gateway.call("reviews.list")["reviews"][0]["effect"]["id"]
    return ids
