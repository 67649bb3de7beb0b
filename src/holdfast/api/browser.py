"""Browsers: a signed cookie stands for a token, and a page asks with the rights of that token.

A cookie holds the name of a token and an expiry, signed together with the token's digest: when the token is
rotated, revoked or expires, its cookies end with it. Cookies count only for pages, never for /rpc.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.api.contract import ADMIN, READ, WRITE, GatewayDoor
from holdfast.api.live_limits import LiveLimits
from holdfast.api.rpc import (
    FORBIDDEN,
    HTTP_STATUS,
    UNAUTHORIZED,
    UNAVAILABLE,
    RpcError,
    check_reach,
    dispatch,
)
from holdfast.api.security import AccessCheck, Admitted
from holdfast.config.sign_in import (
    SIGNED_IN_LASTS,
    has_signed_out,
    note_sign_out,
    read_key,
    redeem_code,
)
from holdfast.core.audit import STRANGER, Actor, AuditOutcome, Door
from holdfast.core.clock import SystemClock
from holdfast.core.errors import FeedGap, HoldfastError, SettingsError
from holdfast.store.events import START
from holdfast.views.browser import VISITOR, ChangesView, NotAnswered

if TYPE_CHECKING:
    from holdfast.core.clock import Clock
    from holdfast.store.transaction import Tx

# The pages, as an ASGI application; each request has its Visitor in the scope.
Pages: TypeAlias = Callable[
    [MutableMapping[str, Any], Callable[..., Awaitable[Any]], Callable[..., Awaitable[None]]], Awaitable[None]
]
# In the audit log: a person at the dashboard, not a program with the same token.
DASHBOARD = "dashboard"
SIGN_IN, SIGN_OUT = "dashboard.sign_in", "dashboard.sign_out"
MAX_COOKIE_CHARS = 1024
# How often an open page is told of changes, at most; and how often it gets a sign of life.
TELL_EVERY_S = 1.0
SIGN_OF_LIFE_S = 15.0
_AT_ONCE = 200
_MAX_TOLD_TASKS = 50


class _Pass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a cookie says: the name of the token, the end of the sign-in, and a random id of its own."""

    token: str
    until: datetime
    id: str


class SignInCookies:
    """Makes and reads the cookies of one home."""

    def __init__(self, home: Path, access: AccessCheck, *, clock: Clock | None = None) -> None:
        self._home = home
        self._access = access
        # Cookies expire by this machine's clock, as tokens do.
        self._clock = SystemClock() if clock is None else clock
        self._key: bytes | None = None

    @property
    def name(self) -> str:
        """Browsers send cookies to every port of a host, so each home has a name of its own."""
        return f"holdfast_{hashlib.sha256(b'name' + self._signing_key()).hexdigest()[:8]}"

    def make(self, token: str, *, is_tls: bool) -> str | None:
        """A cookie for the token of this name; None if there is no such token."""
        digest = self._access.digest_of(token)
        if digest is None:
            return None
        until = self._clock.now() + SIGNED_IN_LASTS
        made = _Pass(token=token, until=until, id=secrets.token_urlsafe(16))
        text = _b64(msgspec.json.encode(made))
        value = f"{text}.{_b64(self._sign(text, digest))}"
        return self._header(value, int(SIGNED_IN_LASTS.total_seconds()), is_tls=is_tls)

    def remove(self, *, is_tls: bool) -> str:
        return self._header("", 0, is_tls=is_tls)

    def read(self, scope: Mapping[str, Any]) -> tuple[Admitted, _Pass] | None:
        """The token that the cookie of this request stands for, if the cookie is ours and still valid."""
        value = self._value_of(scope)
        if value is None:
            return None
        text, _, signature = value.partition(".")
        try:
            found = msgspec.json.decode(_unb64(text), type=_Pass)
            signed = _unb64(signature)
        except (msgspec.DecodeError, ValueError, binascii.Error):
            return None
        digest = self._access.digest_of(found.token)
        if digest is None or not hmac.compare_digest(signed, self._sign(text, digest)):
            return None
        if self._clock.now() >= found.until or has_signed_out(self._home, found.id):
            return None
        return Admitted(digest=digest, via=DASHBOARD), found

    def _value_of(self, scope: Mapping[str, Any]) -> str | None:
        start = f"{self.name}="
        for name, line in scope["headers"]:
            if name == b"cookie":
                for one in line.decode("latin-1").split(";"):
                    if one.strip().startswith(start):
                        value: str = one.strip()[len(start) :]
                        return value if len(value) <= MAX_COOKIE_CHARS else None
        return None

    def _header(self, value: str, max_age_s: int, *, is_tls: bool) -> str:
        secure = "; Secure" if is_tls else ""
        return f"{self.name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"

    def _sign(self, text: str, digest: bytes) -> bytes:
        return hmac.new(self._signing_key(), b"cookie\0" + digest + text.encode(), hashlib.sha256).digest()

    def _signing_key(self) -> bytes:
        if self._key is None:
            self._key = read_key(self._home)
        return self._key


