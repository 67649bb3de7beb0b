"""The HTTP doors: WebSocket, POST /rpc/<method>, events, webhooks, health and metrics; one error mapping."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router, WebSocketRoute
from starlette.websockets import WebSocket

from holdfast.api import openapi
from holdfast.api.contract import READ, Caller, Gateway
from holdfast.api.crowd import ACCEPT_AT_ONCE, Crowd, Listening, few_complaints, most_connections
from holdfast.api.feed import Feed
from holdfast.api.local import LocalDoor
from holdfast.api.methods import METHODS
from holdfast.api.metrics import CONTENT_TYPE, Metrics
from holdfast.api.protocols import PatientHttp, PatientWebSocket
from holdfast.api.rpc import (
    FAILED,
    FORBIDDEN,
    HTTP_STATUS,
    INVALID_REQUEST,
    NOT_FOUND,
    UNAVAILABLE,
    RpcError,
    dispatch,
    starting,
    translated,
)
from holdfast.api.security import Admitted, Doorkeeper, Tokens, bearer
from holdfast.api.websocket import Connection
from holdfast.core.errors import FeedGap, HoldfastError
from holdfast.store.events import START, parse_position
from holdfast.views.events import EventView

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

log = logging.getLogger("holdfast")

BODY_TIMEOUT_S = 10.0
# Of a body that nobody wants, so much is read, so that its sender hears why.
REST_BYTES = 256 * 1024
REST_S = 1.0
KEEP_ALIVE_S = 30
# What is under way when the doors close is answered, for at most so long.
GRACE_S = 5
MAX_WEBSOCKETS = 1000
MAX_LISTENERS = 100
PING_S = 15.0
_AT_ONCE = 200
_LOOK_EVERY_S = 1.0
# Nothing of ours is a page: a browser may neither run nor frame nor guess at it.
SAFE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
# Asked for by whoever starts and watches processes, before and beside any client.
PROBES = frozenset({"/healthz", "/readyz"})

# Takes a webhook: the channel's name, its headers and its body. Raises HoldfastError.
Receives = Callable[[str, Sequence[tuple[bytes, bytes]], bytes], Awaitable[msgspec.Struct]]


class Doors:
    """Everything that is reached over TCP, as one ASGI application."""

    def __init__(self, gateway: Gateway, tokens: Tokens, *, webhook: Receives | None = None) -> None:
        self._gateway = gateway
        self._webhook = webhook
        self._keeper = Doorkeeper(tokens, lambda: gateway.config.gateway)
        self._metrics = Metrics()
        self._websockets = 0
        self._listeners = 0
        self._document: bytes | None = None
        self.stopping = asyncio.Event()
        self.feed = Feed(gateway.store)
        self._router = Router(
            routes=[
                Route("/healthz", self._healthz, methods=["GET"]),
                Route("/readyz", self._readyz, methods=["GET"]),
                Route("/metrics", self._read(self._show_metrics), methods=["GET"]),
                Route("/events", self._read(self._events), methods=["GET"]),
                Route("/openapi.json", self._read(self._openapi, is_owned=True), methods=["GET"]),
                Route("/rpc/{method}", self._rpc, methods=["POST"]),
                Route("/channels/{name}", self._receive, methods=["POST"]),
                WebSocketRoute("/", self._websocket),
                WebSocketRoute("/rpc", self._websocket),
            ],
            redirect_slashes=False,
            default=_nowhere,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every request passes here: place and rate are checked before any route is looked for."""
        if scope["type"] not in {"http", "websocket"}:
            return
        body = _Body(scope, receive)
        try:
            self._keeper.check_place(scope)
            if scope.get("path") not in PROBES:
                self._keeper.check_rate(_peer(scope))
        except RpcError as error:
            await _refuse(error, scope, body, send)
            return
        try:
            await self._router(scope, body.receive, _with_safe_headers(send))
        except RpcError as error:
            await _refuse(error, scope, body, send)
        except ClientDisconnect:
            pass

    # --- health

    async def _healthz(self, request: Request) -> Response:  # noqa: ARG002 - as every route has it
        return _json({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:  # noqa: ARG002 - as every route has it
        status = self._gateway.status()
        return _json({"status": str(status.status)}, status=200 if status.is_ready else 503)

    # --- what needs the scope to read

    def _read(
        self, answer: Callable[[Request], Awaitable[Response]], *, is_owned: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            caller = self._caller(request)
            if READ not in caller.scopes:
                raise RpcError(FORBIDDEN, f"missing scope: {READ}", details={"code": "forbidden"})
            if caller.owner is not None and not is_owned:
                why = "that is not for a token that is bound to an owner"
                raise RpcError(FORBIDDEN, why, details={"code": "forbidden"})
            return await answer(request)

        return route

    async def _show_metrics(self, request: Request) -> Response:  # noqa: ARG002 - as every route has it
        if self._gateway.status().status == "starting":
            raise starting()
        try:
            text = await self._metrics.text(self._gateway)
        except HoldfastError as error:
            raise translated(error) from error
        return Response(text, media_type=CONTENT_TYPE)

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002 - as every route has it
        if self._document is None:
            self._document = msgspec.json.encode(openapi.document())
        return Response(self._document, media_type="application/json")

    async def _events(self, request: Request) -> Response:
        if self._gateway.status().status == "starting":
            raise starting()
        position = request.headers.get("last-event-id") or request.query_params.get("after")
        if position is not None:
            try:
                parse_position(position)
            except HoldfastError as error:
                raise translated(error) from error
        if self._listeners >= MAX_LISTENERS:
            raise RpcError(UNAVAILABLE, "too many listeners; close some", retryable=True)
        if request.method == "HEAD":  # it has no body, and this one has no end
            return Response(media_type="text/event-stream")
        admitted = self._admit(request)
        return StreamingResponse(self._stream(position, admitted), media_type="text/event-stream")

    async def _stream(self, position: str | None, admitted: Admitted) -> AsyncIterator[bytes]:
        """From the position on, or from now on. What was pruned meanwhile is said, and then it goes on."""
        self._listeners += 1
        store = self._gateway.store
        try:
            if position is None:
                newest = await store.read(lambda tx: tx.events.newest(limit=1))
                position = newest[-1].position if newest else START
            quiet_s = 0.0
            yield b": holdfast\n\n"
            while not self.stopping.is_set():
                self._keeper.caller(admitted)
                at = position
                try:
                    found = await store.read(lambda tx: tx.events.after(at, limit=_AT_ONCE))  # noqa: B023 - read at once
                except FeedGap as gap:
                    position = START
                    yield _sse("feed_gap", {"position": gap.position, "oldest": gap.oldest})
                    continue
                for event in found:
                    position = event.position
                    yield _sse(event.kind.value, EventView.of(event), position)
                if found:
                    quiet_s = 0.0
                    continue
                heard = await store.wait_for("events", _LOOK_EVERY_S)
                quiet_s = 0.0 if heard else quiet_s + _LOOK_EVERY_S
                if quiet_s >= PING_S:
                    quiet_s = 0.0
                    yield b": still here\n\n"
        except RpcError:
            pass  # its token was taken away
        except HoldfastError as error:
            # The client comes back with the last position it saw.
            log.warning("a stream of events ended: %s (%s)", error, error.code)
        finally:
            self._listeners -= 1

    # --- methods and messages

    async def _rpc(self, request: Request) -> Response:
        name = request.path_params["method"]
        try:
            caller = self._caller(request)
            body = await _body(request, self._gateway.config.gateway.max_body_bytes, must_be_json=True)
            payload = await dispatch(self._gateway, name, body, caller)
        except RpcError as error:
            self._count(name, error.body.code)
            raise
        self._count(name, "OK")
        return _json(payload)

    async def _receive(self, request: Request) -> Response:
        """The channel's secret is what lets a webhook in; the answer comes when the message is durable."""
        name = request.path_params["name"]
        body = await _body(request, self._gateway.config.gateway.max_body_bytes, must_be_json=True)
        if self._webhook is None:
            raise RpcError(NOT_FOUND, "no such channel", details={"code": "not_found"})
        if self._gateway.status().status == "starting":
            raise starting()
        try:
            return _json(await self._webhook(name, request.scope["headers"], body), status=202)
        except HoldfastError as error:
            raise translated(error) from error
        except Exception as error:
            log.exception("a webhook of channel %s failed", name[:80])
            raise RpcError(FAILED, "the gateway failed on this request; its log says more") from error

    async def _websocket(self, socket: WebSocket) -> None:
        if self._websockets >= MAX_WEBSOCKETS:
            raise RpcError(UNAVAILABLE, "too many connections; close some", retryable=True)
        self._websockets += 1
        self._metrics.connections.inc()
        try:
            connection = Connection(
                socket,
                self._gateway,
                self._keeper,
                self.feed,
                self.stopping,
                peer=_peer(socket.scope),
                max_frame_bytes=self._gateway.config.gateway.max_body_bytes,
                count=self._count,
            )
            await connection.serve()
        finally:
            self._websockets -= 1
            self._metrics.connections.dec()

    def _caller(self, request: Request) -> Caller:
        return self._keeper.caller(self._admit(request))

    def _admit(self, request: Request) -> Admitted:
        return self._keeper.admit(_peer(request.scope), bearer(request.scope["headers"]))

    def _count(self, name: str, code: str) -> None:
        # A stranger's words are no labels: there would be no end of them.
        self._metrics.requests.labels(name if name in METHODS else "other", code).inc()


class _Server(uvicorn.Server):
    """uvicorn without its signals: whoever drains decides when the doors close."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_doors(
    gateway: Gateway,
    *,
    tcp_sockets: Sequence[socket.socket],
    unix_socket: socket.socket | None,
    tokens: Tokens,
    stop: asyncio.Event,
    webhook: Receives | None = None,
) -> None:
    """Answer on sockets that are listening already, until `stop` is set.

    Then nothing new is taken, and what is under way is answered first. The sockets are closed at the end;
    who else holds them goes on listening.
    """
    doors = Doors(gateway, tokens, webhook=webhook)
    max_bytes = gateway.config.gateway.max_body_bytes
    server = _Server(
        uvicorn.Config(
            doors,
            http=functools.partial(PatientHttp, crowd=Crowd(most_connections())),  # type: ignore[arg-type]
            ws=PatientWebSocket,
            ws_max_size=max_bytes,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            # Nothing at this level has a path in it, and so no token that somebody put into one.
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            backlog=ACCEPT_AT_ONCE,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    async with contextlib.AsyncExitStack() as opened:
        opened.enter_context(few_complaints(asyncio.get_running_loop()))
        group = await opened.enter_async_context(asyncio.TaskGroup())
        if unix_socket is not None:
            await opened.enter_async_context(LocalDoor(gateway, max_frame_bytes=max_bytes).open(unix_socket))
        follows = group.create_task(doors.feed.run())
        listening: list[socket.socket] = [Listening.of(one) for one in tcp_sockets]
        serves = group.create_task(server.serve(sockets=listening)) if listening else None
        try:
            await stop.wait()
        finally:
            doors.stopping.set()
            server.should_exit = True
            if serves is not None:
                await serves
            follows.cancel()


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - an application
    raise RpcError(
        NOT_FOUND, "nothing is here; GET /openapi.json says what is", details={"code": "not_found"}
    )


async def _body(request: Request, max_bytes: int, *, must_be_json: bool) -> bytes:
    """The whole body, if it comes in time and is no larger than it may be."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if must_be_json and kind != "application/json":
        raise RpcError(INVALID_REQUEST, "send application/json", details={"code": "not_json", "status": 415})
    too_large = RpcError(
        INVALID_REQUEST,
        f"a body has at most {max_bytes:,} bytes",
        details={"code": "payload_too_large", "status": 413},
    )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise too_large
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                found += chunk
                if len(found) > max_bytes:
                    raise too_large
    except TimeoutError as error:
        why = f"the body did not come within {BODY_TIMEOUT_S:g} s"
        raise RpcError(INVALID_REQUEST, why, details={"code": "too_slow", "status": 408}) from error
    return bytes(found)


def _peer(scope: Scope) -> str:
    """The address at the other end; never what a header claims it to be."""
    client = scope.get("client")
    return "unknown" if client is None else str(client[0])


def _json(payload: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(payload), status_code=status, media_type="application/json")


def _sse(event: str, payload: object, position: str | None = None) -> bytes:
    head = "" if position is None else f"id: {position}\n"
    return f"{head}event: {event}\ndata: ".encode() + msgspec.json.encode(payload) + b"\n\n"


async def _refuse(error: RpcError, scope: Scope, body: _Body, send: Send) -> None:
    why = error.body
    status = int((why.details or {}).get("status", HTTP_STATUS.get(why.code, 500)))
    headers = dict(SAFE_HEADERS)
    if why.retry_after_ms is not None:
        headers["retry-after"] = str(-(-why.retry_after_ms // 1000))
    if status == HTTP_STATUS["UNAUTHORIZED"]:
        headers["www-authenticate"] = "Bearer"
    if not await body.read_rest():
        # What was not read of a body would be taken for the next request.
        headers["connection"] = "close"
    response = Response(
        msgspec.json.encode({"error": why}),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
    await response(scope, body.receive, send)


class _Body:
    """What a client sends, and whether all of it has been read: who waits for more then waits for its end."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._is_whole: bool = scope["type"] != "http"

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._is_whole = True
        return message

    async def read_rest(self) -> bool:
        """Whether it came to its end. A client that still sends would be cut off before it hears us."""
        left = REST_BYTES
        try:
            async with asyncio.timeout(REST_S):
                while left > 0 and not self._is_whole:
                    left -= len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass
        return self._is_whole


def _with_safe_headers(send: Send) -> Send:
    async def send_safely(message: Message) -> None:
        if message["type"] == "http.response.start":
            added = [(name.encode(), value.encode()) for name, value in SAFE_HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_safely
