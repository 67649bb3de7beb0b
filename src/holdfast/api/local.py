"""The unix socket in the home: the frames of the WebSocket, one per line, for the CLI on this machine.

There is no handshake and no token: the kernel names the user of the client, and only the gateway's own user
and root are admitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import socket
import struct
from collections.abc import AsyncIterator, Callable

import msgspec

from holdfast.api.connection_limits import ACCEPT_AT_ONCE, ListeningSocket
from holdfast.api.contract import ALL_SCOPES, Caller, GatewayDoor, with_implied
from holdfast.api.frames import RequestFrame, Response, encode, read_request
from holdfast.api.rpc import INVALID_REQUEST, REFUSED, UNAVAILABLE, RpcError, dispatch
from holdfast.core.audit import STRANGER, Actor, Door

# A command needs one connection; more than this at once is a client's mistake.
MAX_CONNECTIONS = 256
# Close the connection of a client that does not read its answer for so long.
SEND_TIMEOUT_S = 30.0
# How long a refused client may take to send its request.
REFUSE_S = 2.0
_MACOS_LOCAL_PEERCRED = 1


class LocalDoor:
    """Serves one listening unix socket until it is closed."""

    def __init__(
        self, gateway: GatewayDoor, *, max_frame_bytes: int, refuses: Callable[[str, str], None]
    ) -> None:
        self._gateway = gateway
        # Called with the refused user and the reason.
        self._refuses = refuses
        self._max_frame_bytes = max_frame_bytes
        self._connections: set[asyncio.StreamWriter] = set()
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ledger: str | None = None

    @contextlib.asynccontextmanager
    async def open(self, listening: socket.socket) -> AsyncIterator[None]:
        """Serve while the block runs; requests in progress are answered before it returns."""
        server = await asyncio.start_unix_server(
            self._serve,
            sock=ListeningSocket.of(listening),
            limit=self._max_frame_bytes,
            backlog=ACCEPT_AT_ONCE,
        )
        try:
            yield
        finally:
            server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._idle.wait()
            for writer in list(self._connections):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            caller = self._caller(writer)
            await self._answer_all(reader, writer, caller)
        except RpcError as error:
            with contextlib.suppress(OSError, TimeoutError, ValueError):
                # Read the request first: closing with unread data would discard the answer, too.
                async with asyncio.timeout(REFUSE_S):
                    await reader.readline()
            with contextlib.suppress(OSError, TimeoutError):
                await self._send(writer, Response(ok=False, error=error.body))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            self._connections.discard(writer)
            writer.close()

    def _caller(self, writer: asyncio.StreamWriter) -> Caller:
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid is None or uid not in (os.geteuid(), 0):
            self._refuses(f"user {uid}", "the unix socket is for the gateway's own user")
            stranger = Actor(who=STRANGER if uid is None else _name_of(uid), door=Door.SOCKET)
            self._gateway.audit.refuse(
                stranger, "socket.refused", "the unix socket is for the gateway's own user"
            )
            raise RpcError(
                REFUSED, "this socket is for the gateway's own user", details={"code": "not_yours"}
            )
        if len(self._connections) > MAX_CONNECTIONS:
            raise RpcError(UNAVAILABLE, "too many connections; close some", retryable=True)
        return Caller(who=_name_of(uid), scopes=with_implied(ALL_SCOPES), door=Door.SOCKET)

    async def _answer_all(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller
    ) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError as error:  # over the limit, so the start of the next frame is unknown
                why = f"a frame has at most {self._max_frame_bytes:,} bytes"
                raise RpcError(INVALID_REQUEST, why, details={"code": "payload_too_large"}) from error
            if not line.endswith(b"\n"):
                return
            self._busy += 1
            self._idle.clear()
            try:
                await self._send(writer, await self._answer(line, caller))
            finally:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def _answer(self, line: bytes, caller: Caller) -> Response:
        request_id: str | int | None = None
        try:
            request = _read(line)
            request_id = request.id
            await self._check_ledger(request)
            payload = await dispatch(self._gateway, request.method, request.params, caller)
        except RpcError as error:
            return Response(id=request_id, ok=False, error=error.body)
        return Response(id=request_id, ok=True, payload=payload)

    async def _check_ledger(self, request: RequestFrame) -> None:
        """Refuse a client that expects another ledger, before it writes into ours."""
        if request.ledger is None:
            return
        if self._ledger is None:
            self._ledger = await self._gateway.store.read(lambda tx: tx.boots.fact("ledger_id"))
        if request.ledger != self._ledger:
            why = (
                "the gateway of this home uses another ledger; stop it with `holdfast gateway stop`, or "
                "choose another --home"
            )
            raise RpcError(REFUSED, why, details={"code": "home_in_use"})

    async def _send(self, writer: asyncio.StreamWriter, response: Response) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            writer.write(encode(response) + b"\n")
            await writer.drain()


def _read(line: bytes) -> RequestFrame:
    try:
        return read_request(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RpcError(
            INVALID_REQUEST, f"not a valid request frame: {error}", details={"code": "bad_input"}
        ) from error


def peer_uid(connection: socket.socket) -> int | None:
    """The user id of the client, from the kernel; None if the platform does not tell."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", found)[1])
        found = connection.getsockopt(0, _MACOS_LOCAL_PEERCRED, struct.calcsize("2I"))
        return int(struct.unpack("2I", found)[1])
    except OSError:
        return None


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
