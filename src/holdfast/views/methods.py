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
    # Whether those may call it who are bound to an owner; it shows and touches only what is the owner's.
    is_owned: bool


class DescriptionView(msgspec.Struct, frozen=True, kw_only=True):
    """All methods."""

    methods: list[MethodView]
