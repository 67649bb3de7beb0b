"""A command that dies with its gateway: begun again when a person says so, and told what is known of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.checkpoint import ResumeReason, decode_seed
from holdfast.runtimes.command import CommandInput
from tests.gateway.gateway_home import GatewayHome, gateway_home

pytestmark = pytest.mark.slow

ASKED = "Mend it.\nNow."
# The first time it kills its witness, the gateway and itself: it is not known how far it came.
COMMAND = """
import os, pathlib, re, signal, sys
place = pathlib.Path(os.environ["HOLDFAST_HOME"]) / "world"
number = len(list(place.glob("heard-*")))
(place / f"heard-{number}").write_bytes(sys.stdin.buffer.read())
if number == 0:
    witness = os.getppid()
    status = pathlib.Path(f"/proc/{witness}/status").read_text()
    gateway = int(re.search(r"PPid:\\s+(\\d+)", status)[1])
    for pid in (witness, gateway, os.getpid()):
        os.kill(pid, signal.SIGKILL)
print("done")
"""


@pytest.mark.parametrize("stdin", ["text", "json"])
def test_a_command_that_was_killed_is_told_so_when_it_is_begun_again(tmp_path: Path, stdin: str) -> None:
    agent = {"command": [sys.executable, "-c", COMMAND], "stdin": stdin}
    with gateway_home(tmp_path / "home", settings={"agents": {"coder": agent}}) as one:
        one.until_ready()
        one.ask("chat.send", sessionKey="coder", message=ASKED, idempotencyKey="1")
        one.wait_for(lambda: reviews(one), "no run asks for a review")
        (review,) = reviews(one)
        one.ask("reviews.resolve", effectId=review["effect"]["id"], decision="retry")
        one.wait_for(lambda: "done" in answers(one), "it was not answered")
        first, second = ((one.home / "world" / f"heard-{number}").read_text() for number in range(2))

    if stdin == "text":
        said, document, rest = second.split("\n", 2)
        assert first == ASKED
        assert said.startswith("[System] Resumed after an interruption (crash). ")
        assert rest == f"\n{ASKED}"
        seed = decode_seed(document.encode())
    else:
        before, after = (msgspec.json.decode(read, type=CommandInput) for read in (first, second))
        assert before.resumed is None
        assert before.message == after.message
        assert after.message.text == ASKED
        assert after.resumed is not None
        seed = after.resumed
    assert (seed.goal, seed.reason) == (ASKED, ResumeReason.CRASH)
    assert seed.previous_run_id.startswith("run_")


def reviews(one: GatewayHome) -> list[Any]:
    found: list[Any] = one.ask("reviews.list")["reviews"]
    return found


def answers(one: GatewayHome) -> list[str]:
    told = one.ask("sessions.transcript", sessionKey="coder", after=0)["messages"]
    return [message["text"] for message in told if message["role"] == "agent"]