class BrowserVisitor:
    """The person whose browser sent a request, with the rights of the token of the cookie."""

    def __init__(
        self,
        gateway: GatewayDoor,
        access: AccessCheck,
        cookies: SignInCookies,
        scope: Mapping[str, Any],
        *,
        streams: LiveLimits,
        stopping: asyncio.Event,
        count: Callable[[str, str], None],
    ) -> None:
        self._gateway = gateway
        self._access = access
        self._cookies = cookies
        self._scope = scope
        self._streams = streams
        self._stopping = stopping
        self._count = count
        found = cookies.read(scope)
        address = access.address_of(scope)
        self._pass = None if found is None else found[1]
        self._admitted = None if found is None else msgspec.structs.replace(found[0], address=address)
        self._caller = None if self._admitted is None else access.caller(self._admitted)

    @property
    def admitted(self) -> Admitted | None:
        return self._admitted

    @property
    def is_signed_in(self) -> bool:
        return self._caller is not None

    @property
    def who(self) -> str:
        return "" if self._pass is None else self._pass.token

    @property
    def may_change(self) -> bool:
        return self._caller is not None and WRITE in self._caller.scopes

    @property
    def may_administer(self) -> bool:
        return self._caller is not None and ADMIN in self._caller.scopes

    async def ask(self, method: str, /, **params: Any) -> Any:
        if self._admitted is None:
            raise NotAnswered("signed_out", "sign in first", status=HTTP_STATUS[UNAUTHORIZED])
        try:
            caller = self._access.readmit(self._admitted)
            answer = await dispatch(self._gateway, method, msgspec.json.encode(params), caller)
        except RpcError as error:
            self._count(method, error.code_over_http)
            raise _not_answered(error) from error
        self._count(method, "OK")
        return answer

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._streams.one_of(self.who))
            except RpcError as error:
                raise _not_answered(error) from error
            yield

    def check_live(self) -> None:
        try:
            self._streams.check_room(self.who)
        except RpcError as error:
            raise _not_answered(error) from error

    async def changes(self) -> AsyncIterator[ChangesView | None]:
        store, loop = self._gateway.store, asyncio.get_running_loop()
        position: str | None = None
        told: ChangesView | None = None
        told_at = loop.time()
        while not self._stopping.is_set() and self._may_watch():
            kinds: list[str] | None = []
            tasks: list[str] = []
            try:
                position, kinds, tasks = await store.read(lambda tx: _look(tx, position))  # noqa: B023 - read at once
            except HoldfastError:
                kinds = None
            found = self._told(kinds, tasks)
            if told is None or kinds != [] or (found.status, found.boot) != (told.status, told.boot):
                told, told_at = found, loop.time()
                yield found
            elif loop.time() - told_at >= SIGN_OF_LIFE_S:
                told_at = loop.time()
                yield None
            await self._pause()

    def _told(self, kinds: list[str] | None, tasks: list[str]) -> ChangesView:
        status = self._gateway.status()
        return ChangesView(status=status.status, boot=status.boot_id, kinds=kinds, tasks=tasks)

    def _may_watch(self) -> bool:
        """Whether the sign-in and its token are still valid."""
        if self._admitted is None or self._cookies.read(self._scope) is None:
            return False
        try:
            caller = self._access.caller(self._admitted)
            check_reach(caller, "events.list", is_owned=False)
        except RpcError:
            return False
        return READ in caller.scopes

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(TELL_EVERY_S):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def sign_in(self, *, code: str = "", token: str = "") -> str:
        peer = self._access.peer_of(self._scope)
        try:
            if code:
                name = await asyncio.to_thread(redeem_code, self._gateway.home, code, SystemClock().now())
                if name is None:
                    self._access.note_guess(peer)
            else:
                name = self._access.name_of(self._access.admit(peer, token or "none"))
            cookie = None if name is None else self._cookies.make(name, is_tls=self._is_tls)
        except RpcError as error:
            self._refuse(error.body.message)
            raise _not_answered(error) from error
        except SettingsError as error:
            raise NotAnswered(error.code, str(error), status=HTTP_STATUS[UNAVAILABLE]) from error
        if name is None or cookie is None:
            why = "this link was used already or is older than ten minutes; get a new one: holdfast dashboard"
            self._refuse(why)
            raise NotAnswered("code_not_valid", why, status=HTTP_STATUS[UNAUTHORIZED])
        await self._record(name, SIGN_IN)
        return cookie

    async def sign_out(self) -> str:
        try:
            if self._pass is not None:
                await asyncio.to_thread(note_sign_out, self._gateway.home, self._pass.id)
                await self._record(self._pass.token, SIGN_OUT)
        except SettingsError as error:
            raise NotAnswered(error.code, str(error), status=HTTP_STATUS[UNAVAILABLE]) from error
        return self._cookies.remove(is_tls=self._is_tls)

    async def _record(self, token: str, action: str) -> None:
        actor = Actor(who=_at_dashboard(token), door=Door.HTTP, address=self._access.address_of(self._scope))
        entry = actor.entry(action, AuditOutcome.DONE, now=self._gateway.clock.now())
        await self._gateway.audit.record(entry)

    def _refuse(self, why: str) -> None:
        stranger = Actor(who=STRANGER, door=Door.HTTP, address=self._access.address_of(self._scope))
        self._gateway.audit.refuse(stranger, SIGN_IN, why)

    @property
    def _is_tls(self) -> bool:
        """Whether the browser speaks TLS, with us or with a proxy in front of us: its origin says so."""
        origin = dict(self._scope["headers"]).get(b"origin", b"")
        return self._scope.get("scheme") == "https" or origin.startswith(b"https://")


