"""TLS at the doors: certificates, renewals, and peers that never finish their handshake."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from holdfast.api import server, tls
from holdfast.api.tls import Certificates, CertificateWatch
from holdfast.config.sections import TlsSettings
from holdfast.core.clock import SystemClock
from holdfast.core.errors import SettingsError
from holdfast.testing import FakeClock
from tests.api.stand_in import TOKEN, ServedDoors, served_doors
from tests.certificates import DAY, Authority, write_pair
from tests.security.raw_http import PATIENCE_S, connected, head, said

pytestmark = pytest.mark.slow

SETTINGS = TlsSettings(cert="cert.pem", key="key.pem")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def tls_home(home: Path, authority: Authority) -> Path:
    write_pair(home, authority.issue())
    return home


@pytest.fixture
def secure(tls_home: Path) -> Iterator[ServedDoors]:
    with served_doors(tls_home, certificates=Certificates(SETTINGS, tls_home)) as house:
        yield house


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


@contextlib.contextmanager
def secured(house: ServedDoors, authority: Authority) -> Iterator[ssl.SSLSocket]:
    with (
        connected(house.port) as way,
        trusting(authority).wrap_socket(way, server_hostname="127.0.0.1") as inner,
    ):
        yield inner


def presented(house: ServedDoors, authority: Authority) -> bytes:
    with secured(house, authority) as way:
        found = way.getpeercert(binary_form=True)
        assert found is not None
        return found


# --- what works


def test_a_client_that_knows_the_authority_is_answered(secure: ServedDoors, authority: Authority) -> None:
    with httpx.Client(verify=trusting(authority), trust_env=False, timeout=PATIENCE_S) as http:
        answer = http.post(
            f"https://localhost:{secure.port}/rpc/health",
            json={},
            headers={"authorization": f"Bearer {TOKEN}"},
        )

    assert answer.status_code == 200
    assert "strict-transport-security" not in answer.headers


def test_a_client_that_does_not_know_it_goes_away(secure: ServedDoors) -> None:
    with pytest.raises(ssl.SSLCertVerificationError), secured(secure, Authority("Another")):
        pass


async def is_connected(house: ServedDoors, authority: Authority) -> bool:
    """Whether `connect` and one method are answered on a WebSocket.

    The client of asyncio: that of threads reads and writes one SSL object at a time in two of them, which
    OpenSSL does not allow, and loses its own first request in one of a hundred connections.
    """
    where = f"wss://127.0.0.1:{house.port}/"
    async with asyncio.timeout(PATIENCE_S), connect(where, ssl=trusting(authority), compression=None) as way:
        await way.recv()
        params = {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": TOKEN}}
        await way.send(json.dumps({"type": "req", "id": "1", "method": "connect", "params": params}))
        greeted = json.loads(await way.recv())
        await way.send(json.dumps({"type": "req", "id": "2", "method": "health"}))
        while (said := json.loads(await way.recv()))["type"] == "event":
            pass
        return bool(greeted["ok"] and said["ok"])


async def test_a_websocket_works_over_tls(secure: ServedDoors, authority: Authority) -> None:
    assert await is_connected(secure, authority)


async def test_a_websocket_that_is_refused_over_tls_hears_why(
    secure: ServedDoors, authority: Authority
) -> None:
    where = f"wss://127.0.0.1:{secure.port}/"
    async with asyncio.timeout(PATIENCE_S), connect(where, ssl=trusting(authority)) as way:
        await way.recv()
        await way.ping()
        with pytest.raises(ConnectionClosed) as closed:
            await way.recv()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.reason == "no ping before connect"


def test_the_doors_close_although_a_websocket_that_its_client_closed_waits_for_the_goodbye_of_tls(
    secure: ServedDoors, authority: Authority
) -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    close_frame, echo = b"\x88\x82\0\0\0\0\x03\xe8", b"\x88\x02\x03\xe8"
    with secured(secure, authority) as way:
        way.sendall(upgrade)
        heard = bytearray()
        while b"connect.challenge" not in heard:
            heard += way.recv(65536)
        way.sendall(close_frame)
        while not heard.endswith(echo):
            heard += way.recv(65536)
        secure.stop()  # this end has not said goodbye yet

    assert secure.failure is None


def test_large_bodies_and_answers_pass(secure: ServedDoors) -> None:
    text = "x" * 900_000
    answer = secure.post("health", {"note": text})

    assert answer.status_code == 400
    assert secure.post("tasks.list").status_code == 200


def test_the_unix_socket_speaks_no_tls(secure: ServedDoors) -> None:
    with socket.socket(socket.AF_UNIX) as way:
        way.settimeout(PATIENCE_S)
        way.connect(str(secure.home / "gateway.sock"))
        way.sendall(b'{"type":"req","id":"1","method":"health"}\n')

        assert b'"ok":true' in way.recv(65536)


@pytest.mark.parametrize("origin", ["http", "https"])
def test_a_page_without_tls_is_no_page_of_ours(secure: ServedDoors, origin: str) -> None:
    answer = secure.post("health", origin=f"{origin}://127.0.0.1:{secure.port}")

    assert (answer.status_code == 200) == (origin == "https")


# --- what does not


def test_old_versions_of_tls_are_refused(secure: ServedDoors) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLS"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLS"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1

    with connected(secure.port) as way, pytest.raises(ssl.SSLError):
        context.wrap_socket(way)


def test_plain_http_is_not_answered_and_the_log_says_why(
    secure: ServedDoors, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"), connected(secure.port) as way:
        way.sendall(head("/rpc/health"))
        answer = said(way)
        assert b"HTTP/1.1" not in answer
        secure.post("health")  # after which the first connection's end is known

    assert "plain HTTP where TLS is spoken" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\xff\xff" + b"\xff" * 5000, b"\0" * 100, b"\x16\x03\x01"])
def test_noise_instead_of_a_handshake_ends_the_connection_and_nothing_else(
    secure: ServedDoors, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.25)
    with connected(secure.port) as way:
        way.sendall(sent)
        said(way)
    monkeypatch.setattr(tls, "HANDSHAKE_S", 10)  # for a client on a busy machine

    assert secure.post("health").status_code == 200
    assert "Traceback" not in caplog.text
    assert "Fatal" not in caplog.text


# --- peers that are silent


@pytest.fixture
def silent() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def connect_silently(stack: contextlib.ExitStack, house: ServedDoors, count: int) -> list[socket.socket]:
    return [stack.enter_context(connected(house.port)) for _ in range(count)]


def is_ended(way: socket.socket) -> bool:
    """Whether the other end has gone."""
    try:
        return way.recv(1) == b""
    except ConnectionResetError:
        return True


def test_an_operator_is_served_among_many_silent_peers(
    secure: ServedDoors, silent: contextlib.ExitStack, authority: Authority
) -> None:
    peers = connect_silently(silent, secure, 2 * tls.MAX_HANDSHAKES)
    calls = [secure.post("health").status_code for _ in range(5)]
    has_websocket = asyncio.run(is_connected(secure, authority))

    assert calls == [200] * 5
    assert has_websocket
    # The oldest have made room for the others.
    assert all(is_ended(way) for way in peers[: tls.MAX_HANDSHAKES])


def test_a_silent_peer_is_ended_in_time(
    secure: ServedDoors,
    silent: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.25)

    [way] = connect_silently(silent, secure, 1)

    assert is_ended(way)
    monkeypatch.setattr(tls, "HANDSHAKE_S", 10)  # for a client on a busy machine
    secure.post("health")
    assert "no TLS handshake within 0.25 s" in caplog.text


def test_a_handshake_in_small_pieces_is_ended_in_time_all_the_same(
    secure: ServedDoors, silent: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_S", 0.25)
    [way] = connect_silently(silent, secure, 1)
    began = time.monotonic()
    way.settimeout(0.05)

    for piece in itertools.cycle([b"\x16", b"\x03", b"\x01", b"\x02", b"\x00", b"\x01"]):
        try:
            way.sendall(piece)
            if way.recv(1) == b"":
                break
        except TimeoutError:
            assert time.monotonic() - began < PATIENCE_S
        except OSError:
            break


def test_a_client_that_says_no_goodbye_is_not_waited_for(
    secure: ServedDoors, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "GOODBYE_S", 0.1)
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting(authority).wrap_bio(ours, theirs, server_hostname="127.0.0.1")
    with connected(secure.port) as way:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                way.sendall(theirs.read())
                ours.write(way.recv(65536))
        client.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        way.sendall(theirs.read())

        said(way)  # which ends, although this end never answers the goodbye


def test_silent_peers_count_as_strangers_before_their_handshake(
    tls_home: Path, silent: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "most_connections", lambda: 8)
    with served_doors(tls_home, certificates=Certificates(SETTINGS, tls_home)) as house:
        peers = connect_silently(silent, house, 20)
        answer = house.post("health")

        assert answer.status_code == 200
        assert all(is_ended(way) for way in peers[:12])


def test_a_silent_peer_has_its_place_only_once(
    tls_home: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of the handshake becomes that of the connection: four of them fit into four."""
    monkeypatch.setattr(server, "most_connections", lambda: 4)
    with (
        served_doors(tls_home, certificates=Certificates(SETTINGS, tls_home)) as house,
        contextlib.ExitStack() as stack,
    ):
        ways = [stack.enter_context(secured(house, authority)) for _ in range(3)]
        for way in ways:
            way.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert all(way.recv(12) == b"HTTP/1.1 200" for way in ways)


