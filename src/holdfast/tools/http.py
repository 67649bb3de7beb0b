"""HTTP tools: reads, and requests with the effect's idempotency key."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import http.client
import re
import socket
import ssl
import threading
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from json import dumps
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import msgspec

from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput, PayloadTooLarge, RetryAfter
from holdfast.core.payload import MAX_PAYLOAD_BYTES
from holdfast.core.step_declarations import keyed, read, tool
from holdfast.tools import addresses
from holdfast.tools.addresses import Address
from holdfast.tools.errors import HttpFailed, HttpNotSent, shown
from holdfast.tools.inputs import check_seconds, check_word, current_key

MAX_BODY_BYTES = 1024 * 1024
MAX_REDIRECTS = 10
TIMEOUT_S = 30.0
MAX_RETRY_AFTER_S = 86_400

_METHOD = re.compile(r"[A-Z]{1,20}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VISIBLE = re.compile(r"[!-~]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_MAX_HEADER_CHARS = 2000
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Headers that http.client sets; a second, different one would allow request smuggling.
_OURS = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})
# The caller's headers that a redirect to another host keeps.
_FOR_ANY_SERVER = frozenset({"accept", "accept-language", "user-agent"})
# The server's headers that are stored: none that holds credentials.
_KEPT = frozenset(
    {
        "content-language",
        "content-length",
        "content-type",
        "date",
        "etag",
        "last-modified",
        "link",
        "location",
        "request-id",
        "retry-after",
        "x-request-id",
    }
)
_KEPT_PREFIXES = ("ratelimit", "x-ratelimit-")
_CHARSETS = frozenset(
    {
        *("utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be", "latin1", "latin-1"),
        *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
        *(f"windows-{page}" for page in range(1250, 1259)),
        *(f"cp{page}" for page in range(1250, 1259)),
        *("shift-jis", "sjis", "euc-jp", "iso-2022-jp", "euc-kr", "gb2312", "gbk", "gb18030", "big5"),
        *("koi8-r", "koi8-u"),
    }
)


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A server's answer: some of its headers, with lowercase names, and the beginning of its body."""

    status: int
    url: str
    headers: dict[str, str]
    body: str
    is_body_cut: bool = False


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request, ready to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None = None
    max_redirects: int = 0
    allow_private: bool = False


@tool(effect=read, name="http_get", raises=(HttpFailed, HttpNotSent, BadInput))
async def http_get(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    method: str = "GET",
    allow_private: bool = False,
) -> HttpResponse:
    """Get a URL, or with the method HEAD only its headers.

    Any answer below 500 is a result, also 404. Redirects are followed; another host does not get the caller's
    own headers. If the server asks to be called later (429 or 503 with Retry-After), RetryAfter is raised.
    Raises HttpFailed for 5xx and for an unusable answer, HttpNotSent when no connection was made, and
    TimeoutError.

    Connects only to addresses of the public internet, also after a redirect: for a host of your own network
    (loopback, private, link-local, the metadata service of a cloud) pass `allow_private`.
    """
    if method not in ("GET", "HEAD"):
        raise BadInput("method", "http_get takes GET or HEAD; http_request takes the others")
    request = HttpRequest(
        method=method,
        url=_checked_url(url),
        headers=_checked_headers(headers),
        max_redirects=MAX_REDIRECTS,
        allow_private=_checked_flag("allow_private", allow_private),
    )
    return judged(await exchange(request, check_seconds("timeout_s", timeout_s)))


