"""The HTTP server: WebSocket, POST /rpc/<method>, events, webhooks, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router, WebSocketRoute
from starlette.websockets import WebSocket

from holdfast.api import openapi
from holdfast.api.anonymous_limits import HOLD_S, BodyBudget, RefusalLog, WaitingRoom
from holdfast.api.browser import BrowserVisitor, Pages, SignInCookies, check_same_page, with_visitor
from holdfast.api.connection_limits import (
    ACCEPT_AT_ONCE,
    ConnectionLimits,
    ListeningSocket,
    few_complaints,
    most_connections,
)
from holdfast.api.contract import EVERYTHING, READ, Caller, GatewayDoor
from holdfast.api.feed import Feed
from holdfast.api.live_limits import LiveLimits
from holdfast.api.local import LocalDoor
from holdfast.api.methods import METHODS
from holdfast.api.metrics import CONTENT_TYPE, Metrics
from holdfast.api.protocols import PatientHttp, PatientWebSocket, show_token
from holdfast.api.rpc import (
    FAILED,
    FORBIDDEN,
    HTTP_STATUS,
    INVALID_REQUEST,
    NOT_FOUND,
    RATE_LIMITED,
    UNAVAILABLE,
    RpcError,
    check_reach,
    check_still,
    dispatch,
    starting,
    translated,
    unknown_method,
)
from holdfast.api.security import AccessCheck, Admitted, bearer
from holdfast.api.tls import MAX_HANDSHAKES, Certificates, TlsLayer
from holdfast.api.tokens import Tokens
from holdfast.api.websocket import Connection
from holdfast.core.audit import STRANGER, WRONG, Actor, Door
from holdfast.core.errors import FeedGap, HoldfastError
from holdfast.store.events import START, parse_position
from holdfast.views.events import EventView
from holdfast.views.gateway import ReadyView
from holdfast.views.wire import TaskCancelled

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from holdfast.store.transaction import Tx

log = logging.getLogger("holdfast")

BODY_TIMEOUT_S = 10.0
# How much of a refused body is read, so that the client can read the answer.
REST_BYTES = 256 * 1024
REST_S = 1.0
KEEP_ALIVE_S = 30
# Every client may call /readyz, which needs a write: do that at most this often.
PROBED_S = 1.0
# How long requests in progress may take when the server closes.
GRACE_S = 5
MAX_WEBSOCKETS = 1000
MAX_LISTENERS = 100
PING_S = 15.0
_AT_ONCE = 200
_LOOK_EVERY_S = 1.0
# No answer is a web page: a browser must not run, frame or sniff it.
SAFE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
# The dashboard answers at / and below this path.
PAGES_BELOW = "/dashboard"
# A sign-in has a code or a token, and nothing else.
MAX_SIGN_IN_BYTES = 4096
# The probes of process managers and load balancers.
PROBES = frozenset({"/healthz", "/readyz"})

Headers = Sequence[tuple[bytes, bytes]]


class Webhooks(msgspec.Struct, frozen=True, kw_only=True):
    """The handlers of webhooks. Both take the channel's name and the headers, and raise HoldfastError."""

    # Before the body is read: check that the channel exists and the signature is well-formed.
    check: Callable[[str, Headers], None]
    # Stores the message before it returns.
    receive: Callable[[str, Headers, bytes], Awaitable[msgspec.Struct]]


