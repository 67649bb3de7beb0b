"""Access control: Host and Origin allow-lists, tokens, scopes and rate limits, also on loopback.

Everything that is not allowed is refused. A malicious page cannot use a browser against us: its Origin is
not ours, and a DNS name rebound to our address is not among our hosts. The token comes in a header or in
the `connect` frame, never in a URL, because logs and histories keep URLs.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from holdfast.api.contract import Caller, with_implied
from holdfast.api.peers import Network, address_of, networks_of, peer_of
from holdfast.api.rpc import FORBIDDEN, INVALID_REQUEST, RATE_LIMITED, UNAUTHORIZED, RpcError
from holdfast.api.tokens import Tokens
from holdfast.core.audit import Door

if TYPE_CHECKING:
    from holdfast.config.sections import GatewaySettings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS = frozenset({"0.0.0.0", "::", "[::]", "*"})  # noqa: S104 - recognised, not listened on
# Wrong tokens per address: this many at once, then one every two seconds.
GUESSES = 10.0
GUESSES_PER_S = 0.5
# How many addresses the rate limiter remembers.
MAX_PEERS = 4096
# Query parameters refused in a URL: logs, histories and Referer headers keep URLs.
SECRET_NAMES = frozenset(
    {"token", "access_token", "auth", "authorization", "password", "secret", "apikey", "api_key"}
)
REVOKED = "this token was replaced or revoked, or has expired"


class Bucket:
    """A token bucket: a burst, then a rate per second."""

    def __init__(self, capacity: float, per_s: float, now: float) -> None:
        self._left = capacity
        self._at = now
        self._capacity, self._per_s = capacity, per_s

    def wait_s(self, now: float, cost: float = 1.0) -> float:
        """0 if there is room, else the time until there is. Does not take it."""
        left = min(self._capacity, self._left + (now - self._at) * self._per_s)
        return 0.0 if left >= cost else (cost - left) / self._per_s

    def take(self, now: float, cost: float = 1.0) -> float:
        """0 if it was taken, else the time until there is room."""
        self._left = min(self._capacity, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < cost:
            return (cost - self._left) / self._per_s
        self._left -= cost
        return 0.0


class Buckets:
    """One bucket per address or token; the least recently used is dropped first."""

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


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A client with a valid token: its digest, and the scopes that the client asked for."""

    digest: bytes
    wanted: frozenset[str] | None = None
    door: Door = Door.HTTP
    address: str | None = None
    # What the client uses the token through, such as the dashboard; the audit log names it.
    via: str | None = None