@tool(
    effect=keyed("24h", did_not_happen=BadInput),
    name="http_request",
    raises=(HttpFailed, HttpNotSent, BadInput),
)
async def http_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    json: object = None,
    body: str | None = None,
    timeout_s: float = TIMEOUT_S,
    idempotency_header: str = "Idempotency-Key",
    allow_private: bool = False,
) -> HttpResponse:
    """Send a request that changes something to a server that knows idempotency keys; a header has the key.

    If the answer is lost, the same request is sent again with the same key, for as long as the provider
    remembers keys: a day. If yours remembers them longer, say so: `tool(http_request, effect=keyed("7d"))`.
    If it does not know keys at all: `tool(http_request, effect=opaque)`.

    Any answer below 500 is a result, also 404. So is a redirect: it is not followed. If the server asks to be
    called later (429 or 503 with Retry-After), RetryAfter is raised. After HttpFailed (5xx, or an unusable
    answer) and TimeoutError it may have happened; after HttpNotSent it did not. `json` or `body` is sent as
    UTF-8. Connects only to addresses of the public internet unless `allow_private` is given, as `http_get`.
    """
    request = HttpRequest(
        method=_checked_method(method),
        url=_checked_url(url),
        headers=_checked_headers(headers, is_json=json is not None, has_text=body is not None),
        body=_checked_body(json, body),
        allow_private=_checked_flag("allow_private", allow_private),
    )
    keyed_request = with_key(request, current_key(), idempotency_header)
    return judged(await exchange(keyed_request, check_seconds("timeout_s", timeout_s)))


def with_key(request: HttpRequest, key: str, header: str) -> HttpRequest:
    name = check_word("idempotency_header", header)
    if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
        raise BadInput("idempotency_header", f"{name!r} cannot be the name of this header")
    if name.lower() in map(str.lower, request.headers):
        raise BadInput("headers", f"{name} is the effect's own key; leave it out")
    return msgspec.structs.replace(request, headers={**request.headers, name: key})


def judged(response: HttpResponse) -> HttpResponse:
    """The answer; raises RetryAfter or HttpFailed if it asks for a later retry or is a server error."""
    status = response.status
    if status in (429, 503) and (seconds := _retry_after_s(response)) is not None:
        raise RetryAfter(seconds, f"the server answered {status}")
    if status >= 500:
        raise HttpFailed(response.url, f"it answered {status}", status=status, body=response.body)
    return response


