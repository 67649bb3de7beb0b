"""An effect that is done while the disk is full: kept by the gateway that lives, written when there is space,
and put before a person only if that gateway dies. (On a server: the
file of the same name in tests/engine/program.)"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.invariants import assert_ledger_is_whole
from tests.gateway.gateway_home import GatewayHome, gateway_home, opened_ledger
from tests.gateway.test_disk_full import full_disk, needs_root, small_disk

pytestmark = [pytest.mark.slow, needs_root]

# No service can be asked about either of them; the second one writes on the disk that is full.
COMMAND = """
import os, pathlib, time
world = pathlib.Path(os.environ["HOLDFAST_HOME"]) / "world"
with (world / "posted").open("a") as file:
    file.write("hello\\n")
while not (world / "post.open").exists():
    time.sleep(0.02)
print("posted hello")
"""
SETTINGS: dict[str, Any] = {
    "agents": {
        "python": {"callable": "tests.gateway.hostile_agents:posts"},
        "command": {"command": [sys.executable, "-c", COMMAND]},
    }
}


@contextlib.contextmanager
def posting(home: Path, agent: str) -> Iterator[GatewayHome]:
    """An effect is in flight, and ends when the door opens."""
    with small_disk(home), gateway_home(home, settings=SETTINGS, world=home.with_name("world")) as one:
        one.until_ready()
        one.ask("chat.send", sessionKey=agent, message="hello", idempotencyKey="1")
        one.wait_for(lambda: one.world("posted") == ["hello"], "nothing was posted")
        yield one


def land(one: GatewayHome, agent: str) -> None:
    """It happens while the ledger cannot be written."""
    one.wait_for(lambda: not one.call("gateway.status")["isReady"], "it says that it is ready")
    one.open_door("post")
    if agent == "python":
        one.wait_for(lambda: "cannot write the outcome of an effect" in one.log(), "it keeps nothing")
    else:  # the witness of the command has begun to write its receipt, which does not fit
        one.wait_for(lambda: any((one.home / "receipts").glob("*.new")), "no receipt was tried")


@pytest.mark.parametrize("agent", ["python", "command"])
def test_what_happened_while_the_disk_was_full_is_written_when_there_is_space(
    tmp_path: Path, agent: str
) -> None:
    with posting(tmp_path / "home", agent) as one:
        boot = one.ask("gateway.status")["bootId"]
        with full_disk(one):
            land(one, agent)
        one.wait_for(lambda: answers(one, agent) == ["posted hello"], "it was not answered")

        assert one.ask("reviews.list")["reviews"] == []
        assert one.ask("gateway.status")["bootId"] == boot
        assert one.stop() == 0
        assert one.world("posted") == ["hello"]
        with opened_ledger(one) as ledger:
            assert_ledger_is_whole(ledger, is_at_rest=True)


def test_a_gateway_that_is_killed_while_it_keeps_an_outcome_leaves_it_to_a_person(
    tmp_path: Path,
) -> None:
    with posting(tmp_path / "home", "python") as one:
        with full_disk(one):
            land(one, "python")
            one.kill_gateway()
        one.wait_for(lambda: one.ask("reviews.list")["reviews"], "no run asks for a review")

        (review,) = one.ask("reviews.list")["reviews"]
        assert (review["effect"]["status"], one.world("posted")) == ("unknown", ["hello"])
        assert answers(one, "python") == []
        assert one.stop() == 0


def answers(one: GatewayHome, agent: str) -> list[str]:
    told = one.ask("sessions.transcript", sessionKey=agent, after=0)["messages"]
    return [message["text"] for message in told if message["role"] == "agent"]
