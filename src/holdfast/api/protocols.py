"""uvicorn's protocols, with an end for clients that send nothing, send too slowly, or take nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.api.crowd import Crowd

# Looked at so often: what was so twice in a row has been so for at least as long.
LOOK_EVERY_S = 10.0
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class PatientHttp(H11Protocol):
    """Ends a connection whose request does not come, or whose answer is not taken; and one too many."""

    def __init__(self, *given: Any, crowd: Crowd, **named: Any) -> None:
        super().__init__(*given, **named)
        self._crowd = crowd
        # The whole head of its first request is due at the first look.
        self._seen: object = ("no request", id(None))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if not self._crowd.has_room(len(self.connections), now=self.loop.time()):
            self.transport = transport
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._crowd.waits(self)
        self.loop.call_later(LOOK_EVERY_S, self._look)

    def handle_events(self) -> None:
        super().handle_events()
        if self.transport.get_protocol() is not self or not self._is_idle:
            self._crowd.is_busy(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_idle and not self.transport.is_closing():
            self._crowd.waits(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.is_busy(self)
        super().connection_lost(exc)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # over, or a WebSocket by now
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
        self.loop.call_later(LOOK_EVERY_S, self._look)


class PatientWebSocket(WebSocketsSansIOProtocol):
    """Ends a connection whose client takes nothing."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._was_paused = False
        self.loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        is_paused = not self.writable.is_set() or self.transport.is_closing()
        if is_paused and self._was_paused:
            self.transport.abort()
            return
        self._was_paused = is_paused
        self.loop.call_later(LOOK_EVERY_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        # Nobody looks any more.
        self._was_paused = True
        super().connection_lost(exc)
