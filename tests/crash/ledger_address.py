"""Where a ledger lies, told in a way that another process can open it too."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from holdfast.core.clock import Clock, SystemClock
from holdfast.store import Store
from holdfast.store.outer_keys import VariableKey
from holdfast.store.sealing import Vault
from holdfast.store.sqlite import SqliteStore

SQLITE = "sqlite:///"


class LedgerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger by its URL, and a directory beside it for locks and logs."""

    url: str
    home: Path

    @classmethod
    def of_file(cls, home: Path) -> LedgerAddress:
        return cls(url=f"{SQLITE}{home / 'ledger.db'}", home=home)

    @property
    def is_file(self) -> bool:
        return self.url.startswith(SQLITE)

    @property
    def path(self) -> Path:
        """The database file; only SQLite has one."""
        assert self.is_file
        return Path(self.url.removeprefix(SQLITE))

    @property
    def locks(self) -> Path:
        return self.home / "boots"

    def open(self, clock: Clock | None = None) -> Store:
        """A store of this process's own: connections are never shared with a parent or a child."""
        clock = clock or SystemClock()
        # The key that all tests share; a program that one starts finds it in the environment, too.
        vault = Vault(VariableKey(os.environ))
        if self.is_file:
            return SqliteStore(self.path, clock=clock, vault=vault)
        from holdfast.store.postgres import PostgresStore  # a quarter of a second that SQLite need not pay

        return PostgresStore(self.url, clock=clock, vault=vault)
