"""ErrorView and ErrorDocument: what went wrong, for programs and for people."""

from __future__ import annotations

import msgspec


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong; programs match the code, people read the message."""

    code: str
    message: str


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorView
