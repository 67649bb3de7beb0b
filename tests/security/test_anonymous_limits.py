"""Peers without a token: bounded before `connect`, before a body, in memory, in places, in the log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from holdfast.api import anonymous_limits, connection_limits, protocols, server, websocket
from holdfast.api.anonymous_limits import BodyBudget, RefusalLog, WaitingRoom
from holdfast.api.rpc import RpcError
from holdfast.config.sections import GatewaySettings
from tests.api.stand_in import TOKEN, Client, ServedDoors, served_doors
from tests.security.raw_http import ask, connected, head, said, signature_line, status_of
from tests.security.webhook_server import webhook_house

pytestmark = pytest.mark.slow

HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is held back for a moment, which there is no need to wait for here."""
    for module in (protocols, server):
        monkeypatch.setattr(module, "HOLD_S", 0.0)


def end_of(client: Client) -> tuple[int, str]:
    """With which code and why the server closes, after whatever else it says; (0, "") for an abrupt end."""
    while True:
        try:
            client.read()
        except ConnectionClosed as closed:
            return (0, "") if closed.rcvd is None else (int(closed.rcvd.code), closed.rcvd.reason)


# --- a WebSocket before its `connect`


def in_fragments(client: Client) -> None:
    # The server may close the connection after the first fragment, before the second one is sent.
    with contextlib.suppress(ConnectionClosed):
        client.way.send(iter(['{"type":"req",', '"id":"1"']))


def many_frames(client: Client) -> None:
    # As one piece, so that none of them is answered before the last one has come.
    frame = b"\x81\xfe" + b"\x00\x80" + b"\x00" * 4 + b" " * 128
    client.way.socket.sendall(frame * 50)


BEFORE: dict[str, tuple[Callable[[Client], Any], int, str]] = {
    "a ping": (lambda client: client.way.ping(), 1008, "no ping before connect"),
    "a pong": (lambda client: client.way.pong(), 1008, "no pong before connect"),
    "a fragment": (in_fragments, 1008, "no fragments before connect"),
    "many frames": (many_frames, 1008, "too many frames before connect"),
    "a long frame": (lambda client: client.way.send("x" * 70_000), 1009, "frame with 70000 bytes"),
    "no text": (
        lambda client: client.way.socket.sendall(b"\x81\x81\x00\x00\x00\x00\xff"),
        1007,
        "a text frame must be UTF-8",
    ),
}


@pytest.mark.parametrize("what", BEFORE)
def test_before_connect_a_websocket_takes_one_whole_frame_and_nothing_else(
    house: ServedDoors, what: str
) -> None:
    send, code, why = BEFORE[what]
    with house.websocket() as client:
        client.challenge()
        send(client)
        end = end_of(client)

    assert end[0] == code
    assert why in end[1]

    assert house.post("health").status_code == 200


