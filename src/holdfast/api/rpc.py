"""Runs one request: checks rights, decodes parameters, calls the method, maps errors; for every transport."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api.audit import subject_of
from holdfast.api.contract import Caller, GatewayDoor
from holdfast.api.frames import ErrorBody
from holdfast.api.method_kinds import Method
from holdfast.api.methods import ALIASES, METHODS
from holdfast.api.openclaw import NoSuchTask
from holdfast.core.errors import (
    AmbiguousId,
    BadInput,
    BadSignature,
    Conflict,
    Draining,
    FeedGap,
    HoldfastError,
    NotFound,
    Refused,
    SettingsError,
    StoreUnavailable,
)
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("holdfast")

INVALID_REQUEST = "INVALID_REQUEST"
UNAVAILABLE = "UNAVAILABLE"
NOT_FOUND = "NOT_FOUND"
FORBIDDEN = "FORBIDDEN"
UNAUTHORIZED = "UNAUTHORIZED"
REFUSED = "REFUSED"
RATE_LIMITED = "RATE_LIMITED"
FAILED = "FAILED"

# The HTTP status of each code; this is the list of all codes.
HTTP_STATUS: Mapping[str, int] = {
    INVALID_REQUEST: 400,
    UNAUTHORIZED: 401,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    REFUSED: 409,
    RATE_LIMITED: 429,
    FAILED: 500,
    UNAVAILABLE: 503,
}

MAX_MESSAGE_CHARS = 1000
RETRY_AFTER_MS = 500
# The methods available while the gateway starts; all others need the ledger.
ANSWERED_AT_START = frozenset({"health", "gateway.status", "rpc.describe"})

# The first match decides.
_CODE_OF: tuple[tuple[type[HoldfastError], str], ...] = (
    (BadSignature, UNAUTHORIZED),
    (NotFound, NOT_FOUND),
    (FeedGap, NOT_FOUND),
    (AmbiguousId, INVALID_REQUEST),
    (BadInput, INVALID_REQUEST),
    (SettingsError, INVALID_REQUEST),
    (Conflict, REFUSED),
    (Draining, UNAVAILABLE),
    (Refused, REFUSED),
    (StoreUnavailable, UNAVAILABLE),
)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_PLACE = re.compile(r"^(.*) - at `\$\.?(.*)`$", re.DOTALL)


class RpcError(Exception):
    """The error that the client receives."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
        code_over_http: str | None = None,
    ) -> None:
        super().__init__(message)
        # The code in OpenClaw's protocol, if it differs.
        self.code_over_http = code_over_http or code
        self.body = ErrorBody(
            code=code,
            # This runs on the event loop, so redact only the beginning of a long message.
            message=one_line(message[:REDACT_OFF_LOOP_BYTES], MAX_MESSAGE_CHARS),
            details=details,
            retryable=retryable,
            retry_after_ms=retry_after_ms,
        )


async def dispatch(
    gateway: GatewayDoor, name: str, params: bytes | msgspec.Raw, caller: Caller
) -> msgspec.Struct:
    """Call a method and return its answer. Raises only RpcError."""
    name = ALIASES.get(name, name)
    method = METHODS.get(name)
    if method is None:
        raise unknown_method(name)
    asked: Any = None
    try:
        _check_rights(method, caller)
        asked = read_params(method, params)
        if name not in ANSWERED_AT_START and gateway.status().status == "starting":
            raise starting()
        return await _called(method, gateway, asked, caller)
    except RpcError as error:
        if method.is_audited or error.body.code == FORBIDDEN:
            gateway.audit.refuse(
                caller.actor,
                name,
                error.body.message,
                subject=subject_of(asked),
                is_failure=error.body.code in {FAILED, UNAVAILABLE},
            )
        raise


