"""A real gateway and a real receiver, whose journal is the truth: each update arrives once, or is shown as
possibly sent; while the receiver is down or late, and while the gateway is killed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import app
from holdfast.core.clock import SystemClock
from holdfast.core.task import Origin
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.writes import NewRecord
from tests.channels.receiver import Answer, Receiver, Request, json_places
from tests.gateway.gateway_home import PATIENCE_S, GatewayHome, gateway_home

pytestmark = pytest.mark.slow

# Longer than a busy machine keeps an answer waiting, and short enough to be waited for.
TIMEOUT_S = 1.5
TASKS = {
    "sent": "hooks",
    "behind": "hooks",
    "noted": "alarm",
    "fresh": "hooks",
    "down": "down",
    "late": "hooks",
    "late-note": "alarm",
}


class Trouble:
    """The gateway, what it sends to, and a gate behind which the receiver keeps some messages waiting."""

    def __init__(self, one: GatewayHome, receiver: Receiver, down: Receiver, port: int) -> None:
        self.gateway = one
        self.receiver = receiver
        self.down = down
        self.port = port
        self.gates: dict[str, threading.Event] = {}
        receiver.answer = self._answer

    def _answer(self, request: Request) -> Answer:
        gate = next((gate for name, gate in self.gates.items() if f"“{name}”" in text_of(request)), None)
        if gate is not None:
            assert gate.wait(PATIENCE_S)
        return 200, {}, b"{}"

    def end(self, *names: str) -> None:
        """The transaction that ends the task owes the update."""
        for name in names:
            self.gateway.ask("producer.finish", runId=name, summary="as you wished")

    def came(self, name: str) -> list[Request]:
        """What the receiver wrote down, also of what it did not answer."""
        return [one for one in [*self.receiver.requests] if f"“{name}”" in text_of(one)]

    def until_came(self, *names: str, times: int = 1) -> None:
        self.gateway.wait_for(
            lambda: all(len(self.came(name)) >= times for name in names), f"{names} did not come"
        )

    def until_settled(self) -> None:
        self.gateway.wait_for(lambda: not self.listed("owed"), "something is still owed")

    def listed(self, which: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.gateway.ask("deliveries.list", which=which)["deliveries"]
        return found

    def failed(self, name: str) -> str | None:
        """The kind of failure that operators see of this update."""
        return next((one["kind"] for one in self.listed("failed") if f"“{name}”" in one["text"]), None)

    def kill(self) -> None:
        """The receiver answers what it holds once the gateway is dead."""
        boot = self.gateway.until_ready()["bootId"]
        self.gateway.kill_gateway()
        self.open_gates()
        self.gateway.until_ready(unless_boot=boot)

    def open_gates(self) -> None:
        for gate in self.gates.values():
            gate.set()


def text_of(request: Request) -> str:
    read = request.json
    return str(read.get("text") or read.get("message"))


def keys_of(requests: list[Request]) -> set[str]:
    return {one.headers["Idempotency-Key"] for one in requests}


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trouble]:
    home = tmp_path_factory.mktemp("home") / "home"
    home.mkdir(mode=0o700)
    secret = home / "hooks.secret"
    secret.touch(mode=0o600)
    secret.write_text("0123456789abcdef0123456789abcdef")
    with Receiver().listening() as receiver, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        hook = {"kind": "webhook", "secretFile": "hooks.secret", "timeoutS": TIMEOUT_S}
        channels = {
            "hooks": hook | {"url": receiver.url},
            "down": hook | {"url": f"http://127.0.0.1:{port}/hook"},
            "alarm": {"kind": "apprise", "urls": json_places(receiver, "alarm"), "timeoutS": TIMEOUT_S},
        }
        taken.close()
        record_tasks(home)
        with gateway_home(home, settings={"channels": channels}) as one:
            one.until_ready()
            yield Trouble(one, receiver, Receiver(), port)


def record_tasks(home: Path) -> None:
    with _opened(home) as producers:
        for name, channel in TASKS.items():
            new = NewRecord(
                name="errand",
                goal=name,
                runtime="subagent",
                owner="ada",
                run_id=name,
                origin=Origin(channel=channel, peer="ada"),
            )
            asyncio.run(producers.create(new, is_running=True))


@contextmanager
def _opened(home: Path) -> Iterator[Producers]:
    store = app.open_store(f"sqlite:///{home / 'ledger.db'}", clock=SystemClock())
    try:
        yield Producers(store, SystemClock())
    finally:
        store.close()


def test_killed_before_in_and_after_the_send_it_delivers_once_or_shows_a_doubt(trouble: Trouble) -> None:
    # "behind" goes to the same person as "sent", and so waits for it: it is killed before its send.
    trouble.gates = {"sent": threading.Event(), "noted": threading.Event()}
    trouble.end("sent", "behind", "noted")
    trouble.until_came("sent", "noted")
    assert trouble.came("behind") == []

    trouble.kill()
    trouble.until_settled()
    # The next life has looked at what is owed when something fresh arrives.
    trouble.kill()
    trouble.end("fresh")
    trouble.until_came("fresh")
    trouble.until_settled()

    assert len(keys_of(trouble.came("sent"))) == 1
    accepted = Counter(text_of(one) for one in trouble.receiver.accepted.values() if "hook" in one.path)
    assert {text.split("”")[0].split("“")[1] for text in accepted} >= {"sent", "behind", "fresh"}
    assert set(accepted.values()) == {1}
    assert trouble.failed("sent") is trouble.failed("behind") is None
    # Without keys it is not sent again, and a person is shown that it may have arrived.
    assert len(trouble.came("noted")) == 1
    assert trouble.failed("noted") == "in_doubt"


def test_a_receiver_that_is_down_gets_it_once_when_it_comes_back(trouble: Trouble) -> None:
    trouble.end("down")
    trouble.gateway.wait_for(
        lambda: any(one["attempts"] and one["why"] for one in trouble.listed("owed")), "it is not tried"
    )
    (owed,) = trouble.listed("owed")

    with trouble.down.listening(trouble.port):
        trouble.until_settled()

    assert owed["kind"] == "not_sent", "it certainly did not arrive"
    assert len(trouble.down.requests) == 1
    assert trouble.failed("down") is None


def test_a_receiver_that_answers_after_the_timeout_has_it_once_or_a_doubt_is_shown(trouble: Trouble) -> None:
    trouble.gates = {"late": threading.Event(), "late-note": threading.Event()}
    trouble.end("late", "late-note")

    trouble.until_came("late", times=2)  # it is sent again with the same key
    trouble.gateway.wait_for(lambda: trouble.failed("late-note") is not None, "its doubt is not shown")
    trouble.open_gates()
    trouble.until_settled()

    (key,) = keys_of(trouble.came("late"))
    assert key in trouble.receiver.accepted
    assert trouble.failed("late") is None
    assert trouble.failed("late-note") == "in_doubt"
    assert len(trouble.came("late-note")) == 1
