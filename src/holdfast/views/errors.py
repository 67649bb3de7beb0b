"""ErrorView and ErrorDocument: an error, for programs and for people."""

from __future__ import annotations

import msgspec


class ErrorView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An error; programs match its code, people read its message."""

    code: str
    message: str


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    error: ErrorView