def _check_rights(method: Method, caller: Caller) -> None:
    if method.scope not in caller.scopes:
        raise RpcError(
            FORBIDDEN, f"missing scope: {method.scope}", details={"code": "forbidden", "scope": method.scope}
        )
    check_reach(caller, method.name, is_owned=method.is_owned)
    if method.is_local and not caller.is_local:
        why = (
            f"{method.name} is available only on the unix socket; use `holdfast tokens` on the gateway's host"
        )
        raise RpcError(FORBIDDEN, why, details={"code": "forbidden"})


async def _called(method: Method, gateway: GatewayDoor, asked: Any, caller: Caller) -> msgspec.Struct:
    try:
        return await method.call(gateway, asked, caller)
    except RpcError:
        raise
    except HoldfastError as error:
        raise translated(error) from error
    except Exception as error:
        # The outermost handler: log an unexpected exception, and hide its details from the client.
        log.exception("%s failed", method.name)
        why = "internal error of the gateway; see its log"
        raise RpcError(FAILED, why, details={"code": "internal"}) from error


def check_reach(caller: Caller, name: str, *, is_owned: bool) -> None:
    """Raises RpcError if the caller's token may not use this method or route."""
    if not caller.may_call(name):
        why = f"this token may not call {name}: it is limited to other methods"
        raise RpcError(FORBIDDEN, why, details={"code": "forbidden", "method": name})
    if caller.reach.is_bound and not is_owned:
        why = "a token that is limited to an owner or to task names may not call this"
        raise RpcError(FORBIDDEN, why, details={"code": "forbidden"})


def check_still(before: Caller, now: Caller) -> None:
    """Raises RpcError if the token was changed or replaced during the request."""
    if before != now:
        why = "the token changed during the request, which may have taken effect; send it again"
        raise RpcError(FORBIDDEN, why, details={"code": "token_changed"}, retryable=True)


def read_params(method: Method, params: bytes | msgspec.Raw) -> Any:
    """Decode the parameters. Raises RpcError, with the protocol's message, if they are invalid."""
    raw = bytes(params)
    try:
        return msgspec.json.decode(b"{}" if raw in {b"", b"null"} else raw, type=method.params)
    except msgspec.ValidationError as error:
        message = f"invalid {method.name} params: {_in_words(str(error))}"
    except (msgspec.DecodeError, UnicodeError):
        message = f"invalid {method.name} params: invalid JSON"
    except RecursionError:
        message = f"invalid {method.name} params: nested too deep"
    raise RpcError(INVALID_REQUEST, message, details={"code": "bad_input"})


def unknown_method(name: str) -> RpcError:
    return RpcError(
        INVALID_REQUEST,
        f"unknown method: {one_line(name, 80)}",
        details={"code": "unknown_method"},
        code_over_http=NOT_FOUND,
    )


def translated(error: HoldfastError) -> RpcError:
    """Map an error to its RPC code; the only place that does."""
    code = next((code for kind, code in _CODE_OF if isinstance(error, kind)), FAILED)
    is_away = code == UNAVAILABLE
    return RpcError(
        code,
        str(error),
        details={"code": error.code},
        retryable=True if is_away else None,
        retry_after_ms=RETRY_AFTER_MS if is_away else None,
        code_over_http=NOT_FOUND if isinstance(error, NoSuchTask) else None,
    )


def starting() -> RpcError:
    return RpcError(
        UNAVAILABLE,
        "the gateway is starting; try again in a moment",
        details={"code": "starting", "reason": "startup-sidecars"},
        retryable=True,
        retry_after_ms=RETRY_AFTER_MS,
    )


def _in_words(problem: str) -> str:
    """The first problem and its place, in the format of the protocol's own server."""
    where = "at root"
    if (placed := _PLACE.match(problem)) is not None:
        problem, place = placed[1], placed[2]
        where = f"at /{place.replace('.', '/')}" if place else "at root"
    if (found := _UNKNOWN_FIELD.match(problem)) is not None:
        return f"{where}: unexpected property '{found[1]}'"
    if (found := _MISSING_FIELD.match(problem)) is not None:
        return f"{where}: must have required property '{found[1]}'"
    return f"{where}: {problem[:1].lower()}{problem[1:]}"