def _retry_after_s(response: HttpResponse) -> float | None:
    """Retry-After in seconds, at most a day; a date is compared with the server's own clock."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdecimal() and text.isascii():
        return float(min(int(text[:12]), MAX_RETRY_AFTER_S))
    try:
        until = parsedate_to_datetime(text)
        said = response.headers.get("date")
        now = SystemClock().now() if said is None else parsedate_to_datetime(said)
        return min(max(0.0, (until - now).total_seconds()), MAX_RETRY_AFTER_S)
    except (ValueError, TypeError, OverflowError):  # not a date, or one without a time zone
        return None


# --- the exchange


async def exchange(request: HttpRequest, timeout_s: float) -> HttpResponse:
    """Send and receive in a thread; if the caller is cancelled, the thread ends, too."""
    one = HttpExchange(request, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.to_thread(one.perform)
    except TimeoutError:
        if one.abort():
            raise TimeoutError(f"{shown(request.url)} did not answer within {timeout_s:g} s") from None
        raise HttpNotSent(request.url, f"no connection within {timeout_s:g} s") from None
    except asyncio.CancelledError:
        one.abort()
        raise


class HttpExchange:
    """One request and its answer, redirects included."""

    def __init__(self, request: HttpRequest, timeout_s: float) -> None:
        self._request = request
        # The event loop's timeout comes first; this one ends a thread that was abandoned.
        self._timeout_s = timeout_s + 1
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._has_sent = False
        self._is_aborted = False

    def abort(self) -> bool:
        """End it from another thread; returns whether anything may have been sent."""
        with self._lock:
            self._is_aborted = True
            if self._connection is not None and self._connection.sock is not None:
                with contextlib.suppress(OSError):
                    self._connection.sock.shutdown(socket.SHUT_RDWR)
            return self._has_sent

    def perform(self) -> HttpResponse:
        request = self._request
        for _ in range(self._request.max_redirects + 1):
            response = self._ask(request)
            location = response.headers.get("location")
            if not self._request.max_redirects or response.status not in _REDIRECTS or location is None:
                return response
            request = _redirected(request, location)
        raise HttpFailed(self._request.url, f"more than {self._request.max_redirects} redirects")

    def _ask(self, request: HttpRequest) -> HttpResponse:
        parts = urlsplit(request.url)
        connection, target, proxy_headers = _route(parts, self._timeout_s)
        if isinstance(connection, _ThroughProxy):
            _check_behind_proxy(request, parts)
        try:
            self._begin(connection, request)
            connection.request(request.method, target, request.body, {**request.headers, **proxy_headers})
            with connection.getresponse() as response:
                return _received(request.url, response)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise HttpFailed(request.url, _problem(error)) from error
        finally:
            connection.close()

    def _begin(self, connection: http.client.HTTPConnection, request: HttpRequest) -> None:
        """Connect; after this, something may have been sent."""
        url = request.url
        try:
            if isinstance(connection, _ThroughProxy):
                connection.connect()
            else:
                _connect(connection, request, self._timeout_s)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise HttpNotSent(url, _problem(error)) from error
        with self._lock:
            if self._is_aborted:
                raise HttpNotSent(url, "the request was aborted before it was sent")
            self._connection = connection
            self._has_sent = True


def _route(parts: SplitResult, timeout_s: float) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """The connection, the request target and extra headers; through a proxy if the environment names one."""
    # Always give a port: without one, http.client takes the end of an IPv6 address for the port.
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    proxy = None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(parts.scheme)
    if not proxy:
        return _connection(parts.scheme, host, port, timeout_s), target, {}
    try:
        through = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        through_port = through.port or 80
    except ValueError as error:
        raise HttpNotSent(parts.geturl(), f"the address of the proxy cannot be read: {error}") from error
    if through.scheme != "http" or not through.hostname:
        raise HttpNotSent(
            parts.geturl(), f"a proxy of the kind {through.scheme}: is not supported, only http:"
        )
    access = _proxy_access(through)
    connection = _connection(parts.scheme, through.hostname, through_port, timeout_s, is_proxy=True)
    if parts.scheme == "https":
        connection.set_tunnel(host, port, headers=access)
        return connection, target, {}
    return connection, parts._replace(fragment="").geturl(), access


def _proxy_access(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


class _ThroughProxy:
    """Marks a connection to a proxy. The operator named it, so its address is not restricted."""


class _PlainProxy(_ThroughProxy, http.client.HTTPConnection):
    pass


class _TunnelProxy(_ThroughProxy, http.client.HTTPSConnection):
    pass


def _connection(
    scheme: str, host: str, port: int | None, timeout_s: float, *, is_proxy: bool = False
) -> http.client.HTTPConnection:
    if scheme == "https":
        secure = _TunnelProxy if is_proxy else http.client.HTTPSConnection
        return secure(host, port, timeout=timeout_s, context=_trust())
    plain = _PlainProxy if is_proxy else http.client.HTTPConnection
    return plain(host, port, timeout=timeout_s)


def _connect(connection: http.client.HTTPConnection, request: HttpRequest, timeout_s: float) -> None:
    """Connect to the address that was checked; the name is not resolved a second time, because the second
    answer could differ (DNS rebinding)."""
    found = addresses.resolve(connection.host, connection.port)
    way = addresses.connect(_allowed(request, found), timeout_s)
    if isinstance(connection, http.client.HTTPSConnection):
        try:
            connection.sock = _trust().wrap_socket(way, server_hostname=connection.host)
        except BaseException:
            way.close()
            raise
    else:
        connection.sock = way


def _allowed(request: HttpRequest, found: list[Address]) -> list[Address]:
    if request.allow_private:
        return found
    public = [one for one in found if addresses.why_private(one.ip) is None]
    if found and not public:
        kind = addresses.why_private(found[0].ip)
        raise HttpNotSent(
            request.url,
            f"its address is not of the public internet ({kind}); pass allow_private=True to allow it",
        )
    return public


def _check_behind_proxy(request: HttpRequest, parts: SplitResult) -> None:
    """The proxy resolves the name and connects; refuse a host that this machine resolves as private."""
    try:
        found = addresses.resolve(parts.hostname or "", parts.port or 443)
    except (OSError, UnicodeError):  # only the proxy can resolve this name
        return
    _allowed(request, found)


@functools.cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _redirected(request: HttpRequest, location: str) -> HttpRequest:
    """The next request; another host does not get the caller's own headers."""
    try:
        url = _checked_url(urljoin(request.url, location))
    except (BadInput, ValueError) as error:
        raise HttpFailed(request.url, f"it redirects to an invalid URL: {error}") from error
    before, after = urlsplit(request.url), urlsplit(url)
    headers = request.headers
    if (before.scheme, before.netloc) != (after.scheme, after.netloc):
        headers = {name: value for name, value in headers.items() if name.lower() in _FOR_ANY_SERVER}
    return msgspec.structs.replace(request, url=url, headers=headers)


