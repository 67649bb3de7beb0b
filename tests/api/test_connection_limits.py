"""Too many connections: strangers who only wait make room, and nothing is said a thousand times."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.api import connection_limits, protocols
from holdfast.api.connection_limits import (
    BACKLOG,
    ConnectionLimits,
    ListeningSocket,
    RateLimitedLog,
    few_complaints,
    most_connections,
)
from tests.api.stand_in import TOKEN, ServedDoors, served_doors

pytestmark = pytest.mark.slow

HEAD = b"GET /healthz HTTP/1.1\r\n"
PATIENCE_S = 20.0


@pytest.fixture
def small_house(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedDoors]:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 5)
    with served_doors(home) as house:
        yield house


def connect(house: ServedDoors) -> socket.socket:
    return socket.create_connection(("127.0.0.1", house.port), PATIENCE_S)


def is_closed(way: socket.socket) -> bool:
    """Waits for the other end to close it."""
    try:
        return way.recv(1) == b""
    except ConnectionResetError:
        return True


# --- how many


@pytest.mark.parametrize(
    ("soft", "most"),
    [(256, 128), (1024, 512), (4096, 3584), (10_240, 4000), (1, 1), (resource.RLIM_INFINITY, 4000)],
)
def test_connections_leave_descriptors_for_everything_else(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))

    assert most_connections() == most


# --- who goes


def test_strangers_who_only_wait_make_room_for_a_request(small_house: ServedDoors) -> None:
    waiting = [connect(small_house) for _ in range(5)]
    for way in waiting:
        way.sendall(HEAD)

    answers = [httpx.get(f"{small_house.url}/healthz", trust_env=False).status_code for _ in range(3)]

    assert answers == [200, 200, 200]
    assert is_closed(waiting[0]), "the one that waits longest"
    waiting[-1].sendall(b"Host: localhost\r\n\r\n")
    assert waiting[-1].recv(12) == b"HTTP/1.1 200"
    for way in waiting:
        way.close()


def test_who_has_been_answered_and_only_waits_makes_room_too(small_house: ServedDoors) -> None:
    clients = [httpx.Client(trust_env=False) for _ in range(7)]

    answers = [client.get(f"{small_house.url}/healthz").status_code for client in clients]

    assert answers == [200] * 7
    for client in clients:
        client.close()


def test_one_too_many_is_refused_when_no_connection_only_waits(small_house: ServedDoors) -> None:
    listeners = []
    for _ in range(5):
        way = connect(small_house)
        listeners.append(way)
        way.sendall(
            f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        with way.makefile("rb") as lines:
            assert any(line == b": holdfast\n" for line in lines)

    with connect(small_house) as one_more:
        assert one_more.recv(12) == b"HTTP/1.1 503"

    for way in listeners:
        way.close()


def test_a_head_that_does_not_come_ends_the_connection(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "LOOK_EVERY_S", 0.05)
    with served_doors(home) as house, connect(house) as way:
        way.sendall(HEAD)

        assert is_closed(way)


def test_a_head_in_small_pieces_ends_the_connection_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "LOOK_EVERY_S", 0.2)

    def drip(way: socket.socket) -> None:
        while select.select([way], [], [], 0.01)[0] == []:
            way.sendall(b"X")

    with served_doors(home) as house, connect(house) as way:
        with contextlib.suppress(OSError):
            drip(way)

        assert is_closed(way)


class Idler:
    def __init__(self) -> None:
        self.transport: Any = self
        self.is_gone = False

    def abort(self) -> None:
        self.is_gone = True


def test_each_who_is_let_go_is_let_go_once() -> None:
    all_of_us = ConnectionLimits(3)
    first, second, busy = Idler(), Idler(), Idler()
    for one in (busy, first, second):
        assert all_of_us.enter(one, now=0.0)
        all_of_us.is_known(one)
    all_of_us.is_busy(busy)
    for one in (second, first):
        all_of_us.waits(one)
    all_of_us.waits(second)  # it was answered, and waits again
    newcomers = [Idler(), Idler(), Idler()]

    entered = []
    for one in newcomers:
        entered.append(all_of_us.enter(one, now=0.0))
        all_of_us.is_known(one)

    assert entered == [True, True, False]
    assert (first.is_gone, second.is_gone, busy.is_gone) == (True, True, False)


def test_a_quarter_of_the_places_is_kept_for_clients_with_a_token() -> None:
    all_of_us = ConnectionLimits(8)
    operators, strangers = [Idler(), Idler()], [Idler() for _ in range(20)]
    for one in operators:
        all_of_us.enter(one, now=0.0)
        all_of_us.is_known(one)
        all_of_us.waits(one)

    for one in strangers:
        assert all_of_us.enter(one, now=0.0)
        all_of_us.is_busy(one)

    assert [one.is_gone for one in strangers] == [True] * 14 + [False] * 6
    assert not any(one.is_gone for one in operators)


def test_a_stranger_that_only_waits_goes_before_one_that_is_served() -> None:
    all_of_us = ConnectionLimits(4)
    busy, idle, also_idle = Idler(), Idler(), Idler()
    for one in (busy, idle, also_idle):
        all_of_us.enter(one, now=0.0)
    all_of_us.is_busy(busy)

    all_of_us.enter(Idler(), now=0.0)

    assert [one.is_gone for one in (busy, idle, also_idle)] == [False, True, False]


# --- what is said, and what is kept


def test_what_happens_all_the_time_is_said_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    seldom = RateLimitedLog(every_s=60.0)

    for second in range(130):
        seldom.say(float(second), f"at {second}")

    assert [one.getMessage() for one in caplog.records] == ["at 0", "at 60", "at 120"]


def test_a_connection_that_cannot_be_accepted_is_said_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def complain() -> None:
        loop = asyncio.get_running_loop()
        full = OSError(errno.EMFILE, "Too many open files")
        with few_complaints(loop):
            for _ in range(1000):
                loop.call_exception_handler(
                    {"message": "socket.accept() out of system resource", "exception": full}
                )
            loop.call_exception_handler({"message": "something else", "exception": full})
        assert loop.get_exception_handler() is None

    asyncio.run(complain())

    ours, other = caplog.records
    assert "no connection can be accepted: Too many open files" in ours.getMessage()
    assert ours.exc_info is None
    assert "something else" in other.getMessage()


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux tells it")
def test_a_socket_keeps_its_backlog_when_it_is_served() -> None:
    def backlog(listening: socket.socket) -> int:
        (most,) = struct.unpack_from("I", listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 28)
        return int(most)

    async def serve(listening: socket.socket) -> int:
        server = await asyncio.start_server(lambda _r, w: w.close(), sock=listening, backlog=8)
        async with server:
            return backlog(listening)

    bound = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    before = backlog(bound)

    assert asyncio.run(serve(ListeningSocket.of(bound))) == before > 8
