"""Seven agents, twelve schedules and conversations in flight on two channels, interrupted in every way.

HOLDFAST_RESTARTS=500 interrupts so often on each database; HOLDFAST_SEED=… has the same order again.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from holdfast import app
from holdfast.channels.webhook import SIGNATURE_HEADER, sign, verify
from holdfast.core.checkpoint import CheckpointDocument, decode_seed
from holdfast.core.clock import SystemClock
from holdfast.core.ids import MessageId, TaskId
from holdfast.core.manifest import Restart
from holdfast.core.message import Message, Role
from holdfast.core.step import ArtifactState
from holdfast.core.transitions import CheckpointStatus, DeliveryStatus, MessageStatus, RestartStatus
from holdfast.store import Store, Tx
from holdfast.store.rows.conversation import delivery_from_row, message_from_row
from holdfast.store.rows.work import checkpoint_from_row
from holdfast.store.verify import scan
from tests.crash.invariants import assert_ledger_is_whole
from tests.gateway.gateway_home import PATIENCE_S, GatewayHome, gateway_home
from tests.gateway.noting_agents import STEPS, left_for
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

AGENTS = 7
SCHEDULES = 12
SESSIONS = ("main", "group")
RESTARTS = int(os.environ.get("HOLDFAST_RESTARTS") or 0)
UNAVAILABLE = 503
PEERS = ("ada", "group-7")
# Whose the peers are: two accounts at the other end may know the same peer.
ACCOUNT = "team-sea"
SECRET = b"0123456789abcdef0123456789abcdef"
# In a row: one more, and the supervisor would hold the resumes until a person has looked.
MAX_CRASHES = 4
# Each of the ways once, and on a server a restart and both kinds of kill, for how a restart is asked for has
# nothing to do with it; `make soak` interrupts it by chance, too, and more often.
OF_SQLITE, OF_POSTGRES = RESTARTS or 5, RESTARTS or 3


def settings(receiver: WebhookReceiver) -> dict[str, Any]:
    return {
        "channels": {
            "hooks": {"kind": "webhook", "secretFile": "hooks.secret", "url": receiver.url, "agent": "a0"}
        },
        "agents": {
            f"a{number}": {"callable": "tests.gateway.noting_agents:gardener"} for number in range(AGENTS)
        },
        "schedules": {
            f"s{number}": {"cron": "* * * * *", "agent": f"a{number % AGENTS}", "prompt": f"round {number}"}
            for number in range(SCHEDULES)
        },
        "gateway": {"restart": {"drainTimeoutS": 20, "readinessGate": True}},
    }


class WebhookReceiver:
    """The other end of the webhook: keeps every answer, and its key, which tells one that came twice."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        got = self.got

        class Ear(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                verify("hooks", [SECRET], self.headers[SIGNATURE_HEADER], body, datetime.now(UTC))  # noqa: TID251 - a real one
                got.append((self.headers["Idempotency-Key"], json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Ear)
        self.url = f"http://127.0.0.1:{self._server.server_port}/answers"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> WebhookReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class SteadyPoster:
    """Posts at a steady rate, and sends again with the same id what was not acknowledged."""

    def __init__(self, one: GatewayHome, seed: int) -> None:
        self._gateway = one
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.posted: dict[str, list[str]] = defaultdict(list)
        self.problem: BaseException | None = None

    def __enter__(self) -> SteadyPoster:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.wait(0.03):
                number += 1
                if number % 2:
                    agent = self._random.randrange(AGENTS)
                    key = f"agent:a{agent}:{self._random.choice(SESSIONS)}"
                    self._gateway.ask(
                        "chat.send", sessionKey=key, message=f"m{number}", idempotencyKey=f"id-{number}"
                    )
                else:
                    peer = self._random.choice(PEERS)
                    key = f"agent:a0:hooks@{ACCOUNT}:{peer}"
                    said = {"messageId": f"id-{number}", "text": f"m{number}", "peer": peer}
                    self._post({**said, "accountId": ACCOUNT})
                self.posted[key].append(f"m{number}")
        except BaseException as error:  # noqa: BLE001 - raised where the test looks
            self.problem = error

    def _post(self, body: dict[str, Any]) -> None:
        """Until it is acknowledged: with the same id, as every webhook does."""
        content = json.dumps(body).encode()
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            headers = {
                "Content-Type": "application/json",
                SIGNATURE_HEADER: sign(SECRET, content, datetime.now(UTC)),  # noqa: TID251 - a real one
            }
            request = Request(f"{self._gateway.url}/channels/hooks", data=content, headers=headers)
            try:
                with urlopen(request, timeout=PATIENCE_S) as answer:
                    assert answer.status == 202
                    return
            except (OSError, HTTPException) as error:
                # Refused only while the supervisor itself is dead; unavailable while the ledger is opened.
                is_wrong = isinstance(error, HTTPError) and error.code != UNAVAILABLE
                if is_wrong or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.02)


def test_every_way_to_interrupt_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    interrupt(tmp_path / "home", None, OF_SQLITE)


def test_the_same_on_a_server(tmp_path: Path, postgres_server: PostgresServer) -> None:
    interrupt(tmp_path / "home", postgres_server.create_database(), OF_POSTGRES)


def interrupt(home: Path, store: str | None, restarts: int) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.randrange(10**6))
    print(f"HOLDFAST_SEED={seed}")
    order = random.Random(seed)
    (home / "world").mkdir(parents=True)
    home.chmod(0o700)
    secret = home / "hooks.secret"
    secret.touch(mode=0o600)
    secret.write_bytes(SECRET)
    with WebhookReceiver() as receiver, gateway_home(home, settings=settings(receiver), store=store) as one:
        boot = one.until_ready()["bootId"]
        ways = [one.restart_by_rpc, one.kill_gateway, one.kill_both]
        ways += [one.restart_by_signal, one.restart_by_settings]
        crashes = 0
        with SteadyPoster(one, seed) as client:
            for number in range(restarts):
                way = ways[number] if number < len(ways) else order.choice(ways)
                if way == one.kill_gateway and crashes == MAX_CRASHES:
                    way = one.restart_by_rpc
                crashes = crashes + 1 if way == one.kill_gateway else 0
                time.sleep(order.uniform(0.0, 0.6))  # when it strikes, not what we wait for
                way()
                boot = one.until_ready(unless_boot=boot)["bootId"]
        # No schedule may fire between the moment at which all is quiet and the stop.
        one.settings["schedules"] = {}
        one.restart_by_settings()
        one.until_ready(unless_boot=boot)
        until_quiet(one)
        url = store or f"sqlite:///{home / 'ledger.db'}"
        opened = app.open_store(url, clock=SystemClock())
        try:
            one.wait_for(lambda: has_delivered(opened), "not everything was delivered")
            assert one.stop() == 0
            check(opened, home, client.posted)
            check_answers(opened, receiver)
        finally:
            opened.close()


