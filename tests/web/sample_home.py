"""The sample home: a gateway whose ledger has something of everything that the dashboard shows."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import httpx

from tests.web.gateways import NO_CERTIFICATES, LiveGateway
from tests.web.receiver import NoticeReceiver
from tests.web.sample_programs import HOSTILE

READ_ONLY = "board"
READ_ONLY_TOKEN = "hf_board_" + "7c" * 32

SETTINGS = """
tasks = ["orchard:harvest", "orchard:tend", "orchard:water", "orchard:spray", "orchard:buy",
         "orchard:ask_owner", "orchard:rest", "orchard:graft", "orchard:blight", "orchard:survey",
         "orchard:prune", "orchard:inspect"]

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

[channels.desk]
kind = "webhook"
url = "{receiver}"
secret_file = "desk.secret"

[tokens.board]
token_file = "board.token"
scopes = ["operator.read"]

[schedules.nightly]
cron = "0 3 * * *"
tz = "Europe/Berlin"
agent = "sage"
prompt = "Which trees need water?"

[schedules.monthly]
cron = "30 6 1 * *"
tz = "Europe/Berlin"
task = "blight"

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
    (home / "holdfast.toml").write_text(SETTINGS.replace("{receiver}", NoticeReceiver().url))
    (home / "config" / "workflows.yaml").write_text(WORKFLOWS)
    (home / "config" / "alerts.yaml").write_text(ALERTS)
    token = home / "board.token"
    token.touch(mode=0o600)
    token.write_text(READ_ONLY_TOKEN + "\n")
    secret = home / "desk.secret"
    secret.touch(mode=0o600)
    secret.write_text("5e" * 32 + "\n")
    shutil.copy(Path(__file__).with_name("sample_programs.py"), home / "orchard.py")
    return home


def fill(gateway: LiveGateway) -> dict[str, str]:
    """Start work of every kind, and wait until each is where a page shows it. Returns ids by name."""
    ids: dict[str, str] = {}

    def start(alias: str, name: str, arguments: dict[str, Any], **more: Any) -> None:
        ids[alias] = gateway.call("ledger.create", name=name, arguments=arguments, **more)["taskId"]

    start("done", "harvest", {"trees": 6}, goal="Pick every ripe apple in the lower orchard")
    start("running", "tend", {"minutes": 60}, goal="Water the young trees through the night")
    _restart(gateway, ids)
    start("long", "inspect", {}, goal="Look at every tree of the old orchard")
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
    ids |= _fill_flows_and_campaigns(gateway)
    gateway.call("cron.run", id="monthly")
    for peer, text in (
        ("Ada", HOSTILE),
        ("doubtful Ines", "The harvest is in"),
        ("later Tom", "Bring a ladder"),
    ):
        send(gateway, peer, text)

    def is_filled() -> bool:
        counts = gateway.call("ledger.overview")
        return bool(
            counts["openReviews"] >= 1
            and counts["openQuestions"] >= 2
            and counts["tasks"].get("failed", 0) >= 7
            and counts["tasks"].get("succeeded", 0) >= 3
            and counts["blockedFlows"] >= 1
            and counts["raisedAlerts"] >= 2
            and counts["failedDeliveries"] >= 2
            and _wake_of(gateway, ids)
        )

    gateway.until(is_filled, "the sample home is filled")
    ids["effect"] = gateway.call("reviews.list")["reviews"][0]["effect"]["id"]
    return ids


def _fill_flows_and_campaigns(gateway: LiveGateway) -> dict[str, str]:
    """A flow with documents, one too large to draw, a draft, a paused agent, and hostile text in them."""
    ids: dict[str, str] = {}
    told = gateway.call(
        "flows.create",
        name="keeper",
        goal=HOSTILE,
        controller="keeper",
        state={"note": HOSTILE},
        currentStep=HOSTILE[:60],
    )
    ids["controlled flow"] = told["flow"]["id"]
    # Nobody knows its tasks, so none of its nodes starts.
    nodes: list[dict[str, Any]] = [{"id": f"tree-{number:03}", "task": "felling"} for number in range(230)]
    nodes.append({"id": HOSTILE[:60], "task": "felling", "needs": ["tree-000"]})
    ids["large flow"] = gateway.call("flows.create", name="felling", nodes=nodes)["flow"]["id"]
    gateway.call(
        "campaigns.create",
        name="hedges",
        goal=HOSTILE,
        phases=[{"name": "analysis", "task": "survey", "role": HOSTILE[:40]}],
    )
    hostile = {"id": "hedge-1", "name": HOSTILE[:80], "category": HOSTILE[:80], "fields": {"note": HOSTILE}}
    gateway.call("campaigns.add", campaign="hedges", items=[hostile])
    gateway.call("campaigns.milestone", campaign="survey", name="before-frost")
    gateway.call("agents.pause", agent="row-059-analyzer", campaign="survey", reason=HOSTILE)
    return ids


def send(gateway: LiveGateway, peer: str, text: str) -> None:
    """Owe a message to a person, without waiting until it is sent or given up; see NoticeReceiver."""
    body = {"channel": "desk", "to": peer, "message": text, "idempotencyKey": f"to {peer}"}
    headers = {"Authorization": f"Bearer {gateway.token}"}
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{gateway.url}/rpc/send", json=body, headers=headers, timeout=0.5, verify=NO_CERTIFICATES)


def _restart(gateway: LiveGateway, ids: dict[str, str]) -> None:
    """Interrupt the running task by a restart, after which it goes on."""
    gateway.until(lambda: gateway.call("ledger.overview")["tasks"].get("running"), "a task runs")
    before = gateway.call("gateway.status")["bootId"]
    gateway.call("gateway.restart", reason="a new version of the orchard's tools", force=True)

    def is_back() -> bool:
        try:
            status = gateway.call("gateway.status")
        except httpx.TransportError:  # the gateway that ends closes what it has not answered
            return False
        return bool(status["bootId"] != before and status["isReady"])

    gateway.until(is_back, "the gateway is back")
    ids["restart"] = gateway.call("gateway.restarts")["restarts"][0]["id"]


def _wake_of(gateway: LiveGateway, ids: dict[str, str]) -> str | None:
    """The wake of the task that is longer than one run may be."""
    found = [one["id"] for one in gateway.call("wakes.list", taskId=ids["long"])["wakes"] if one["id"]]
    if found:
        ids["wake"] = found[0]
    return found[0] if found else None