def _received(url: str, response: http.client.HTTPResponse) -> HttpResponse:
    body = response.read(MAX_BODY_BYTES + 1)
    is_cut = len(body) > MAX_BODY_BYTES
    if not is_cut and response.length:
        raise http.client.IncompleteRead(body, response.length)
    charset = response.headers.get_content_charset() or ""
    return HttpResponse(
        status=response.status,
        url=url,
        headers={
            name.lower(): value[:_MAX_HEADER_CHARS]
            for name, value in response.getheaders()
            if name.lower() in _KEPT or name.lower().startswith(_KEPT_PREFIXES)
        },
        body=_text_of(body[:MAX_BODY_BYTES], charset),
        is_body_cut=is_cut,
    )


def _text_of(body: bytes, charset: str) -> str:
    # Only charsets of the web: some Python codecs take quadratic time or decompress.
    name = charset.strip().lower().replace("_", "-")
    text = body.decode(name if name in _CHARSETS else "utf-8", "replace")
    # Some charsets can produce lone surrogates, which are not valid text.
    return text.encode("utf-8", "replace").decode()


def _problem(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


# --- checks of arguments


def _checked_flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInput(field, f"True or False is needed, not {type(value).__name__}")
    return value


def _checked_method(method: object) -> str:
    name = check_word("method", method).upper()
    if name in ("GET", "HEAD"):
        raise BadInput("method", f"{name} changes nothing; use http_get")
    if not _METHOD.fullmatch(name) or name in ("CONNECT", "TRACE"):
        raise BadInput("method", "a method such as POST, PUT, PATCH or DELETE is needed")
    return name


def _checked_url(url: object) -> str:
    text = check_word("url", url)
    if not _VISIBLE.fullmatch(text):
        raise BadInput("url", "is empty, or has a space or another character that must be percent-encoded")
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise BadInput("url", f"cannot be read: {error}") from error
    if parts.scheme not in ("http", "https") or not has_host:
        raise BadInput("url", "an address that begins with http:// or https:// and names a host is needed")
    if "@" in parts.netloc:
        raise BadInput("url", "has a user or a password; put it into headers")
    return text


def _checked_headers(headers: object, *, is_json: bool = False, has_text: bool = False) -> dict[str, str]:
    if headers is not None and not isinstance(headers, Mapping):
        raise BadInput("headers", f"names and values are needed, not {type(headers).__name__}")
    checked = {}
    for name, value in dict(headers or {}).items():
        if not _TOKEN.fullmatch(check_word("headers", name)):
            raise BadInput("headers", f"{name!r} cannot be the name of a header")
        if name.lower() in _OURS:
            raise BadInput("headers", f"{name} is set by Holdfast; leave it out")
        # The value may be a secret: the error must not quote it.
        if not _HEADER_VALUE.fullmatch(check_word(f"header {name}", value)):
            raise BadInput(f"header {name}", "has a line break, a control character or one beyond Latin-1")
        checked[name] = value
    names = set(map(str.lower, checked))
    if len(names) != len(checked):
        raise BadInput("headers", "two names differ only in upper and lower case")
    if "user-agent" not in names:
        checked["User-Agent"] = "holdfast"
    if "content-type" not in names and (is_json or has_text):
        checked["Content-Type"] = "application/json" if is_json else "text/plain; charset=utf-8"
    return checked


def _checked_body(json: object, body: object) -> bytes | None:
    if json is not None and body is not None:
        raise BadInput("body", "give either json or body, not both")
    if json is not None:
        try:
            encoded = dumps(json, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput("json", f"cannot be written as JSON: {error}") from error
    elif isinstance(body, str):
        try:
            encoded = body.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                "body", f"half of a surrogate pair at {error.start}; it is not valid text"
            ) from error
    elif body is None:
        return None
    else:
        raise BadInput("body", f"text is needed, not {type(body).__name__}")
    if len(encoded) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge("body", len(encoded), MAX_PAYLOAD_BYTES)
    return encoded
