"""Which exceptions mean that an answer was lost: the request may have been executed all the same."""

from __future__ import annotations

import errno
from collections.abc import Mapping

# Not here: connection errors and timeouts, which have builtin classes of their own.
_NETWORK_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNABORTED",
        "ECONNREFUSED",
        "ECONNRESET",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "ENETDOWN",
        "ENETRESET",
        "ENETUNREACH",
        "ENOTCONN",
        "EPIPE",
        "EPROTO",
        "ESHUTDOWN",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)  # not every platform has all of them
)
# By name, because Holdfast imports none of these libraries: package -> the bases of its transport errors.
_TRANSPORT_ERRORS: Mapping[str, frozenset[str]] = {
    "aiohttp": frozenset({"ClientConnectionError", "ClientPayloadError"}),
    "botocore": frozenset({"ConnectionError", "HTTPClientError"}),
    "http": frozenset({"HTTPException"}),
    "httpcore": frozenset({"NetworkError", "ProtocolError", "TimeoutException", "UnsupportedProtocol"}),
    "httpcore2": frozenset({"NetworkError", "ProtocolError", "TimeoutException", "UnsupportedProtocol"}),
    "httpx": frozenset({"TransportError"}),
    "httpx2": frozenset({"TransportError"}),
    "requests": frozenset({"ChunkedEncodingError", "ConnectionError", "Timeout"}),
    "socket": frozenset({"gaierror", "herror"}),
    "ssl": frozenset({"SSLError"}),
    "urllib3": frozenset(
        {"IncompleteRead", "MaxRetryError", "NewConnectionError", "ProtocolError", "SSLError", "TimeoutError"}
    ),
    "websockets": frozenset({"ConnectionClosed", "InvalidHandshake"}),
}
# The gRPC status codes with which the outcome of the call is unknown.
_OPEN_GRPC_CODES = frozenset(
    {"ABORTED", "CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"}
)


def is_transport_error(error: BaseException, *, outside: BaseException | None = None) -> bool:
    """Whether the error, or one that caused it, is a lost connection, a timeout or a partial answer.

    Causes, contexts and members of groups are checked. `outside` is the exception that the caller was
    handling when the call began: Python makes it the context of what the call raises, but it says nothing
    about the call.
    """
    waiting, seen = [error], {id(outside)}
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _is_transport(one):
            return True
        waiting += [linked for linked in (one.__cause__, one.__context__) if linked is not None]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
    return False


def _is_transport(error: BaseException) -> bool:
    if isinstance(error, (TimeoutError, ConnectionError, EOFError)):
        return True
    if isinstance(error, OSError) and error.errno in _NETWORK_ERRNOS:
        return True
    return any(_is_transport_class(kind) for kind in type(error).__mro__) or _is_open_rpc(error)


def _is_transport_class(kind: type) -> bool:
    if "timeout" in kind.__name__.lower():
        return True
    return kind.__name__ in _TRANSPORT_ERRORS.get(kind.__module__.partition(".")[0], ())


def _is_open_rpc(error: BaseException) -> bool:
    """Whether the status code of a gRPC error leaves the outcome unknown; False without a code."""
    if not any(kind.__name__ == "RpcError" and kind.__module__ == "grpc" for kind in type(error).__mro__):
        return False
    try:
        code = error.code()  # type: ignore[attr-defined]
        return str(code.name) in _OPEN_GRPC_CODES
    except Exception:  # noqa: BLE001 - an object of another library; without a code the outcome is unknown
        return True
