"""The home directory: creates it, locks it, and says where the lock files of boots are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from holdfast import trust
from holdfast.config import MemoryPlace, PostgresPlace, Settings, SqlitePlace
from holdfast.core.errors import HomeInUse, HomeUnusable

if TYPE_CHECKING:
    from holdfast.store.locks import HomeLock

# How long a command waits for another one that holds the home for a moment.
LOCK_PATIENCE_S = 1.0
_RETRY_EVERY_S = 0.05


def make_home(home: Path) -> None:
    """Create the home directory, readable by its owner only. An existing one is not changed.

    Raises HomeUnusable if the directory cannot be created, or if another user can write to it.
    """
    try:
        trust.make_private_directory(home)
        problem = trust.why_not_trusted(home)
    except OSError as error:
        raise HomeUnusable(f"home is {str(home)!r}: {error.strerror}; choose another --home") from error
    if problem is not None:
        raise HomeUnusable(f"home is {str(home)!r}: {problem}; or choose another --home")


def take_home(home: Path, *, role: str, patience_s: float = LOCK_PATIENCE_S) -> HomeLock:
    """Lock the home for this process. Raises HomeInUse if another process holds it for longer than that."""
    from holdfast.store.locks import HomeLock

    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return HomeLock.take(home, role=role)
        except HomeInUse:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_RETRY_EVERY_S)


def locks_of(settings: Settings) -> Path | None:
    """The directory of the lock files that prove whether a boot is alive; None for a ledger in memory.

    All processes on this machine that use the same ledger must find the same directory, whatever their home:
    for a file it is `<file>-boots` beside it, for PostgreSQL it is `boots` in the home.
    """
    match settings.store:
        case SqlitePlace(path=path):
            return path.with_name(f"{path.name}-boots")
        case PostgresPlace():
            return settings.home / "boots"
        case MemoryPlace():
            return None
        case _:
            assert_never(settings.store)
