"""The WebSocket: the handshake of protocol v4, requests, events, and clients that mean no good."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from holdfast.api import rpc, websocket
from holdfast.api.methods import METHODS
from holdfast.api.websocket import Connection
from holdfast.gateway.gateway import GatewayPhase
from tests.api.stand_in import READ_TOKEN, TOKEN, Client, ServedDoors, served_doors
from tests.builders import stored_run

pytestmark = pytest.mark.slow

HELLO = {"type", "protocol", "server", "features", "snapshot", "auth", "policy"}


def close_code(client: Client) -> int:
    """After whatever else it says, the server closes; with which code."""
    while True:
        try:
            client.read()
        except ConnectionClosed as closed:
            return 0 if closed.rcvd is None else int(closed.rcvd.code)


# --- the handshake


@pytest.mark.parametrize("path", ["/", "/rpc"])
def test_the_server_speaks_first_and_says_hello_to_the_right_token(house: ServedDoors, path: str) -> None:
    with house.websocket(path) as client:
        answer = client.connect()

        assert answer["ok"]
        hello = answer["payload"]
        assert set(hello) == HELLO
        assert (hello["type"], hello["protocol"]) == ("hello-ok", 4)
        assert set(hello["snapshot"]) == {"presence", "health", "stateVersion", "uptimeMs"}
        assert set(hello["snapshot"]["health"]) == {"ok", "ts"}
        assert set(hello["policy"]) == {"maxPayload", "maxBufferedBytes", "tickIntervalMs"}
        assert set(hello["features"]["methods"]) == set(METHODS)


def test_a_wrong_token_is_told_so_and_the_connection_closed(house: ServedDoors) -> None:
    with house.websocket() as client:
        answer = client.connect("x" * 64)

        assert not answer["ok"]
        assert answer["error"]["details"]["code"] == "AUTH_TOKEN_MISMATCH"
        assert close_code(client) == 1008


def test_no_token_is_told_so(house: ServedDoors) -> None:
    with house.websocket() as client:
        answer = client.connect(None)

        assert answer["error"]["details"]["code"] == "AUTH_TOKEN_MISSING"
        assert close_code(client) == 1008


def test_scopes_are_the_servers_decision_and_never_more_than_asked_for(house: ServedDoors) -> None:
    with house.websocket() as client:
        granted = client.connect(READ_TOKEN, scopes=["operator.admin", "operator.read"])["payload"]["auth"]
        refused = client.call("tasks.cancel", {"taskId": "task_x"})
    with house.websocket() as client:
        limited = client.connect(TOKEN, scopes=["operator.read"])["payload"]["auth"]
        refused_too = client.call("tasks.cancel", {"taskId": "task_x"})

    assert granted == {"role": "operator", "scopes": ["operator.read"]}
    assert limited == {"role": "operator", "scopes": ["operator.read"]}
    assert refused["error"]["code"] == refused_too["error"]["code"] == "FORBIDDEN"


def test_who_asks_for_no_scope_gets_none(house: ServedDoors) -> None:
    with house.websocket() as client:
        granted = client.connect(TOKEN, scopes=[])["payload"]["auth"]

        assert granted == {"role": "operator", "scopes": []}
        assert client.call("gateway.status")["error"]["code"] == "FORBIDDEN"


def test_who_asks_and_does_not_read_is_not_read_either(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, are_taken, send, dispatch = [], threading.Event(), Connection._send, rpc.dispatch

    async def begin(gateway: Any, method: str, *rest: Any) -> Any:
        begun.append(method)
        return await dispatch(gateway, method, *rest)

    async def is_not_taken(self: Connection, frame: Any) -> None:
        if getattr(frame, "id", None) == "unread":
            await asyncio.to_thread(are_taken.wait)
        await send(self, frame)

    monkeypatch.setattr(websocket, "dispatch", begin)
    monkeypatch.setattr(Connection, "_send", is_not_taken)
    frame = msgspec.json.encode({"type": "req", "id": "unread", "method": "rpc.describe"}).decode()
    with served_doors(home) as house, house.websocket() as client:
        client.connect()
        try:
            for _ in range(3 * websocket.AT_ONCE):
                client.way.send(frame)
            while len(begun) < websocket.AT_ONCE:
                house.post("rpc.describe")
            for _ in range(20):  # passes of the loop in which more could have begun
                house.post("rpc.describe")
            assert len(begun) == websocket.AT_ONCE
        finally:
            are_taken.set()
        answers = [client.way.recv() for _ in range(3 * websocket.AT_ONCE)]

    assert len(answers) == len(begun) == 3 * websocket.AT_ONCE


def test_an_id_that_would_fill_our_memory_is_no_request(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        client.way.send(msgspec.json.encode({"type": "req", "id": "i" * 257, "method": "health"}).decode())

        with pytest.raises(ConnectionClosed):
            client.way.recv()


def test_another_protocol_is_refused(house: ServedDoors) -> None:
    with house.websocket() as client:
        answer = client.connect(minProtocol=5, maxProtocol=9)

        assert answer["error"]["details"]["code"] == "PROTOCOL_MISMATCH"
        assert close_code(client) == 1008


def test_while_the_gateway_starts_a_connect_is_unavailable(house: ServedDoors) -> None:
    house.gateway.now = GatewayPhase.STARTING
    with house.websocket() as client:
        error = client.connect()["error"]

        assert (error["code"], error["details"]["reason"]) == ("UNAVAILABLE", "startup-sidecars")


def test_a_client_that_does_not_connect_in_time_is_let_go(
    house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "HANDSHAKE_S", 0.05)
    with house.websocket() as client:
        client.challenge()

        assert close_code(client) == 1008


# --- requests


def test_requests_are_answered_with_their_ids(house: ServedDoors) -> None:
    task_id = stored_run(house.gateway.store).task_id
    with house.websocket() as client:
        client.connect()

        listed = client.call("tasks.list", {"limit": 1})
        missing = client.call("tasks.get", {"taskId": "nope"})
        unknown = client.call("tasks.bogus")
        without_params = client.call("health")

    assert listed["payload"]["tasks"][0]["id"] == task_id
    assert missing["error"]["message"] == "task not found: nope"
    assert unknown["error"]["code"] == "INVALID_REQUEST"
    assert without_params["payload"]["ok"]


def test_messages_that_are_sent_at_once_keep_their_order(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        for number in range(100):
            params = {"sessionKey": "ada", "message": f"{number}", "idempotencyKey": f"{number}"}
            client.send({"type": "req", "id": number, "method": "chat.send", "params": params})
        answered = [frame for _ in range(100) if (frame := client.read())]

    told = house.post("chat.history", {"sessionKey": "ada", "limit": 500}).json()
    assert all(frame["ok"] for frame in answered)
    assert [message["text"] for message in told["messages"]] == [str(number) for number in range(100)]


def test_a_task_that_changes_is_told_to_who_listens(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        house.post("chat.send", {"sessionKey": "ada", "message": "so that the feed has begun"})
        while True:
            # The reader looks for where the feed stands before it tells anything.
            task_id = stored_run(house.gateway.store).task_id
            house.post("tasks.cancel", {"taskId": task_id})
            try:
                frame = client.read(timeout=2)
            except TimeoutError:
                continue
            break

    assert frame["event"] == "task"
    assert frame["payload"]["action"] == "upserted"
    assert frame["payload"]["task"]["status"] == "cancelled"
    assert frame["seq"] == 1


def test_a_tick_comes_at_its_interval(house: ServedDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "TICK_S", 0.02)
    with house.websocket() as client:
        client.connect()

        assert client.read()["event"] == "tick"


def test_a_connection_is_closed_as_restarting_when_the_doors_close(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        house.stop()

        assert close_code(client) == 1012


def test_a_token_that_was_replaced_opens_nothing_more(house: ServedDoors) -> None:
    from holdfast.api.tokens import Tokens

    with house.websocket() as client:
        client.connect()
        assert client.call("health")["ok"]
        house.tokens.replace(Tokens.of("another" * 10))

        assert client.call("health")["error"]["code"] == "UNAUTHORIZED"


# --- hostile frames


@pytest.mark.parametrize(
    "frame",
    [
        "not json",
        "{}",
        "[]",
        "null",
        '"req"',
        "1" * 10_000,
        '{"type":"req"}',
        '{"type":"req","id":"1"}',
        '{"type":"res","id":"1","method":"health"}',
        '{"type":"req","id":"1","method":7}',
        '{"type":"req","id":{},"method":"health"}',
        '{"type":"req","id":"1","method":"health","more":1}',
        "[" * 60_000,
        '{"type":"req","id":"1","method":"health","params":' + "[" * 30_000 + "]" * 30_000 + "}",
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
    ids=lambda frame: frame[:20],
)
@pytest.mark.parametrize("is_connected", [False, True], ids=["before", "after"])
def test_a_frame_that_is_none_ends_the_connection_and_nothing_else(
    house: ServedDoors, frame: str, *, is_connected: bool
) -> None:
    with house.websocket() as client:
        if is_connected:
            client.connect()
        else:
            client.challenge()
        client.way.send(frame)

        assert close_code(client) == 1008

    assert house.post("health").json()["ok"]


def test_a_binary_frame_ends_the_connection(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        client.way.send(b"\x00\x01")

        assert close_code(client) == 1003


def test_a_request_before_connect_is_refused(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.challenge()
        answer = client.call("tasks.list")

        assert answer["error"]["code"] == "INVALID_REQUEST"
        assert close_code(client) == 1008


def test_a_second_connect_is_refused_and_the_first_one_holds(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()

        assert client.call("connect", {})["error"]["code"] == "INVALID_REQUEST"
        assert client.call("health")["ok"]


def test_a_first_frame_over_64_kib_ends_the_connection(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.challenge()
        client.send({"type": "req", "id": "1", "method": "connect", "params": {"x": "y" * 70_000}})

        assert close_code(client) == 1009


def test_a_frame_over_the_cap_ends_the_connection(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.connect()
        client.send({"type": "req", "id": "1", "method": "health", "params": {"x": "y" * (1024**2 + 1)}})

        assert close_code(client) == 1009


def test_a_client_that_vanishes_is_forgotten(house: ServedDoors) -> None:
    for _ in range(20):
        with house.websocket() as client:
            client.connect()
            client.way.socket.close()

    assert house.post("health").json()["ok"]


def test_compression_is_never_agreed_on(house: ServedDoors) -> None:
    with house.websocket(compression="deflate") as client:
        assert client.way.protocol.extensions == []


def test_what_the_server_says_is_one_json_object_a_frame(house: ServedDoors) -> None:
    with house.websocket() as client:
        client.challenge()
        client.send({"type": "req", "id": "1", "method": "connect", "params": {}})

        assert set(msgspec.json.decode(client.way.recv())) == {"type", "id", "ok", "error"}


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        (
            ["operator.admin"],
            ["operator.admin", "operator.questions", "operator.read", "operator.write"],
        ),
        (["operator.write"], ["operator.questions", "operator.read", "operator.write"]),
        (["operator.questions"], ["operator.questions"]),
        (["operator.read"], ["operator.read"]),
        (["operator.approvals"], []),
    ],
)
def test_a_scope_brings_those_with_it_that_it_implies(
    house: ServedDoors, wanted: list[str], granted: list[str]
) -> None:
    """The protocol's own client asks for `operator.admin` alone, and reads."""
    with house.websocket() as client:
        hello = client.connect(scopes=wanted)["payload"]
        read = client.call("tasks.list")

    assert hello["auth"] == {"role": "operator", "scopes": granted}
    assert read["ok"] == ("operator.read" in granted)


def test_a_token_that_may_only_look_gets_no_more_whatever_it_asks_for(house: ServedDoors) -> None:
    with house.websocket() as client:
        hello = client.connect(READ_TOKEN, scopes=["operator.admin"])["payload"]

    assert hello["auth"]["scopes"] == ["operator.read"]