def check_same_page(scope: Mapping[str, Any]) -> None:
    """A request that changes something must come from a page of ours: browsers always say so for a POST, and
    no other page can add a header without our consent. Raises RpcError."""
    if scope["method"] in {"GET", "HEAD"}:
        return
    names = {name for name, _ in scope["headers"]}
    if b"origin" not in names or b"hx-request" not in names:
        why = "this request does not come from a page of the dashboard"
        raise RpcError(FORBIDDEN, why, details={"code": "not_from_our_page"})


def with_visitor(scope: MutableMapping[str, Any], visitor: BrowserVisitor) -> None:
    scope[VISITOR] = visitor


def _look(tx: Tx, position: str | None) -> tuple[str, list[str] | None, list[str]]:
    """The end of the feed, and what happened since the position: kinds and tasks, or None for too many."""
    if position is not None:
        try:
            found = tx.events.after(position, limit=_AT_ONCE)
        except FeedGap:
            found = []
            position = None
        if position is not None and len(found) < _AT_ONCE:
            kinds = list(dict.fromkeys(event.kind.value for event in found))
            tasks = list(dict.fromkeys(event.task_id for event in found if event.task_id is not None))
            return (found[-1].position if found else position), kinds, tasks[:_MAX_TOLD_TASKS]
    newest = tx.events.newest(limit=1)
    return (newest[-1].position if newest else START), None, []


def _at_dashboard(token: str) -> str:
    return f"{token} ({DASHBOARD})"


def _not_answered(error: RpcError) -> NotAnswered:
    code = str((error.body.details or {}).get("code", error.body.code.lower()))
    wait_ms = error.body.retry_after_ms
    return NotAnswered(
        code,
        error.body.message,
        status=HTTP_STATUS.get(error.code_over_http, 500),
        retry_after_s=None if wait_ms is None else -(-wait_ms // 1000),
    )


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
