"""Composition root: reads the settings, opens one store, wires the parts together.

The backends and the engine are imported where they are needed: a command that only looks needs neither.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

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
from holdfast.core.clock import Clock, SystemClock
from holdfast.core.durations import Duration, parse_duration
from holdfast.core.errors import HomeInUse, NoLedger, SettingsError, StoreUnavailable

if TYPE_CHECKING:
    from holdfast.engine.boots import Life
    from holdfast.engine.checkpoints import Checkpoints
    from holdfast.engine.claims import Claims, Family
    from holdfast.engine.definitions import TaskDefinition
    from holdfast.engine.handles import Holdfast
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.rescue import Rescuer
    from holdfast.engine.resume import Resumer
    from holdfast.engine.steps import Journal
    from holdfast.gateway.signals import StopRequest
    from holdfast.store.contract import Reader, Store
    from holdfast.store.locks import HomeLock

# Finds the value of a secret by its name; None when it does not know it.
Resolve = Callable[[str], str | None]

# Two commands at the same moment are no reason to refuse one of them.
LOCK_PATIENCE_S = 1.0
_ASK_AGAIN_S = 0.05


def open_store(url: str, *, clock: Clock, may_upgrade: bool = False) -> Store:
    """The store that a URL names, set up when it is new. Raises SettingsError for a URL without a backend."""
    return open_place(read_store_url(url), clock=clock, may_upgrade=may_upgrade)


def open_place(place: StorePlace, *, clock: Clock, may_upgrade: bool = False) -> Store:
    match place:
        case PostgresPlace():
            try:
                from holdfast.store.postgres import PostgresStore
            except ImportError as error:
                raise _no_driver(place, error) from error
            return PostgresStore(place.url, clock=clock, may_upgrade=may_upgrade)
        case SqlitePlace():
            from holdfast.store.sqlite import SqliteStore

            return SqliteStore(place.path, clock=clock, may_upgrade=may_upgrade)
        case MemoryPlace():
            from holdfast.store.sqlite import SqliteStore

            return SqliteStore(None, clock=clock)
        case _:
            assert_never(place)


def open_reader(place: StorePlace, *, must_be_current: bool = True) -> Reader:
    """For whoever only looks: makes nothing, migrates nothing, takes no lock. Raises NoLedger."""
    match place:
        case SqlitePlace():
            from holdfast.store.sqlite_reader import SqliteReader

            return SqliteReader(place.path, must_be_current=must_be_current)
        case PostgresPlace():
            try:
                from holdfast.store.postgres_reader import PostgresReader
            except ImportError as error:
                raise _no_driver(place, error) from error
            return PostgresReader(place.url, must_be_current=must_be_current)
        case MemoryPlace():
            raise NoLedger(place.shown)
        case _:
            assert_never(place)


def _no_driver(place: PostgresPlace, error: ImportError) -> SettingsError:
    if error.name is not None and error.name.split(".")[0] != "psycopg":
        raise error
    return SettingsError(
        f"store is {place.shown!r}: PostgreSQL needs a driver; pip install holdfast[postgres]"
    )


def sqlite_version() -> str:
    """Of the library that comes with us."""
    from holdfast.store.sqlite_file import library_version

    return library_version()


def locks_of(settings: Settings) -> Path | None:
    """Where the lock of each boot lies, which proves whether it is alive.

    One rule: the locks lie where everyone on this machine who uses the same ledger finds them, whatever
    their home. For a file that is the directory `<file>-boots` beside it; for PostgreSQL, whose file nobody
    sees, it is `boots` in the home. Nobody else can share a ledger in memory, so it needs no locks.
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


def is_shared(settings: Settings) -> bool:
    """Whether processes on other machines may use the same ledger."""
    return isinstance(settings.store, PostgresPlace)