class AccessCheck:
    """Checks every request before it is processed. Raises RpcError."""

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
        self._rates_of_tokens = Buckets(lambda: settings().burst, lambda: settings().rate_limit_per_s)
        self._guesses = Buckets(lambda: GUESSES, lambda: GUESSES_PER_S)
        self._rate = settings().rate_limit_per_s
        # As written in the settings, and normalised for comparison.
        self._proxies: tuple[list[str], list[Network]] = ([], [])

    def check_place(self, scope: Mapping[str, Any]) -> None:
        """Check Host, Origin and the query string of every request."""
        headers = scope.get("headers", ())
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._is_our_host(hosts[0].decode("latin-1"), scope):
            raise RpcError(
                FORBIDDEN,
                "this Host is not allowed; if it should be, add it to gateway.allowed_hosts",
                details={"code": "host_not_allowed"},
            )
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        is_foreign = not origins and _is_from_another_page(headers)
        if (
            is_foreign
            or len(origins) > 1
            or (origins and not self._is_our_origin(origins[0], hosts[0].decode("latin-1"), scope))
        ):
            raise RpcError(
                FORBIDDEN,
                "this Origin is not allowed; if it should be, add it to gateway.allowed_origins",
                details={"code": "origin_not_allowed"},
            )
        if holds_secret(scope.get("query_string", b"")):
            raise RpcError(
                INVALID_REQUEST,
                "a token must not be in a URL, because logs keep URLs; send it as `Authorization: Bearer …`, "
                "and replace this token",
                details={"code": "token_in_url"},
            )

    def peer_of(self, scope: Mapping[str, Any]) -> str:
        """The address that a request is counted under."""
        return peer_of(scope, self._trusted())

    def address_of(self, scope: Mapping[str, Any]) -> str | None:
        """The client's address for the audit log."""
        found = address_of(scope, self._trusted())
        return None if found is None else str(found)

    def _trusted(self) -> list[Network]:
        texts = self._settings().trusted_proxies
        if texts is not self._proxies[0]:
            self._proxies = (texts, networks_of(texts))
        return self._proxies[1]

    def recognise(self, token: str | None) -> Admitted | None:
        """Look up the token before rate limits: strangers at an address must not slow an operator there."""
        digest = self._tokens.find(token) if token else None
        return None if digest is None else Admitted(digest=digest)

    def check_rate(self, peer: str) -> None:
        """Limit requests without a valid token by address; also on loopback, where browsers run pages."""
        self._take(self._rates, peer)

    def check_rate_of(self, admitted: Admitted) -> None:
        """Limit requests by token."""
        self._take(self._rates_of_tokens, admitted.digest.hex())

    def _take(self, buckets: Buckets, key: str) -> None:
        if self._settings().rate_limit_per_s != self._rate:
            self._rate = self._settings().rate_limit_per_s
            self._rates.forget()
            self._rates_of_tokens.forget()
        now = self._monotonic()
        wait_s = buckets.of(key, now).take(now)
        if wait_s:
            raise too_many("too many requests", wait_s)

    def admit(
        self,
        peer: str,
        token: str | None,
        wanted: Iterable[str] | None = None,
        *,
        door: Door = Door.HTTP,
        address: str | None = None,
    ) -> Admitted:
        """Admit a client with a valid token. Wrong tokens are rate-limited by address; a valid one is never
        delayed, even if another client guesses from the same address."""
        if not token:
            raise RpcError(
                UNAUTHORIZED,
                "a token is required: `Authorization: Bearer …`, from the file `token` in the home",
                details={"code": "AUTH_TOKEN_MISSING"},
            )
        digest = self._tokens.find(token)
        if digest is None:
            self.note_guess(peer)
            raise RpcError(
                UNAUTHORIZED, "the gateway does not know this token", details={"code": "AUTH_TOKEN_MISMATCH"}
            )
        self._tokens.note_use(digest)
        return Admitted(
            digest=digest, wanted=None if wanted is None else frozenset(wanted), door=door, address=address
        )

    def note_guess(self, peer: str) -> None:
        """Count a wrong token or sign-in code. Raises RpcError after too many."""
        now = self._monotonic()
        wait_s = self._guesses.of(peer, now).take(now)
        if wait_s:
            raise too_many("too many wrong tokens", wait_s)

    def digest_of(self, name: str) -> bytes | None:
        """The digest of the token of this name, if it is valid now."""
        return self._tokens.digest_of(name)

    def name_of(self, admitted: Admitted) -> str | None:
        caller = self._tokens.caller_of(admitted.digest)
        return None if caller is None else caller.who

    def readmit(self, admitted: Admitted) -> Caller:
        """Check one more request of an admitted client."""
        caller = self.caller(admitted)
        self._tokens.note_use(admitted.digest)
        return caller

    def caller(self, admitted: Admitted) -> Caller:
        """The caller with its current rights: never more than those of the token."""
        caller = self._tokens.caller_of(admitted.digest)
        if caller is None:
            raise RpcError(UNAUTHORIZED, REVOKED, details={"code": "AUTH_TOKEN_MISMATCH"})
        scopes = with_implied(caller.scopes)
        if admitted.wanted is not None:
            scopes &= with_implied(admitted.wanted)
        who = caller.who if admitted.via is None else f"{caller.who} ({admitted.via})"
        return msgspec.structs.replace(
            caller, who=who, scopes=scopes, door=admitted.door, address=admitted.address
        )

    def _is_our_host(self, host: str, scope: Mapping[str, Any]) -> bool:
        host = host.lower()
        name = _without_port(host)
        settings = self._settings()
        allowed = {one.lower() for one in settings.allowed_hosts}
        if host in allowed or name in allowed or name in LOOPBACK:
            return True
        if settings.host not in WILDCARDS and name in {settings.host.lower(), f"[{settings.host.lower()}]"}:
            return True
        # Compare with the address itself: a rebound DNS name would differ.
        server = scope.get("server")
        return server is not None and name in {str(server[0]), f"[{server[0]}]"}

    def _is_our_origin(self, origin: str, host: str, scope: Mapping[str, Any]) -> bool:
        if origin in self._settings().allowed_origins:
            return True
        # Behind a proxy that speaks TLS, a page of ours has https although the request has not.
        is_tls = scope.get("scheme") in {"https", "wss"}
        schemes = ("https",) if is_tls else ("http", "https")
        return origin.lower() in {f"{scheme}://{host.lower()}" for scheme in schemes}


def too_many(what: str, wait_s: float) -> RpcError:
    wait_ms = max(1, int(wait_s * 1000) + 1)
    return RpcError(
        RATE_LIMITED,
        f"{what}; retry in {wait_ms:,} ms",
        details={"code": "rate_limited"},
        retryable=True,
        retry_after_ms=wait_ms,
    )


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token of the Authorization header; None unless there is exactly one."""
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
    """Whether a page of another site embeds it, such as an image: sent without Origin, but rate-limited."""
    told = dict(headers)
    return told.get(b"sec-fetch-site") == b"cross-site" and told.get(b"sec-fetch-mode") != b"navigate"


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")


def _without_port(host: str) -> str:
    """The host name without its port; malformed text unchanged, which matches no allowed host."""
    found = _HOST.fullmatch(host)
    return host if found is None else found[1]