def until_quiet(one: GatewayHome) -> None:
    """However much has gathered, as long as it becomes less: more is asked than one agent can answer."""
    left = owed(one)
    while left:
        one.wait_for(lambda: owed(one) < left, f"of {left} messages not one was answered")  # noqa: B023 - called at once
        left = owed(one)


def owed(one: GatewayHome) -> int:
    """How many messages wait, and are being answered."""
    sessions = one.ask("sessions.page", limit=200)["sessions"]
    return sum(session.get("queued", 0) + (session["status"] != "idle") for session in sessions)


def has_delivered(store: Store) -> bool:
    owed = store.read_now(
        lambda tx: [delivery_from_row(row, tx.sealing) for row in scan(tx, "deliveries", 1)]
    )
    return all(one.status is DeliveryStatus.DELIVERED for one in owed)


def check(store: Store, home: Path, posted: dict[str, list[str]]) -> None:
    """From the ledger and from the world, not from the memory of a process."""
    messages = store.read_now(
        lambda tx: [message_from_row(row, tx.sealing) for row in scan(tx, "messages", 1)]
    )
    by_session: dict[str, list[Message]] = defaultdict(list)
    for message in sorted(messages, key=lambda one: one.position):
        by_session[message.session_key].append(message)
    for key, texts in posted.items():
        check_session(by_session[key], texts)
    done = [line for path in (home / "world").iterdir() for line in path.read_text().splitlines()]
    assert [line for line, times in Counter(done).items() if times > 1] == []
    asked = [one for one in messages if one.role is Role.USER and one.status is MessageStatus.ANSWERED]
    assert len(done) == len(asked) * STEPS
    check_accounts(messages)
    message_of = {one.task_id: one.id for one in asked if one.task_id is not None}
    resumed = store.read_now(lambda tx: check_resumes(tx, message_of))
    store.read_now(lambda tx: check_artifacts(tx, message_of))
    restarts = store.read_now(lambda tx: tx.restarts.page(1000))
    check_manifests(restarts)
    assert {one.status for one in restarts} <= {RestartStatus.RECOVERED, RestartStatus.DRAINED}
    assert_ledger_is_whole(store)
    print(f"{len(asked)} messages answered, {len(restarts)} restarts, {resumed} runs resumed")


