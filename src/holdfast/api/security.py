"""Who may come in: Host and Origin allow-lists, the token, scopes, and how often, also on loopback.

Everything is refused that is not allowed. A browser cannot be talked into asking for somebody else: its
Origin must be ours, and a name that was bent to our address is not among our hosts. The token comes in a
header or in the frame `connect`, never in a URL, where logs and histories would keep it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from holdfast.api.contract import ALL_SCOPES, Caller, with_implied
from holdfast.api.rpc import FORBIDDEN, INVALID_REQUEST, RATE_LIMITED, UNAUTHORIZED, RpcError
from holdfast.core.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.config.gateway import Config, GatewaySettings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS = frozenset({"0.0.0.0", "::", "[::]", "*"})  # noqa: S104 - recognised, not listened on
# Whoever guesses has so many guesses, and then one every other second.
GUESSES = 10.0
GUESSES_PER_S = 0.5
# Of so many addresses it is remembered how often they came.
MAX_PEERS = 4096
# What a URL must not carry: it is kept in logs, histories and the headers of other requests.
SECRET_NAMES = frozenset(
    {"token", "access_token", "auth", "authorization", "password", "secret", "apikey", "api_key"}
)
OPERATOR = "operator"


class Bucket:
    """So many at once, and then so many a second."""

    def __init__(self, capacity: float, per_s: float, now: float) -> None:
        self._left = capacity
        self._at = now
        self._capacity, self._per_s = capacity, per_s

    def wait_s(self, now: float, cost: float = 1.0) -> float:
        """0 when there is room; else how long until there is. Takes nothing."""
        left = min(self._capacity, self._left + (now - self._at) * self._per_s)
        return 0.0 if left >= cost else (cost - left) / self._per_s

    def take(self, now: float, cost: float = 1.0) -> float:
        """0 when it was taken; else how long until there is room."""
        self._left = min(self._capacity, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < cost:
            return (cost - self._left) / self._per_s
        self._left -= cost
        return 0.0


class Buckets:
    """One for each address; the one that came longest ago is forgotten first."""

    def __init__(self, capacity: Callable[[], float], per_s: Callable[[], float]) -> None:
        self._capacity, self._per_s = capacity, per_s
        self._of: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, peer: str, now: float) -> Bucket:
        if peer not in self._of:
            self._of[peer] = Bucket(self._capacity(), self._per_s(), now)
        self._of.move_to_end(peer)
        while len(self._of) > MAX_PEERS:
            self._of.popitem(last=False)
        return self._of[peer]

    def forget(self) -> None:
        self._of.clear()


class Tokens:
    """The tokens that open the doors, each with who bears it; only their digests are kept."""

    def __init__(self, tokens: Mapping[str, Caller]) -> None:
        self._callers = {_digest(token): caller for token, caller in tokens.items()}

    @classmethod
    def of(cls, token: str, others: Mapping[str, Caller] | None = None) -> Tokens:
        """The operator's token, and those of others. Raises SettingsError when two are the same."""
        found = {token: Caller(who=OPERATOR, scopes=ALL_SCOPES)}
        for one, caller in (others or {}).items():
            if one in found:
                raise SettingsError(
                    f"tokens.{caller.who} holds the token of {found[one].who}: give each its own"
                )
            found[one] = caller
        return cls(found)

    @classmethod
    def read(cls, config: Config, home: Path, environ: Mapping[str, str]) -> Tokens:
        """All that the home, the environment and the settings name. Raises SettingsError."""
        from holdfast.config.token import read_named_token, read_token

        others: dict[str, Caller] = {}
        for name, settings in config.tokens.items():
            token = read_named_token(name, settings, home, environ)
            if token in others:
                raise SettingsError(
                    f"tokens.{name} holds the token of {others[token].who}: give each its own"
                )
            others[token] = Caller(who=name, scopes=frozenset(settings.scopes), owner=settings.owner)
        return cls.of(read_token(home, environ), others)

    def replace(self, other: Tokens) -> None:
        """From now on those hold; whoever came in with an old one is refused at the next request."""
        self._callers = dict(other._callers)

    def find(self, presented: str) -> bytes | None:
        """The digest by which a right token is known; in a time that says nothing about the wrong ones."""
        digest, found = _digest(presented), None
        for known in self._callers:
            if hmac.compare_digest(digest, known):
                found = known
        return found

    def caller_of(self, digest: bytes) -> Caller | None:
        """Read at every request: a token that was taken away has none."""
        return self._callers.get(digest)


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who presented a right token: which, and what they asked to be limited to."""

    digest: bytes
    wanted: frozenset[str] | None = None


class Doorkeeper:
    """Decides about every request before anything is done for it. Raises RpcError."""

    def __init__(
        self,
        tokens: Tokens,
        settings: Callable[[], GatewaySettings],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._settings = settings
        self._monotonic = monotonic
        self._rates = Buckets(lambda: settings().burst, lambda: settings().rate_limit_per_s)
        self._guesses = Buckets(lambda: GUESSES, lambda: GUESSES_PER_S)
        self._rate = settings().rate_limit_per_s

    def check_place(self, scope: Mapping[str, Any]) -> None:
        """Host, Origin and the query: for every request, whatever it asks for."""
        headers = scope.get("headers", ())
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._is_our_host(hosts[0].decode("latin-1"), scope):
            raise RpcError(
                FORBIDDEN,
                "that Host is not ours; add it to gateway.allowed_hosts if it should be",
                details={"code": "host_not_allowed"},
            )
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        is_foreign = not origins and _is_from_another_page(headers)
        if (
            is_foreign
            or len(origins) > 1
            or (origins and not self._is_our_origin(origins[0], hosts[0].decode("latin-1")))
        ):
            raise RpcError(
                FORBIDDEN,
                "that Origin is not ours; add it to gateway.allowed_origins if it should be",
                details={"code": "origin_not_allowed"},
            )
        if holds_secret(scope.get("query_string", b"")):
            raise RpcError(
                INVALID_REQUEST,
                "a token does not belong in a URL, where logs keep it; send it as `Authorization: Bearer …`, "
                "and replace this one",
                details={"code": "token_in_url"},
            )

    def check_rate(self, peer: str) -> None:
        """Loopback is no exception: a page in a browser is on loopback, too."""
        if self._settings().rate_limit_per_s != self._rate:
            self._rate = self._settings().rate_limit_per_s
            self._rates.forget()
        now = self._monotonic()
        wait_s = self._rates.of(peer, now).take(now)
        if wait_s:
            raise too_many("too many requests", wait_s)

    def admit(self, peer: str, token: str | None, wanted: Iterable[str] | None = None) -> Admitted:
        """Who presents a right token. Guessing is slowed, and whoever knows it never waits for one who
        guesses from the same address: there are too many tokens for a guess to be right."""
        if not token:
            raise RpcError(
                UNAUTHORIZED,
                "a token is needed: `Authorization: Bearer …`, from the file `token` in the home",
                details={"code": "AUTH_TOKEN_MISSING"},
            )
        digest = self._tokens.find(token)
        if digest is None:
            now = self._monotonic()
            wait_s = self._guesses.of(peer, now).take(now)
            if wait_s:
                raise too_many("too many wrong tokens", wait_s)
            raise RpcError(
                UNAUTHORIZED, "that token is not the gateway's", details={"code": "AUTH_TOKEN_MISMATCH"}
            )
        return Admitted(digest=digest, wanted=None if wanted is None else frozenset(wanted))

    def caller(self, admitted: Admitted) -> Caller:
        """What they may do now: never more than their token, whatever they asked for."""
        caller = self._tokens.caller_of(admitted.digest)
        if caller is None:
            raise RpcError(UNAUTHORIZED, "that token was replaced", details={"code": "AUTH_TOKEN_MISMATCH"})
        scopes = with_implied(caller.scopes)
        if admitted.wanted is not None:
            scopes &= with_implied(admitted.wanted)
        return msgspec.structs.replace(caller, scopes=scopes)

    def _is_our_host(self, host: str, scope: Mapping[str, Any]) -> bool:
        host = host.lower()
        name = _without_port(host)
        settings = self._settings()
        allowed = {one.lower() for one in settings.allowed_hosts}
        if host in allowed or name in allowed or name in LOOPBACK:
            return True
        if settings.host not in WILDCARDS and name in {settings.host.lower(), f"[{settings.host.lower()}]"}:
            return True
        # The very address that was connected to: a name that was bent to it would be another text.
        server = scope.get("server")
        return server is not None and name in {str(server[0]), f"[{server[0]}]"}

    def _is_our_origin(self, origin: str, host: str) -> bool:
        if origin in self._settings().allowed_origins:
            return True
        return origin.lower() in {f"http://{host.lower()}", f"https://{host.lower()}"}


def too_many(what: str, wait_s: float) -> RpcError:
    wait_ms = max(1, int(wait_s * 1000) + 1)
    return RpcError(
        RATE_LIMITED,
        f"{what}; come back in {wait_ms:,} ms",
        details={"code": "rate_limited"},
        retryable=True,
        retry_after_ms=wait_ms,
    )


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token of an Authorization header; None without exactly one."""
    found = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    if len(found) != 1:
        return None
    scheme, _, token = found[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def holds_secret(query: bytes) -> bool:
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return True
    return any(name.lower() in SECRET_NAMES for name, _ in pairs)


def _is_from_another_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """A picture or a script of a page elsewhere, which has no Origin: it would use up what others may ask."""
    told = dict(headers)
    return told.get(b"sec-fetch-site") == b"cross-site" and told.get(b"sec-fetch-mode") != b"navigate"


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")


def _without_port(host: str) -> str:
    """The name; what has no name and port is whole, and so is nobody's name."""
    found = _HOST.fullmatch(host)
    return host if found is None else found[1]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
