"""One WebSocket: the handshake of protocol v4, requests in frames, ticks and changed tasks as events."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from holdfast.api.contract import READ, GatewayDoor, Reach, our_version
from holdfast.api.feed import Feed
from holdfast.api.frames import PROTOCOL, EventFrame, RequestFrame, Response, encode, read_request
from holdfast.api.method_kinds import Called
from holdfast.api.methods import METHODS
from holdfast.api.rpc import (
    INVALID_REQUEST,
    UNAUTHORIZED,
    RpcError,
    check_still,
    dispatch,
    starting,
    translated,
)
from holdfast.api.security import REVOKED, AccessCheck, Admitted
from holdfast.core.audit import STRANGER, WRONG, Actor, Door
from holdfast.core.errors import HoldfastError
from holdfast.views.text import one_line
from holdfast.views.wire import TaskEvent, millis

HANDSHAKE_S = 15.0
TICK_S = 15.0
MAX_BUFFERED_BYTES = 52_428_800
# Close the connection if the client reads nothing for so long.
SEND_TIMEOUT_S = 20.0
# Requests of one client in progress; the next frame is read when one is answered.
AT_ONCE = 16
# These run one after another, to keep the order of a conversation.
IN_ORDER = frozenset({"chat.send", "sessions.send", "agent"})
# Runs of one client whose end is told as a second response; of any other, `agent.wait` tells it.
MAX_FINISHES = 64
EVENTS = ("connect.challenge", "tick", "task")
# How soon an idle connection is closed after its token was revoked.
LOOK_EVERY_S = 1.0

# Close codes of RFC 6455: unsupported data, and policy violation.
UNSUPPORTED, POLICY, GOING_AWAY = 1003, 1008, 1012


class _Auth(msgspec.Struct, frozen=True, kw_only=True):
    token: str | None = None


class _Connect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of `connect` that we use; clients send more."""

    min_protocol: int
    max_protocol: int
    role: Literal["operator"] = "operator"
    # None asks for all scopes of the token; an empty list for none.
    scopes: list[str] | None = None
    auth: _Auth = _Auth()


class _Closed(Exception):
    """The connection has ended."""


