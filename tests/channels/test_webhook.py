"""Webhooks: signatures that hold, messages that are read strictly, answers that arrive or say why not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast.channels.contract import CannotTell, Channel, ChannelSender, Closing, Undeliverable
from holdfast.channels.webhook import SIGNATURE_HEADER, Webhook, read_inbound, sign, verify
from holdfast.core.delivery import DeliveryText
from holdfast.core.errors import BadInput, BadSignature, NotDone, RetryAfter
from holdfast.core.task import Origin
from holdfast.testing import FakeClock
from tests.builders import START, later
from tests.channels.receiver import Receiver
from tests.engine.workers import soon

SECRET, OTHER = b"a secret of the sea", b"another one, just as long"
GROUP = Origin(channel="hook", peer="group 7", account_id="team", thread="3")
LETTER = DeliveryText(text="the moon 🌊", session_key="agent:a:b", message_id="msg_2", reply_to="msg_1")


# --- signatures


def test_what_was_signed_is_verified() -> None:
    verify("hook", [SECRET], sign(SECRET, b"body", START), b"body", START)


def test_two_secrets_hold_while_one_replaces_the_other() -> None:
    for secret in (SECRET, OTHER):
        verify("hook", [SECRET, OTHER], sign(secret, b"body", START), b"body", START)


def test_a_signature_may_be_given_with_two_secrets_at_once() -> None:
    time, old = sign(OTHER, b"body", START).split(",")
    new = sign(SECRET, b"body", START).split(",")[1]

    verify("hook", [SECRET], f"{time}, {old}, {new}", b"body", START)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (None, "not signed"),
        ("", "not signed"),
        ("x", "form"),
        ("t=1", "form"),
        ("v1=00", "form"),
        ("t=x,v1=00", "form"),
        ("t=-5,v1=00", "form"),
        ("t=1,t=2,v1=00", "form"),
        ("t=" + "9" * 40 + ",v1=00", "form"),
        ("t=٣,v1=00", "form"),
        (f"t={int(START.timestamp())},v1=00", "another secret"),
        (f"t={int(START.timestamp())},v1=é", "another secret"),
        (sign(OTHER, b"body", START), "another secret"),
        (sign(SECRET, b"other", START), "another secret"),
        (sign(SECRET, b"body", START).replace("t=", "t=1"), "too long ago"),
        (f"t={int(START.timestamp())}" + ",v1=00" * 9, "form"),
    ],
)
def test_what_was_not_signed_so_is_refused(header: str | None, why: str) -> None:
    with pytest.raises(BadSignature, match=why) as error:
        verify("hook", [SECRET], header, b"body", START)

    assert error.value.channel == "hook"


@pytest.mark.parametrize(
    ("minutes", "is_refused"), [(0, False), (5, False), (6, True), (-5, False), (-6, True)]
)
def test_a_signature_holds_for_a_short_time(minutes: int, is_refused: bool) -> None:
    header = sign(SECRET, b"body", START)
    now = START + timedelta(minutes=minutes)

    if is_refused:
        with pytest.raises(BadSignature, match="too long ago"):
            verify("hook", [SECRET], header, b"body", now)
    else:
        verify("hook", [SECRET], header, b"body", now)


# --- in


def body(**changes: Any) -> bytes:
    return json.dumps({"messageId": "1", "text": "tides?"} | changes).encode()


def test_a_message_of_a_person_comes_into_a_session_of_its_own() -> None:
    inbound = read_inbound("hook", "scholar", body(peer="ada"))

    assert inbound.session_key == "agent:scholar:hook:ada"
    assert inbound.origin == Origin(channel="hook", peer="ada")
    assert (inbound.text, inbound.channel_message_id) == ("tides?", "1")


def test_each_group_and_each_thread_of_it_has_a_session() -> None:
    keys = {
        read_inbound("hook", "scholar", body(**where)).session_key
        for where in (
            {},
            {"peer": "-100123@g.us"},
            {"peer": "-100123@g.us", "thread": "7"},
            {"peer": "-100123@g.us", "accountId": "team"},
            {"session": "main"},
        )
    }

    assert keys == {
        "agent:scholar:hook",
        "agent:scholar:hook:-100123%40g.us",
        "agent:scholar:hook:-100123%40g.us:7",
        "agent:scholar:hook@team:-100123%40g.us",
        "agent:scholar:hook:main",
    }


def test_two_conversations_never_share_a_session() -> None:
    places: list[dict[str, str]] = [
        {},
        {"peer": "a:b"},
        {"peer": "a", "thread": "b"},
        {"peer": "a%3Ab"},
        {"thread": "a"},
        {"accountId": "a"},
        {"accountId": "a", "peer": "b"},
        {"accountId": "a:b"},
        {"peer": "@a"},
        {"peer": "x" * 150, "thread": "y" * 150},
        {"peer": "x" * 150, "thread": "y" * 149},
        {"peer": f"ghp_{'a' * 36}"},
        {"peer": f"ghp_{'b' * 36}", "thread": "1"},
    ]

    keys = [read_inbound("hook", "scholar", body(**where)).session_key for where in places]

    assert len(set(keys)) == len(places)
    assert all(len(key) <= 200 for key in keys)
    assert not any("ghp_" in key for key in keys)


def test_a_channel_does_not_reach_the_sessions_of_others() -> None:
    for session in ("main", "agent:scholar:main", "../main"):
        key = read_inbound("hook", "scholar", body(session=session)).session_key
        assert key.startswith("agent:scholar:hook:")
        assert ":" not in key.removeprefix("agent:scholar:hook:")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"x",
        b"[]",
        b"null",
        b"\xff",
        b'{"text": "x"}',
        b'{"messageId": "1"}',
        body(text=3),
        body(messageId=3),
        body(role="system"),
        body(channel="system"),
        body(session="a\nb"),
        body(session=""),
        body(peer=""),
        body(peer="x" * 300),
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_refused_by_name(raw: bytes) -> None:
    with pytest.raises(BadInput):
        read_inbound("hook", "scholar", raw)


# --- out


class Dripping:
    """Answers a byte at a time, for as long as the client listens."""

    def __init__(self) -> None:
        self.is_left = threading.Event()
        self._end = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Sea: ")
                while not self._end.wait(0.05):
                    connection.sendall(b"~")
        self.is_left.set()

    def close(self) -> None:
        self._end.set()
        self._listening.close()
        self._thread.join(timeout=10)


@pytest.fixture
def dripping() -> Iterator[Dripping]:
    found = Dripping()
    yield found
    found.close()


@pytest.fixture
def webhook(receiver: Receiver) -> Webhook:
    return Webhook("hook", receiver.url, SECRET, FakeClock(START), timeout_s=5)


async def test_an_answer_arrives_signed_with_its_key_and_all_that_is_known(
    receiver: Receiver, webhook: Webhook
) -> None:
    receiver.answer = lambda _request: (201, {}, b'{"id": "their-7", "more": 1}')

    found = await webhook.deliver(GROUP, LETTER, key="reply:task_1")

    (request,) = receiver.requests
    verify("hook", [SECRET], request.headers[SIGNATURE_HEADER], request.body, START)
    assert found == "their-7"
    assert request.path == "/hook?team=sea"
    assert request.headers["Idempotency-Key"] == "reply:task_1"
    assert request.json == {
        "channel": "hook",
        "text": "the moon 🌊",
        "sessionKey": "agent:a:b",
        "messageId": "msg_2",
        "replyTo": "msg_1",
        "peer": "group 7",
        "accountId": "team",
        "thread": "3",
    }


@pytest.mark.parametrize(
    "said", [b"", b"ok", b"[]", b'{"id": 7}', b"\xff", b'{"more": ' + b"[" * 50_000], ids=range(6)
)
async def test_whatever_the_other_end_says_with_200_it_is_delivered(
    receiver: Receiver, webhook: Webhook, said: bytes
) -> None:
    receiver.answer = lambda _request: (200, {}, said)

    assert await webhook.send("ada", "hello", key="k") == "k"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422, 301, 307])
async def test_a_refusal_is_for_good(receiver: Receiver, webhook: Webhook, status: int) -> None:
    receiver.answer = lambda _request: (status, {"Location": "http://127.0.0.1:1/"}, b"")

    with pytest.raises(Undeliverable, match=str(status)):
        await webhook.send("ada", "hello", key="k")

    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [425, 429])
async def test_a_receiver_that_says_not_now_has_not_taken_it(
    receiver: Receiver, webhook: Webhook, status: int
) -> None:
    receiver.answer = lambda _request: (status, {}, b"")

    with pytest.raises(NotDone, match=str(status)):
        await webhook.send("ada", "hello", key="k")


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 507])
async def test_trouble_at_the_other_end_leaves_it_in_doubt(
    receiver: Receiver, webhook: Webhook, status: int
) -> None:
    receiver.answer = lambda _request: (status, {}, b"")

    with pytest.raises(ConnectionError, match=str(status)):
        await webhook.send("ada", "hello", key="k")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("99999999", 3600),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 0),
        ("9" * 400, 3600),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
    ],
)
async def test_who_is_asked_for_patience_has_some(
    receiver: Receiver, webhook: Webhook, header: str, seconds: float
) -> None:
    receiver.answer = lambda _request: (429, {"Retry-After": header}, b"")

    with pytest.raises(RetryAfter) as error:
        await webhook.send("ada", "hello", key="k")

    assert error.value.seconds == seconds


@pytest.mark.parametrize(
    "header",
    ["soon", "-1", "1.5", "²", "Thu, 01 Jan 99999999999 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:00 +999999"],
)
async def test_a_patience_that_cannot_be_read_is_a_plain_refusal_for_now(
    receiver: Receiver, webhook: Webhook, header: str
) -> None:
    receiver.answer = lambda _request: (429, {"Retry-After": header.encode().decode("latin-1")}, b"")

    with pytest.raises(NotDone):
        await webhook.send("ada", "hello", key="k")


async def test_a_connection_that_breaks_leaves_it_in_doubt(receiver: Receiver, webhook: Webhook) -> None:
    receiver.answer = lambda _request: None

    with pytest.raises(ConnectionError):
        await webhook.send("ada", "hello", key="k")


async def test_a_closed_port_takes_nothing() -> None:
    webhook = Webhook("hook", "http://127.0.0.1:1/", SECRET, FakeClock(START), timeout_s=5)

    with pytest.raises(NotDone):
        await webhook.send("ada", "hello", key="k")


async def test_an_answer_that_drips_does_not_last_longer_than_it_may(dripping: Dripping) -> None:
    webhook = Webhook("hook", dripping.url, SECRET, FakeClock(START), timeout_s=0.5)

    with pytest.raises(TimeoutError):
        await soon(webhook.send("ada", "hello", key="k"))

    assert await soon(asyncio.to_thread(dripping.is_left.wait, 20)), "its thread has gone on"


async def test_a_webhook_that_is_closed_sends_nothing(receiver: Receiver, webhook: Webhook) -> None:
    webhook.close()
    webhook.close()

    with pytest.raises(RuntimeError):
        await webhook.send("ada", "hello", key="k")

    assert isinstance(webhook, Closing)
    assert receiver.requests == []


async def test_a_webhook_does_not_remember(webhook: Webhook) -> None:
    assert isinstance(webhook, ChannelSender)
    assert isinstance(webhook, Channel)
    assert webhook.is_keyed
    assert isinstance(await webhook.find_sent("k"), CannotTell)


def test_the_time_of_signing_is_that_of_the_clock() -> None:
    assert sign(SECRET, b"", later(seconds=1.9)).startswith(f"t={int(START.timestamp()) + 1},")


# --- the other end


def test_our_receiver_does_not_take_half_a_request_for_one(receiver: Receiver) -> None:
    host, _, port = receiver.url.removeprefix("http://").partition("/")[0].partition(":")
    head = b"POST /hook HTTP/1.1\r\nHost: here\r\nIdempotency-Key: a\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as dies:
        dies.sendall(head)
    with socket.create_connection((host, int(port)), timeout=10) as whole:
        whole.sendall(head + b"{}")
        assert whole.recv(100).startswith(b"HTTP/1.0 200")

    assert receiver.accepted["a"].body == b"{}"
