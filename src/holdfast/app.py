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

from holdfast import trust
from holdfast.config import (
    MemoryPlace,
    PostgresPlace,
    Settings,
    SqlitePlace,
    StorePlace,
    default_home,
    read_seal,
    read_settings,
    read_store_url,
)
from holdfast.core.clock import Clock, SystemClock
from holdfast.core.durations import Duration, parse_duration
from holdfast.core.errors import BadInput, HomeInUse, HomeUnusable, NoLedger, SettingsError, StoreUnavailable
from holdfast.core.session import agent_task

if TYPE_CHECKING:
    from holdfast.config.gateway import Config
    from holdfast.core.sealing import SealMode
    from holdfast.engine.claims.boots import Life
    from holdfast.engine.claims.claims import Claims, Family
    from holdfast.engine.client.handles import Holdfast
    from holdfast.engine.ledger.ledger import Ledger
    from holdfast.engine.program.definitions import TaskDefinition
    from holdfast.engine.program.secrets import Declared, Secrets
    from holdfast.engine.program.secrets import Given as GivenSecrets
    from holdfast.engine.recovery.checkpoints import Checkpoints
    from holdfast.engine.recovery.rescue import Rescuer
    from holdfast.engine.recovery.resume import Resumer
    from holdfast.gateway.signals import StopRequest
    from holdfast.store.contract import Reader, Store
    from holdfast.store.locks import HomeLock
    from holdfast.store.outer_keys import Given
    from holdfast.store.sealing import OuterKey, Vault

# The file in a home that holds the key of sealed values.
KEY_NAME = "key"
# Two commands at the same moment are no reason to refuse one of them.
LOCK_PATIENCE_S = 1.0
_ASK_AGAIN_S = 0.05


def open_store(url: str, *, clock: Clock, may_upgrade: bool = False) -> Store:
    """The store that a URL names, set up when it is new. Raises SettingsError for a URL without a backend.

    What holds a secret is sealed as the settings of the default home say.
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
    """The store there. Raises KeyMissing or KeyWrong when its sealed values need another key.

    Without `may_write_inline` a PostgreSQL server that stalls does not stop the event loop.
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
    if vault.has_begun:  # most often; then nothing more is read or imported
        return store
    from holdfast.store.rekey import settle

    try:
        settle(store, vault, is_shared=is_shared)
    except BaseException:
        store.close()
        raise
    return store


def vault_of(settings: Settings, *, key: Given | None = None, is_lenient: bool = False) -> Vault:
    """Seals and opens what holds a secret, as the settings say. A lenient one is for a command that only
    looks: it shows [sealed] for what it has no key for."""
    from holdfast.store.sealing import Vault

    if settings.unread is not None and not is_lenient:
        raise SettingsError(f"{settings.unread}; it may say how values are sealed")
    outer = outer_key_of(settings, key=key, is_reader=is_lenient)
    return Vault(outer, settings.seal, is_lenient=is_lenient)


def outer_key_of(settings: Settings, *, key: Given | None = None, is_reader: bool = False) -> OuterKey:
    """The key that a script gives, else HOLDFAST_KEY, else what the command prints, else a file.

    The file lies where every process on this machine that uses the same ledger finds it. For a ledger in a
    file that is its directory: `key` if that is the home, else `.<name>.key`, and each looks for the other's.
    For PostgreSQL it is `key` in the home.
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
    """Where the key of a ledger lies that is in no home: `.work.db.key` beside `work.db`."""
    return ledger.with_name(f".{ledger.name}.{KEY_NAME}")


def open_reader(
    place: StorePlace,
    *,
    must_be_current: bool = True,
    may_be_damaged: bool = False,
    vault: Vault | None = None,
) -> Reader:
    """For a command that only looks: makes nothing, migrates nothing, takes no lock. Raises NoLedger.

    Without a vault it shows [sealed] for every sealed value. With `may_be_damaged` a SQLite file that cannot
    even say its schema is opened all the same, to be verified.
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
    """The home directory, for its owner alone. One that exists stays as it is; `doctor` looks at it.

    Raises SettingsError if another user can write there.
    """
    try:
        trust.make_private_directory(home)
        problem = trust.why_not_trusted(home)
    except OSError as error:
        raise HomeUnusable(f"home is {str(home)!r}: {error.strerror}; choose another --home") from error
    if problem is not None:
        raise HomeUnusable(f"home is {str(home)!r}: {problem}; or choose another --home")


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
        store = open_place(settings.store, clock=clock, may_upgrade=may_upgrade, vault=vault_of(settings))
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
    from holdfast.api import ledger

    return ledger.accept(store, clock=clock)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one process, and all that it works with."""

    store: Store
    clock: Clock
    life: Life
    ledger: Ledger
    claims: Claims
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
    key: Given | None = None,
) -> AsyncIterator[Parts]:
    """Open the store, begin a life in it and wire the parts; end both at the end.

    `names` are the tasks that this process knows how to carry; None means any. `key` is as for `open`.
    """
    from holdfast.engine.claims.boots import Life

    machine = SystemClock() if clock is None else clock
    store = open_place(
        settings.store,
        clock=machine,
        vault=vault_of(settings, key=key),
        # The doors of a gateway answer while its server stalls.
        may_write_inline=role != "gateway",
    )
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
    secrets: Secrets | GivenSecrets | None = None,
    on_restart: Callable[[str], object] | None = None,
    role: str = "script",
    family: Family | None = None,
    seal: SealMode | str | None = None,
    key: Given | None = None,
) -> AsyncIterator[Holdfast]:
    """The whole set-up of a script: a ledger, and the tasks that this process carries while it is open.

    What was in flight when a process before died goes on; what is in flight at the end is paused, and goes
    on when somebody opens the ledger again. Effects in flight are waited for, at most `drain_timeout`. What
    the body raises comes out as itself. Without tasks it is only for starting and looking. With a family it
    carries only the task that is chosen there, and what that starts.

    `on_restart` is called with the reason when a run calls `run.requires_restart`: end the block soon, and
    start the process again. The run is paused at the end of the block, and goes on in the next process. It
    may be a coroutine function, and raises RestartRefused to refuse. Without it every such call is refused.

    `secrets` declares what steps get in place of `hf.secret("NAME")`: each name with its value or a function
    that gives it, or one function for any name. HOLDFAST_SECRET_NAME in the environment declares one, too.

    `seal` says which values are sealed: those that hold `secrets`, `all`, or `never` any; without it the
    settings do. `key` opens them: its text, its 32 bytes, or a function that fetches either; without it it is
    HOLDFAST_KEY, what `store.key_command` prints, or a file beside the ledger, made with the first secret.
    """
    from holdfast.engine.aio.background import beside
    from holdfast.engine.client.handles import Holdfast
    from holdfast.engine.program.definitions import by_name
    from holdfast.engine.program.restart_requests import calling
    from holdfast.engine.worker.worker import Worker

    if on_restart is not None and not callable(on_restart):
        raise BadInput("on_restart", f"a function of the reason is needed, not {type(on_restart).__name__}")
    known = by_name(tasks)
    limit = parse_duration("drain_timeout", drain_timeout)
    settings = _settings_of(url, home, seal)
    async with open_parts(settings, clock=clock, role=role, names=sorted(known), key=key) as parts:
        holdfast = Holdfast(parts.store, parts.clock, known, owner=owner)
        if not known:
            yield holdfast
            return
        worker = Worker(
            parts.store,
            parts.clock,
            parts.life,
            known,
            capacity=capacity,
            drain_timeout=limit,
            secrets=secrets,
            on_restart=None if on_restart is None else calling(on_restart),
            on_let_go=holdfast.endings.tell,
            family=family,
        )
        await worker.take_over()
        async with beside(worker):
            yield holdfast


async def serve(
    url: str,
    *,
    tasks: Sequence[TaskDefinition[..., Any]],
    clock: Clock | None = None,
    home: Path | None = None,
    capacity: int = 1000,
    drain_timeout: Duration = 90,
    secrets: Secrets | GivenSecrets | None = None,
    seal: SealMode | str | None = None,
    key: Given | None = None,
) -> StopRequest:
    """Carry these tasks until SIGTERM, SIGINT or SIGUSR1, or until a run says that it needs a restart.

    Then nothing new is taken; what is in flight stops at its next call, at the latest after `drain_timeout`,
    and is paused. A second SIGTERM or SIGINT stops at once. The answer says whether a restart is wanted:
    `if asyncio.run(holdfast.serve(…)).wants_restart: …`. `secrets`, `seal` and `key` are as for `open`.
    """
    from holdfast.engine.aio.background import beside
    from holdfast.engine.clocks.clock_watch import ClockWatch
    from holdfast.engine.program.definitions import by_name
    from holdfast.engine.program.restart_requests import calling
    from holdfast.engine.worker.worker import Worker
    from holdfast.gateway import serving
    from holdfast.gateway.signals import heard
    from holdfast.tools.command_cancel import CommandEnder
    from holdfast.tools.receipt_cleanup import ReceiptPruner

    known = by_name(tasks)
    limit = parse_duration("drain_timeout", drain_timeout)
    settings = _settings_of(url, home, seal)
    requests = serving.Requests()
    # From the beginning, so that a process that has hardly started stops well, too.
    with heard(requests.put):
        opened = open_parts(settings, clock=clock, role="serve", names=sorted(known), key=key)
        async with opened as parts:
            worker = Worker(
                parts.store,
                parts.clock,
                parts.life,
                known,
                capacity=capacity,
                drain_timeout=limit,
                step_patience=limit,
                secrets=secrets,
                on_restart=calling(requests.want_restart),
            )
            await worker.take_over()
            # Where the shell tool leaves them, unless it is given another place.
            receipts = [default_home(os.environ) / "receipts"]
            # Files have the time of this machine, whatever the ledger's is.
            machine = SystemClock() if clock is None else clock
            watch = ClockWatch(parts.store, parts.clock)
            ender = CommandEnder(parts.store, parts.clock, parts.life, receipts)
            async with beside(ReceiptPruner(parts.store, machine, receipts, watch=watch)), beside(ender):
                return await serving.serve(worker, requests, parts.store, parts.clock)


def _settings_of(url: str, home: Path | None, seal: SealMode | str | None) -> Settings:
    settings = read_settings(os.environ, store=url, home=None if home is None else str(home))
    return settings if seal is None else msgspec.structs.replace(settings, seal=read_seal(seal, "seal"))


def declared_secrets(config: Config) -> dict[str, Declared]:
    """The secrets of the settings, as programs may use them. What an agent's `env` passes on is declared for
    that agent alone, unless the settings declare the name itself."""
    from holdfast.engine.program.secrets import Declared

    found: dict[str, Declared] = {}
    for agent, settings in config.agents.items():
        for variable in settings.env.values():
            before = found.get(variable, Declared(variable=variable, tasks=frozenset()))
            assert before.tasks is not None
            found[variable] = Declared(
                variable=variable,
                tasks=before.tasks | {agent_task(agent)},
                limit=f"agents.*.env gives it to commands of other agents alone; if this task may use it, "
                f"declare [secrets.{variable}] with it under tasks or agents",
            )
    for name, one in config.secrets.items():
        is_limited = one.tasks is not None or one.agents is not None
        allowed = frozenset([*(one.tasks or ()), *map(agent_task, one.agents or ())])
        found[name] = Declared(
            variable=one.env,
            tasks=allowed if is_limited else None,
            limit=f"secrets.{name}.tasks and secrets.{name}.agents do not name this task; add it there if it "
            "may use the secret",
        )
    return found


def wire(store: Store, clock: Clock, life: Life, *, names: Sequence[str] | None = None) -> Parts:
    """The parts of one life on one store."""
    from holdfast.engine.claims.claims import Claims
    from holdfast.engine.ledger.ledger import Ledger
    from holdfast.engine.recovery.checkpoints import Checkpoints
    from holdfast.engine.recovery.rescue import Rescuer
    from holdfast.engine.recovery.resume import Resumer

    return Parts(
        store=store,
        clock=clock,
        life=life,
        ledger=Ledger(store, clock),
        claims=Claims(store, clock, life.id, names=names),
        checkpoints=Checkpoints(store, clock),
        rescuer=Rescuer(store, clock, life),
        resumer=Resumer(store, clock, life.id),
    )


__all__ = [
    "Parts",
    "Settings",
    "accept",
    "declared_secrets",
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
