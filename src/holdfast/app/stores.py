"""Opens the store, or the reader, that a URL or the settings name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from holdfast.app import homes
from holdfast.app.vaults import vault_of
from holdfast.config import (
    MemoryPlace,
    PostgresPlace,
    Settings,
    SqlitePlace,
    StorePlace,
    default_home,
    read_settings,
    read_store_url,
)
from holdfast.core.clock import Clock
from holdfast.core.errors import NoLedger, SettingsError

if TYPE_CHECKING:
    from holdfast.store.contract import Reader, Store
    from holdfast.store.sealing import Vault


def open_store(url: str, *, clock: Clock, may_upgrade: bool = False) -> Store:
    """The store that a URL names, created if it is new. Raises SettingsError for a URL without a backend.

    Values that hold a secret are sealed as the settings of the default home say.
    """
    place = read_store_url(url)
    vault = vault_of(read_settings(os.environ, store=url))
    return open_place(place, clock=clock, may_upgrade=may_upgrade, vault=vault)


def open_place(
    place: StorePlace,
    *,
    clock: Clock,
    may_upgrade: bool = False,
    vault: Vault | None = None,
    may_write_inline: bool = True,
) -> Store:
    """The store at that place. Raises KeyMissing or KeyWrong if the vault cannot open its sealed values.

    Without `may_write_inline`, a PostgreSQL server that stalls does not block the event loop.
    """
    if vault is None:
        vault = vault_of(Settings(home=default_home(os.environ), store=place))
    match place:
        case PostgresPlace():
            try:
                from holdfast.store.postgres import PostgresStore
            except ImportError as error:
                raise _no_driver(place, error) from error
            store = PostgresStore(
                place.url,
                clock=clock,
                may_upgrade=may_upgrade,
                may_write_inline=may_write_inline,
                vault=vault,
            )
            return _settled(store, vault, is_shared=True)
        case SqlitePlace():
            from holdfast.store.sqlite import SqliteStore

            file = SqliteStore(place.path, clock=clock, may_upgrade=may_upgrade, vault=vault)
            return _settled(file, vault, is_shared=False)
        case MemoryPlace():
            from holdfast.store.sqlite import SqliteStore

            return SqliteStore(None, clock=clock, vault=vault)
        case _:
            assert_never(place)


def _settled(store: Store, vault: Vault, *, is_shared: bool) -> Store:
    if vault.has_begun:  # the usual case, which reads and imports nothing more
        return store
    from holdfast.store.rekey import settle

    try:
        settle(store, vault, is_shared=is_shared)
    except BaseException:
        store.close()
        raise
    return store


def open_reader(
    place: StorePlace,
    *,
    must_be_current: bool = True,
    may_be_damaged: bool = False,
    vault: Vault | None = None,
) -> Reader:
    """For a command that only reads: creates nothing, migrates nothing, takes no lock. Raises NoLedger.

    Without a vault the reader shows [sealed] for every sealed value. With `may_be_damaged` it opens even a
    SQLite file whose schema cannot be read, so that the file can be verified.
    """
    match place:
        case SqlitePlace():
            from holdfast.store.sqlite_reader import SqliteReader

            return SqliteReader(
                place.path, must_be_current=must_be_current, may_be_damaged=may_be_damaged, vault=vault
            )
        case PostgresPlace():
            try:
                from holdfast.store.postgres_reader import PostgresReader
            except ImportError as error:
                raise _no_driver(place, error) from error
            return PostgresReader(place.url, must_be_current=must_be_current, vault=vault)
        case MemoryPlace():
            raise NoLedger(place.shown)
        case _:
            assert_never(place)


def _no_driver(place: PostgresPlace, error: ImportError) -> SettingsError:
    if error.name is not None and error.name.split(".")[0] != "psycopg":
        raise error
    return SettingsError(
        f"store is {place.shown!r}: PostgreSQL needs a driver; pip install '.[postgres]' in a checkout"
    )


@contextlib.contextmanager
def writing(
    settings: Settings, *, clock: Clock, may_upgrade: bool = False, is_patient: bool = True
) -> Iterator[Store]:
    """The store, for a command that writes while no gateway runs in the home. Raises HomeInUse if one does.

    PostgreSQL allows many writers, so the home is not locked for it.
    """
    if not may_upgrade:
        open_reader(settings.store).close()  # raises NoLedger; opening the store would create the ledger
    with contextlib.ExitStack() as held:
        if isinstance(settings.store, SqlitePlace):
            _take_home(settings, held, homes.LOCK_PATIENCE_S if is_patient else 0)
        store = open_place(settings.store, clock=clock, may_upgrade=may_upgrade, vault=vault_of(settings))
        held.callback(store.close)
        yield store


def _take_home(settings: Settings, held: contextlib.ExitStack, patience_s: float) -> None:
    """Lock the home. If it does not exist and the ledger is elsewhere, there is nothing to lock."""
    assert isinstance(settings.store, SqlitePlace)
    if settings.home in settings.store.path.parents:
        homes.make_home(settings.home)
    elif not settings.home.is_dir():
        return
    held.callback(homes.take_home(settings.home, role="cli", patience_s=patience_s).release)


def is_shared(settings: Settings) -> bool:
    """Whether processes on other machines may use the same ledger."""
    return isinstance(settings.store, PostgresPlace)


def sqlite_version() -> str:
    """The version of the SQLite library that Holdfast brings along."""
    from holdfast.store.sqlite_file import library_version

    return library_version()