class Doors:
    """The ASGI application behind the TCP port."""

    def __init__(
        self,
        gateway: GatewayDoor,
        tokens: Tokens,
        *,
        refusals: RefusalLog,
        webhooks: Webhooks | None = None,
        pages: Pages | None = None,
    ) -> None:
        self._gateway = gateway
        self._webhooks = webhooks
        self._pages = pages
        self._refusals = refusals
        self._budget = BodyBudget()
        self._keeper = AccessCheck(tokens, lambda: gateway.config.gateway)
        self._cookies = SignInCookies(gateway.home, self._keeper)
        self._metrics = Metrics()
        self._websockets = 0
        self._listeners = 0
        self._streams = LiveLimits()
        self._document: bytes | None = None
        self.stopping = asyncio.Event()
        self.feed = Feed(gateway.store, gateway.troubles)
        self._router = Router(
            routes=[
                _Route("/healthz", self._healthz, methods=["GET"]),
                _Route("/readyz", self._readyz, methods=["GET"]),
                _Route("/metrics", self._read(self._show_metrics, "ledger.overview"), methods=["GET"]),
                _Route("/events", self._read(self._events, "events.list"), methods=["GET"]),
                _Route(
                    "/openapi.json", self._read(self._openapi, "rpc.describe", is_owned=True), methods=["GET"]
                ),
                _Route("/rpc/{method}", self._rpc, methods=["POST"]),
                _Route("/channels/{name}", self._receive, methods=["POST"]),
                WebSocketRoute("/", self._websocket),
                WebSocketRoute("/rpc", self._websocket),
            ],
            redirect_slashes=False,
            default=_nowhere,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle every request: check Host, Origin, token and rate before routing."""
        if scope["type"] not in {"http", "websocket"}:
            return
        body, peer = _Body(scope, receive), self._keeper.peer_of(scope)
        known = self._keeper.recognise(bearer(scope["headers"]))
        try:
            visitor = self._visitor(scope) if self._pages is not None and _is_page(scope) else None
            if visitor is not None:
                # Here a cookie counts, and it alone.
                known = visitor.admitted
            await self._check(scope, peer, known)
            if self._pages is None or visitor is None:
                await self._router(scope, body.receive, _with_safe_headers(send))
            else:
                await self._show_page(self._pages, visitor, scope, body, send)
        except RpcError as error:
            self._record_stranger(error, scope)
            if known is None:
                self._refusals.add(peer, error.body.message)
                await self._hold(error)
            await _refuse(error, scope, body, send)
        except ClientDisconnect:
            pass

    async def _check(self, scope: Scope, peer: str, known: Admitted | None) -> None:
        """Check Host, Origin and rate. Raises RpcError."""
        try:
            self._keeper.check_place(scope)
        except RpcError:
            self._keeper.check_rate(peer)
            raise
        if scope["type"] == "websocket":
            await self._let_in_slowly(peer)
        elif scope.get("path") in PROBES:
            await self._let_in_slowly(f"{peer} for probes")
        elif known is None:
            self._keeper.check_rate(peer)
        else:
            show_token(scope)
            self._keeper.check_rate_of(known)

    async def _let_in_slowly(self, peer: str) -> None:
        """Delay, rather than refuse, too many probes and WebSockets: neither has a token yet."""
        try:
            self._keeper.check_rate(peer)
        except RpcError as error:
            await self._hold(error)

    async def _hold(self, error: RpcError) -> None:
        """Delay the error for an anonymous client over its rate, so that it sends less."""
        if error.body.code == RATE_LIMITED:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HOLD_S):
                    await self.stopping.wait()

    def _record_stranger(self, error: RpcError, scope: Scope) -> None:
        """Record a wrong token, or a webhook with a wrong signature, in the audit log."""
        if action := WRONG.get(str((error.body.details or {}).get("code"))):
            stranger = Actor(who=STRANGER, door=Door.HTTP, address=self._keeper.address_of(scope))
            self._gateway.audit.refuse(stranger, action, error.body.message, subject=scope.get("path"))

    # --- pages

    def _visitor(self, scope: Scope) -> BrowserVisitor:
        try:
            return BrowserVisitor(
                self._gateway,
                self._keeper,
                self._cookies,
                scope,
                streams=self._streams,
                stopping=self.stopping,
                count=self._count,
            )
        except HoldfastError as error:
            raise translated(error) from error

    async def _show_page(
        self, pages: Pages, visitor: BrowserVisitor, scope: Scope, body: _Body, send: Send
    ) -> None:
        """Let the dashboard answer. Its forms are read here, within the limits of every body."""
        check_same_page(scope)
        receive: Receive = body.receive
        if scope["method"] == "POST":
            max_bytes = self._gateway.config.gateway.max_body_bytes if visitor.admitted else MAX_SIGN_IN_BYTES
            request = Request(scope, body.receive)
            _check_body(request, max_bytes, kind="application/x-www-form-urlencoded")
            receive = _whole(await _body(request, max_bytes), body.receive)
        with_visitor(scope, visitor)
        await pages(scope, receive, _with_safe_headers(send))

    # --- health

    async def _healthz(self, request: Request) -> Response:  # noqa: ARG002 - as every route has it
        return _json({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        """Readiness for every client; the reasons only for tokens that may read."""
        status = await self._gateway.look(at_most_old_s=PROBED_S)
        view = ReadyView.of(status, has_reasons=self._may_read_all(request))
        return _json(view, status=200 if status.is_ready else 503)

    def _may_read_all(self, request: Request) -> bool:
        """A wrong token counts as none here: a load balancer still gets its answer."""
        if bearer(request.scope["headers"]) is None:
            return False
        try:
            caller = self._caller(request)
        except RpcError:
            return False
        return READ in caller.scopes and not caller.reach.is_bound

    # --- with the read scope

    def _read(
        self, answer: Callable[[Request], Awaitable[Response]], method: str, *, is_owned: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route for tokens that may call the method with the same content."""

        async def route(request: Request) -> Response:
            _check_reads(self._caller(request), method, is_owned=is_owned)
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
        task_id = request.query_params.get("task")
        try:
            if position is not None:
                parse_position(position)
            if task_id is not None:
                target = task_id
                task_id = await self._gateway.store.read(lambda tx: EVERYTHING.resolve(tx, target))
        except HoldfastError as error:
            raise translated(error) from error
        if self._listeners >= MAX_LISTENERS:
            raise RpcError(UNAVAILABLE, "too many listeners; close some", retryable=True)
        if request.method == "HEAD":  # no body, and this stream never ends
            return Response(media_type="text/event-stream")
        admitted = self._admit(request)
        return StreamingResponse(self._stream(position, task_id, admitted), media_type="text/event-stream")

    async def _stream(
        self, position: str | None, task_id: str | None, admitted: Admitted
    ) -> AsyncIterator[bytes]:
        """Events after the position, or new ones; of one task, or of all.

        If events were pruned meanwhile, the stream says so and continues.
        """
        self._listeners += 1
        store = self._gateway.store
        try:
            if position is None:
                newest = await store.read(lambda tx: tx.events.newest(limit=1))
                position = newest[-1].position if newest else START
            told_at, at = time.monotonic(), position
            yield b": holdfast\n\n"
            while not self.stopping.is_set():
                _check_reads(self._keeper.caller(admitted), "events.list", is_owned=False)
                try:
                    # Build the views in the reader's thread: redacting many long facts is slow.
                    found, then = await store.read(lambda tx: _shown_after(tx, at, task_id))  # noqa: B023 - read at once
                except FeedGap as gap:
                    at = START
                    yield _sse("feed_gap", {"position": gap.position, "oldest": gap.oldest})
                    continue
                for event in found:
                    yield _sse(event.kind, event, event.position)
                if found:
                    told_at = time.monotonic()
                elif time.monotonic() - told_at >= PING_S:
                    told_at = time.monotonic()
                    yield b": still here\n\n"
                if then == at:
                    await store.wait_for("events", _LOOK_EVERY_S)
                at = then
        except RpcError:
            pass  # its token was revoked, or no longer allows this stream
        except HoldfastError as error:
            # The client reconnects with its last position.
            words = f"a stream of events ended: {error} ({error.code})"
            self._gateway.troubles.met("a stream of events", error, words=words)
        finally:
            self._listeners -= 1

    # --- methods and messages

    async def _rpc(self, request: Request) -> Response:
        name = request.path_params["method"]
        try:
            admitted = self._admit(request)
            self._keeper.caller(admitted)  # read a body only for a valid token
            max_bytes = self._gateway.config.gateway.max_body_bytes
            _check_body(request, max_bytes)
            body = await _body(request, max_bytes)
            # Check the token again: it may have been revoked while a slow body arrived.
            caller = self._keeper.caller(admitted)
            payload = _found(await dispatch(self._gateway, name, body, caller))
            check_still(caller, self._keeper.caller(admitted))
        except RpcError as error:
            self._count(name, error.code_over_http)
            raise
        self._count(name, "OK")
        return _json(payload)

    async def _receive(self, request: Request) -> Response:
        """Accept a webhook signed with the channel's secret; answered when the message is stored."""
        name, headers = request.path_params["name"], request.scope["headers"]
        max_bytes = self._gateway.config.gateway.max_body_bytes
        _check_body(request, max_bytes)
        if self._webhooks is None:
            raise RpcError(NOT_FOUND, "no such channel", details={"code": "not_found"})
        if self._gateway.status().status == "starting":
            raise starting()
        try:
            self._webhooks.check(name, headers)
            with self._budget.share(self._keeper.peer_of(request.scope), max_body_bytes=max_bytes) as take:
                body = await _body(request, max_bytes, take=take)
                return _json(await self._webhooks.receive(name, headers, body), status=202)
        except (RpcError, ClientDisconnect):
            raise
        except HoldfastError as error:
            raise translated(error) from error
        except Exception as error:
            log.exception("a webhook of channel %s failed", name[:80])
            raise RpcError(FAILED, "internal error of the gateway; see its log") from error

    async def _websocket(self, socket: WebSocket) -> None:
        # WebSockets without a token are limited separately, by the WaitingRoom.
        if self._websockets >= MAX_WEBSOCKETS:
            raise RpcError(UNAVAILABLE, "too many connections; close some", retryable=True)
        peer, is_known = self._keeper.peer_of(socket.scope), False

        def knows() -> None:
            nonlocal is_known
            is_known = True
            self._websockets += 1
            show_token(socket.scope)

        self._metrics.connections.inc()
        try:
            connection = Connection(
                socket,
                self._gateway,
                self._keeper,
                self.feed,
                self.stopping,
                peer=peer,
                max_frame_bytes=self._gateway.config.gateway.max_body_bytes,
                count=self._count,
                refuses=functools.partial(self._refusals.add, peer),
                knows=knows,
            )
            await connection.serve()
        finally:
            self._websockets -= is_known
            self._metrics.connections.dec()

    def _caller(self, request: Request) -> Caller:
        return self._keeper.caller(self._admit(request))

    def _admit(self, request: Request) -> Admitted:
        peer, address = self._keeper.peer_of(request.scope), self._keeper.address_of(request.scope)
        return self._keeper.admit(peer, bearer(request.scope["headers"]), address=address)

    def _count(self, name: str, code: str) -> None:
        # Do not use names from clients as labels: their number would be unlimited.
        self._metrics.requests.labels(name if name in METHODS else "other", code).inc()


def _check_reads(caller: Caller, method: str, *, is_owned: bool) -> None:
    if READ not in caller.scopes:
        raise RpcError(FORBIDDEN, f"missing scope: {READ}", details={"code": "forbidden"})
    check_reach(caller, method, is_owned=is_owned)


def _found(payload: msgspec.Struct) -> msgspec.Struct:
    """Turn the protocol's answer for a missing task into HTTP status 404."""
    if isinstance(payload, TaskCancelled) and not payload.found:
        raise RpcError(NOT_FOUND, payload.reason or "Task not found.", details={"code": "not_found"})
    return payload


def _shown_after(tx: Tx, position: str, task_id: str | None) -> tuple[list[EventView], str]:
    """Events after a position, of one task or of all; and the position up to which they were read."""
    found = tx.events.after(position, limit=_AT_ONCE)
    shown = [EventView.of(event) for event in found if task_id in (None, event.task_id)]
    return shown, found[-1].position if found else position


class _Route(Route):
    """A route that refuses other HTTP methods with a JSON error."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods is not None and scope["method"] not in self.methods:
            name = scope["path_params"].get("method")
            if name is not None and name not in METHODS:
                raise unknown_method(name)
            allowed = ", ".join(sorted(self.methods))
            raise RpcError(
                INVALID_REQUEST,
                f"{scope['path']} takes {allowed}, not {scope['method']}",
                details={"code": "method_not_allowed", "status": 405, "allow": allowed},
            )
        await super().handle(scope, receive, send)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the drain decides when the server closes."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_doors(
    gateway: GatewayDoor,
    *,
    tcp_sockets: Sequence[socket.socket],
    unix_socket: socket.socket | None,
    tokens: Tokens,
    stop: asyncio.Event,
    webhooks: Webhooks | None = None,
    pages: Pages | None = None,
    certificates: Certificates | None = None,
) -> None:
    """Serve on sockets that are already listening, until `stop` is set.

    With a certificate, the TCP sockets speak TLS and nothing else.

    At the end no new request is accepted, and requests in progress are answered. Then the sockets are closed;
    the supervisor's copies keep listening.
    """
    loop = asyncio.get_running_loop()
    refusals = RefusalLog(loop.call_later)
    doors = Doors(gateway, tokens, refusals=refusals, webhooks=webhooks, pages=pages)
    max_bytes = gateway.config.gateway.max_body_bytes
    limits, room = ConnectionLimits(most_connections()), WaitingRoom()
    handshakes = WaitingRoom(MAX_HANDSHAKES)

    def protocol(**named: Any) -> asyncio.BaseProtocol:
        http = PatientHttp(limits=limits, refusals=refusals, **named)
        # Asked for each connection: a renewed certificate counts for the next one.
        context = None if certificates is None else certificates.context
        if context is None:
            return http
        return TlsLayer(http, context, limits=limits, handshakes=handshakes, refusals=refusals)

    server = _Server(
        uvicorn.Config(
            doors,
            http=protocol,  # type: ignore[arg-type]
            ws=functools.partial(PatientWebSocket, limits=limits, room=room, refusals=refusals),  # type: ignore[arg-type]
            ws_max_size=max_bytes,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            # At this level uvicorn logs no paths, which may contain a token, and nothing that an anonymous
            # client can trigger at will.
            log_level="error",
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
        opened.enter_context(few_complaints(loop))
        group = await opened.enter_async_context(asyncio.TaskGroup())
        if unix_socket is not None:
            await opened.enter_async_context(
                LocalDoor(gateway, max_frame_bytes=max_bytes, refuses=refusals.add).open(unix_socket)
            )
        follows = group.create_task(doors.feed.run())
        listening: list[socket.socket] = [ListeningSocket.of(one) for one in tcp_sockets]
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
    raise RpcError(NOT_FOUND, "no such path; see GET /openapi.json", details={"code": "not_found"})


def _is_page(scope: Scope) -> bool:
    """Whether the dashboard answers this request."""
    path: str = scope.get("path", "")
    return scope["type"] == "http" and (path == "/" or path.startswith(PAGES_BELOW))


def _whole(content: bytes, rest: Receive) -> Receive:
    """Receives a body that was read already, then what follows it."""
    parts = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive() -> Message:
        return parts.pop() if parts else await rest()

    return receive


def _check_body(request: Request, max_bytes: int, *, kind: str = "application/json") -> None:
    """Check the headers of a body before reading it."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != kind:
        raise RpcError(
            INVALID_REQUEST,
            f"the content type must be {kind}",
            details={"code": "not_json", "status": 415},
        )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)


