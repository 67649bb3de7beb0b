"""uvicorn's protocols, with an end for clients that send nothing, send too slowly, or take nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# Looked at so often: what was so twice in a row has been so for at least as long.
LOOK_EVERY_S = 10.0


class PatientHttp(H11Protocol):
    """Ends a connection whose request does not come, or whose answer is not taken."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._seen: object = None
        self.loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return  # over, or a WebSocket by now
        if self.flow.write_paused:
            idle: object = "not taken"
        elif self.cycle is None or self.cycle.response_complete:
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
