"""Incoming and outgoing webhooks: JSON over HTTP, signed with a shared secret.

The header `X-Holdfast-Signature: t=<seconds>,v1=<hex>` holds the time of signing and the HMAC-SHA256 of
`<seconds>.<body>`. An outgoing message also has an `Idempotency-Key`: a receiver that gets the same key again
has the message already and answers 200.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import hmac
import http.client
import socket
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec

from holdfast.channels.contract import CannotTell, Undeliverable
from holdfast.channels.threads import ChannelThreads
from holdfast.core.clock import Clock
from holdfast.core.delivery import DeliveryText
from holdfast.core.errors import BadInput, BadSignature, NotDone, RetryAfter
from holdfast.core.payload import check_name
from holdfast.core.redaction import redact_text
from holdfast.core.session import session_key
from holdfast.core.task import Origin

SIGNATURE_HEADER = "X-Holdfast-Signature"
KEY_HEADER = "Idempotency-Key"
# An older signature may be a replay of a recorded message.
TOLERANCE = timedelta(minutes=5)
TIMEOUT_S = 20.0

_MAX_ANSWER_BYTES = 64 * 1024
# A sender signs with each of its secrets while it replaces one; leave room for more.
_MAX_SIGNATURES = 8
# A longer name is replaced by its digest: a session key has at most 200 characters, with the agent's name.
_MAX_NAME_CHARS = 120
_MAX_WAIT_S = 3600.0
# The receiver says that it did not take the message; after other errors it may have taken it. A proxy answers
# 503 also when the connection broke after the receiver had read the request.
_REFUSED_FOR_NOW = frozenset({425, 429})
_PATIENCE = frozenset({429, 503})
_TIMED_OUT = 408


# --- signatures


def sign(secret: bytes, body: bytes, at: datetime) -> str:
    """The value of the signature's header."""
    seconds = int(at.timestamp())
    return f"t={seconds},v1={_digest(secret, seconds, body)}"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed signature header; it can be verified only with the body."""

    seconds: int
    given: tuple[str, ...]


def read_signature(
    channel: str, header: str | None, now: datetime, *, tolerance: timedelta = TOLERANCE
) -> Signature:
    """Parse a signature and check its time, before the body is read. Raises BadSignature."""
    if not header:
        raise BadSignature(channel, f"it is not signed; send {SIGNATURE_HEADER}: t=<seconds>,v1=<hex>")
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    given = tuple(value for name, _, value in parts if name == "v1")
    is_time = len(times) == 1 and times[0].isascii() and times[0].isdigit() and len(times[0]) <= 15
    if not is_time or not 0 < len(given) <= _MAX_SIGNATURES:
        raise BadSignature(channel, f"its {SIGNATURE_HEADER} is not of the form t=<seconds>,v1=<hex>")
    seconds = int(times[0])
    if abs(now.timestamp() - seconds) > tolerance.total_seconds():
        raise BadSignature(channel, "it was signed too long ago, or by a clock that is wrong; sign it again")
    return Signature(seconds=seconds, given=given)


def verify(
    channel: str,
    secrets: Sequence[bytes],
    header: str | None,
    body: bytes,
    now: datetime,
    *,
    tolerance: timedelta = TOLERANCE,
) -> None:
    """Check that one of the secrets signed this body recently. Raises BadSignature.

    Several secrets are valid while one replaces another.
    """
    signature = read_signature(channel, header, now, tolerance=tolerance)
    wanted = [_digest(secret, signature.seconds, body).encode() for secret in secrets]
    # Compare all of them, so that the time reveals nothing.
    matches = [hmac.compare_digest(one, value.encode()) for one in wanted for value in signature.given]
    if not any(matches):
        raise BadSignature(channel, "it was signed with another secret, or changed on the way")


def _digest(secret: bytes, seconds: int, body: bytes) -> str:
    return hmac.new(secret, b"%d." % seconds + body, hashlib.sha256).hexdigest()


# --- in


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An incoming message, ready to be posted."""

    session_key: str
    text: str
    origin: Origin
    channel_message_id: str


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    message_id: str
    text: str
    # A person or a group, as the sender names it.
    peer: str | None = None
    account_id: str | None = None
    thread: str | None = None
    # Names the conversation, when the sender does not want one session for each peer.
    session: str | None = None


_read_body = msgspec.json.Decoder(_Body).decode


def read_inbound(channel: str, agent: str, body: bytes) -> InboundMessage:
    """Parse a body whose signature was verified. Raises BadInput that names the field.

    Each peer, group and thread of a channel has its own session.
    """
    try:
        read = _read_body(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("body", f"{error}; send messageId and text, and where it came from") from error
    origin = Origin(channel=channel, peer=read.peer, account_id=read.account_id, thread=read.thread).checked()
    if read.session is None:
        key = own_session_key(agent, origin)
    else:
        key = session_key(agent, f"{channel}:{_escaped(check_name('session', read.session))}")
    return InboundMessage(
        session_key=key,
        text=read.text,
        origin=origin,
        channel_message_id=read.message_id,
    )


def own_session_key(agent: str, origin: Origin) -> str:
    """The key of the session that only this peer, group or thread has with the agent."""
    return session_key(agent, _session_name(origin))


def _session_name(origin: Origin) -> str:
    """`<channel>[@<account>][:<peer>[:<thread>]]`, unique for each conversation."""
    name = origin.channel
    if origin.account_id is not None:
        name += f"@{_escaped(origin.account_id)}"
    if origin.peer is not None or origin.thread is not None:
        name += f":{_escaped(origin.peer or '')}"
    if origin.thread is not None:
        name += f":{_escaped(origin.thread)}"
    if len(name) <= _MAX_NAME_CHARS and redact_text(name) == name:
        return name
    return f"{origin.channel}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A").replace("@", "%40")