async def _body(request: Request, max_bytes: int, *, take: Callable[[int], None] | None = None) -> bytes:
    """The whole body, within the limits of time and size.

    `take` is called before each chunk is kept, and raises if there is no room for it.
    """
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                if len(found) + len(chunk) > max_bytes:
                    raise _too_large(max_bytes)
                if take is not None:
                    take(len(chunk))
                found += chunk
    except TimeoutError as error:
        why = f"the body did not arrive within {BODY_TIMEOUT_S:g} s"
        raise RpcError(INVALID_REQUEST, why, details={"code": "too_slow", "status": 408}) from error
    return bytes(found)


def _too_large(max_bytes: int) -> RpcError:
    return RpcError(
        INVALID_REQUEST,
        f"a body has at most {max_bytes:,} bytes",
        details={"code": "payload_too_large", "status": 413},
    )


def _json(payload: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(payload), status_code=status, media_type="application/json")


def _sse(event: str, payload: object, position: str | None = None) -> bytes:
    head = "" if position is None else f"id: {position}\n"
    return f"{head}event: {event}\ndata: ".encode() + msgspec.json.encode(payload) + b"\n\n"


async def _refuse(error: RpcError, scope: Scope, body: _Body, send: Send) -> None:
    why = msgspec.structs.replace(error.body, code=error.code_over_http)
    status = int((why.details or {}).get("status", HTTP_STATUS.get(why.code, 500)))
    headers = dict(SAFE_HEADERS)
    if "allow" in (why.details or {}):
        headers["allow"] = str((why.details or {})["allow"])
    if why.retry_after_ms is not None:
        headers["retry-after"] = str(-(-why.retry_after_ms // 1000))
    if status == HTTP_STATUS["UNAUTHORIZED"]:
        headers["www-authenticate"] = "Bearer"
    if not await body.read_rest():
        # The unread rest of a body would be parsed as the next request.
        headers["connection"] = "close"
    response = Response(
        msgspec.json.encode({"error": why}),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
    await response(scope, body.receive, send)


class _Body:
    """The body of a request, and whether all of it was read; a later read waits for the disconnect."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._is_whole: bool = scope["type"] != "http"
        # A client that sent `Expect: 100-continue` has not sent its body when it is refused.
        self._is_held_back = any(name == b"expect" for name, _ in scope["headers"])

    async def receive(self) -> Message:
        self._is_held_back = False
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._is_whole = True
        return message

    async def read_rest(self) -> bool:
        """Drop the rest, so that the client can read the answer; returns whether the end came."""
        left = 0 if self._is_held_back else REST_BYTES
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
            given = list(message.get("headers", ()))
            # A page has a policy of its own, and a file of the dashboard may be kept.
            names = {bytes(name).lower() for name, _ in given}
            added = [(name.encode(), value.encode()) for name, value in SAFE_HEADERS.items()]
            message = {**message, "headers": [*given, *(one for one in added if one[0] not in names)]}
        await send(message)

    return send_safely
