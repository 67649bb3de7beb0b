"""Requests that a proxy and the gateway could understand differently are refused, and reach nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.api import protocols
from tests.api.stand_in import TOKEN, ServedDoors, served_doors
from tests.security.raw_http import ask, connected, said

pytestmark = pytest.mark.slow

TO_STOP = f"POST /rpc/gateway.stop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"

REFUSED = {
    "two lengths": TO_STOP + JSON + b"Content-Length: 2\r\n" + CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\r\n",
    "two lengths, turned": TO_STOP + JSON + CHUNKED + b"Content-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two lengths in HTTP/1.0": (TO_STOP + JSON + CHUNKED + b"\r\n0\r\n\r\n").replace(b"/1.1", b"/1.0"),
    "bare line feeds": (TO_STOP + JSON + b"Content-Length: 2\r\n\r\n{}").replace(b"\r\n", b"\n"),
    "one bare line feed": TO_STOP + JSON.replace(b"\r", b"") + b"Content-Length: 2\r\n\r\n{}",
    "a bare line feed at the end": TO_STOP + JSON + b"Content-Length: 2\r\n\n{}",
    "a bare carriage return": TO_STOP + JSON + b"X: a\rb\r\nContent-Length: 2\r\n\r\n{}",
    "a folded header": TO_STOP + JSON + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "a folded length": TO_STOP + JSON + b"Content-Length:\r\n\t2\r\n\r\n{}",
    "a folded first line": TO_STOP.replace(b"\r\n", b"\r\n ", 1) + JSON + b"Content-Length: 2\r\n\r\n{}",
    "a space before the colon": TO_STOP + JSON + b"Content-Length : 2\r\n\r\n{}",
    "two different lengths": TO_STOP + JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a signed length": TO_STOP + JSON + b"Content-Length: +2\r\n\r\n{}",
    "an unknown encoding": TO_STOP + JSON + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a bare line feed in a chunk": TO_STOP + JSON + CHUNKED + b"\r\n2;a\nb\r\n{}\r\n0\r\n\r\n",
    "a bare carriage return in a chunk": TO_STOP + JSON + CHUNKED + b"\r\n2;a\rb\r\n{}\r\n0\r\n\r\n",
    "bare line feeds in a trailer": TO_STOP + JSON + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX: a\n\n",
    "a folded trailer": TO_STOP + JSON + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX: a\r\n b\r\n\r\n",
    "many headers": TO_STOP + JSON + b"a:\r\n" * 200 + b"\r\n",
    "a long head": TO_STOP + JSON + b"X: " + b"a" * 60_000 + b"\r\n\r\n",
}


@pytest.fixture(scope="module")
def one_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDoors]:
    with served_doors(tmp_path_factory.mktemp("s")) as house:
        yield house


@pytest.fixture
def house(one_house: ServedDoors) -> ServedDoors:
    one_house.gateway.stops.clear()
    return one_house


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is held back for a moment, which there is no need to wait for here."""
    monkeypatch.setattr(protocols, "HOLD_S", 0.0)


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_two_readers_understand_differently_reaches_nothing(
    house: ServedDoors, what: str
) -> None:
    answer = ask(house.port, REFUSED[what])

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"\r\n\r\n") == 1
    assert b'{"error":{"code":"INVALID_REQUEST","message":"' in answer
    assert house.gateway.stops == []


@pytest.mark.parametrize("what", [what for what in REFUSED if len(REFUSED[what]) < 1000])
def test_it_is_refused_also_when_it_comes_byte_by_byte(house: ServedDoors, what: str) -> None:
    request = REFUSED[what]
    with connected(house.port) as way:
        try:
            for at in range(len(request)):
                way.sendall(request[at : at + 1])
        except OSError:
            pass  # refused before its end
        answer = said(way)

    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert house.gateway.stops == []


def test_the_reason_says_what_to_change(house: ServedDoors) -> None:
    both = ask(house.port, REFUSED["two lengths"])
    feed = ask(house.port, REFUSED["bare line feeds"])
    folded = ask(house.port, REFUSED["a folded header"])

    assert b"both Content-Length and Transfer-Encoding; send one" in both
    assert b"bare line feed; end each line with CR LF" in feed
    assert b"folded over several lines; write it on one" in folded


@pytest.mark.parametrize(
    "request_",
    [
        TO_STOP + JSON + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}",
        TO_STOP + JSON + CHUNKED + b"Connection: close\r\n\r\n2;a=b\r\n{}\r\n0\r\nX: a\r\n\r\n",
        TO_STOP + JSON + CHUNKED + b"Connection: close\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    ],
    ids=["length", "chunks with extension and trailer", "chunks"],
)
def test_what_the_standard_allows_is_heard(house: ServedDoors, request_: bytes) -> None:
    with connected(house.port) as way:
        for at in range(0, len(request_), 7):
            way.sendall(request_[at : at + 7])
        answer = said(way)

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(house.gateway.stops) == 1


def test_two_requests_at_once_are_two(house: ServedDoors) -> None:
    one = TO_STOP + JSON + b"Content-Length: 2\r\n\r\n{}"
    last = TO_STOP + JSON + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"

    answer = ask(house.port, one + one + last)

    assert answer.count(b"HTTP/1.1 200 ") == 3
