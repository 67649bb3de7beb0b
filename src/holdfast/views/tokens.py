"""TokenView and the answers of the token commands; only TokenMadeView contains a token."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec


class TokenView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One API token: its scopes, limits, expiry and last use."""

    name: str
    # Where it comes from: `home` (the file `token` or HOLDFAST_TOKEN), the settings, or `holdfast tokens`.
    source: Literal["home", "settings", "issued"]
    scopes: list[str]
    owner: str | None = None
    tasks: list[str] | None = None
    methods: list[str] | None = None
    # Null for tokens that `holdfast tokens` did not create.
    created_at: datetime | None = None
    rotated_at: datetime | None = None
    expires_at: datetime | None = None
    is_expired: bool = False
    # Accurate to a few seconds; null if it was never used.
    last_used_at: datetime | None = None


class TokenPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All tokens, by their names."""

    tokens: list[TokenView]


class TokenMadeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A token with its text, which is shown only once and never stored."""

    token: TokenView
    text: str


class TokenRevokedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A revoked token."""

    token: TokenView