def test_after_connect_pings_fragments_and_long_frames_are_taken(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        client.way.send(iter(['{"type":"req","id":"1",', '"method":"health"}']))
        answered = client.read()

        assert answered["ok"]
        assert client.way.ping().wait(20)
        assert client.call("tasks.list", {"x": "y" * 200_000})["error"]["code"] == "INVALID_REQUEST"


def test_a_websocket_without_connect_ends_whatever_the_application_does(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "HANDSHAKE_S", HOUR_S)
    monkeypatch.setattr(protocols, "BEFORE_CONNECT_S", 0.1)
    with served_doors(home) as house, house.websocket() as client:
        client.challenge()

        assert end_of(client) == (0, "")


def test_requests_sent_at_once_behind_connect_are_answered(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.challenge()
        params = {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": TOKEN}}
        client.send({"type": "req", "id": "0", "method": "connect", "params": params})
        for number in range(1, 5):
            client.send({"type": "req", "id": str(number), "method": "health"})

        assert {client.read()["id"] for _ in range(5)} == {"0", "1", "2", "3", "4"}


def test_websockets_that_wait_for_connect_make_room_for_one_that_connects(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anonymous_limits, "MAX_WAITING", 3)
    with served_doors(home) as house, house.websocket() as first, house.websocket() as second:
        first.challenge()
        with house.websocket(), house.websocket() as operator:
            assert operator.connect()["ok"]
            assert end_of(first) == (0, "")
            assert second.connect()["ok"]


class Waiter:
    def __init__(self) -> None:
        self.is_gone = False

    def give_up(self) -> None:
        self.is_gone = True


def test_a_full_waiting_room_costs_the_address_that_fills_it() -> None:
    room = WaitingRoom(4)
    operator, flood = Waiter(), [Waiter() for _ in range(10)]
    room.enter(operator, "192.0.2.1")

    for one in flood:
        room.enter(one, "198.51.100.7")
    room.leave(flood[0])  # it was let go already

    assert not operator.is_gone
    assert [one.is_gone for one in flood] == [True] * 7 + [False] * 3


# --- a webhook before its body

BODY = b'{"messageId":"m1","text":"hello","peer":"bob"}'
LENGTH = f"Content-Length: {len(BODY)}"
ASKS_FIRST = "Expect: 100-continue"


@pytest.fixture
def hooked(home: Path) -> Iterator[ServedDoors]:
    with webhook_house(home) as house:
        yield house


@pytest.mark.parametrize(
    ("path", "line", "status"),
    [
        ("/channels/nothing", "X-Holdfast-Signature: t=1,v1=00", 404),
        ("/channel/hook", "X-Holdfast-Signature: t=1,v1=00", 404),
        ("/channels/hook", "X-Other: 1", 401),
        ("/channels/hook", "X-Holdfast-Signature: v1=00", 401),
        ("/channels/hook", "X-Holdfast-Signature: t=1,v1=00", 401),
        ("/channels/hook", signature_line(BODY, hours=-1), 401),
    ],
    ids=["channel", "path", "unsigned", "form", "time", "old"],
)
def test_a_webhook_is_refused_before_its_body_is_asked_for(
    hooked: ServedDoors, path: str, line: str, status: int
) -> None:
    with connected(hooked.port) as way:
        way.sendall(head(path, LENGTH, line, ASKS_FIRST, token=None))

        assert status_of(way) == status  # and not 100: go on


def test_a_webhook_with_a_fresh_signature_is_asked_for_its_body(hooked: ServedDoors) -> None:
    with connected(hooked.port) as way:
        way.sendall(head("/channels/hook", LENGTH, signature_line(BODY), ASKS_FIRST, token=None))
        goes_on = status_of(way)
        way.sendall(BODY)

        assert goes_on == 100
        assert b"HTTP/1.1 202" in said(way)


def test_a_wrong_token_is_refused_before_a_body_is_asked_for(house: ServedDoors) -> None:
    with connected(house.port) as way:
        way.sendall(head("/rpc/health", LENGTH, ASKS_FIRST, token="wrong" * 9))

        assert status_of(way) == 401


def test_all_unauthenticated_bodies_together_have_one_budget(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which one address has a quarter: here as much as two bodies."""
    monkeypatch.setattr(anonymous_limits, "BUDGET_BYTES", 8 * 1024)
    settings = GatewaySettings(rate_limit_per_s=100_000.0, max_body_bytes=1024)
    body = b" " * 1000
    begun = head("/channels/hook", "Content-Length: 1001", signature_line(body), token=None) + body
    whole = head("/channels/hook", "Content-Length: 1000", signature_line(body), token=None) + body
    with webhook_house(home, settings) as house, connected(house.port) as one, connected(house.port) as two:
        for way in (one, two):
            way.sendall(begun)
        # Until both have come this one is read, and found to be no JSON.
        while b"HTTP/1.1 400" in (answer := ask(house.port, whole)):
            pass

        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        assert house.post("health").status_code == 200
        for way in (one, two):
            way.sendall(b" ")
            assert status_of(way) == 401
        assert ask(house.port, whole).startswith(b"HTTP/1.1 400 ")


def test_what_a_body_held_is_free_when_its_request_is_over() -> None:
    budget = BodyBudget()
    with budget.share("192.0.2.1", max_body_bytes=1024) as take:
        take(anonymous_limits.BUDGET_BYTES // anonymous_limits.SHARES)
        with budget.share("192.0.2.2", max_body_bytes=1024) as take_too:
            take_too(1024)
        with pytest.raises(RpcError):
            take(1)

    assert budget.held == 0
    assert not budget._held_by


# --- how often


def test_a_stranger_that_asks_too_often_is_answered_later_and_an_operator_at_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HOLD_S", HOUR_S)
    asks = head("/rpc/health", "Content-Length: 2", token=None) + b"{}"
    with served_doors(home, settings=GatewaySettings(rate_limit_per_s=1.0)) as house:
        at_once = [ask(house.port, asks)[9:12] for _ in range(4)]
        with connected(house.port) as held:
            held.sendall(asks)

            assert at_once == [b"401"] * 4
            assert house.post("health").status_code == 200
            held.setblocking(False)
            with pytest.raises(BlockingIOError):
                held.recv(1)


def test_a_flood_without_a_token_costs_an_operator_at_the_same_address_nothing(home: Path) -> None:
    with served_doors(home, settings=GatewaySettings(rate_limit_per_s=1.0)) as house:
        flood = [house.post("health", token=None).status_code for _ in range(20)]
        guesses = [house.post("health", token=f"guess-{number}").status_code for number in range(20)]

        assert flood[-1] == guesses[-1] == 429
        assert house.post("health").status_code == 200
        with house.websocket() as client:
            assert client.connect()["ok"]
            assert client.call("health")["ok"]


def test_each_token_has_a_rate_of_its_own(home: Path) -> None:
    from tests.api.stand_in import READ_TOKEN

    with served_doors(home, settings=GatewaySettings(rate_limit_per_s=0.75)) as house:
        busy = [house.post("health", token=READ_TOKEN).status_code for _ in range(5)]

        assert busy[-1] == 429
        assert house.post("health").status_code == 200


def test_all_of_loopback_has_the_guesses_of_one_address(house: ServedDoors) -> None:
    guess = head("/rpc/health", "Content-Length: 2", token="wrong" * 9) + b"{}"

    answers = [ask(house.port, guess, f"127.0.3.{number}")[9:12] for number in range(1, 21)]

    assert answers[0] == b"401"
    assert answers[-1] == b"429"


def guess_as(house: ServedDoors, client: str) -> int:
    return house.post("health", token="wrong" * 9, x_forwarded_for=client).status_code


def test_a_header_that_names_another_address_gives_no_more_guesses(house: ServedDoors) -> None:
    answers = [guess_as(house, f"198.51.100.{number}") for number in range(20)]

    assert answers[-1] == 429


def test_behind_a_trusted_proxy_each_client_has_guesses_of_its_own(home: Path) -> None:
    settings = GatewaySettings(rate_limit_per_s=100_000.0, trusted_proxies=["127.0.0.0/8"])
    with served_doors(home, settings=settings) as house:
        several = [guess_as(house, f"198.51.100.{number}") for number in range(20)]
        # The client's own hop, whatever it wrote to the left of it.
        one = [guess_as(house, f"192.0.2.{number}, 203.0.113.9") for number in range(20)]

    assert several == [401] * 20
    assert one[-1] == 429


def test_the_trusted_proxies_of_changed_settings_count_at_once(house: ServedDoors) -> None:
    while guess_as(house, "198.51.100.1") != 429:
        pass
    settings = GatewaySettings(rate_limit_per_s=100_000.0, trusted_proxies=["127.0.0.1"])
    house.gateway.config = msgspec.structs.replace(house.gateway.config, gateway=settings)

    assert guess_as(house, "198.51.100.1") == 401


def test_doors_close_while_a_refusal_is_held_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (protocols, server):
        monkeypatch.setattr(module, "HOLD_S", HOUR_S)
    settings = GatewaySettings(rate_limit_per_s=1.0)
    with served_doors(home, settings=settings) as house, contextlib.ExitStack() as held:
        ways = [held.enter_context(connected(house.port)) for _ in range(8)]
        for way in ways[:2]:
            way.sendall(head("/rpc/health", "Content-Length: 2", "Transfer-Encoding: chunked"))
        for way in ways[2:]:
            way.sendall(head("/rpc/health", "Content-Length: 2", token=None) + b"{}")
        house.post("health")
        house.stop()

        assert {said(way)[9:12] for way in ways} <= {b"401", b"429", b""}


# --- places


def test_strangers_leave_places_for_operators(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 8)
    with served_doors(home) as house, house.websocket() as client, httpx.Client(trust_env=False) as kept:
        client.connect()
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}

        def post() -> httpx.Response:
            return kept.post(f"{house.url}/rpc/health", content=b"{}", headers=headers)

        first = post().extensions["network_stream"]
        with contextlib.ExitStack() as crowded:
            ways = [crowded.enter_context(connected(house.port)) for _ in range(30)]
            for way in ways[:20]:
                assert said(way) == b"", "it made room"
            again = post()

            assert client.call("health")["ok"]
            assert again.status_code == 200
            assert again.extensions["network_stream"] is first, "its connection was kept"
            new = httpx.post(f"{house.url}/rpc/health", content=b"{}", headers=headers, trust_env=False)
            assert new.status_code == 200


# --- the log


def test_refused_peers_are_said_once_a_second_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planned = list[Callable[[], None]]()
    refusals = RefusalLog(lambda _, act: planned.append(act))

    for count in (1, 0, 3, 2, 0, 1):
        for number in range(count):
            refusals.add(f"192.0.2.{number}", "it has no token")
        if planned:
            planned.pop()()  # a second later

    assert [record.getMessage() for record in caplog.records] == [
        "refused a request from 192.0.2.0: it has no token",
        "refused a request from 192.0.2.0: it has no token",
        "refused a request from 192.0.2.2: it has no token; and 1 more since the last line",
        "refused a request from 192.0.2.1: it has no token; and 1 more since the last line",
        "refused a request from 192.0.2.0: it has no token",
    ]


def test_a_flood_of_refused_peers_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(anonymous_limits, "LOG_EVERY_S", HOUR_S)
    with served_doors(home) as house:
        for number in range(10):
            house.post("health", token=f"guess-{number}")
            house.get(f"/nothing/{number}", token=None)
            ask(house.port, b"no http\r\n\r\n")
            ask(house.port, head("/", "Connection: upgrade", "Upgrade: h2c", verb="GET", token=None))
            with house.websocket() as client:
                client.connect("guess")
            with house.websocket() as client:
                client.challenge()
                client.way.ping()
                end_of(client)

    logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage().partition(":")[0] for record in logged] == [
        "refused a request from 127.0.0.0/8"
    ]
