"""gateway child: the gateway's own process, as its supervisor starts it; where all its parts are wired."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast import app
from holdfast.cli.errors import report
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.up import COMMAND, log_to_stderr
from holdfast.core.clock import SystemClock
from holdfast.core.errors import (
    BadInput,
    HomeInUse,
    PageDamaged,
    SchemaMismatch,
    SettingsError,
    StoreUnavailable,
)
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.api.security import Tokens
    from holdfast.api.server import Receives
    from holdfast.config import Settings
    from holdfast.config.files import Loaded
    from holdfast.config.gateway import Config
    from holdfast.engine.definitions import TaskDefinition
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.supervised import Supervised

    Definitions = Sequence[TaskDefinition[..., Any]]

log = logging.getLogger("holdfast")

# How long a trial of the next start may take; imports of agents may be slow.
TRIAL_S = 20.0


@click.command("child", hidden=True)
@click.option("--trial", "is_trial", is_flag=True, help="Only find out whether it could start.")
@shared_options
@click.pass_context
def child(context: click.Context, *, is_trial: bool) -> None:
    """Be the gateway. `holdfast up` starts this; nobody else needs to."""
    from holdfast.gateway.supervised import LEDGER_AWAY, SETTINGS_UNUSABLE, read_supervised

    call: Invocation = context.find_root().obj
    log_to_stderr()
    try:
        if is_trial:
            _prepare(call.settings, os.environ)
            return
        status = _be_gateway(call.settings, read_supervised(os.environ), dict(os.environ))
    except (SettingsError, HomeInUse, SchemaMismatch) as error:
        report(error, as_json=False)
        status = SETTINGS_UNUSABLE
    except (StoreUnavailable, PageDamaged, ExceptionGroup) as error:
        away = _away(error)
        if away is None:
            raise
        report(away, as_json=False)
        status = LEDGER_AWAY
    context.exit(status)


def _away(error: Exception) -> StoreUnavailable | PageDamaged | None:
    """How the ledger is away or damaged, if nothing but that has ended us; anything else is a crash."""
    if isinstance(error, ExceptionGroup):
        found = [_away(one) for one in error.exceptions]
        return None if None in found else found[0]
    return error if isinstance(error, (StoreUnavailable, PageDamaged)) else None


def _be_gateway(settings: Settings, supervised: Supervised | None, environ: Mapping[str, str]) -> int:
    from holdfast.gateway.supervised import VARIABLE

    if supervised is None:
        raise SettingsError("no supervisor has started this; use `holdfast up`")
    # What we start must not keep the sockets, or think that it is the gateway.
    for number in supervised.fds:
        os.set_inheritable(number, False)
    os.environ.pop(VARIABLE, None)

    loaded, tasks = _prepare(settings, environ)
    lock = app.take_home(settings.home, role="gateway")
    try:
        return asyncio.run(_live(settings, loaded, tasks, supervised, environ))
    finally:
        lock.release()


def _prepare(settings: Settings, environ: Mapping[str, str]) -> tuple[Loaded, Definitions]:
    """All that a start needs besides the ledger. Raises SettingsError."""
    from holdfast.api.security import Tokens
    from holdfast.config.files import load
    from holdfast.delivery.channels import secrets_of

    loaded = load(settings.home, environ)
    for place in (Path.cwd(), settings.home):
        if str(place) not in sys.path:
            # Behind what is installed: a file there must not be taken for a part of us.
            sys.path.append(str(place))
    try:
        tasks = _tasks(loaded, settings)
    except BadInput as error:
        raise SettingsError(f"tasks: {error}") from error
    Tokens.read(loaded.config, settings.home, environ)
    for name, channel in loaded.config.channels.items():
        if channel.kind == "webhook":
            secrets_of(name, channel, home=settings.home, environ=environ)
    return loaded, tasks


async def _try_next() -> str | None:
    """Why a gateway could not start now, with the settings and the modules as they are; None if it could.

    Found out by another process: what its modules do when they are imported, they do not do to us.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *COMMAND,
            "--trial",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:  # no memory, no descriptor: a restart may be just what helps
        log.warning("whether the next gateway can start is not known: %s", error)
        return None
    try:
        async with asyncio.timeout(TRIAL_S):
            _, said = await process.communicate()
    except TimeoutError:
        log.warning("whether the next gateway can start is not known after %g s", TRIAL_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return None
    if process.returncode == 0:
        return None
    lines = said.decode("utf-8", "replace").strip().splitlines() or [f"exit status {process.returncode}"]
    return one_line(lines[-1].removeprefix("holdfast: "), 500)


def _tasks(loaded: Loaded, settings: Settings) -> Definitions:
    """Those that the settings name, and one for each agent."""
    from holdfast.cli.programs import load_program, split_place
    from holdfast.runtimes.agents import definitions

    found: dict[str, Any] = {}
    for spec in loaded.config.tasks:
        place, name = split_place(spec)
        program = load_program(place, goes_first=False)
        chosen = program.known if name is None else [program.find(name), *program.known]
        found |= {one.name: one for one in chosen}
    return [*found.values(), *definitions(loaded.config, home=settings.home)]


async def _live(
    settings: Settings,
    loaded: Loaded,
    tasks: Definitions,
    supervised: Supervised,
    environ: Mapping[str, str],
) -> int:
    """From the ledger to the exit status; doors answer from the moment the ledger is open."""
    from holdfast.api.security import Tokens
    from holdfast.engine.definitions import by_name
    from holdfast.gateway.serving import end_soon
    from holdfast.gateway.signals import StopRequest, heard
    from holdfast.gateway.supervised import STOPPED, WANTS_RESTART

    known = by_name(tasks)
    tokens = Tokens.read(loaded.config, settings.home, environ)
    # From the beginning, so that a process that has hardly started stops well, too.
    early: list[StopRequest] = []
    puts: list[Callable[[StopRequest], None]] = [early.append]
    with heard(lambda request: puts[-1](request)):
        async with app.open_parts(settings, role="gateway", names=sorted(known)) as parts:
            gateway = _wire(settings, loaded, parts, known, supervised, environ, tokens)
            puts.append(gateway.put)
            for request in early:
                gateway.put(request)
            receives = _receives(settings, gateway, environ)
            doors = _doors(gateway, supervised, tokens, receives)
            async with _told_of_death(supervised.life_fd, gateway.put), doors:
                await gateway.run()
    # Asked only now: somebody may have wanted a stop while the doors closed.
    status = WANTS_RESTART if gateway.wants_restart else STOPPED
    end_soon(status)
    return status


def _wire(
    settings: Settings,
    loaded: Loaded,
    parts: app.Parts,
    known: dict[str, Any],
    supervised: Supervised,
    environ: Mapping[str, str],
    tokens: Tokens,
) -> Gateway:
    """The gateway with its services, over an open ledger."""
    from holdfast.config import default_home
    from holdfast.delivery.channels import mouths_of
    from holdfast.delivery.outbox import Outbox
    from holdfast.engine.clockwatch import ClockWatch
    from holdfast.engine.retention import Pruner
    from holdfast.gateway.conversations import Conversations
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.inbox import Inbox
    from holdfast.gateway.reload import Reload
    from holdfast.schedule.cron import Cron
    from holdfast.tools.upkeep import ReceiptPruner

    store, clock, config = parts.store, parts.clock, loaded.config
    agents = sorted(config.agents)
    conversations = Conversations(store, clock, agents)
    # Strangers compare with their clocks, and files have this machine's, whatever the ledger's is.
    machine = SystemClock()
    mouths = mouths_of(config, home=settings.home, environ=environ, clock=machine)
    outbox = Outbox(store, clock, mouths, boot_id=parts.life.id)
    watch = ClockWatch(store, clock)
    cron = Cron(store, clock, config.schedules, watch=watch)
    # Where commands of agents leave them, and where tools of programs do that were given no other place.
    homes = {settings.home, default_home(environ)}
    receipts = ReceiptPruner(store, machine, [home / "receipts" for home in homes], watch=watch)
    gateway = Gateway(
        store,
        clock,
        parts.life,
        config,
        known,
        home=settings.home,
        inbox=Inbox(store, clock, agents=lambda: agents),
        services=[conversations, outbox, cron, Pruner(store, clock, watch=watch), receipts],
        held=[conversations, cron],
        secrets=environ.get,
        why_held=_why_held(supervised),
        tell=_teller(supervised.tell_fd),
        trial=_try_next,
    )

    def apply(changed: Config) -> None:
        # First, because it may be refused: a token that cannot be read changes nothing.
        tokens.replace(type(tokens).read(changed, settings.home, environ))
        gateway.apply(changed)
        cron.schedules = changed.schedules

    gateway.add_service(
        Reload(
            settings.home,
            environ,
            loaded,
            overrides={},
            on_live=apply,
            on_restart=gateway.settings_changed,
        )
    )
    return gateway


def _why_held(supervised: Supervised) -> str | None:
    if not supervised.holds_resumes:
        return None
    return f"the gateway crashed {supervised.crashes} times in a row"


def _teller(tell_fd: int) -> Callable[[str], None]:
    from holdfast.gateway.supervised import Word, line_of

    def tell(word: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            os.write(tell_fd, line_of(Word(word)))

    os.set_blocking(tell_fd, False)
    return tell


def _receives(settings: Settings, gateway: Gateway, environ: Mapping[str, str]) -> Receives:
    """How webhooks come in; their secrets are read once, at the start."""
    from holdfast.delivery.channels import secrets_of
    from holdfast.gateway.hooks import Hooks
    from holdfast.views.sessions import PostedView

    channels = {name: one for name, one in gateway.config.channels.items() if one.kind == "webhook"}
    secrets = {
        name: secrets_of(name, one, home=settings.home, environ=environ) for name, one in channels.items()
    }
    # Signed by the clocks of strangers.
    hooks = Hooks(gateway.inbox, SystemClock(), channels, secrets)

    async def receive(name: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> PostedView:
        posted = await hooks.receive(name, headers, body)
        return PostedView.of(posted.message, is_duplicate=posted.is_duplicate)

    return receive


@contextlib.asynccontextmanager
async def _doors(
    gateway: Gateway, supervised: Supervised, tokens: Tokens, receives: Receives
) -> AsyncIterator[None]:
    from holdfast.api.server import serve_doors

    stop = asyncio.Event()
    unix = supervised.unix_fd
    async with asyncio.TaskGroup() as group:
        group.create_task(
            serve_doors(
                gateway,
                tcp_sockets=[socket.socket(fileno=number) for number in supervised.tcp_fds],
                unix_socket=None if unix is None else socket.socket(fileno=unix),
                tokens=tokens,
                stop=stop,
                webhook=receives,
            )
        )
        try:
            yield
        finally:
            stop.set()


@contextlib.asynccontextmanager
async def _told_of_death(life_fd: int, put: Callable[[Any], None]) -> AsyncIterator[None]:
    """Its death ends us, too: nobody would start us again, or hold the sockets."""
    from holdfast.gateway.signals import StopRequest

    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(life_fd, 1):
            loop.remove_reader(life_fd)
            put(StopRequest(why="the supervisor died"))

    loop.add_reader(life_fd, look)
    try:
        yield
    finally:
        loop.remove_reader(life_fd)
