"""`http_get` and `http_request` reach the public internet only, by every way in which a host can be named."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from holdfast.core.errors import BadInput
from holdfast.tools import HttpFailed, HttpNotSent, addresses, http_get, http_request
from tests.tools.keyed_calls import KEY, call


class Server(HTTPServer):
    """On loopback; it remembers what it was asked, and redirects where the test wants."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked: list[tuple[str, str | None]] = []
        self.location: str | None = None
        self.body, self.kind = b"secret", "text/plain"


class _Answers(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Host")))
        is_redirected = self.server.location is not None and self.path == "/start"
        self.send_response(302 if is_redirected else 200)
        if is_redirected:
            self.send_header("Location", str(self.server.location))
        self.send_header("Content-Type", self.server.kind)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_POST = do_GET  # noqa: N815 - their names


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Names:
    """Resolves names as the test wants, one answer after another; numbers as the system does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)

    def _resolve(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(host)
        if host not in self.answers:
            return self._real(host, port, *args, **kwargs)
        answers = self.answers[host]
        ips = answers.pop(0) if len(answers) > 1 else answers[0]
        return [one for ip in ips for one in self._real(ip, port, *args, **kwargs)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


SPELLINGS = (
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001"),
    *("0.0.0.0", "0", "localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
)


@pytest.mark.parametrize("host", SPELLINGS)
async def test_this_machine_is_not_reached_however_it_is_spelled(server: Server, host: str) -> None:
    url = f"http://{host}:{server.server_port}/"

    with pytest.raises(HttpNotSent, match="not of the public internet"):
        await call(http_get, KEY, url)
    with pytest.raises(HttpNotSent, match="allow_private=True"):
        await call(http_request, KEY, "POST", url)

    assert server.asked == []


@pytest.mark.parametrize(
    "url", ["http://[::1]/", "https://[::1]/", "http://127.0.0.1/", "https://[::ffff:7f00:1]/"]
)
async def test_the_usual_port_makes_no_difference(url: str) -> None:
    with pytest.raises(HttpNotSent, match=r"\(loopback\)"):
        await call(http_get, KEY, url)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("169.254.169.254", "link-local"),
        ("100.100.100.200", "reserved"),
        ("100.64.0.1", "reserved"),
        ("168.63.129.16", "reserved"),
        ("192.88.99.1", "reserved"),
        ("198.18.0.1", "private"),
        ("224.0.0.1", "multicast"),
        ("240.0.0.1", "private"),
        ("255.255.255.255", "private"),
        ("0.1.2.3", "private"),
        ("fe80::1%eth0", "link-local"),
        ("fd00:ec2::254", "private"),
        ("fec0::1", "reserved"),
        ("ff02::1", "multicast"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b:1::1", "private"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a00:1::", "private"),
        ("2001:0:7f00:1::", "private"),
        ("::127.0.0.1", "reserved"),
        ("100::1", "private"),
        ("2001:db8::1", "private"),
        ("5f00::1", "reserved"),
        ("nonsense", "unknown kind of address"),
    ],
)
def test_an_address_that_is_not_public_is_known_for_what_it_is(address: str, kind: str) -> None:
    assert addresses.why_private(address) == kind


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::1"]
)
def test_a_public_address_is_public(address: str) -> None:
    assert addresses.why_private(address) is None


async def test_a_redirect_to_this_machine_is_not_followed(
    server: Server, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host passes for a public one: what it names next is looked at like any other."""
    names.answers["public.example"] = [["93.184.216.34"]]
    monkeypatch.setattr(addresses, "connect", to_loopback(server))
    server.location = f"http://127.0.0.1:{server.server_port}/token"

    with pytest.raises(HttpNotSent, match="loopback"):
        await call(http_get, KEY, "http://public.example/start")

    assert server.asked == [("/start", "public.example")]


def to_loopback(server: Server) -> Any:
    """In place of the public internet."""

    def connect(_found: object, timeout_s: float) -> socket.socket:
        return socket.create_connection(("127.0.0.1", server.server_port), timeout_s)

    return connect


class Tried:
    """Notes where a connection was to go, and makes none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ips: list[str] = []
        monkeypatch.setattr(addresses, "connect", self._connect)

    def _connect(self, found: list[addresses.Address], _timeout_s: float) -> socket.socket:
        self.ips.extend(one.ip for one in found)
        raise ConnectionRefusedError(111, "refused")


async def test_the_address_that_was_looked_at_is_the_one_that_is_connected_to(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public when it is looked at and private a moment later gains nothing."""
    names.answers["rebinding.example"] = [["93.184.216.34"], ["127.0.0.1"]]
    tried = Tried(monkeypatch)

    with pytest.raises(HttpNotSent, match="refused"):
        await call(http_get, KEY, "http://rebinding.example/")

    assert tried.ips == ["93.184.216.34"]
    assert names.asked == ["rebinding.example"]


async def test_of_several_addresses_only_the_public_ones_are_tried(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.answers["mixed.example"] = [["127.0.0.1", "93.184.216.34", "10.0.0.1"]]
    tried = Tried(monkeypatch)

    with pytest.raises(HttpNotSent, match="refused"):
        await call(http_get, KEY, "https://mixed.example/")

    assert tried.ips == ["93.184.216.34"]


async def test_a_caller_that_allows_it_reaches_this_machine_by_its_name(server: Server, names: Names) -> None:
    names.answers["intranet.example"] = [["127.0.0.1"]]
    url = f"http://intranet.example:{server.server_port}/a"

    found = await call(http_get, KEY, url, allow_private=True)

    assert found.body == "secret"
    assert server.asked == [("/a", f"intranet.example:{server.server_port}")]


async def test_a_proxy_is_not_asked_for_what_is_private(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy itself is named by the operator and may be anywhere."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")

    with pytest.raises(HttpNotSent, match="link-local"):
        await call(http_get, KEY, "http://169.254.169.254/latest/meta-data/")
    await call(http_get, KEY, "http://93.184.216.34/")

    assert [path for path, _ in server.asked] == ["http://93.184.216.34/"]


@pytest.mark.parametrize("given", [1, "yes", None])
async def test_what_allows_it_is_true_or_false(given: Any) -> None:
    with pytest.raises(BadInput, match="allow_private"):
        await call(http_get, KEY, "http://127.0.0.1/", allow_private=given)


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("punycode", b"maana-pta", "maana-pta"),
        ("unicode_escape", b"\\x41", "\\x41"),
        ("utf-7", b"+AEE-", "+AEE-"),
        ("rot13", b"uryyb", "uryyb"),
        ("idna", b"xn--fiqs8s", "xn--fiqs8s"),
        ("../../etc", b"a", "a"),
        ("ISO-8859-15", b"\xa4", "\u20ac"),
        ("Shift_JIS", b"\x82\xa0", "\u3042"),
        ("", "é".encode(), "é"),
    ],
)
async def test_only_charsets_of_the_web_are_decoded(
    server: Server, charset: str, body: bytes, text: str
) -> None:
    server.body, server.kind = body, f"text/plain; charset={charset}"

    found = await call(http_get, KEY, f"http://127.0.0.1:{server.server_port}/", allow_private=True)

    assert found.body == text


async def test_a_body_that_is_cut_short_is_still_a_failure(server: Server) -> None:
    """The connection that was made by hand is read like any other."""
    server.body = b""
    server.kind = "text/plain\r\nContent-Length: 99"

    with pytest.raises(HttpFailed):
        await call(http_get, KEY, f"http://127.0.0.1:{server.server_port}/", allow_private=True, timeout_s=5)
