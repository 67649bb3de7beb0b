"""What a hostile or broken peer may send, made from a seed: HTTP, RPC values, frames, webhooks, settings."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.api.methods import METHODS
from holdfast.channels.webhook import SIGNATURE_HEADER, sign
from holdfast.core.clock import SystemClock
from tests.config.homes import EVERY_KEY

PATIENCE_S = 30.0
# They would end what is attacked: a parameter that they do not have makes sure that they are refused.
ENDING = frozenset({"gateway.stop", "gateway.restart"})
# So that no call waits: a client may ask for that, and it is no attack.
WAITING = {"waitMs": 0}

_TEXTS = (
    *(
        "",
        " ",
        "a",
        "main",
        "ada",
        "task_",
        "\x00",
        "\x1b[2J",
        "\u202e",
        "\ud800",
        "😀",
        "'; DROP TABLE tasks; --",
    ),
    *(
        "../../token",
        "%00",
        "queued",
        "failed",
        "turn:1",
        "now",
        "-1",
        "1e400",
        "NaN",
        "null",
        "[redacted:x]",
    ),
    *("a" * 65, "a" * 5000, "\n" * 30, "=" * 300, "{}", "[]", "agent:ada:main", "evt_1", "0" * 64),
)
_NUMBERS = (0, -1, 1, 2, 500, 501, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308, 5e-324)

_PATHS = (
    *("/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/rpc/health", "/rpc/tasks.list", "/rpc", "*"),
    *("/channels/hook", "//", "/%2e%2e", "/rpc/" + "a" * 300, "/events?after=x", "/x?token=1", "http://a/"),
)


class Target:
    """A gateway, and what an attacker on this machine may know of it."""

    def __init__(self, port: int, token: str, hook_secret: bytes) -> None:
        self.port = port
        self.token = token
        self.hook_secret = hook_secret

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def exchange(self, request: bytes) -> bytes:
        """Send all of it and no more, and hear the other end out."""
        with self.connected() as way:
            with contextlib.suppress(OSError):
                way.sendall(request)
                way.shutdown(socket.SHUT_WR)
            return heard(way)

    def head(self, verb: str, path: str, *lines: str, token: str | None = None) -> bytes:
        given = [f"{verb} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *lines, "Connection: close"]
        if token is not None:
            given.append(f"Authorization: Bearer {token}")
        return "".join(f"{line}\r\n" for line in (*given, "")).encode("utf-8", "surrogatepass")


def heard(way: socket.socket) -> bytes:
    found = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := way.recv(1 << 16):
            found += piece
    return bytes(found)


def statuses(answer: bytes) -> list[int]:
    """Of every answer that came over one connection."""
    return [int(line[9:12]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


# --- values


def any_text(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return rng.choice(_TEXTS)
    return "".join(
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x3000)))) for _ in range(rng.randrange(40))
    )


def any_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(5 if depth > 3 else 8)
    if kind < 2:
        return any_text(rng)
    if kind == 2:
        return rng.choice(_NUMBERS)
    if kind in {3, 4}:
        return rng.choice((True, False, None))
    if kind == 5:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {any_text(rng): any_value(rng, depth + 1) for _ in range(rng.randrange(4))}
    nested: Any = 1
    for _ in range(rng.choice((5, 60, 600))):
        nested = [nested]
    return nested


def encoded(value: Any) -> bytes:
    """JSON, also of what is none by the standard: halves of surrogate pairs and numbers without end."""
    return json.dumps(value, ensure_ascii=True).encode()


def mutated(rng: random.Random, text: bytes) -> bytes:
    """With a few bytes changed, doubled, left out or put in."""
    found = bytearray(text)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0 if found:
                found[at % len(found)] = rng.randrange(256)
            case 1:
                found[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6)))
            case 2:
                del found[at : at + rng.randrange(1, 20)]
            case 3:
                found[at:at] = found[at : at + rng.randrange(1, 60)]
            case _:
                put_in = (b"\n", b"\r", b"\r\n", b"\0", b" ", b"\r\n ", b":", b"\r\n\r\n", b"\xff", b"%00")
                found[at:at] = rng.choice(put_in)
    return bytes(found)


# --- what is sent; each gives the statuses of the answers


def http_shape(rng: random.Random, target: Target, _: int) -> list[int]:
    verb = rng.choice(("GET", "POST", "HEAD", "PUT", "OPTIONS", "CONNECT", "TRACE", "get", "A" * 40))
    lines = rng.sample(
        [
            *(
                "Content-Type: application/json",
                "Content-Length: 2",
                "Content-Length: 99",
                "Expect: 100-continue",
            ),
            *(
                "Transfer-Encoding: chunked",
                "Origin: null",
                "X-Forwarded-For: 1.1.1.1",
                'Forwarded: for="',
                "X:",
            ),
            *(
                "Upgrade: websocket",
                "Upgrade: h2c",
                "Connection: Upgrade",
                "Sec-WebSocket-Version: 13",
                "Cookie: a=b",
            ),
            *(
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
                "Last-Event-ID: 7",
                "X: " + "a" * 9000,
                "Host: evil",
            ),
            *("Range: bytes=0-1", "X-Holdfast-Signature: t=1,v1=0", "Content-Encoding: gzip", "Accept: \x7f"),
        ],
        rng.randrange(6),
    )
    body = rng.choice(
        (b"", b"{}", b"2\r\n{}\r\n0\r\n\r\n", b"fffffffff\r\n", b"{}" * 40_000, b"\x16\x03\x01")
    )
    token = rng.choice((None, target.token, "wrong", any_text(rng)[:60]))
    request = target.head(verb, rng.choice(_PATHS), *lines, token=token) + body
    if rng.random() < 0.6:
        request = mutated(rng, request)
    if rng.random() < 0.2:
        request += request
    return statuses(target.exchange(request))


def rpc_value(rng: random.Random, target: Target, number: int) -> list[int]:
    """Each method has its turn."""
    names = list(METHODS)
    name = names[number // len(SHAPES) % len(names)]
    fields = msgspec.structs.fields(METHODS[name].params)
    params: Any = {one.encode_name: any_value(rng) for one in fields if one.required or rng.random() < 0.5}
    if rng.random() < 0.1:
        params = any_value(rng)
    if isinstance(params, dict):
        params |= {key: value for key, value in WAITING.items() if key in params}
        if name in ENDING or rng.random() < 0.05:
            params["nothing of ours"] = 1
    elif name in ENDING:
        return []
    body = encoded(params)
    if rng.random() < 0.15 and name not in ENDING:
        body = mutated(rng, body)
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return statuses(target.exchange(target.head("POST", f"/rpc/{name}", *lines, token=target.token) + body))


def webhook_body(rng: random.Random, target: Target, _: int) -> list[int]:
    names = ("messageId", "text", "peer", "accountId", "thread", "session")
    value: Any = {name: any_text(rng) for name in names if rng.random() < 0.6}
    if rng.random() < 0.3:
        value = any_value(rng)
    body = encoded(value)
    if rng.random() < 0.2:
        body = mutated(rng, body)
    when = SystemClock().now() + timedelta(seconds=rng.choice((0, 0, 0, -100, 400)))
    signature = sign(rng.choice((target.hook_secret, target.hook_secret, b"another")), body, when)
    if rng.random() < 0.1:
        signature = mutated(rng, signature.encode()).decode("latin-1").translate({10: None, 13: None})
    lines = (
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"{SIGNATURE_HEADER}: {signature}",
    )
    path = f"/channels/{rng.choice(('hook', 'hook', 'hook', 'other', '%2e', 'a' * 99))}"
    return statuses(target.exchange(target.head("POST", path, *lines) + body))


def frame(rng: random.Random, payload: bytes) -> bytes:
    """One frame, as often as not with something wrong about it."""
    first = 0x81 if rng.random() < 0.5 else rng.randrange(256)
    length, masked = len(payload), 0x80 if rng.random() < 0.9 else 0
    if rng.random() < 0.1:
        length = rng.choice((0, 1, 125, 2**16, 2**31, 2**63))
    if length < 126:
        head = struct.pack("!BB", first, masked | length)
    elif length < 2**16:
        head = struct.pack("!BBH", first, masked | 126, length)
    else:
        head = struct.pack("!BBQ", first, masked | 127, length)
    # A mask of zeros leaves the payload as it is.
    return head + (b"\0" * 4 if masked else b"") + payload


def request_frame(method: str, params: Any, number: int = 1) -> bytes:
    return encoded({"type": "req", "id": str(number), "method": method, "params": params})


def whole(payload: bytes) -> bytes:
    return frame(_Plain(), payload)


class _Plain(random.Random):
    """Chooses what is right."""

    def random(self) -> float:
        return 0.2


def _opened(target: Target) -> socket.socket:
    way = target.connected()
    way.sendall(
        target.head("GET", "/")[: -len("Connection: close\r\n\r\n")]
        + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    return way


def _frames(rng: random.Random) -> bytes:
    found = bytearray()
    for number in range(rng.randrange(1, 12)):
        method = rng.choice((*METHODS, "connect", "nothing"))
        params: Any = {"nothing of ours": 1} if method in ENDING else any_value(rng)
        if isinstance(params, dict):
            params |= {key: value for key, value in WAITING.items() if key in params}
        payload = request_frame(method, params, number)
        if rng.random() < 0.4:
            payload = rng.choice(
                (b"", b"\xff\xfe", b"{}", b"[" * 3000, b" " * 70_000, mutated(rng, payload[:60]))
            )
        found += frame(rng, payload)
    return bytes(found)


def frames_before_connect(rng: random.Random, target: Target, _: int) -> list[int]:
    with _opened(target) as way:
        with contextlib.suppress(OSError):
            if rng.random() < 0.5:
                way.recv(4096)
            way.sendall(_frames(rng))
            way.shutdown(socket.SHUT_WR)
        heard(way)
    return []


def frames_after_connect(rng: random.Random, target: Target, _: int) -> list[int]:
    params = {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": target.token}}
    with _opened(target) as way:
        with contextlib.suppress(OSError):
            found = way.recv(1 << 16)  # that it may send frames now
            way.sendall(whole(request_frame("connect", params)))
            while b'"hello-ok"' not in found and (piece := way.recv(1 << 16)):
                found += piece
            assert b'"hello-ok"' in found, found[-300:]
            way.sendall(_frames(rng))
            way.shutdown(socket.SHUT_WR)
        heard(way)
    return []


SHAPES: Mapping[str, Callable[[random.Random, Target, int], list[int]]] = {
    "http": http_shape,
    "rpc": rpc_value,
    "webhook": webhook_body,
    "frames before connect": frames_before_connect,
    "frames after connect": frames_after_connect,
}


# --- settings


def settings_document(rng: random.Random) -> bytes:
    """One that uses every key, with something changed."""
    document = msgspec.json.decode(msgspec.json.encode(EVERY_KEY))
    for _ in range(rng.randrange(1, 4)):
        part = document
        while isinstance(part, dict) and part and rng.random() < 0.8:
            key = rng.choice(list(part))
            if not isinstance(part[key], dict) or rng.random() < 0.2:
                part[key] = any_value(rng)
                break
            part = part[key]
        else:
            if isinstance(part, dict):
                part[any_text(rng)] = any_value(rng)
    found = encoded(document)
    return mutated(rng, found) if rng.random() < 0.3 else found
