"""Settings as frozen structs, parsed and checked once.

This module re-exports only where things are, which is all that a listing needs. The rest is in `gateway`,
`files` and `token`, so that a command that only reads does not pay for their import.
"""

from __future__ import annotations

from holdfast.config.places import (
    HOME_VARIABLE,
    LEDGER_NAME,
    SEAL_VARIABLE,
    STORE_VARIABLE,
    MemoryPlace,
    PostgresPlace,
    Settings,
    SqlitePlace,
    StorePlace,
    default_home,
    in_home,
    read_home,
    read_seal,
    read_settings,
    read_store_url,
    without_password,
)

__all__ = [
    "HOME_VARIABLE",
    "LEDGER_NAME",
    "SEAL_VARIABLE",
    "STORE_VARIABLE",
    "MemoryPlace",
    "PostgresPlace",
    "Settings",
    "SqlitePlace",
    "StorePlace",
    "default_home",
    "in_home",
    "read_home",
    "read_seal",
    "read_settings",
    "read_store_url",
    "without_password",
]
