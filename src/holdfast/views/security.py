"""SecurityView: what an operator should tighten, each with its reason and its remedy."""

from __future__ import annotations

import msgspec


class WeaknessView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing to tighten: what is so, why that is a weakness, and a command that changes it."""

    code: str
    what: str
    why: str
    remedy: str


class SecurityView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that was found; nothing, when the home is as tight as Holdfast knows to look for."""

    is_clean: bool
    home: str
    findings: list[WeaknessView]
