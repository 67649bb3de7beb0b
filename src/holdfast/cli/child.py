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
from functools import partial
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
    KeyProblem,
    NoLedger,
    PageDamaged,
    SchemaMismatch,
    SettingsError,
    StoreUnavailable,
)
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.api.server import Webhooks
    from holdfast.api.tls import Certificates
    from holdfast.api.tokens import Tokens
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
    supervised: Supervised | None = None
    try:
        if is_trial:
            _prepare(call.settings, os.environ)
            _try_key(call.settings)
            return
        supervised = read_supervised(os.environ)
        status = _be_gateway(call.settings, supervised, dict(os.environ))
    except (SettingsError, HomeInUse, SchemaMismatch, KeyProblem) as error:
        report(error, as_json=False)
        status = SETTINGS_UNUSABLE
    except (StoreUnavailable, PageDamaged, ExceptionGroup) as error:
        away = _away(error)
        if away is None:
            raise
        if supervised is None or not supervised.is_quiet:
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
    from holdfast.api.tokens import Tokens
    from holdfast.cli.search import places_of, search
    from holdfast.config.files import load
    from holdfast.config.tls import read_certificate
    from holdfast.delivery.channels import secrets_of

    loaded = load(settings.home, environ)
    read_certificate(loaded.config.gateway.tls, settings.home, now=SystemClock().now())
    search(places_of(loaded.config, settings.home))
    try:
        tasks = _tasks(loaded, settings)
    except BadInput as error:
        raise SettingsError(f"tasks: {error}") from error
    Tokens.read(loaded.config, settings.home, environ)
    for name, channel in loaded.config.channels.items():
        if channel.kind == "webhook":
            secrets_of(name, channel, home=settings.home, environ=environ)
    return loaded, tasks


def _try_key(settings: Settings) -> None:
    """The gateway that runs knows the key of its ledger: while the next one could not open it, it stays."""
    vault = app.vault_of(settings)
    try:
        ledger = app.open_reader(settings.store, must_be_current=False)
    except (NoLedger, StoreUnavailable):  # which the next one may wait for
        return
    with contextlib.closing(ledger), contextlib.suppress(StoreUnavailable):
        ledger.read_now(vault.begin)


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
    from holdfast.cli.programs import load_installed, split_place
    from holdfast.runtimes.agents import definitions

    found: dict[str, Any] = {}
    for spec in loaded.config.tasks:
        place, name = split_place(spec)
        program = load_installed(place)
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
    from holdfast.api.tls import Certificates
    from holdfast.api.tokens import Tokens
    from holdfast.engine.definitions import by_name
    from holdfast.gateway.serving import end_soon
    from holdfast.gateway.signals import StopRequest, heard
    from holdfast.gateway.supervised import STOPPED, WANTS_RESTART

    known = by_name(tasks)
    tokens = Tokens.read(loaded.config, settings.home, environ)
    certificates = Certificates(loaded.config.gateway.tls, settings.home)
    # From the beginning, so that a process that has hardly started stops well, too.
    early: list[StopRequest] = []
    puts: list[Callable[[StopRequest], None]] = [early.append]
    with heard(lambda request: puts[-1](request), is_gateway=True):
        async with app.open_parts(settings, role="gateway", names=sorted(known)) as parts:
            gateway = _wire(settings, loaded, parts, known, supervised, environ, tokens, certificates)
            puts.append(gateway.put)
            for request in early:
                gateway.put(request)
            receives = _webhooks(settings, gateway, environ)
            doors = _doors(gateway, supervised, tokens, receives, certificates)
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
    certificates: Certificates,
) -> Gateway:
    """The gateway with its services, over an open ledger."""
    from holdfast.api.tls import CertificateWatch
    from holdfast.api.tokens import TokenWatch
    from holdfast.config import default_home
    from holdfast.config.keys import changed as differing
    from holdfast.core.audit import AuditOutcome
    from holdfast.delivery.channels import mouths_of
    from holdfast.delivery.outbox import Outbox
    from holdfast.engine.clockwatch import ClockWatch
    from holdfast.engine.retention import Pruner
    from holdfast.engine.secrets import Secrets
    from holdfast.gateway.conversations import Conversations
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.inbox import Inbox
    from holdfast.gateway.reload import Reload
    from holdfast.schedule.cron import Cron
    from holdfast.tools.cancelled import CommandEnder
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
    places = [home / "receipts" for home in homes]
    receipts = ReceiptPruner(store, machine, places, watch=watch)
    ender = CommandEnder(store, clock, parts.life, places)
    secrets = Secrets(
        environment=environ,
        declared=app.declared_secrets(config),
        is_gateway=True,
        is_own=_own_values(settings, config, environ, tokens),
    )
    gateway = Gateway(
        store,
        clock,
        parts.life,
        config,
        known,
        home=settings.home,
        inbox=Inbox(store, clock, agents=lambda: agents),
        services=[conversations, outbox, cron, Pruner(store, clock, watch=watch), receipts, ender],
        held=[conversations, cron],
        secrets=secrets,
        why_held=_why_held(supervised),
        tell=_teller(supervised),
        trial=_try_next,
    )

    def apply(changed: Config) -> None:
        # First, because it may be refused. A token that cannot be read opens nothing, and keeps no other
        # change from being applied: one that was taken away must not stay.
        tokens.replace(type(tokens).read(changed, settings.home, environ, is_strict=False))
        if changed.gateway.tls != gateway.config.gateway.tls:
            certificates.replace(changed.gateway.tls)  # or refused, with everything that follows
        secrets.declare(app.declared_secrets(changed))
        gateway.audit.note("settings.applied", why=", ".join(differing(gateway.config, changed).live))
        gateway.apply(changed)
        cron.schedules = changed.schedules

    # Of the settings as a whole, of the files of tokens, and of the certificate.
    problems: dict[str, str | None] = {}

    def told(where: str, why: str | None) -> None:
        if why is not None and why != problems.get(where):
            gateway.audit.note(f"{where}.applied", outcome=AuditOutcome.REFUSED, why=why)
        problems[where] = why
        gateway.settings_refused = "; ".join(one for one in problems.values() if one) or None

    gateway.add_service(TokenWatch(tokens, settings.home, on_problem=partial(told, "tokens")))
    gateway.add_service(CertificateWatch(certificates, on_problem=partial(told, "tls")))
    gateway.add_service(
        Reload(
            settings.home,
            environ,
            loaded,
            overrides={},
            on_live=apply,
            on_trial=gateway.try_settings,
            on_restart=gateway.settings_changed,
            on_refused=partial(told, "settings"),
        )
    )
    return gateway


