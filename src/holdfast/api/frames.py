"""The frames of protocol v4: request, response, event, and the error in a response."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

PROTOCOL = 4
NO_PARAMS = msgspec.Raw(b"{}")


class RequestFrame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of a client. Its parameters are decoded when the method is known."""

    type: Literal["req"]
    # Limited, because the answer repeats it.
    id: Annotated[str, msgspec.Meta(max_length=256)] | int
    method: Annotated[str, msgspec.Meta(max_length=256)]
    params: msgspec.Raw = NO_PARAMS
    # Only on the unix socket: the client's ledger. A gateway with another ledger refuses.
    ledger: str | None = None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why a request failed. `details.code` is the same code that the CLI prints."""

    code: str
    message: str
    details: dict[str, Any] | None = None
    retryable: bool | None = None
    retry_after_ms: int | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="res"):
    """The answer to one request, with the same id."""

    id: str | int | None = None
    ok: bool
    payload: Any = msgspec.UNSET
    error: ErrorBody | None = None


class EventFrame(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="event"
):
    """An event that the server pushes."""

    event: str
    payload: Any = msgspec.UNSET
    seq: int | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response as a client reads it."""

    ok: bool
    id: str | int | None = None
    payload: msgspec.Raw = NO_PARAMS
    error: ErrorBody | None = None


_ENCODER = msgspec.json.Encoder()
_REQUESTS = msgspec.json.Decoder(RequestFrame)


def read_request(frame: bytes | str) -> RequestFrame:
    """Decode a request frame. Raises msgspec.DecodeError, UnicodeError or RecursionError."""
    return _REQUESTS.decode(frame)


def encode(frame: Response | EventFrame) -> bytes:
    return _ENCODER.encode(frame)