def make_home(home: Path) -> None:
    """The home directory, for its owner alone. One that exists stays as it is; `doctor` looks at it."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"home is {str(home)!r}: {error.strerror}; choose another --home") from error


@contextlib.contextmanager
def writing(
    settings: Settings, *, clock: Clock, may_upgrade: bool = False, is_patient: bool = True
) -> Iterator[Store]:
    """The store, for a command that writes while no gateway runs in the home. Raises HomeInUse when one does.

    PostgreSQL has many writers by design and needs no lock here.
    """
    if not may_upgrade:
        open_reader(settings.store).close()  # to open the store itself would make one that is not there
    with contextlib.ExitStack() as held:
        if isinstance(settings.store, SqlitePlace):
            _take_home(settings, held, LOCK_PATIENCE_S if is_patient else 0)
        store = open_place(settings.store, clock=clock, may_upgrade=may_upgrade)
        held.callback(store.close)
        yield store


def _take_home(settings: Settings, held: contextlib.ExitStack, patience_s: float) -> None:
    """Nobody can hold a home that does not exist, and a ledger elsewhere is no reason to make one."""
    assert isinstance(settings.store, SqlitePlace)
    if settings.home in settings.store.path.parents:
        make_home(settings.home)
    elif not settings.home.is_dir():
        return
    held.callback(take_home(settings.home, role="cli", patience_s=patience_s).release)


def take_home(home: Path, *, role: str, patience_s: float = LOCK_PATIENCE_S) -> HomeLock:
    """The home for us alone. A command that writes may hold it for a moment; raises HomeInUse after that."""
    import time

    from holdfast.store.locks import HomeLock

    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return HomeLock.take(home, role=role)
        except HomeInUse:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_ASK_AGAIN_S)


def accept(store: Store, *, clock: Clock) -> str | None:
    """A person accepts the database as it is; returns why resumes were held, None when they were not."""
    from holdfast.api import upkeep

    return upkeep.accept(store, clock=clock)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one process, and all that it works with."""

    store: Store
    clock: Clock
    life: Life
    ledger: Ledger
    claims: Claims
    journal: Journal
    checkpoints: Checkpoints
    rescuer: Rescuer
    resumer: Resumer


@contextlib.asynccontextmanager
async def open_parts(
    settings: Settings,
    *,
    clock: Clock | None = None,
    role: str = "script",
    names: Sequence[str] | None = None,
) -> AsyncIterator[Parts]:
    """Open the store, begin a life in it and wire the parts; end both at the end.

    `names` are the tasks that this process knows how to carry; None means any.
    """
    from holdfast.engine.boots import Life

    store = open_place(settings.store, clock=SystemClock() if clock is None else clock)
    try:
        # From here on the time is the ledger's: what is compared in it comes from one clock.
        life = await Life.begin(
            store, store.clock, locks=locks_of(settings), role=role, is_shared=is_shared(settings)
        )
        try:
            yield wire(store, store.clock, life, names=names)
        finally:
            # Whoever finds the boot unfinished can prove its death by its lock.
            with contextlib.suppress(StoreUnavailable):
                await life.end()
    finally:
        store.close()


@contextlib.asynccontextmanager
async def open(  # noqa: A001 - `holdfast.open(…)` is how it reads
    url: str,
    *,
    tasks: Sequence[TaskDefinition[..., Any]] = (),
    clock: Clock | None = None,
    home: Path | None = None,
    owner: str = "system",
    capacity: int = 1000,
    drain_timeout: Duration = "30s",
    secrets: Resolve | None = None,
    role: str = "script",
    family: Family | None = None,
) -> AsyncIterator[Holdfast]:
    """The whole set-up of a script: a ledger, and the tasks that this process carries while it is open.

    What was in flight when a process before died goes on; what is in flight at the end is paused, and goes
    on when somebody opens the ledger again. Effects in flight are waited for, at most `drain_timeout`. What
    the body raises comes out as itself. Without tasks it is only for starting and looking. With a family it
    carries only the task that is chosen there, and what that starts.
    """
    from holdfast.engine.beside import beside
    from holdfast.engine.carrier import Carrier
    from holdfast.engine.definitions import by_name
    from holdfast.engine.handles import Holdfast

    known = by_name(tasks)
    limit = parse_duration("drain_timeout", drain_timeout)
    settings = read_settings(os.environ, store=url, home=None if home is None else str(home))
    async with open_parts(settings, clock=clock, role=role, names=sorted(known)) as parts:
        holdfast = Holdfast(parts.store, parts.clock, known, owner=owner)
        if not known:
            yield holdfast
            return
        carrier = Carrier(
            parts.store,
            parts.clock,
            parts.life,
            known,
            capacity=capacity,
            drain_timeout=limit,
            secrets=secrets,
            on_let_go=holdfast.endings.tell,
            family=family,
        )
        await carrier.take_over()
        async with beside(carrier):
            yield holdfast


