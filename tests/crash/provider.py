"""An HTTP server on loopback that misbehaves by a seed, and writes down all that reaches it.

Its journal is the truth about effects: it knows nothing of the ledger, and the ledger nothing of it. What a
request does is done when its line is written, before anything is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

LOOPBACK = "127.0.0.1"
KEY_HEADER = "idempotency-key"
# Longer than any client of ours waits.
STALL_S = 0.8
BUSY_S = 0.05
# Between two lines of what one look at the loop's sockets brings; see `_behind_all_others`.
TICKS = 20
MAX_HEAD_BYTES = 16_384


class Act(StrEnum):
    """What becomes of one request."""

    WELL = "well"
    # Performed, and the client does not hear of it, or not as it should.
    HANG_UP = "performed, hung up"
    RESET_AFTER = "performed, reset"
    ERROR = "performed, 500"
    GARBAGE = "performed, 200 without JSON"
    STALL = "performed, stalled"
    # Not performed.
    REFUSE = "refused with 422"
    RESET_BEFORE = "reset before it was performed"
    BUSY = "429"


PERFORMS = frozenset({Act.WELL, Act.HANG_UP, Act.RESET_AFTER, Act.ERROR, Act.GARBAGE, Act.STALL})
# Of a hundred requests; the others are served well.
OF_A_HUNDRED = {act: 4 for act in Act if act is not Act.WELL}


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One request that arrived whole."""

    route: str
    op: str
    key: str
    act: Act
    # Whether the world changed; a key that was seen before changes nothing.
    performed: bool


class ProviderRequest(NamedTuple):
    method: str
    route: str
    op: str
    key: str


class Journal:
    """An append-only file, one line for each request; written by the server alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> Callable[[Arrival], None]:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

        def write(arrival: Arrival) -> None:
            os.write(descriptor, msgspec.json.encode(arrival) + b"\n")
            os.fsync(descriptor)

        return write

    def arrivals(self) -> list[Arrival]:
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        return [msgspec.json.decode(line, type=Arrival) for line in lines]


def act_for(seed: int, op: str, nth: int) -> Act:
    """The same for the same request, in whatever order they come."""
    choice = random.Random(f"{seed} {op} {nth}").randrange(100)
    for act, weight in OF_A_HUNDRED.items():
        if choice < weight:
            return act
        choice -= weight
    return Act.WELL


class Provider:
    """POST /<route>/<op> performs, GET /read/<op> only looks, GET /truth/<op> says what was performed."""

    def __init__(self, journal: Journal, seed: int) -> None:
        self._write = journal.open()
        self._seed = seed
        self._seen: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._performed: Counter[str] = Counter()

    async def serve(self, on_port: Callable[[int], object]) -> None:
        server = await asyncio.start_server(self._answer, LOOPBACK, 0, limit=MAX_HEAD_BYTES, backlog=1024)
        async with server:
            on_port(server.sockets[0].getsockname()[1])
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client may be killed at any moment.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _read(reader)
            if request.route == "truth":
                await self._behind_all_others()
                _send(writer, 200, msgspec.json.encode({"performed": self._performed[request.op]}))
            else:
                await self._misbehave(request, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async def _behind_all_others(self) -> None:
        """Whatever was sent before this was asked has been accepted and read, however late we are."""
        for _ in range(TICKS):
            await asyncio.sleep(0)

    async def _misbehave(self, request: ProviderRequest, writer: asyncio.StreamWriter) -> None:
        self._seen[request.op] += 1
        act = act_for(self._seed, request.op, self._seen[request.op])
        performed = act in PERFORMS and not (request.route == "keyed" and request.key in self._keys)
        if performed:
            self._performed[request.op] += 1
            self._keys.add(request.key)
        self._write(
            Arrival(route=request.route, op=request.op, key=request.key, act=act, performed=performed)
        )
        match act:
            case Act.WELL:
                # Never the same twice, so that a result which was forgotten is found out.
                did = f"{request.route} {request.op} {self._seen[request.op]}"
                _send(writer, 200, msgspec.json.encode({"did": did}))
            case Act.ERROR:
                _send(writer, 500, b"something went wrong, after all")
            case Act.GARBAGE:
                _send(writer, 200, b"<html>it works</html>")
            case Act.STALL:
                await asyncio.sleep(STALL_S)
            case Act.REFUSE:
                _send(writer, 422, b"no")
            case Act.BUSY:
                _send(writer, 429, b"later", f"Retry-After: {BUSY_S}\r\n")
            case Act.RESET_AFTER | Act.RESET_BEFORE:
                _reset(writer)
            case Act.HANG_UP:
                pass


async def _read(reader: asyncio.StreamReader) -> ProviderRequest:
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    await reader.readexactly(int(headers.get("content-length", 0)))
    method, target, _ = head.split(" ")
    _, route, op = urlsplit(target).path.split("/")
    return ProviderRequest(method, route, op, headers.get(KEY_HEADER, ""))


def _send(writer: asyncio.StreamWriter, status: int, body: bytes, more: str = "") -> None:
    head = f"HTTP/1.1 {status} so\r\nContent-Length: {len(body)}\r\n{more}Connection: close\r\n\r\n"
    writer.write(head.encode() + body)


def _reset(writer: asyncio.StreamWriter) -> None:
    """The client hears of it as an error, not as an end."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def provide(journal: Journal, seed: int, on_port: Callable[[int], object]) -> None:
    """In a process of its own, until it is killed."""
    asyncio.run(Provider(journal, seed).serve(on_port))
