"""MethodView: one RPC method, for clients that discover the API."""

from __future__ import annotations

from typing import Any

import msgspec


class MethodView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One method: its scope, parameters and answer."""

    name: str
    scope: str
    summary: str
    # A JSON Schema.
    params: dict[str, Any]
    # The name of the view in its answer.
    answer: str
    # Whether a token limited to an owner or to task names may call it.
    is_owned: bool
    # Whether it is available only on the unix socket.
    is_local: bool


class DescriptionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All methods."""

    methods: list[MethodView]