def test_the_doors_close_at_once_although_peers_are_silent(
    tls_home: Path, silent: contextlib.ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    with served_doors(tls_home, certificates=Certificates(SETTINGS, tls_home)) as house:
        connect_silently(silent, house, 20)
        assert house.post("health").status_code == 200
        began = time.monotonic()
        house.stop()

    assert time.monotonic() - began < server.GRACE_S
    assert "timeout graceful shutdown exceeded" not in caplog.text


def layers() -> int:
    return sum(issubclass(type(one), tls.TlsLayer) for one in gc.get_objects())


def test_a_peer_in_its_handshake_holds_little_memory_and_leaves_nothing_behind(
    secure: ServedDoors, silent: contextlib.ExitStack, authority: Authority
) -> None:
    """No collector has to come by first, who comes seldom and does not see what OpenSSL holds."""
    secure.post("health")
    before = layers()
    gc.disable()
    try:
        peers = connect_silently(silent, secure, tls.MAX_HANDSHAKES + 50)
        assert all(is_ended(way) for way in peers[:50])
        for _ in range(50):
            with secured(secure, authority) as way:
                way.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                said(way)
        after = layers()
    finally:
        gc.enable()

    assert after - before <= tls.MAX_HANDSHAKES + 5
    assert tls.TlsLayer.max_size <= 16 * 1024


# --- renewals


def test_a_renewed_certificate_is_used_for_the_next_connection(
    secure: ServedDoors, tls_home: Path, authority: Authority
) -> None:
    before = presented(secure, authority)
    with secured(secure, authority) as kept:
        write_pair(tls_home, authority.issue())
        assert secure.certificates is not None
        problem = secure.certificates.refresh()
        after = presented(secure, authority)
        kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = kept.recv(12)

    assert problem is None
    assert after != before
    assert answer == b"HTTP/1.1 200"


def test_a_renewal_that_cannot_be_used_leaves_the_certificate_before(
    secure: ServedDoors, tls_home: Path, authority: Authority
) -> None:
    before = presented(secure, authority)
    assert secure.certificates is not None
    cert, key = authority.issue()
    (tls_home / "cert.pem").write_text(cert)

    problem = secure.certificates.refresh()
    during = presented(secure, authority)
    (tls_home / "key.pem").write_text(key)
    mended = secure.certificates.refresh()

    assert problem is not None
    assert "gateway.tls.key" in problem
    assert "does not belong" in problem
    assert during == before
    assert mended is None
    assert presented(secure, authority) != before


def test_a_certificate_that_ends_while_it_is_used_is_told(tls_home: Path) -> None:
    clock = FakeClock(SystemClock().now())
    certificates = Certificates(SETTINGS, tls_home, clock=clock)
    told: list[str | None] = []
    watch = CertificateWatch(certificates, on_problem=told.append)

    asyncio.run(watch.run_once())
    clock.advance(days=91)
    asyncio.run(watch.run_once())

    assert told[0] is None
    assert told[1] is not None
    assert "has expired" in told[1]


def test_settings_that_cannot_be_used_are_refused_and_change_nothing(
    tls_home: Path, authority: Authority
) -> None:
    certificates = Certificates(SETTINGS, tls_home)
    before = certificates.context
    write_pair(tls_home, authority.issue(until=SystemClock().now() - DAY / 2))

    with pytest.raises(SettingsError, match="has expired"):
        certificates.replace(TlsSettings(cert="./cert.pem", key="key.pem"))

    assert certificates.context is before


def test_tls_can_be_turned_on_and_off(tls_home: Path) -> None:
    certificates = Certificates(TlsSettings(), tls_home)
    assert certificates.context is None

    certificates.replace(SETTINGS)
    assert certificates.context is not None
    certificates.replace(TlsSettings())
    assert certificates.context is None
    assert certificates.refresh() is None
