"""The doors of a real gateway: `holdfast up` in a process of its own, restarted under its clients."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.conftest import quick_directory
from tests.doors.calls import PROGRAM, environment, run_process

pytestmark = pytest.mark.slow

SETTINGS = """
[gateway]
port = 0
rate_limit_per_s = 10000

[agents.echo]
callable = "echo_agent:answer"
"""
AGENT = """
def answer(text: str) -> str:
    return f"you said {text}"
"""


class Up:
    """One `holdfast up`, and how to reach it."""

    def __init__(self, home: Path, up: subprocess.Popen[str]) -> None:
        self.home = home
        self.up = up
        assert up.stdout is not None
        self.facts: dict[str, Any] = msgspec.json.decode(up.stdout.readline())
        self.url = str(self.facts["urls"][0])

    def post(self, http: httpx.Client, method: str, params: object) -> httpx.Response:
        token = (self.home / "token").read_text(encoding="utf-8").strip()
        return http.post(
            f"{self.url}/rpc/{method}", json=params, headers={"authorization": f"Bearer {token}"}
        )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with quick_directory(tmp_path) as directory:
        home = directory / "home"
        home.mkdir(mode=0o700)
        (home / "holdfast.toml").write_text(SETTINGS, encoding="utf-8")
        (home / "echo_agent.py").write_text(AGENT, encoding="utf-8")
        yield home


@pytest.fixture
def running(home: Path, tmp_path: Path) -> Iterator[Up]:
    with (tmp_path / "log").open("w") as log:
        up = subprocess.Popen(
            [*PROGRAM, "up", "--json"],
            env=environment(home),
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            running = Up(home, up)
            # Answered by the gateway itself, so it has a token by then.
            assert run_process(home, "gateway", "status").status == 0
            yield running
        finally:
            up.send_signal(signal.SIGTERM)
            try:
                up.wait(60)
            finally:
                up.kill()
                assert up.stdout is not None
                up.stdout.close()


def test_commands_speak_to_a_running_gateway_and_survive_its_restart(running: Up) -> None:
    home = running.home

    answered = run_process(home, "chat", "echo", "-m", "hello")
    before = run_process(home, "gateway", "status", "--json").json
    restarted = run_process(home, "gateway", "restart", "--reason", "a test")
    after = run_process(home, "gateway", "status", "--json").json
    again = run_process(home, "chat", "echo", "-m", "still there?")
    told = run_process(home, "gateway", "restarts", "--json").json
    screen = run_process(home, "status")

    assert (answered.status, answered.out) == (0, "you said hello\n")
    assert restarted.status == 0, restarted.err
    assert before["boot_id"] != after["boot_id"]
    assert after["last_restart"]["reason"] == "a test"
    assert again.out == "you said still there?\n"
    assert [one["reason"] for one in told["restarts"]] == ["a test"]
    assert "serving" in screen.out


def test_messages_that_are_posted_through_a_restart_are_neither_lost_nor_doubled(running: Up) -> None:
    """The client sends again, with the same key, when an accepted connection broke."""
    refused: list[str] = []

    def post_all() -> None:
        with httpx.Client(timeout=30, verify=False, trust_env=False) as http:
            for number in range(200):
                params = {"sessionKey": "echo", "message": f"{number}", "idempotencyKey": f"{number}"}
                while True:
                    try:
                        answer = running.post(http, "chat.send", params)
                    except httpx.ConnectError as error:
                        refused.append(str(error))
                        continue
                    except httpx.TransportError:
                        continue
                    if answer.status_code == 200:
                        break

    posting = threading.Thread(target=post_all)
    posting.start()
    restarted = run_process(running.home, "gateway", "restart", "--force")
    posting.join(120)

    last = run_process(running.home, "chat", "echo", "-m", "the end")
    with httpx.Client(timeout=30, verify=False, trust_env=False) as http:
        told = running.post(http, "chat.history", {"sessionKey": "echo", "after": 0, "limit": 500}).json()
    asked = [message["text"] for message in told["messages"] if message["role"] == "user"]
    answers = [message["text"] for message in told["messages"] if message["role"] == "agent"]
    assert restarted.status == 0, restarted.err
    assert last.status == 0
    assert refused == []
    assert asked == [*(str(number) for number in range(200)), "the end"]
    assert sorted(answers) == sorted(f"you said {text}" for text in asked)
