"""Chat commands through a real gateway: from a webhook, and from `holdfast chat`."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.request import Request, urlopen

import pytest

from holdfast.channels.webhook import SIGNATURE_HEADER, sign
from tests.channels.receiver import Receiver
from tests.gateway.gateway_home import PATIENCE_S, Cli, GatewayHome, gateway_home

pytestmark = pytest.mark.slow

SECRET = b"0123456789abcdef0123456789abcdef"


class Phone:
    """A person at the other end of the webhook."""

    def __init__(self, one: GatewayHome, receiver: Receiver) -> None:
        self.gateway = one
        self._receiver = receiver
        self._ids = itertools.count(1)

    def say(self, text: str, *, peer: str = "ada", session: str | None = None) -> str:
        """Post it; returns the phone's own id of the message."""
        message_id = f"phone-{next(self._ids)}"
        said = {"messageId": message_id, "text": text, "peer": peer}
        body = json.dumps(said if session is None else said | {"session": session}).encode()
        now = datetime.now(UTC)  # noqa: TID251 - a real one
        headers = {"Content-Type": "application/json", SIGNATURE_HEADER: sign(SECRET, body, now)}
        request = Request(f"{self.gateway.url}/channels/hooks", data=body, headers=headers)
        with urlopen(request, timeout=PATIENCE_S):
            return message_id

    def hears(self, message_id: str) -> str:
        """The first answer to the message, by the phone's own id."""

        def answers() -> list[str]:
            said = [one.json for one in [*self._receiver.requests]]
            return [str(one["text"]) for one in said if one.get("replyTo") == message_id]

        self.gateway.wait_for(answers, f"no answer to {message_id}")
        return answers()[0]

    def ask(self, text: str, **options: str) -> str:
        return self.hears(self.say(text, **options))

    def until_says(self, text: str, wanted: str) -> None:
        self.gateway.wait_for(lambda: wanted in self.ask(text), f"{text} does not say {wanted}")


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    home = tmp_path_factory.mktemp("home") / "home"
    home.mkdir(mode=0o700)
    secret = home / "hooks.secret"
    secret.touch(mode=0o600)
    secret.write_bytes(SECRET)
    with Receiver().listening() as receiver:
        channel = {"kind": "webhook", "secretFile": "hooks.secret", "url": receiver.url, "agent": "patient"}
        settings = {
            "agents": {
                "patient": {"callable": "tests.chat.patient_agents:patient"},
                "clerk": {"command": [sys.executable, "-m", "holdfast", "sessions", "tasks", "--json"]},
            },
            "channels": {"hooks": channel},
        }
        with gateway_home(home, settings=settings) as one:
            one.until_ready()
            yield Phone(one, receiver)


def test_a_person_commands_her_session_from_the_webhook(phone: Phone) -> None:
    assert "/answer [QUESTION] TEXT" in phone.ask("/help")
    assert phone.ask("/status") == "[System] patient is idle."
    waiting = phone.say("wait for the tide")
    phone.until_says("/tasks", "1. 🟡 wait for the tide")
    assert "patient answers “wait for the tide” (waiting" in phone.ask("/status")

    assert "“wait for the tide”" in phone.ask("/stop")
    assert "was cancelled before it was answered" in phone.hears(waiting)
    asked = phone.say("ask me")
    assert "which colour?" in phone.hears(asked)
    assert phone.ask("/answer red") == "[System] Answered: which colour?"
    phone.gateway.wait_for(phone.gateway.is_quiet, "it does not answer")
    assert "A new conversation begins" in phone.ask("/new")


def test_a_stranger_in_a_shared_session_is_refused(phone: Phone) -> None:
    assert phone.ask("hello", session="team") == "you said hello"
    assert phone.ask("hello, too", peer="ben", session="team") == "you said hello, too"

    assert "was not carried out" in phone.ask("/tasks", peer="ben", session="team")
    assert "📋 Tasks" in phone.ask("/tasks", session="team")


def test_an_operator_commands_every_session_with_holdfast_chat(phone: Phone) -> None:
    cli = Cli(phone.gateway)
    phone.ask("good morning", peer="cleo")

    told = cli("chat", "agent:patient:hooks:cleo", "-m", "/status")
    board = cli("chat", "agent:patient:hooks:cleo", "--message", "/tasks")

    assert (told.status, told.out) == (0, "[System] patient is idle.\n")
    assert board.status == 0
    assert "Current session: " in board.out


def test_the_command_of_an_agent_sees_the_tasks_of_its_own_session(phone: Phone) -> None:
    cli, key = Cli(phone.gateway), "agent:clerk:main"
    for run_id, owner in (("own", key), ("other", "agent:clerk:other")):
        phone.gateway.ask(
            "producer.create",
            name="errand",
            goal=f"<b>{run_id}</b>",
            runtime="cli",
            owner=owner,
            runId=run_id,
        )

    told = cli("chat", key, "-m", "what do you do?")

    found = json.loads(told.out)
    assert (found["sessionKey"], found["line"]) == (key, "1 running · 1 queued")
    titles = {one["title"] for one in found["tasks"]}
    assert titles == {"what do you do?", "‹b›own‹/b›"}  # noqa: RUF001 - no tags
