"""A command agent is cancelled after its gateway was killed: the command ends, and no person is asked."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.tools.witness import ticks_of
from tests.gateway.gateway_home import Cli, GatewayHome, gateway_home, kill

pytestmark = pytest.mark.slow

# With a child of its own, which is in its group.
COMMAND = """
import os, pathlib, subprocess, time
world = pathlib.Path(os.environ["HOLDFAST_HOME"]) / "world"
child = subprocess.Popen(["/bin/sleep", "600"])
print("password: quiet harbour wall zzz", flush=True)  # so that its receipt is sealed
(world / "pids.new").write_text(f"{os.getpid()} {child.pid} {os.getppid()}")
(world / "pids.new").rename(world / "pids")
time.sleep(600)
"""
SETTINGS: dict[str, Any] = {"agents": {"coder": {"command": [sys.executable, "-c", COMMAND]}}}


def holdfast(one: GatewayHome, *arguments: str) -> Any:
    """As the operator says it in a shell."""
    done = Cli(one)(*arguments, "--json")
    assert done.status == 0, done.err
    return done.json


def task_of(one: GatewayHome) -> dict[str, Any]:
    (task,) = one.ask("ledger.list")["tasks"]
    found: dict[str, Any] = task
    return found


@pytest.mark.parametrize("how", ["while it is waited for", "while no gateway runs", "without a witness"])
def test_a_command_that_a_killed_gateway_left_ends_when_its_task_is_cancelled(
    tmp_path: Path, how: str
) -> None:
    with gateway_home(tmp_path / "home", settings=SETTINGS) as one:
        boot = one.until_ready()["bootId"]
        one.ask("chat.send", sessionKey="coder", message="mend it", idempotencyKey="1")
        one.wait_for(lambda: bool(one.world("pids")), "the command has not begun")
        *pids, witness = map(int, one.world("pids")[0].split())
        if how == "without a witness":
            os.kill(witness, signal.SIGSTOP)  # it must not see that the gateway ends
            one.kill_gateway()
            kill(witness)
            one.wait_for(lambda: len(one.ask("reviews.list")["reviews"]) == 1, "no person is asked")
            holdfast(one, "tasks", "cancel", task_of(one)["id"])
        elif how == "while no gateway runs":
            assert one.supervisor is not None
            gateway = one.pid_of_gateway()
            one.supervisor.kill()
            kill(gateway or 0)
            one.supervisor.wait()
            (task,) = holdfast(one, "tasks", "list")["tasks"]
            holdfast(one, "tasks", "cancel", task["id"])
            one.start()
        else:
            one.kill_gateway()
            one.until_ready(unless_boot=boot)
            one.wait_for(lambda: task_of(one)["status"] == "running", "its run is not resumed")
            holdfast(one, "tasks", "cancel", task_of(one)["id"])

        one.wait_for(lambda: all(ticks_of(pid) is None for pid in pids), "the command goes on")
        one.wait_for(lambda: task_of(one)["status"] == "cancelled", "its task goes on")
        one.wait_for(lambda: one.ask("reviews.list")["reviews"] == [], "a person is asked")
        (effect,) = holdfast(one, "tasks", "show", task_of(one)["id"])["effects"]
        assert effect["status"] == "failed"
        assert one.stop() == 0