def check_answers(store: Store, receiver: WebhookReceiver) -> None:
    """At the other end of the webhook: every answer, in order for each peer, and no notice twice."""
    owed = store.read_now(
        lambda tx: [delivery_from_row(row, tx.sealing) for row in scan(tx, "deliveries", 1)]
    )
    hooked = {one.idempotency_key: one for one in owed if one.origin and one.origin.channel == "hooks"}
    assert {one.status for one in hooked.values()} == {DeliveryStatus.DELIVERED}
    assert {one.origin.account_id for one in hooked.values() if one.origin} == {ACCOUNT}
    first: dict[str, dict[str, Any]] = {}
    for key, body in receiver.got:
        assert first.setdefault(key, body) == body
    assert first.keys() == hooked.keys()
    assert {body["accountId"] for body in first.values()} == {ACCOUNT}
    for peer in PEERS:
        texts = [body["text"] for body in first.values() if body["peer"] == peer]
        answers = [int(text[1:].partition(":")[0]) for text in texts if text.endswith("beds")]
        assert answers == sorted(answers)
    notices = [key for key in first if key.startswith("notice:")]
    print(
        f"{len(first)} letters, {len(notices)} of them notices, {len(receiver.got) - len(first)} sent again"
    )


def check_session(found: list[Message], texts: list[str]) -> None:
    users = [one for one in found if one.role is Role.USER and one.channel != "cron"]
    assert [one.text for one in users] == texts
    assert {one.status for one in users} <= {MessageStatus.ANSWERED}
    replies = [one for one in found if one.role is Role.AGENT]
    assert [one.reply_to for one in replies] == [one.id for one in found if one.role is Role.USER]
    by_id = {one.id: one for one in found}
    for reply in replies:
        assert reply.reply_to is not None
        assert reply.text == f"{by_id[reply.reply_to].text}: {STEPS} beds"


def check_accounts(messages: list[Message]) -> None:
    """What came through the webhook has its account in the transcript, and so has each word of the answer."""
    hooked = [one for one in messages if one.channel == "hooks"]
    assert {one.role for one in hooked} >= {Role.USER, Role.AGENT}
    assert {one.account_id for one in hooked} == {ACCOUNT}
    assert {one.origin.account_id for one in hooked if one.origin is not None} == {ACCOUNT}


def check_manifests(restarts: list[Restart]) -> None:
    """A conversation that a restart cut short is listed with the session of its account and with its peer."""
    active = [one for restart in restarts for one in restart.manifest.active_sessions]
    hooked = {(one.key, one.channel_target) for one in active if one.channel == "hooks"}
    assert hooked <= {(f"agent:a0:hooks@{ACCOUNT}:{peer}", peer) for peer in PEERS}
    assert hooked != set()


def check_artifacts(tx: Tx, message_of: dict[TaskId, MessageId]) -> None:
    """What every task has left at its end, whichever gateway carried it to there."""
    left = tx.journal.artifacts(list(message_of))
    for task_id, message_id in message_of.items():
        assert {one.name: one.sha256 for one in left[task_id]} == left_for(message_id)


def check_resumes(tx: Tx, message_of: dict[TaskId, MessageId]) -> int:
    """Each interruption has exactly one follow-up, with the same goal, place, artifacts and routing."""
    count, artifacts = 0, 0
    for row in scan(tx, "checkpoints", 1):
        checkpoint = checkpoint_from_row(row)
        if checkpoint.status is None:
            continue
        assert checkpoint.status is CheckpointStatus.RESUMED, checkpoint
        assert checkpoint.resumed_run_id is not None
        run = tx.runs.get(checkpoint.resumed_run_id)
        task = tx.tasks.get(run.task_id)
        document = checkpoint.read_document()
        assert run.seed is not None
        seed = decode_seed(tx.blobs.open(run.seed))
        assert (seed.goal, seed.cursor) == (document.goal, document.cursor)
        assert run.resumes_run_id == checkpoint.run_id
        assert document.origin == task.origin
        is_hooked = task.origin is not None and task.origin.channel == "hooks"
        assert document.account_id == (ACCOUNT if is_hooked else None)
        check_left(document, message_of[task.id])
        artifacts += len(document.artifacts)
        found = [(one.name, one.state, one.expected_sha256, one.found_sha256) for one in seed.artifacts]
        assert found == [(one.name, ArtifactState.SAME, one.sha256, one.sha256) for one in document.artifacts]
        count += 1
    # Else all of it compares nothing with nothing.
    assert artifacts > 0
    return count


def check_left(document: CheckpointDocument, message_id: MessageId) -> None:
    """The checkpoint has what the agent had left by then: something for each bed that is dug, and at most
    for the one that is being dug."""
    wanted = left_for(message_id)
    left = {one.name: one.sha256 for one in document.artifacts}
    assert left.items() <= wanted.items()
    done = [] if document.plan is None else [one.id for one in document.plan.items if one.is_done]
    # The order comes before the plan, and a bed before the next.
    begun = list(wanted)[: len(left)]
    assert sorted(left) == sorted(begun)
    assert len(left) - 1 - len(done) in ((0, 1) if document.plan is not None else (-1, 0))