async def serve(
    url: str,
    *,
    tasks: Sequence[TaskDefinition[..., Any]],
    clock: Clock | None = None,
    home: Path | None = None,
    capacity: int = 1000,
    drain_timeout: Duration = 90,
    secrets: Resolve | None = None,
) -> StopRequest:
    """Carry these tasks until SIGTERM, SIGINT or SIGUSR1, or until a run says that it needs a restart.

    Then nothing new is taken; what is in flight stops at its next call, at the latest after `drain_timeout`,
    and is paused. A second SIGTERM or SIGINT stops at once. The answer says whether a restart is wanted:
    `if asyncio.run(holdfast.serve(…)).wants_restart: …`.
    """
    from holdfast.engine.beside import beside
    from holdfast.engine.carrier import Carrier
    from holdfast.engine.clockwatch import ClockWatch
    from holdfast.engine.definitions import by_name
    from holdfast.gateway import serving
    from holdfast.gateway.signals import heard
    from holdfast.tools.upkeep import ReceiptPruner

    known = by_name(tasks)
    limit = parse_duration("drain_timeout", drain_timeout)
    settings = read_settings(os.environ, store=url, home=None if home is None else str(home))
    requests = serving.Requests()
    # From the beginning, so that a process that has hardly started stops well, too.
    with heard(requests.put):
        async with open_parts(settings, clock=clock, role="serve", names=sorted(known)) as parts:
            carrier = Carrier(
                parts.store,
                parts.clock,
                parts.life,
                known,
                capacity=capacity,
                drain_timeout=limit,
                step_patience=limit,
                secrets=secrets,
                on_restart=requests.want_restart,
            )
            await carrier.take_over()
            # Where the shell tool leaves them, unless it is given another place.
            receipts = [default_home(os.environ) / "receipts"]
            # Files have the time of this machine, whatever the ledger's is.
            machine = SystemClock() if clock is None else clock
            watch = ClockWatch(parts.store, parts.clock)
            async with beside(ReceiptPruner(parts.store, machine, receipts, watch=watch)):
                return await serving.serve(carrier, requests, parts.store, parts.clock)


def wire(store: Store, clock: Clock, life: Life, *, names: Sequence[str] | None = None) -> Parts:
    """The parts of one life on one store."""
    from holdfast.engine.checkpoints import Checkpoints
    from holdfast.engine.claims import Claims
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.rescue import Rescuer
    from holdfast.engine.resume import Resumer
    from holdfast.engine.steps import Journal

    return Parts(
        store=store,
        clock=clock,
        life=life,
        ledger=Ledger(store, clock),
        claims=Claims(store, clock, life.id, names=names),
        journal=Journal(store, clock),
        checkpoints=Checkpoints(store, clock),
        rescuer=Rescuer(store, clock, life),
        resumer=Resumer(store, clock, life.id),
    )


__all__ = [
    "Parts",
    "Settings",
    "accept",
    "is_shared",
    "locks_of",
    "make_home",
    "open",
    "open_parts",
    "open_place",
    "open_reader",
    "open_store",
    "read_settings",
    "serve",
    "sqlite_version",
    "take_home",
    "wire",
    "writing",
]
