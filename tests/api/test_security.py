"""Origin, Host, token and scope on every route; guesses, rates, hostile bodies, slow clients."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from holdfast.api import protocols, security, server
from holdfast.api.methods import METHODS
from holdfast.api.security import GUESSES, Bucket
from holdfast.config.sections import GatewaySettings
from tests.api.stand_in import OWNER_TOKEN, READ_TOKEN, TOKEN, ServedDoors, served_doors

pytestmark = pytest.mark.slow

ROUTES = [
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/events"),
    ("GET", "/openapi.json"),
    ("POST", "/channels/hook"),
    ("GET", "/nothing/here"),
    *(("POST", f"/rpc/{name}") for name in METHODS),
]
OPEN = {"/healthz", "/readyz"}
OUR_HOSTS = ("own", "localhost:1", "LOCALHOST", "[::1]:80")
FOREIGN_HOSTS = (
    *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:4653", ""),
    *("[::1]evil.example", "localhost:evil.example", "[::1", "localhost:1:2"),
)
FOREIGN_ORIGINS = ("http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:1", "file://", "")
TOKENS = {"none": None, "wrong": "x" * 70, "read": READ_TOKEN, "owner": OWNER_TOKEN, "all": TOKEN}
# What a caller that is bound to an owner may ask for, where it is not a method.
OWNED_ROUTES = {"/openapi.json"}


def ask(house: ServedDoors, method: str, path: str, **headers: str | None) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    content = None if method == "GET" else b"{}"
    if content is not None:
        sent.setdefault("content-type", "application/json")
    with house.http.stream(method, f"{house.url}{path}", headers=sent, content=content) as found:
        if found.headers.get("content-type", "").startswith("text/event-stream"):
            return httpx.Response(found.status_code, headers=found.headers)
        found.read()
        return found


# --- the matrix


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDoors]:
    """One house for the whole matrix; guesses are not what it is about."""
    with served_doors(tmp_path_factory.mktemp("m")) as house, pytest.MonkeyPatch.context() as patch:
        patch.setattr(security, "GUESSES", 1e9)
        house.post("health", token="wrong")  # so much is allowed from here on
        patch.undo()
        yield house


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda value: value)
def test_no_route_answers_a_foreign_host_or_origin_whatever_the_token(
    quiet: ServedDoors, method: str, path: str
) -> None:
    own = f"127.0.0.1:{quiet.port}"
    wrong: list[tuple[str, str | None]] = [(host, None) for host in FOREIGN_HOSTS]
    wrong += [(own, origin) for origin in FOREIGN_ORIGINS]
    wrong += [("evil.example", "http://evil.example"), ("localhost", f"http://{own}")]

    if path.startswith("/rpc/") and path != "/rpc/health":
        wrong = [(FOREIGN_HOSTS[0], None), (own, FOREIGN_ORIGINS[0])]
    for (host, origin), token in itertools.product(wrong, (None, TOKEN)):
        authorization = None if token is None else f"Bearer {token}"
        found = ask(quiet, method, path, host=host, origin=origin, authorization=authorization)

        assert found.status_code == 403, (host, origin, token)


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda value: value)
def test_every_route_but_the_probes_needs_a_right_token_with_the_right_scope(
    quiet: ServedDoors, method: str, path: str
) -> None:
    if path.removeprefix("/rpc/") in {"gateway.stop", "gateway.restart"}:
        scope = "operator.admin"
    else:
        known = METHODS.get(path.removeprefix("/rpc/"))
        scope = "operator.read" if known is None else known.scope
    method_asked = METHODS.get(path.removeprefix("/rpc/"))
    is_owned = path in OWNED_ROUTES if method_asked is None else method_asked.is_owned
    own = f"127.0.0.1:{quiet.port}"
    # Which host was named is decided before any route is; one of each kind is enough to see it.
    hosts = OUR_HOSTS if path in {"/metrics", "/rpc/health", *OPEN} else ("own",)
    for host, (who, token) in itertools.product(hosts, TOKENS.items()):
        shown = own if host == "own" else host
        origin = f"http://{shown}"
        authorization = None if token is None else f"Bearer {token}"
        for sent_origin in (None, origin):
            found = ask(quiet, method, path, host=shown, origin=sent_origin, authorization=authorization)
            if path in OPEN:
                expected = {200}
            elif path in {"/channels/hook", "/nothing/here"}:
                expected = {404}
            elif who in {"none", "wrong"}:
                expected = {401}
            elif (who == "read" and scope != "operator.read") or (who == "owner" and not is_owned):
                expected = {403}
            elif method_asked is not None and method_asked.is_local:
                expected = {403}  # no token makes another one
            else:
                expected = {200, 400, 404}

            assert found.status_code in expected, (host, who, sent_origin, found.text)


@pytest.mark.parametrize("path", ["/", "/rpc"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "localhost", "Origin": "http://127.0.0.1:1"},
    ],
    ids=str,
)
def test_no_websocket_opens_for_a_foreign_host_or_origin(
    quiet: ServedDoors, path: str, headers: dict[str, str]
) -> None:
    # By hand, because a client library writes its own Host.
    sent = {
        "Host": f"127.0.0.1:{quiet.port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version": "13",
    } | headers
    request = f"GET {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", quiet.port), timeout=20) as way:
        way.sendall(request.encode())

        assert way.recv(100).startswith(b"HTTP/1.1 403 ")


def test_our_own_origin_opens_a_websocket(quiet: ServedDoors) -> None:
    with quiet.websocket(origin=f"http://127.0.0.1:{quiet.port}") as client:
        assert client.connect()["ok"]


def test_allowed_hosts_and_origins_are_those_of_the_settings(home: Path) -> None:
    settings = GatewaySettings(allowed_hosts=["box.example"], allowed_origins=["https://board.example"])
    with served_doors(home, settings=settings) as house:
        allowed = ask(house, "GET", "/healthz", host="box.example:99", origin="https://board.example")
        refused = ask(house, "GET", "/healthz", host="box.example.evil", origin=None)

    assert (allowed.status_code, refused.status_code) == (200, 403)


@pytest.mark.parametrize(("mode", "status"), [("no-cors", 403), ("navigate", 200)])
def test_a_picture_on_a_page_elsewhere_asks_for_nothing_and_a_link_may(
    house: ServedDoors, mode: str, status: int
) -> None:
    """It has no Origin, and would use up what this address may ask."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}

    assert house.http.get(f"{house.url}/healthz", headers=headers).status_code == status


