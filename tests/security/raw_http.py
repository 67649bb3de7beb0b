"""Requests written by hand, because no client library would send them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from holdfast.channels.webhook import SIGNATURE_HEADER, sign
from holdfast.core.clock import SystemClock
from tests.api.stand_in import TOKEN

PATIENCE_S = 20.0
SECRET = b"a secret that both ends know"


@contextlib.contextmanager
def connected(port: int, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=(source, 0)) as way:
        yield way


def said(way: socket.socket) -> bytes:
    """All that the other end says until it closes."""
    found = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := way.recv(65536):
            found += piece
    return bytes(found)


def status_of(way: socket.socket) -> int:
    """Of the next answer; 0 if there is none."""
    head = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while b"\r\n" not in head and (piece := way.recv(1)):
            head += piece
    return int(head.split()[1]) if head else 0


def ask(port: int, request: bytes, source: str = "127.0.0.1") -> bytes:
    with connected(port, source) as way:
        way.sendall(request)
        return said(way)


def head(path: str, *more: str, verb: str = "POST", token: str | None = TOKEN) -> bytes:
    """A head with its end; `more` are lines of it."""
    lines = [f"{verb} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "".join(f"{line}\r\n" for line in (*lines, "Connection: close", "")).encode()


def signature_line(body: bytes, *, secret: bytes = SECRET, hours: float = 0.0) -> str:
    from datetime import timedelta

    return f"{SIGNATURE_HEADER}: {sign(secret, body, SystemClock().now() + timedelta(hours=hours))}"
