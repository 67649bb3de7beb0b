"""Clients that post over HTTP while the gateway restarts, crashes, drains: no request is refused, nothing is
lost or doubled, and each session keeps its order.

HOLDFAST_SEED=… has the same order again; HOLDFAST_MESSAGES=100000 queues so many during a drain.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.core.message import Message, Role
from holdfast.core.transitions import MessageStatus
from holdfast.store.rows.conversation import message_from_row
from holdfast.store.verify import scan
from tests.crash.invariants import assert_ledger_is_whole
from tests.gateway.gateway_home import PATIENCE_S, GatewayHome, gateway_home, opened_ledger
from tests.gateway.test_stubborn import Asked

pytestmark = pytest.mark.slow

SESSIONS = 20
EVERY_S = 0.02
QUEUED = int(os.environ.get("HOLDFAST_MESSAGES") or 200)
# So many after one another, and those without a word of warning; more of them in `make soak`.
RESTARTS, CRASHES = (3, 2) if os.environ.get("HOLDFAST_MESSAGES") else (1, 1)


def settings(*agents: str) -> dict[str, Any]:
    return {
        "agents": {name: {"callable": f"tests.gateway.hostile_agents:{name}"} for name in agents},
        # Each client is on this machine, and so they are one caller; the rate is not what is tested here.
        "gateway": {"rateLimitPerS": 100_000, "restart": {"drainTimeoutS": 600}},
    }


class Poster:
    """A client of `POST /rpc/<method>`. It sends again, with the same key, what was not acknowledged."""

    def __init__(self, one: GatewayHome, *, keeps_alive: bool) -> None:
        place = urlsplit(one.url)
        assert place.hostname is not None
        self._place = (place.hostname, place.port)
        self._token = (one.home / "token").read_text().strip()
        self._keeps_alive = keeps_alive
        self._connection: http.client.HTTPConnection | None = None
        self.refused = 0
        self.broken = 0
        self.not_yet = 0

    def post(self, method: str, **params: Any) -> Any:
        """Until it is acknowledged. A connection that is refused is what must not happen, and is raised."""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            try:
                status, answer = self._post(method, params)
            except ConnectionRefusedError:
                self.refused += 1
                raise
            except (OSError, http.client.HTTPException):
                self.broken += 1
                self.close()
                continue
            if status == 200:
                return answer
            assert status == 503, (status, answer)
            self.not_yet += 1
            time.sleep(EVERY_S)
        raise AssertionError(f"{method} was not acknowledged")

    def _post(self, method: str, params: dict[str, Any]) -> tuple[int, Any]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._place, timeout=PATIENCE_S)
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        self._connection.request("POST", f"/rpc/{method}", json.dumps(params), headers)
        with self._connection.getresponse() as response:
            found = response.status, json.loads(response.read())
        if not self._keeps_alive:
            self.close()
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Steady:
    """Posts at a steady rate to its own session, in a thread of its own."""

    def __init__(self, one: GatewayHome, session: str, *, keeps_alive: bool) -> None:
        self.key = f"agent:echo:{session}"
        self.poster = Poster(one, keeps_alive=keeps_alive)
        self.texts: list[str] = []
        self.problem: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.poster.close()

    def _run(self) -> None:
        try:
            while not self._stop.wait(EVERY_S):
                text = f"m{len(self.texts)}"
                self.poster.post("chat.send", sessionKey=self.key, message=text, idempotencyKey=text)
                self.texts.append(text)
        except BaseException as error:  # noqa: BLE001 - raised where the test looks
            self.problem = error


def test_clients_at_a_steady_rate_notice_no_restart_and_no_crash(tmp_path: Path) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.randrange(10**6))
    print(f"HOLDFAST_SEED={seed}")
    order = random.Random(seed)
    with gateway_home(tmp_path / "home", settings=settings("echo")) as one:
        boot = one.until_ready()["bootId"]
        ways = [one.restart_by_rpc, one.restart_by_signal, one.restart_by_settings]
        plan = [ways[number % len(ways)] for number in range(RESTARTS)] + [one.kill_gateway] * CRASHES
        order.shuffle(plan)
        clients = [
            Steady(one, "fresh", keeps_alive=False),
            Steady(one, "kept", keeps_alive=True),
        ]
        with clients[0], clients[1]:
            for way in plan:
                time.sleep(order.uniform(0.0, 0.5))  # when it strikes, not what we wait for
                way()
                boot = one.until_ready(unless_boot=boot)["bootId"]
        one.wait_for(lambda: one.is_quiet(), "not everything was answered")
        assert one.stop() == 0

    for client in clients:
        assert client.problem is None, client.problem
        assert client.poster.refused == 0
    check(one, {client.key: client.texts for client in clients})
    for client in clients:
        poster = client.poster
        print(
            f"{client.key}: {len(client.texts)} posted, {poster.broken} connections broken,"
            f" {poster.not_yet} times not yet"
        )


def test_messages_that_come_during_a_drain_are_kept_and_answered_in_order(tmp_path: Path) -> None:
    keys = [f"agent:echo:s{number}" for number in range(SESSIONS)]
    with gateway_home(tmp_path / "home", settings=settings("echo", "sends")) as one:
        boot = one.until_ready()["bootId"]
        one.ask("chat.send", sessionKey="agent:sends:main", message="hold", idempotencyKey="hold")
        one.wait_for(lambda: one.world("sent") == ["hold"], "no effect is in flight")
        posted: dict[str, list[str]] = defaultdict(list)
        with Asked(one) as asked:
            one.wait_for(lambda: one.ask("gateway.status")["status"] == "draining", "it does not drain")
            began_at = time.monotonic()
            post_all(one, keys, posted)
            took_s = time.monotonic() - began_at
            status = one.ask("gateway.status")
            assert (status["status"], status["bootId"]) == ("draining", boot)
            assert asked.answer is None
            one.open_door("send")
        assert asked.answer is not None
        assert asked.answer["isAccepted"], asked.answer
        one.until_ready(unless_boot=boot)
        began_at = time.monotonic()
        one.wait_for(
            lambda: one.is_quiet(), "not everything was answered", patience_s=PATIENCE_S + QUEUED / 20
        )
        answered_s = time.monotonic() - began_at
        assert one.stop() == 0

    assert sum(map(len, posted.values())) == QUEUED
    check(one, posted)
    print(f"{QUEUED} messages queued in {took_s:.1f} s, answered in {answered_s:.1f} s")


def post_all(one: GatewayHome, keys: list[str], posted: dict[str, list[str]]) -> None:
    """Each session by one client after another message; while they do, a client reads."""
    share = [range(number, QUEUED, len(keys)) for number in range(len(keys))]

    def post(key: str, numbers: range) -> None:
        poster = Poster(one, keeps_alive=True)
        for number in numbers:
            text = f"m{number}"
            answer = poster.post("chat.send", sessionKey=key, message=text, idempotencyKey=text)
            assert answer["status"] == "queued", answer
            posted[key].append(text)
        poster.close()
        assert (poster.refused, poster.broken, poster.not_yet) == (0, 0, 0)

    with ThreadPoolExecutor(len(keys)) as pool:
        posting = [pool.submit(post, key, numbers) for key, numbers in zip(keys, share, strict=True)]
        while not all(future.done() for future in posting):
            assert one.call("gateway.status")["status"] == "draining"
            assert len(one.call("sessions.list")["sessions"]) <= len(keys) + 1
        for future in posting:
            future.result()


def check(one: GatewayHome, posted: dict[str, list[str]]) -> None:
    """From the ledger: each message once, at its place, answered once."""
    with opened_ledger(one) as ledger:
        assert_ledger_is_whole(ledger, is_at_rest=True)
        messages = ledger.read_now(
            lambda tx: [message_from_row(row, tx.sealing) for row in scan(tx, "messages", 1)]
        )
    by_session: dict[str, list[Message]] = defaultdict(list)
    for message in sorted(messages, key=lambda found: found.position):
        by_session[message.session_key].append(message)
    for key, texts in posted.items():
        users = [found for found in by_session[key] if found.role is Role.USER]
        replies = [found for found in by_session[key] if found.role is Role.AGENT]
        assert [found.text for found in users] == texts
        assert Counter(found.status for found in users) == {MessageStatus.ANSWERED: len(texts)}
        assert [found.reply_to for found in replies] == [found.id for found in users]
        assert [found.text for found in replies] == texts
