"""Composition root: opens stores and builds what a process needs; the only package that connects the parts.

Each module imports backends and the engine inside its functions: a command that only reads needs neither.
"""

from __future__ import annotations

from holdfast.app.homes import locks_of, make_home, take_home
from holdfast.app.library import detached, open, serve  # noqa: A004 - `app.open(…)` is how it reads
from holdfast.app.parts import Parts, open_parts, wire
from holdfast.app.secrets import declared_secrets
from holdfast.app.stores import is_shared, open_place, open_reader, open_store, sqlite_version, writing
from holdfast.app.vaults import key_beside, outer_key_of, vault_of
from holdfast.config import Settings, read_settings

__all__ = [
    "Parts",
    "Settings",
    "declared_secrets",
    "detached",
    "is_shared",
    "key_beside",
    "locks_of",
    "make_home",
    "open",
    "open_parts",
    "open_place",
    "open_reader",
    "open_store",
    "outer_key_of",
    "read_settings",
    "serve",
    "sqlite_version",
    "take_home",
    "vault_of",
    "wire",
    "writing",
]
