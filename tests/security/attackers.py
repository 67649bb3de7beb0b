"""Ten anonymous connections of one kind that mean no good: `python -m tests.security.attackers KIND PORT`.

They go on until they are ended; a connection that the gateway closes is opened again.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from holdfast.channels.webhook import SIGNATURE_HEADER, sign
from holdfast.core.clock import SystemClock
from tests.architecture.source import ROOT

CONNECTIONS = 10
DRIP_S = 0.02
LARGE = b" " * 1024**2

Attack = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _post(path: str, length: int, *lines: str) -> bytes:
    given = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *lines]
    return "".join(f"{line}\r\n" for line in (*given, f"Content-Length: {length}", "")).encode()


def _made_up() -> str:
    """A signature that only the body shows to be wrong."""
    return f"{SIGNATURE_HEADER}: {sign(b'made up', b'', SystemClock().now())}"


async def slow_heads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"POST /rpc/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    await _drip(writer)


async def slow_bodies(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_post("/channels/hook", 100_000, _made_up()))
    await _drip(writer)


async def idle_websockets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await reader.read()


async def websocket_flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await reader.read(4096)


async def wrong_tokens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for number in itertools.count():
        writer.write(_post("/rpc/health", 2, f"Authorization: Bearer guess-{number}") + b"{}")
        await _answer(reader)


async def made_up_webhooks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(_post("/channels/hook", 2, _made_up()) + b"{}")
        await _answer(reader)


async def large_bodies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_post("/rpc/health", len(LARGE)) + LARGE)
    await writer.drain()
    await reader.read()


async def large_webhooks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_post("/channels/hook", len(LARGE), _made_up()) + LARGE)
    await writer.drain()
    await _answer(reader)


async def probes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await _answer(reader)


async def malformed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n")
    await reader.read()


ATTACKS: Mapping[str, Attack] = {
    "slow heads": slow_heads,
    "slow webhook bodies": slow_bodies,
    "idle WebSockets before connect": idle_websockets,
    "WebSockets opened and closed": websocket_flood,
    "wrong tokens": wrong_tokens,
    "webhooks with made-up signatures": made_up_webhooks,
    "large bodies without a token": large_bodies,
    "large webhook bodies": large_webhooks,
    "probes": probes,
    "malformed requests": malformed,
}


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(DRIP_S)


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))


async def _again_and_again(attack: Attack, port: int) -> None:
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await attack(reader, writer)
            finally:
                writer.transport.abort()


async def _all(kind: str, port: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(_again_and_again(ATTACKS[kind], port))
        print("attacking", flush=True)


@contextmanager
def under_attack(kind: str, port: int) -> Iterator[None]:
    """While the block runs, by a process of their own."""
    command = [sys.executable, "-m", "tests.security.attackers", kind, str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"attacking\n"
        yield
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    asyncio.run(_all(sys.argv[1], int(sys.argv[2])))
