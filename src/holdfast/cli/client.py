"""A client of the gateway's unix socket and HTTP port: one request, one answer, standard library only."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.api.frames import Answer, ErrorBody
from holdfast.config import without_password
from holdfast.core.errors import BadInput, GatewaySilent, HoldfastError, SettingsError

if TYPE_CHECKING:
    import ssl

SOCKET_NAME = "gateway.sock"
# The address of a remote gateway.
URL_VARIABLE = "HOLDFAST_URL"
# The file of the authority that signed its certificate, if this machine does not know it.
CA_VARIABLE = "HOLDFAST_CA"
# While the gateway restarts, its supervisor keeps the socket open and a request waits for the new process.
ANSWER_TIMEOUT_S = 20.0
CONNECT_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024

# Of OpenSSL: the certificate has another host name, mail address or IP address.
_WRONG_NAME = frozenset({62, 63, 64})

V = TypeVar("V", bound=msgspec.Struct)
_ANSWERS = msgspec.json.Decoder(Answer)


class Relayed(HoldfastError):
    """An error that the gateway returned, with the code that the same error has in the CLI."""

    def __init__(self, body: ErrorBody) -> None:
        super().__init__(body.message)
        self.wire_code = body.code
        self.code = str((body.details or {}).get("code", body.code.lower()))  # type: ignore[misc]


class _Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str
    id: str
    method: str
    params: msgspec.Struct
    ledger: str | None = None


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorBody


def is_listening(home: Path) -> bool:
    """Whether a process holds the socket of that home; a supervisor does so even during a restart."""
    try:
        with _connected(home):
            return True
    except GatewaySilent:
        return False


def call(
    home: Path,
    method: str,
    params: msgspec.Struct,
    answer: type[V],
    *,
    ledger: str | None = None,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> V:
    """Call the gateway over its unix socket. Raises GatewaySilent without an answer, Relayed for an error."""
    frame = _encoded(_Call(type="req", id="1", method=method, params=params, ledger=ledger))
    with _connected(home) as way:
        try:
            way.sendall(frame + b"\n")
            line = _read_line(way, time.monotonic() + timeout_s)
        except TimeoutError as error:
            why = f"no answer within {timeout_s:g} s; the request may still take effect"
            raise GatewaySilent(str(home), why) from error
        except OSError as error:
            raise GatewaySilent(str(home), f"the connection was lost ({error.strerror})") from error
    return _opened(home, line, answer)


def _encoded(asked: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(asked)
    except UnicodeEncodeError as error:
        raise BadInput("text", "it contains bytes that are not UTF-8; give UTF-8 text") from error


def call_url(
    url: str, token: str, method: str, params: msgspec.Struct, answer: type[V], *, timeout_s: float
) -> V:
    """Call a remote gateway over HTTP. Raises GatewaySilent without an answer, Relayed for an error."""
    import http.client
    import ssl
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        fix = "write https://host:port, or http://host:port on this machine"
        raise SettingsError(f"{URL_VARIABLE} is {without_password(url)!r}: {fix}")
    try:
        port = parts.port
    except ValueError as error:
        raise SettingsError(f"{URL_VARIABLE} is {without_password(url)!r}: {error}") from error
    way: http.client.HTTPConnection
    if parts.scheme == "https":
        context = tls_context(os.environ.get(CA_VARIABLE))
        way = http.client.HTTPSConnection(parts.hostname, port, timeout=timeout_s, context=context)
    else:
        way = http.client.HTTPConnection(parts.hostname, port, timeout=timeout_s)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    content = _encoded(params)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        way.request("POST", f"{parts.path.rstrip('/')}/rpc/{method}", content, headers)
        response = way.getresponse()
        body = response.read(MAX_ANSWER_BYTES)
    except TimeoutError as error:
        why = f"no answer within {timeout_s:g} s; the request may still take effect"
        raise GatewaySilent(where, why, is_remote=True) from error
    except ssl.SSLError as error:
        # To wait or to try again changes nothing: another certificate or another URL is needed.
        raise SettingsError(f"{URL_VARIABLE} is {where!r}: {_why_no_tls(error)}") from error
    except (OSError, http.client.HTTPException) as error:
        # The port stays open during a restart, so a refused connection means that no gateway will come back.
        was_there = not isinstance(error, (ConnectionRefusedError, socket.gaierror))
        why = f"{type(error).__name__}: {error}"
        if parts.scheme == "http" and isinstance(
            error, (http.client.RemoteDisconnected, ConnectionResetError)
        ):
            why += "; if the gateway has a certificate, write https://"
        raise GatewaySilent(where, why, was_there=was_there, is_remote=True) from error
    finally:
        way.close()
    try:
        if response.status == http.client.OK:
            return msgspec.json.decode(body, type=answer)
        found = msgspec.json.decode(body, type=_Refusal)
    except msgspec.DecodeError as error:
        raise GatewaySilent(
            where,
            f"another server than a Holdfast gateway answers there (HTTP status {response.status})",
            is_remote=True,
        ) from error
    raise Relayed(found.error)


def tls_context(authority: str | None) -> ssl.SSLContext:
    """Checks the certificate and its name, always: against that authority alone, else against those that this
    machine knows. Raises SettingsError."""
    import ssl

    if not authority:
        context = ssl.create_default_context()
    else:
        try:
            context = ssl.create_default_context(cafile=authority)
        except (OSError, ValueError) as error:  # an SSLError is one, too
            why = "it holds no certificate" if isinstance(error, ssl.SSLError) else "it cannot be read"
            fix = "name the PEM file of the authority that signed the gateway's certificate"
            raise SettingsError(f"{CA_VARIABLE} is {authority!r:.200}: {why}; {fix}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _why_no_tls(error: ssl.SSLError) -> str:
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        fix = f"if a private authority signed it, name its PEM file in {CA_VARIABLE}"
        if error.verify_code in _WRONG_NAME:
            fix = "write a name that the certificate has"
        return f"its certificate is not accepted ({error.verify_message}); {fix}"
    if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
        return "what listens there does not speak TLS; write http:// if the gateway has no certificate"
    return f"no TLS connection can be made ({error.reason or error}); look at the log of the gateway"


def _opened(home: Path, line: bytes, answer: type[V]) -> V:
    try:
        found = _ANSWERS.decode(line)
        if found.ok:
            return msgspec.json.decode(found.payload, type=answer)
    except msgspec.DecodeError as error:
        why = f"its answer cannot be decoded ({error}); it may run another version of Holdfast"
        raise GatewaySilent(str(home), why) from error
    raise Relayed(found.error or ErrorBody(code="FAILED", message="the gateway gave no reason"))


@contextlib.contextmanager
def _connected(home: Path) -> Iterator[socket.socket]:
    path = home / SOCKET_NAME
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        way.settimeout(CONNECT_TIMEOUT_S)
        try:
            way.connect(str(path))
        except TimeoutError as error:
            raise GatewaySilent(str(home), "the gateway accepts no connection") from error
        except OSError as error:
            raise GatewaySilent(str(home), "no gateway runs there", was_there=False) from error
        yield way


def _read_line(way: socket.socket, give_up_at: float) -> bytes:
    found = bytearray()
    while not found.endswith(b"\n"):
        way.settimeout(max(0.001, give_up_at - time.monotonic()))
        more = way.recv(256 * 1024)
        if not more:
            raise ConnectionResetError(0, "the gateway ended before it answered")
        found += more
        if len(found) > MAX_ANSWER_BYTES:
            raise ConnectionResetError(0, "the answer is too long")
    return bytes(found)
