"""Builds the gateway with its services and doors, and runs it from the open ledger to its exit status."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from holdfast.app.homes import take_home
from holdfast.app.parts import Parts, open_parts
from holdfast.app.secrets import declared_secrets, is_own_value
from holdfast.app.startup import Startup, prepare, schedule_specs
from holdfast.app.workers import gateway_worker
from holdfast.core.clock import SystemClock

if TYPE_CHECKING:
    from holdfast.config import Settings
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.supervisor_protocol import Supervised


def run_gateway(
    settings: Settings, supervised: Supervised, environ: Mapping[str, str], *, trial_command: Sequence[str]
) -> int:
    """Be the gateway until it stops; returns the exit status that the supervisor reads.

    `trial_command` are the arguments of Python that try, before a restart, whether the next gateway could
    start.
    """
    from holdfast.gateway.supervisor_link import keep_from_children

    keep_from_children(supervised, os.environ)
    startup = prepare(settings, environ, supervised.overrides)
    lock = take_home(settings.home, role="gateway")
    try:
        return asyncio.run(_run(startup, supervised, trial_command))
    finally:
        lock.release()


async def _run(startup: Startup, supervised: Supervised, trial_command: Sequence[str]) -> int:
    """The doors answer as soon as the ledger is open, also while the gateway recovers."""
    from holdfast.app.doors import open_doors
    from holdfast.gateway.serving import end_soon
    from holdfast.gateway.signals import StopRequest, heard
    from holdfast.gateway.supervisor_link import stopped_with
    from holdfast.gateway.supervisor_protocol import STOPPED, WANTS_RESTART

    # Signals that arrive before there is a gateway are kept for it.
    early: list[StopRequest] = []
    puts: list[Callable[[StopRequest], None]] = [early.append]
    with heard(lambda request: puts[-1](request), is_gateway=True):
        names = sorted(startup.tasks)
        async with open_parts(startup.settings, role="gateway", names=names) as parts:
            await declare_schedules(startup, parts)
            gateway = build_gateway(startup, parts, supervised, trial_command=trial_command)
            puts.append(gateway.put)
            for request in early:
                gateway.put(request)
            async with stopped_with(supervised, gateway.put), open_doors(gateway, startup, supervised):
                await gateway.run()
    # Read only now: a stop may have been requested while the doors closed.
    status = WANTS_RESTART if gateway.wants_restart else STOPPED
    end_soon(status)
    return status


async def declare_schedules(startup: Startup, parts: Parts) -> None:
    """Bring the schedules of the settings into the ledger before anything starts. Raises SettingsError if one
    of their names is in use."""
    from holdfast.engine.schedules.declarations import declaring

    config = startup.config
    write = declaring(
        place_of(startup, parts),
        schedule_specs(config.schedules, startup.tasks),
        owner=config.gateway.owner,
        now=parts.clock.now(),
        release_after=timedelta(seconds=config.cron.release_after_s),
    )
    await parts.store.write(write)


def place_of(startup: Startup, parts: Parts) -> str:
    """What names this gateway among those of its ledger, also after a restart."""
    return f"{parts.life.directory} {startup.settings.home}"


def build_gateway(
    startup: Startup, parts: Parts, supervised: Supervised, *, trial_command: Sequence[str]
) -> Gateway:
    """The gateway with its services, over an open ledger; `Gateway.run` starts them."""
    from holdfast.alerts.watch import AlertWatch
    from holdfast.api.tls import CertificateWatch
    from holdfast.api.tokens import TokenWatch
    from holdfast.app.alerts import alert_options
    from holdfast.app.flows import find_flow
    from holdfast.app.live_settings import LiveSettings
    from holdfast.app.plugins import build_plugins
    from holdfast.app.runtimes import build_runtimes
    from holdfast.app.sweeps import build_sweep
    from holdfast.app.trial import try_next
    from holdfast.chat.commands import run_command
    from holdfast.config import default_home
    from holdfast.delivery.channels import mouths_of
    from holdfast.delivery.outbox import Outbox
    from holdfast.engine.clocks.jump_watch import ClockWatch
    from holdfast.engine.ledger.retention import Pruner
    from holdfast.engine.producers.stopper import Stopper
    from holdfast.engine.program.secrets import Secrets
    from holdfast.gateway.conversations import Conversations
    from holdfast.gateway.gateway import Gateway
    from holdfast.gateway.inbox import Inbox
    from holdfast.gateway.reload import Reload
    from holdfast.gateway.sockets import urls_of
    from holdfast.gateway.supervisor_link import report_to, why_held
    from holdfast.progress.projections import ProjectionWriter
    from holdfast.progress.saver import CampaignSaver
    from holdfast.progress.starter import CampaignStarter
    from holdfast.schedule.cron import Cron
    from holdfast.tools.command_cancel import CommandEnder
    from holdfast.tools.receipt_cleanup import ReceiptPruner

    store, clock, config = parts.store, parts.clock, startup.config
    home, environ, tokens = startup.settings.home, startup.environ, startup.tokens
    # Senders of webhooks and files have this machine's time, which may differ from the ledger's.
    machine = SystemClock()
    agents = sorted(config.agents)
    allowed = {name: channel.command_peers for name, channel in config.channels.items()}
    conversations = Conversations(store, clock, agents)
    outbox = Outbox(
        store, clock, mouths_of(config, home=home, environ=environ, clock=machine), boot_id=parts.life.id
    )
    watch = ClockWatch(store, clock)
    cron = Cron(
        store,
        clock,
        config.schedules,
        place=place_of(startup, parts),
        owner=config.gateway.owner,
        names=sorted(startup.tasks),
        specs_of=partial(schedule_specs, known=startup.tasks),
        watch=watch,
        release_after=timedelta(seconds=config.cron.release_after_s),
    )
    alerts = AlertWatch(
        store,
        clock,
        alert_options(config),
        place=place_of(startup, parts),
        watch=watch,
        every_s=config.upkeep.alerts_every_s,
    )
    campaigns = CampaignStarter(store, clock, host=parts.life.boot.node)
    # Commands of agents leave receipts in the home; tools of programs leave them in the default home.
    receipts = [place / "receipts" for place in {home, default_home(environ)}]
    runtimes = build_runtimes(store, clock, home)
    sweep = build_sweep(store, clock, runtimes, config.upkeep, has_died=parts.life.has_died, watch=watch)
    secrets = Secrets(
        environment=environ,
        declared=declared_secrets(config),
        is_gateway=True,
        is_own=is_own_value(startup.webhook_secrets, environ, tokens),
    )
    gateway = Gateway(
        store,
        clock,
        parts.life,
        config,
        startup.tasks,
        home=home,
        inbox=Inbox(store, clock, agents=lambda: agents, commands=partial(run_command, allowed=allowed)),
        make_worker=gateway_worker(parts, startup.tasks, config, secrets=secrets),
        services=[
            conversations,
            outbox,
            cron,
            campaigns,
            alerts,
            CampaignSaver(store, clock),
            ProjectionWriter(store, clock, home),
            Pruner(store, clock, watch=watch, limits=config.upkeep.limits),
            sweep,
            Stopper(store, clock, lambda: runtimes),
            ReceiptPruner(store, machine, receipts, watch=watch),
            CommandEnder(store, clock, parts.life, receipts),
            *build_plugins(parts, config, runtimes),
        ],
        held=[conversations, cron, campaigns],
        sweep=sweep,
        why_held=why_held(supervised),
        tell=report_to(supervised),
        trial=partial(try_next, trial_command),
        runtimes=runtimes,
        find_flow=find_flow,
        settings_took=startup.took,
        sources=startup.loaded.sources,
        urls=urls_of(supervised.tcp_fds, scheme="https" if config.gateway.tls.is_on else "http"),
    )
    live = LiveSettings(gateway, startup, secrets=secrets, cron=cron, alerts=alerts, outbox=outbox)
    gateway.add_service(TokenWatch(tokens, home, on_problem=partial(live.report, "tokens")))
    gateway.add_service(CertificateWatch(startup.certificates, on_problem=partial(live.report, "tls")))
    gateway.add_service(
        Reload(
            home,
            environ,
            startup.loaded,
            overrides=supervised.overrides,
            on_live=live.apply,
            on_trial=gateway.try_settings,
            on_restart=gateway.settings_changed,
            on_refused=partial(live.report, "settings"),
            on_read=live.note_sources,
        )
    )
    return gateway
