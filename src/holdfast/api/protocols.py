"""uvicorn's protocols, with limits for clients without a token and timeouts for slow ones."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, MutableMapping
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.api.anonymous_limits import HOLD_S, RefusalLog, WaitingRoom
from holdfast.api.connection_limits import ConnectionLimits
from holdfast.api.frames import ErrorBody
from holdfast.api.peers import peer_of
from holdfast.api.rpc import INVALID_REQUEST
from holdfast.api.strict_http import StrictConnection

# The interval of checks: a state seen twice in a row has lasted at least this long.
LOOK_EVERY_S = 10.0
MAX_HEAD_BYTES = 32 * 1024
# Bytes per read from an anonymous client, until the application asks for more; and from others.
STRANGER_READ_BYTES = 16 * 1024
READ_BYTES = 256 * 1024
# Before `connect` is answered: the limit for all frames together, and for the time.
BEFORE_CONNECT_FRAMES = 8
BEFORE_CONNECT_BYTES = 64 * 1024
BEFORE_CONNECT_S = 20.0
# How long a client may keep sending after the close of its WebSocket.
LINGER_S = 1.0
# Close codes of RFC 6455.
BAD_TEXT, POLICY, TOO_BIG = 1007, 1008, 1009
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n"
)
_GUEST = "holdfast.guest"


def show_token(scope: MutableMapping[str, Any]) -> None:
    """Mark the connection: its client has shown a valid token."""
    guest = (scope.get("extensions") or {}).get(_GUEST)
    if guest is not None:
        guest.shows_token()


class PatientHttp(H11Protocol):
    """Closes a connection whose client sends no request or reads no answer, and one over the limit."""

    def __init__(self, *given: Any, limits: ConnectionLimits, refusals: RefusalLog, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        self._refusals = refusals
        self._is_stranger = True
        self._is_refused = False
        # Called before the connection takes its place here; a layer below gives up its own.
        self.arrives: Callable[[asyncio.Transport], None] | None = None
        self.conn: StrictConnection = StrictConnection(max_head_bytes=MAX_HEAD_BYTES)
        self.app = functools.partial(_announce, self.app, self)
        self._next_look: asyncio.TimerHandle | None = None
        # The head of the first request is due at the first check.
        self._seen: object = ("no request", id(None))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self.arrives is not None:
            self.arrives(transport)
        if not self._limits.enter(self, now=self.loop.time()):
            self.transport = transport
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        _read_at_once(transport, STRANGER_READ_BYTES)
        self._next_look = self.loop.call_later(LOOK_EVERY_S, self._look)

    def shows_token(self) -> None:
        if self._is_stranger:
            self._is_stranger = False
            self._limits.is_known(self)
            _read_at_once(self.transport, READ_BYTES)

    def handle_events(self) -> None:
        super().handle_events()
        if self.transport.get_protocol() is not self or self._is_idle:
            return
        self._limits.is_busy(self)
        if self._is_stranger and self.cycle.more_body:
            # Stop reading until the headers were checked; `receive` resumes.
            self.flow.pause_reading()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        self._limits.leave(self)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - h11 has the better message
        self._refusals.add(peer_of({"client": self.client}, ()), self.conn.why)
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()  # an answer was started, and cannot be replaced
            return
        body = msgspec.json.encode({"error": ErrorBody(code=INVALID_REQUEST, message=self.conn.why)})
        # Not through h11, which cannot answer a request that it did not parse.
        self._is_refused = True
        self.flow.pause_reading()
        self.loop.call_later(HOLD_S, self._end_with, _BAD_REQUEST % len(body) + body)
        if self.cycle is not None:
            # The rest of the request will not arrive.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def shutdown(self) -> None:
        if self._is_refused:
            # h11 does not know this answer, and would not close the connection.
            self.transport.close()
        else:
            super().shutdown()

    def _end_with(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Not logged: the request is answered as if it had asked for no upgrade."""

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle and not self.transport.is_closing():
            self._limits.waits(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.leave(self)
        super().connection_lost(exc)
        if self._next_look is not None:
            self._next_look.cancel()
        # Nothing leads in a circle any more: what the connection held, such as its TLS, is freed at once.
        self.arrives = self.cycle = self.scope = None  # type: ignore[assignment]
        self.app = _gone

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # closed, or a WebSocket by now
        if self.flow.write_paused:
            idle: object = "not taken"
        elif self._is_idle:
            idle = ("no request", id(self.cycle))
        else:
            idle = None
        if idle is not None and idle == self._seen:
            self.transport.abort()
            return
        self._seen = idle
        self._next_look = self.loop.call_later(LOOK_EVERY_S, self._look)


class PatientWebSocket(WebSocketsSansIOProtocol):
    """Closes a connection whose client reads nothing; and reads little before the token was shown."""

    def __init__(
        self, *given: Any, limits: ConnectionLimits, room: WaitingRoom, refusals: RefusalLog, **named: Any
    ) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        self._room = room
        self._refusals = refusals
        self.app = functools.partial(_announce, self.app, self)
        self._is_stranger = True
        self._is_over = False
        self._frames_before, self._bytes_before = 0, 0
        self.conn.max_message_size = min(BEFORE_CONNECT_BYTES, self.config.ws_max_size)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limits.replace(transport.get_protocol(), self)
        self._room.enter(self, peer_of({"client": self.client}, ()))
        self._was_paused = False
        self.loop.call_later(LOOK_EVERY_S, self._look)
        self.loop.call_later(BEFORE_CONNECT_S, self._look_for_token)

    def shows_token(self) -> None:
        if self._is_stranger:
            self._is_stranger = False
            self._room.leave(self)
            self._limits.is_known(self)
            self.conn.max_message_size = self.config.ws_max_size
            _read_at_once(self.transport, READ_BYTES)

    def give_up(self) -> None:
        """Close this anonymous WebSocket: newer ones need its slot."""
        self._refusals.add(peer_of({"client": self.client}, ()), "too many WebSockets wait for `connect`")
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return  # discard it, so that the client can read why we close
        if self._is_stranger and self.handshake_initiated:
            self._bytes_before += len(data)
            if self._bytes_before > BEFORE_CONNECT_BYTES + STRANGER_READ_BYTES:
                self._refuse(TOO_BIG, "too much was sent before connect")
                return
        super().data_received(data)

    def handle_connect(self, event: Any) -> None:
        # Reading resumes in `receive`, just before the application accepts; no frame comes earlier.
        self.read_paused = True
        self.transport.pause_reading()
        super().handle_connect(event)

    def shutdown(self) -> None:
        if self.conn.close_rcvd is not None:
            # The client closed first, and TLS or a full buffer delays the end. A second close would raise.
            self.transport.close()
        else:
            super().shutdown()

    # --- frames: before the token, only a few unfragmented ones and the close frame

    def handle_text(self, event: Any) -> None:
        if self._is_fit(event):
            super().handle_text(event)

    def handle_bytes(self, event: Any) -> None:
        if self._is_fit(event):
            super().handle_bytes(event)

    def handle_cont(self, event: Any) -> None:
        if self._is_fit(event):
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self._is_stranger:
            self._refuse(POLICY, "no ping before connect")
        elif not self._is_over:
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        if self._is_stranger and self.pending_ping_payload is None:
            self._refuse(POLICY, "no pong before connect")
        else:
            super().handle_pong(event)

    def handle_close(self, event: Any) -> None:
        if not self._is_over:
            super().handle_close(event)

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self._refuse(BAD_TEXT, "a text frame must be UTF-8")
                return
        super().send_receive_event_to_app()

    def _is_fit(self, event: Any) -> bool:
        if self._is_over:
            return False
        if not self._is_stranger:
            return True
        self._frames_before += 1
        if not event.fin:
            self._refuse(POLICY, "no fragments before connect")
        elif self._frames_before > BEFORE_CONNECT_FRAMES:
            self._refuse(POLICY, "too many frames before connect")
        else:
            return True
        return False

    def _refuse(self, code: int, why: str) -> None:
        if self._is_over or self.close_sent:
            return
        if self._is_stranger:
            self._refusals.add(peer_of({"client": self.client}, ()), why)
        self.conn.data_to_send()  # drop the answers to its pings
        self.conn.fail(code, why)
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Keep reading: closing with unread data would reset the connection before the client reads why."""
        self._is_over = True
        if self.conn.close_sent is None:
            self.transport.abort()
            return
        said = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": said.code, "reason": said.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.transport.can_write_eof():  # TLS cannot
            self.transport.write_eof()
        self.close_sent = True
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)

    # --- time

    def _look(self) -> None:
        is_paused = not self.writable.is_set() or self.transport.is_closing()
        if is_paused and self._was_paused:
            self.transport.abort()
            return
        self._was_paused = is_paused
        self.loop.call_later(LOOK_EVERY_S, self._look)

    def _look_for_token(self) -> None:
        if self._is_stranger and not self.disconnected:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        # Stop the checks.
        self._was_paused = True
        self._room.leave(self)
        self._limits.leave(self)
        super().connection_lost(exc)


async def _gone(scope: Any, receive: Any, send: Any) -> None:
    """In the place of the application, when the connection is over."""


async def _announce(app: Callable[..., Any], guest: object, scope: Any, receive: Any, send: Any) -> None:
    """Let the application mark this connection with `show_token`."""
    scope["extensions"] = {**(scope.get("extensions") or {}), _GUEST: guest}
    await app(scope, receive, send)


def _read_at_once(transport: asyncio.Transport, count: int) -> None:
    """Set how much asyncio reads at once; transports of other event loops ignore it."""
    if hasattr(transport, "max_size"):
        transport.max_size = count
    elif hasattr(transport, "set_read_buffer_limits"):
        # Of TLS: so much is kept undecrypted while the application reads nothing.
        transport.set_read_buffer_limits(high=count)
