"""MethodView: one method of the table, for programs that want to know what they may ask."""

from __future__ import annotations

from typing import Any

import msgspec


class MethodView(msgspec.Struct, frozen=True, kw_only=True):
    """One method: what it needs and what it gives."""

    name: str
    scope: str
    summary: str
    # A JSON Schema.
    params: dict[str, Any]
    # The name of the view that it answers with.
    answer: str
    # Whether a token may call it that is bound to an owner or to tasks; it shows and touches nothing else.
    is_owned: bool
    # Whether it is answered at the unix socket alone.
    is_local: bool


class DescriptionView(msgspec.Struct, frozen=True, kw_only=True):
    """All methods."""

    methods: list[MethodView]