class Connection:
    """One client, from its first frame to its last."""

    def __init__(
        self,
        socket: WebSocket,
        gateway: GatewayDoor,
        keeper: AccessCheck,
        feed: Feed,
        stopping: asyncio.Event,
        *,
        peer: str,
        max_frame_bytes: int,
        count: Callable[[str, str], None],
        refuses: Callable[[str], None],
        knows: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._gateway = gateway
        self._keeper = keeper
        self._feed = feed
        self._stopping = stopping
        self._peer = peer
        self._address = keeper.address_of(socket.scope)
        self._max_frame_bytes = max_frame_bytes
        self._count = count
        # Callbacks: a client without a valid token was refused; a valid token was shown.
        self._refuses = refuses
        self._knows = knows
        self._sending = asyncio.Lock()
        self._in_order = asyncio.Lock()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._seq = 0
        self._finishes: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def serve(self) -> None:
        await self._socket.accept()
        try:
            admitted = await self._handshake()
            await self._converse(admitted)
        except (_Closed, RpcError):
            pass
        except (WebSocketDisconnect, OSError, RuntimeError, TimeoutError):
            pass  # the client has disconnected, or reads nothing
        finally:
            await self._close(GOING_AWAY if self._stopping.is_set() else POLICY, "")

    # --- the handshake

    async def _handshake(self) -> Admitted:
        challenge = {"nonce": secrets.token_urlsafe(24), "ts": self._now_ms()}
        await self._send(EventFrame(event="connect.challenge", payload=challenge))
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                frame = await self._receive()
        except TimeoutError as error:
            self._refuses("no connect in time")
            await self._close(POLICY, "no connect in time")
            raise _Closed from error
        request = await self._read(frame)
        try:
            return await self._connect(request)
        except RpcError as error:
            body = error.body
            if action := WRONG.get(str((body.details or {}).get("code"))):
                stranger = Actor(who=STRANGER, door=Door.WEBSOCKET, address=self._address)
                self._gateway.audit.refuse(stranger, action, body.message)
            if body.code == UNAUTHORIZED:
                # The protocol has no code for it.
                body = msgspec.structs.replace(
                    body, code=INVALID_REQUEST, message=f"unauthorized: {body.message}"
                )
            self._refuses(body.message)
            await self._send(Response(id=request.id, ok=False, error=body))
            await self._close(POLICY, one_line(body.message, 100))
            raise _Closed from error

    async def _connect(self, request: RequestFrame) -> Admitted:
        if request.method != "connect":
            raise RpcError(INVALID_REQUEST, "the first request must be connect")
        try:
            asked = msgspec.json.decode(request.params, type=_Connect)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise RpcError(INVALID_REQUEST, f"invalid connect params: {error}") from error
        if not asked.min_protocol <= PROTOCOL <= asked.max_protocol:
            raise RpcError(
                INVALID_REQUEST,
                "protocol mismatch",
                details={"code": "PROTOCOL_MISMATCH", "expectedProtocol": PROTOCOL},
            )
        if self._gateway.status().status == "starting":
            raise starting()
        if (known := self._keeper.recognise(asked.auth.token)) is None:
            self._keeper.check_rate(self._peer)
        else:
            self._keeper.check_rate_of(known)
        admitted = self._keeper.admit(
            self._peer, asked.auth.token, asked.scopes, door=Door.WEBSOCKET, address=self._address
        )
        self._knows()
        await self._send(Response(id=request.id, ok=True, payload=self._hello(admitted)))
        return admitted

    def _hello(self, admitted: Admitted) -> dict[str, Any]:
        caller = self._keeper.caller(admitted)
        status = self._gateway.status()
        uptime = self._gateway.clock.now() - status.started_at
        return {
            "type": "hello-ok",
            "protocol": PROTOCOL,
            "server": {"version": our_version(), "connId": secrets.token_hex(8)},
            "features": {"methods": list(METHODS), "events": list(EVENTS)},
            "snapshot": {
                "presence": [],
                # The protocol allows no other fields here; `gateway.status` has more.
                "health": {"ok": True, "ts": self._now_ms()},
                "stateVersion": {"presence": 0, "health": 0},
                "uptimeMs": max(0, int(uptime.total_seconds() * 1000)),
            },
            "auth": {"role": "operator", "scopes": sorted(caller.scopes)},
            "policy": {
                "maxPayload": self._max_frame_bytes,
                "maxBufferedBytes": MAX_BUFFERED_BYTES,
                "tickIntervalMs": int(TICK_S * 1000),
            },
        }

    # --- the conversation

    async def _converse(self, admitted: Admitted) -> None:
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(self._tick()),
                group.create_task(self._until_stop()),
                group.create_task(self._until_revoked(admitted)),
                group.create_task(self._tell_tasks(admitted)),
            ]
            try:
                while True:
                    await self._room.acquire()
                    request = await self._read(await self._receive())
                    group.create_task(self._answer(request, admitted, group))
            except (_Closed, WebSocketDisconnect, OSError, RuntimeError):
                pass  # requests in progress still finish, but their answers are dropped
            finally:
                self._is_over = True
                for child in (*beside, *self._finishes):
                    child.cancel()

    async def _answer(self, request: RequestFrame, admitted: Admitted, group: asyncio.TaskGroup) -> None:
        """Free the slot after the answer was read, so that a client that does not read cannot send more."""
        order = self._in_order if request.method in IN_ORDER else contextlib.nullcontext()
        try:
            async with order:
                response = await self._response(request, admitted)
            with contextlib.suppress(_Closed, WebSocketDisconnect, OSError, RuntimeError):
                await self._send(response)
                self._follow(request, response, admitted, group)
        finally:
            self._room.release()

    def _follow(
        self, request: RequestFrame, response: Response, admitted: Admitted, group: asyncio.TaskGroup
    ) -> None:
        """After `agent` was accepted, a second response tells its end. It needs no slot: runs are long."""
        method = METHODS.get(request.method)
        is_accepted = getattr(response.payload, "status", None) == "accepted"
        if method is None or method.finish is None or not is_accepted:
            return
        if self._is_over or len(self._finishes) >= MAX_FINISHES:
            return
        child = group.create_task(self._finish(request, response, admitted, method.finish))
        self._finishes.add(child)
        child.add_done_callback(self._finishes.discard)

    async def _finish(
        self, request: RequestFrame, response: Response, admitted: Admitted, finish: Called
    ) -> None:
        try:
            payload = await finish(self._gateway, response.payload, self._keeper.caller(admitted))
            self._keeper.caller(admitted)  # the token may have been revoked meanwhile
        except RpcError as error:
            ended = Response(id=request.id, ok=False, error=error.body)
        except HoldfastError as error:
            ended = Response(id=request.id, ok=False, error=translated(error).body)
        else:
            ended = Response(id=request.id, ok=True, payload=payload)
        with contextlib.suppress(_Closed, WebSocketDisconnect, OSError, RuntimeError):
            await self._send(ended)

    async def _response(self, request: RequestFrame, admitted: Admitted) -> Response:
        if request.method == "connect":
            again = RpcError(INVALID_REQUEST, "this connection is already connected")
            return Response(id=request.id, ok=False, error=again.body)
        try:
            self._keeper.check_rate_of(admitted)
            caller = self._keeper.readmit(admitted)
            payload = await dispatch(self._gateway, request.method, request.params, caller)
            check_still(caller, self._keeper.caller(admitted))
        except RpcError as error:
            self._count(request.method, error.body.code)
            return Response(id=request.id, ok=False, error=error.body)
        self._count(request.method, "OK")
        return Response(id=request.id, ok=True, payload=payload)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await self._event("tick", {"ts": self._now_ms()})

    async def _tell_tasks(self, admitted: Admitted) -> None:
        listener = self._feed.listen(lambda: self._reach(admitted))
        try:
            while True:
                changes = await listener.next()
                self._keeper.caller(admitted)
                for change in changes:
                    reach = self._reach(admitted)
                    if reach is not None and reach.covers(change.owner, change.name):
                        await self._event("task", TaskEvent(action="upserted", task=change.summary))
        except RpcError:
            await self._close(POLICY, REVOKED)
        finally:
            self._feed.leave(listener)

    def _reach(self, admitted: Admitted) -> Reach | None:
        """The tasks whose changes it may see now; None if its token no longer allows any."""
        try:
            caller = self._keeper.caller(admitted)
        except RpcError:
            return None
        return caller.reach if READ in caller.scopes and caller.may_call("events.list") else None

    async def _until_revoked(self, admitted: Admitted) -> None:
        """Close an idle connection soon after its token was revoked."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                self._keeper.caller(admitted)
            except RpcError:
                await self._close(POLICY, REVOKED)
                return

    async def _until_stop(self) -> None:
        await self._stopping.wait()
        await self._close(GOING_AWAY, "the gateway restarts; connect again")

    async def _event(self, name: str, payload: object) -> None:
        self._seq += 1
        with contextlib.suppress(_Closed, WebSocketDisconnect, OSError, RuntimeError):
            await self._send(EventFrame(event=name, payload=payload, seq=self._seq))

    # --- frames

    async def _receive(self) -> str:
        message = await self._socket.receive()
        if message["type"] != "websocket.receive":
            raise _Closed
        text = message.get("text")
        if text is None:
            await self._close(UNSUPPORTED, "send text frames")
            raise _Closed
        return str(text)

    async def _read(self, frame: str) -> RequestFrame:
        try:
            return read_request(frame)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            await self._close(POLICY, "not a valid request frame")
            raise _Closed from error

    async def _send(self, frame: Response | EventFrame) -> None:
        """Close the connection if the client does not read, rather than buffer its answers."""
        text = encode(frame).decode()
        async with self._sending:
            if self._socket.application_state is not WebSocketState.CONNECTED:
                raise _Closed
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._socket.send_text(text)
            except TimeoutError as error:
                raise _Closed from error

    async def _close(self, code: int, reason: str) -> None:
        if self._socket.application_state is not WebSocketState.CONNECTED:
            return
        with contextlib.suppress(OSError, RuntimeError, TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(SEND_TIMEOUT_S):
                # A close frame holds at most 123 bytes.
                await self._socket.close(code, reason.encode("ascii", "replace").decode()[:120])

    def _now_ms(self) -> int:
        now = millis(self._gateway.clock.now())
        assert now is not None
        return now