# --- out


class _Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    channel: str
    text: str
    session_key: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    peer: str | None = None
    account_id: str | None = None
    thread: str | None = None


class _Given(msgspec.Struct, frozen=True):
    """The optional body of the receiver's answer."""

    id: str | None = None


class Webhook:
    """Posts answers to one URL, once for each key if the receiver honours keys."""

    is_keyed = True

    def __init__(
        self, name: str, url: str, secret: bytes, clock: Clock, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.name = name
        self._url = url
        self._secret = secret
        self._clock = clock
        self._timeout_s = timeout_s
        self._threads = ChannelThreads(name)

    async def send(self, to: str, text: str, *, key: str) -> str:
        return await self.deliver(Origin(channel=self.name, peer=to), DeliveryText(text=text), key=key)

    async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:
        answer = _Answer(
            channel=self.name,
            text=letter.text,
            session_key=letter.session_key,
            message_id=letter.message_id,
            reply_to=letter.reply_to,
            peer=origin.peer,
            account_id=origin.account_id,
            thread=origin.thread,
        )
        body = msgspec.json.encode(answer)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "holdfast",
            KEY_HEADER: key,
            SIGNATURE_HEADER: sign(self._secret, body, self._clock.now()),
        }
        post = _Post(self._url, body, headers, self._timeout_s)
        said = await self._threads.call(post.perform, timeout_s=self._timeout_s, give_up=post.give_up)
        return self._read_answer(*said, key)

    def close(self) -> None:
        self._threads.close()

    async def find_sent(self, key: str) -> str | CannotTell | None:  # noqa: ARG002 - it has no memory
        return CannotTell("a webhook does not remember; its receiver knows the key")

    def _read_answer(self, status: int, said: bytes, headers: http.client.HTTPMessage, key: str) -> str:
        if 200 <= status < 300:
            try:
                given = msgspec.json.decode(said, type=_Given).id
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                given = None  # status 2xx: it took the message, whatever the body says
            return given or key
        if status in _PATIENCE and (seconds := self._patience(headers.get("Retry-After"))) is not None:
            raise RetryAfter(seconds, f"{self.name} answered {status}")
        if status in _REFUSED_FOR_NOW:
            raise NotDone(f"{self.name} answered {status}")
        if status == _TIMED_OUT or status >= 500:
            raise ConnectionError(f"{self.name} answered {status}")
        if 300 <= status < 400:
            raise Undeliverable(f"{self.name} answered {status}: it redirects; set the url where it ends")
        raise Undeliverable(f"{self.name} refused it with {status}")

    def _patience(self, header: str | None) -> float | None:
        if header is None:
            return None
        if header.strip().isascii() and header.strip().isdigit():
            return min(float(header), _MAX_WAIT_S)
        try:
            until = email.utils.parsedate_to_datetime(header)
            if until.tzinfo is None:
                return None
            seconds = (until - self._clock.now()).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None  # not a date, or not a valid one
        return min(max(seconds, 0.0), _MAX_WAIT_S)


class _Post:
    """One request. It follows no redirect: a signed message goes only to the configured URL."""

    def __init__(self, url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> None:
        self._url = url
        self._body = body
        self._headers = headers
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._is_given_up = False

    def perform(self) -> tuple[int, bytes, http.client.HTTPMessage]:
        parts = urlsplit(self._url)
        host, port = parts.hostname or "", parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        else:
            context = None
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            try:
                connection.sock = self._connected(host, connection.port, context)
            except OSError as error:
                # Nothing was written to the connection, so the receiver cannot have the message.
                raise NotDone(f"no connection to the receiver: {type(error).__name__}: {error}") from error
            connection.request("POST", path, body=self._body, headers=self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_ANSWER_BYTES), answer.msg
        except http.client.HTTPException as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
            if self._socket is not None:
                self._socket.close()

    def give_up(self) -> None:
        """End it from another thread: a socket timeout starts anew with each byte of a slow answer."""
        self._is_given_up = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # The plain socket's method: that of an SSLSocket is not thread-safe.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _connected(self, host: str, port: int, context: ssl.SSLContext | None) -> socket.socket:
        """Connect by hand, so that `give_up` has a socket to shut down during the TLS handshake."""
        self._socket = socket.create_connection((host, port), self._timeout_s)
        if context is not None:
            safe = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
            self._socket = safe
            safe.do_handshake()
        if self._is_given_up:
            # The caller has timed out and will try again.
            raise TimeoutError("the connection came too late")
        return self._socket
