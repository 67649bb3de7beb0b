"""Real gateways with a command agent that has a time limit: killed at its hand-over, and two at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.runtimes.command import CommandInput
from tests.gateway.gateway_home import GatewayHome, gateway_home
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

# Three cycles. In each it saves its checkpoint, and then kills what the first argument names.
COMMAND = """
import json, os, pathlib, re, signal, sys
asked = json.loads(sys.stdin.read())
place = pathlib.Path(os.environ["HOLDFAST_HOME"]) / "world"
with (place / "heard").open("a") as file:
    file.write(json.dumps(asked) + "\\n")
cycle = len((place / "heard").read_text().splitlines())
if cycle == 3:
    print("done")
    sys.exit()
document = {
    "task_id": os.environ["HOLDFAST_TASK_ID"], "goal": "tides", "status": "waiting",
    "current_step": f"step {cycle}", "progress_pct": 30 * cycle,
    "last_completed": [f"step {one}" for one in range(cycle)], "next_actions": ["go on"], "artifacts": [],
    "errors": [], "retry_count": 0, "updated_at": f"2026-03-01T12:00:0{cycle}Z",
}
pathlib.Path(os.environ["HOLDFAST_CHECKPOINT"]).write_text(json.dumps(document))
witness = os.getppid()
gateway = int(re.search(r"PPid:\\s+(\\d+)", pathlib.Path(f"/proc/{witness}/status").read_text())[1])
doomed = {"none": [], "gateway": [gateway], "all": [witness, gateway, os.getpid()]}[sys.argv[1]]
for pid in doomed if cycle == 1 else []:
    os.kill(pid, signal.SIGKILL)
"""


def settings(kills: str) -> dict[str, Any]:
    agent = {"command": [sys.executable, "-c", COMMAND, kills], "stdin": "json", "run_timeout_s": 60}
    return {"agents": {"coder": agent}, "wakes": {"delay_min_s": 0.2, "delay_max_s": 0.2}}


def heard(one: GatewayHome) -> list[CommandInput]:
    return [msgspec.json.decode(line, type=CommandInput) for line in one.world("heard")]


def answers(one: GatewayHome) -> list[str]:
    told = one.ask("sessions.transcript", sessionKey="coder", after=0)["messages"]
    return [message["text"] for message in told if message["role"] == "agent"]


@pytest.mark.parametrize("kills", ["gateway", "all"])
def test_a_command_that_saved_its_checkpoint_goes_on_after_a_kill_without_a_review(
    tmp_path: Path, kills: str
) -> None:
    with gateway_home(tmp_path / "home", settings=settings(kills)) as one:
        one.until_ready()
        one.ask("chat.send", sessionKey="coder", message="Tides?", idempotencyKey="1")
        one.wait_for(lambda: answers(one) == ["done"], "it was not answered")
        reviews = one.ask("reviews.list")["reviews"]

        assert reviews == []
        assert [turn.packet and turn.packet.resume.current_step for turn in heard(one)] == [
            None,
            "step 1",
            "step 2",
        ]


def test_two_gateways_wake_a_command_once(tmp_path: Path, postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    world = tmp_path / "world"
    with (
        gateway_home(tmp_path / "a", settings=settings("none"), store=url, world=world) as one,
        gateway_home(tmp_path / "b", settings=settings("none"), store=url, world=world) as other,
    ):
        one.until_ready()
        other.until_ready()
        one.ask("chat.send", sessionKey="coder", message="Tides?", idempotencyKey="1")
        one.wait_for(lambda: answers(one) == ["done"], "it was not answered")

        assert len(heard(other)) == 3
        assert answers(other) == ["done"]