def test_a_position_that_is_none_is_refused(house: ServedDoors) -> None:
    found = house.post("chat.history", {"sessionKey": "main", "after": 2**63})

    assert (found.status_code, found.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_two_hosts_are_none(house: ServedDoors) -> None:
    with socket.create_connection(("127.0.0.1", house.port), timeout=20) as way:
        way.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")

        assert way.recv(100).split()[1] in {b"400", b"403"}


# --- the token


@pytest.mark.parametrize("name", ["token", "access_token", "Token", "auth", "api_key"])
@pytest.mark.parametrize("path", ["/healthz", "/rpc/health", "/events", "/"])
def test_a_token_in_a_url_is_refused_and_said_to_be_spent(house: ServedDoors, path: str, name: str) -> None:
    refused = house.http.get(f"{house.url}{path}?x=1&{name}={TOKEN}")

    assert refused.status_code == 400
    assert refused.json()["error"]["details"]["code"] == "token_in_url"
    assert TOKEN not in refused.text


def test_a_websocket_with_a_token_in_its_url_does_not_open(house: ServedDoors) -> None:
    with pytest.raises(InvalidStatus) as refused, house.websocket(f"/?token={TOKEN}"):
        pass

    assert refused.value.response.status_code == 400


def test_guessing_is_slowed_on_loopback_and_nothing_that_is_connected_suffers(
    house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "GUESSES_PER_S", 1e-3)
    with house.websocket() as client:
        client.connect()
        wrong = [house.post("health", token=f"guess-{number}") for number in range(int(GUESSES) + 5)]
        right = house.post("health")
        connected = client.call("health")
        over_websocket = _connect(house, "guess")

    assert [found.status_code for found in wrong[: int(GUESSES)]] == [401] * int(GUESSES)
    assert wrong[-1].status_code == 429
    assert int(wrong[-1].headers["retry-after"]) >= 1
    # A page or a process that guesses must not lock the operator out.
    assert right.status_code == 200
    assert over_websocket["code"] == "RATE_LIMITED"
    assert connected["ok"]


def _connect(house: ServedDoors, token: str) -> dict[str, object]:
    with house.websocket() as client:
        error: dict[str, object] = client.connect(token)["error"]
        return error


def test_without_a_token_nothing_is_guessed(house: ServedDoors) -> None:
    for _ in range(30):
        assert house.post("health", token=None).status_code == 401

    assert house.post("health").status_code == 200


@pytest.mark.parametrize(
    "header", [TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"]
)
def test_only_a_whole_bearer_token_counts(house: ServedDoors, header: str) -> None:
    found = house.http.post(
        f"{house.url}/rpc/health",
        content=b"{}",
        headers={"authorization": header, "content-type": "application/json"},
    )

    assert found.status_code == 401


def test_no_token_gets_into_a_log_or_an_answer(house: ServedDoors, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    answers = [house.post("health", token="secret-guess" * 4), house.post("tasks.list", {"x": TOKEN})]
    with house.websocket() as client:
        client.connect("secret-guess" * 4)

    logged = "\n".join(record.getMessage() for record in caplog.records if record.name != "httpx")
    assert TOKEN not in logged + "".join(answer.text for answer in answers)
    assert "secret-guess" not in logged


# --- how often


def test_a_bucket_has_so_many_at_once_and_then_so_many_a_second() -> None:
    bucket = Bucket(2, 1, now=0)

    assert [bucket.take(0), bucket.take(0), bucket.take(0)] == [0, 0, 1]
    assert bucket.take(1.5) == 0
    assert bucket.take(1.5) == 0.5
    assert bucket.take(100) == 0


def test_too_many_requests_are_refused_on_loopback_and_probes_are_not_counted(home: Path) -> None:
    with served_doors(home, settings=GatewaySettings(rate_limit_per_s=0.01)) as house:
        # The burst is four times the rate: less than one.
        refused = house.post("health")
        probes = [house.get("/healthz", token=None).status_code for _ in range(5)]

    assert refused.status_code == 429
    assert refused.json()["error"]["retryAfterMs"] > 0
    assert probes == [200] * 5


def test_frames_are_counted_like_requests(home: Path) -> None:
    with (
        served_doors(home, settings=GatewaySettings(rate_limit_per_s=0.75)) as house,
        house.websocket() as client,
    ):
        client.connect()
        answers = [client.call("health") for _ in range(3)]

    assert answers[-1]["error"]["code"] == "RATE_LIMITED"
    assert answers[-1]["error"]["retryable"]


# --- hostile bodies


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not json", 400),
        (b"", 200),
        (b"null", 200),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"limit":' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400),
        (b'{"limit": 1e999}', 400),
        (b'{"limit": "1"}', 400),
        (b'{"limit": 1, "limit": 2}', 200),
        (b'{"limit": 1} trailing', 400),
        (b'{"__proto__": {}}', 400),
        (b'{"status": ["queued", 7]}', 400),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_body_that_is_none_is_told_so(house: ServedDoors, body: bytes, status: int) -> None:
    assert house.post("tasks.list", body).status_code == status


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
@pytest.mark.parametrize("path", ["/rpc/tasks.list", "/channels/hook"])
def test_only_json_is_taken(house: ServedDoors, path: str, kind: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": kind}
    found = house.http.post(f"{house.url}{path}", content=b"{}", headers=headers)

    assert found.status_code == 415


def test_a_body_over_the_cap_is_refused_also_without_a_length(house: ServedDoors) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 64 * 1024

    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    with_length = house.post("tasks.list", b" " * (2 * 1024**2))
    try:
        without = house.http.post(
            f"{house.url}/rpc/tasks.list", content=chunks(), headers=headers
        ).status_code
    except httpx.WriteError:  # the connection may be gone before all of it was sent
        without = 413

    assert (with_length.status_code, without) == (413, 413)


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_a_method_is_only_posted(house: ServedDoors, verb: str) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}

    assert house.http.request(verb, f"{house.url}/rpc/gateway.stop", headers=headers).status_code == 405
    assert house.gateway.stops == []


def test_nothing_of_an_inner_failure_reaches_the_client(
    house: ServedDoors, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise ValueError("/etc/secret path")

    monkeypatch.setattr(house.gateway, "preflight", broken)
    failed = house.post("gateway.readiness")

    assert failed.status_code == 500
    assert "secret" not in failed.text
    assert "gateway.readiness failed" in caplog.text


def test_answers_are_no_pages(house: ServedDoors) -> None:
    for answer in (house.post("health"), house.get("/healthz"), house.post("health", token=None)):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


# --- slow and vanishing clients


def test_a_body_that_does_not_come_is_given_up(house: ServedDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_TIMEOUT_S", 0.05)
    head = (
        f"POST /rpc/health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", house.port), timeout=20) as way:
        way.sendall(head.encode())

        assert way.recv(100).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("beginning", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: loc"])
def test_a_request_that_does_not_come_is_given_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(protocols, "LOOK_EVERY_S", 0.02)
    with served_doors(home) as house, socket.create_connection(("127.0.0.1", house.port), timeout=20) as way:
        way.sendall(beginning)

        with contextlib.suppress(ConnectionResetError):
            assert way.recv(100) == b""


def test_a_websocket_that_takes_nothing_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "LOOK_EVERY_S", 0.2)
    with served_doors(home) as house, house.websocket(max_queue=1, close_timeout=0.1) as client:
        client.connect()
        client.way.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        frame = msgspec.json.encode({"type": "req", "id": "1", "method": "rpc.describe"}).decode()
        frame += " " * 4096  # so that all buffers on its way are full soon
        with contextlib.suppress(OSError, ConnectionClosed):
            while True:
                client.way.send(frame)

        assert house.post("health").status_code == 200


def test_clients_that_vanish_in_the_middle_do_no_harm(house: ServedDoors) -> None:
    for cut in (
        b"GET",
        b"POST /rpc/health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        b"\x00\xff",
    ):
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", house.port), timeout=20) as way:
                way.sendall(cut)

    assert house.post("health").json()["ok"]
