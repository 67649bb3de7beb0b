"""Finds the key of a ledger, and makes the vault that seals and opens its values with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config import MemoryPlace, Settings, SqlitePlace
from holdfast.core.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.store.outer_keys import Given
    from holdfast.store.sealing import OuterKey, Vault

# The file in a home that holds the key of sealed values.
KEY_NAME = "key"


def vault_of(settings: Settings, *, key: Given | None = None, is_lenient: bool = False) -> Vault:
    """The vault that the settings describe.

    A lenient vault is for commands that only read: it shows [sealed] for a value that it has no key for.
    Raises SettingsError if the settings cannot be read and the vault is not lenient.
    """
    from holdfast.store.sealing import Vault

    if settings.unread is not None and not is_lenient:
        raise SettingsError(f"{settings.unread}; it may say how values are sealed")
    outer = outer_key_of(settings, key=key, is_reader=is_lenient)
    return Vault(outer, settings.seal, is_lenient=is_lenient)


def outer_key_of(settings: Settings, *, key: Given | None = None, is_reader: bool = False) -> OuterKey:
    """The key that the script gives, else HOLDFAST_KEY, else what the key command prints, else a file.

    All processes on this machine that use the same ledger must find the same file. For a ledger in a file it
    is in the ledger's directory: `key` if that is the home, else `.<name>.key`; each is tried if the other is
    missing. For PostgreSQL it is `key` in the home.
    """
    from holdfast.store.outer_keys import GivenKey, choose
    from holdfast.store.sealing import MemoryKey

    if key is not None:
        return GivenKey(key)
    path, also = settings.home / KEY_NAME, None
    match settings.store:
        case MemoryPlace():
            return MemoryKey()
        case SqlitePlace(path=ledger):
            path, also = ledger.with_name(KEY_NAME), key_beside(ledger)
            if ledger.parent != settings.home:
                path, also = also, path
    return choose(os.environ, command=settings.key_command, path=path, also=also, is_reader=is_reader)


def key_beside(ledger: Path) -> Path:
    """The key file of a ledger that is in no home: `.work.db.key` beside `work.db`."""
    return ledger.with_name(f".{ledger.name}.{KEY_NAME}")