def _own_values(
    settings: Settings, config: Config, environ: Mapping[str, str], tokens: Tokens
) -> Callable[[str], bool]:
    """Knows the values that callers and channels prove themselves with, whatever variable holds them."""
    from holdfast.core.secret import is_own_variable
    from holdfast.delivery.channels import secrets_of

    own = {value for name, value in environ.items() if is_own_variable(name)}
    for name, channel in config.channels.items():
        if channel.kind == "webhook":
            own |= {one.decode() for one in secrets_of(name, channel, home=settings.home, environ=environ)}
    return lambda value: value in own or tokens.find(value) is not None


def _why_held(supervised: Supervised) -> str | None:
    if not supervised.holds_resumes:
        return None
    return f"the gateway crashed {supervised.crashes} times in a row"


def _teller(supervised: Supervised) -> Callable[[str], None]:
    from holdfast.gateway.supervised import Word, line_of

    announcements = [supervised.announcement] if supervised.announcement else []

    def tell(word: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            os.write(supervised.tell_fd, line_of(Word(word)))
        if word == Word.READY and announcements:
            with contextlib.suppress(OSError, ValueError):  # the reader is gone
                sys.stdout.write(announcements.pop())
                sys.stdout.flush()

    os.set_blocking(supervised.tell_fd, False)
    return tell


def _webhooks(settings: Settings, gateway: Gateway, environ: Mapping[str, str]) -> Webhooks:
    """How webhooks come in; their secrets are read once, at the start."""
    from holdfast.api.server import Webhooks
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

    return Webhooks(check=hooks.check, receive=receive)


@contextlib.asynccontextmanager
async def _doors(
    gateway: Gateway,
    supervised: Supervised,
    tokens: Tokens,
    webhooks: Webhooks,
    certificates: Certificates,
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
                webhooks=webhooks,
                certificates=certificates,
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
