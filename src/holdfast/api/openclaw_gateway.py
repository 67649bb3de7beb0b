"""health, status, system-presence, channels.status and config.schema: the gateway in OpenClaw's format."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.api.contract import Caller, GatewayDoor, our_version
from holdfast.api.openclaw_chat import Milliseconds, default_agent
from holdfast.api.params import NameText, Nothing, Params
from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.task import RuntimeName
from holdfast.upkeep.audit import TaskCounts
from holdfast.views.gateway import MAX_REASON_CHARS
from holdfast.views.openclaw_gateway import (
    AgentBeatView,
    AgentHealthView,
    ChannelAccountView,
    ChannelStatusView,
    CliProjectionView,
    ConfigSchemaView,
    HealthSummary,
    HeartbeatsView,
    HeartbeatView,
    PresenceEntryView,
    PresenceView,
    ProjectedAgentsView,
    ProjectedAgentView,
    RecentSessionView,
    SessionAgeView,
    SessionsHealthView,
    SessionStoreView,
    SessionTotalsView,
    StatusSummary,
)
from holdfast.views.text import one_line
from holdfast.views.upkeep import AuditSummaryView, TaskCountsView
from holdfast.views.wire import millis

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.config.sections import ChannelSettings
    from holdfast.core.session import Session
    from holdfast.store.transaction import Tx

# Sessions are counted up to here, so that a large ledger does not make `health` slow.
COUNTED_AT_MOST = 100
RECENT = 5
ACCOUNT = "default"
# `health` answers without its agents and sessions if the ledger takes longer.
LEDGER_WITHIN_S = 2.0
# Our runtimes in the protocol's words; see views/wire.py.
_RUNTIMES = {
    RuntimeName.PYTHON.value: "cli",
    RuntimeName.COMMAND.value: "cli",
    RuntimeName.MEDIA.value: "cli",
    RuntimeName.AGENT.value: "subagent",
}


class HealthAsked(Params, frozen=True, kw_only=True):
    """`probe` has no effect: the answer is never cached."""

    probe: bool = False


class StatusAsked(Params, frozen=True, kw_only=True):
    """What to leave out or add."""

    include_channel_summary: bool = True
    include_cli_projection: bool = False


class ChannelsAsked(Params, frozen=True, kw_only=True):
    """All channels, or one. `probe` has no effect: to test a channel, send a message through it."""

    channel: NameText | None = None
    probe: bool = False
    timeout_ms: Milliseconds | None = None


async def health(gateway: GatewayDoor, asked: HealthAsked, caller: Caller) -> HealthSummary:  # noqa: ARG001 - a method
    """Whether the gateway answers. A limited caller, and one that asks during the start, learns no more."""
    began = time.monotonic()
    found = await gateway.look()
    now = gateway.clock.now()
    brief = HealthSummary(
        ok=found.ledger_problem is None, status=found.status, is_ready=found.is_ready, ts=millis(now) or 0
    )
    if caller.reach.is_bound or found.ledger_problem is not None or found.status == "starting":
        return brief
    config, default = gateway.config, default_agent(gateway.config)
    try:
        async with asyncio.timeout(LEDGER_WITHIN_S):
            sessions = await gateway.store.read(lambda tx: tx.sessions.page(limit=COUNTED_AT_MOST + 1))
    except (TimeoutError, HoldfastError):
        return brief  # the next look at the ledger tells what is wrong
    accounts = {one_line(name): _account(name, one) for name, one in config.channels.items()}
    return msgspec.structs.replace(
        brief,
        duration_ms=int((time.monotonic() - began) * 1000),
        default_agent_id=None if default is None else one_line(default),
        agents=[
            AgentHealthView(
                agent_id=one_line(name),
                is_default=name == default,
                heartbeat=HeartbeatView(),
                sessions=_health_of([one for one in sessions if one.agent == name], now, len(sessions)),
            )
            for name in sorted(config.agents)
        ],
        sessions=_health_of(sessions[:COUNTED_AT_MOST], now, len(sessions)),
        channels={name: msgspec.to_builtins(one) for name, one in accounts.items()},
        channel_order=list(accounts),
        channel_labels={name: name for name in accounts},
    )


async def status(gateway: GatewayDoor, asked: StatusAsked, caller: Caller) -> StatusSummary:  # noqa: ARG001 - a method
    now, config = gateway.clock.now(), gateway.config
    default = default_agent(config)
    default_id = None if default is None else one_line(default)
    report = AuditSummaryView.of(await gateway.sweep.audit())

    def read(tx: Tx) -> tuple[TaskCountsView, list[Session]]:
        return TaskCountsView.of(TaskCounts.of(tx)), tx.sessions.page(limit=COUNTED_AT_MOST + 1)

    counts, sessions = await gateway.store.read(read)
    where = _ledger(len(sessions))
    shown = sessions[:COUNTED_AT_MOST]
    agents = sorted(config.agents)
    return StatusSummary(
        runtime_version=our_version(),
        heartbeat=HeartbeatsView(
            agents=[AgentBeatView(agent_id=one_line(name)) for name in agents], default_agent_id=default_id
        ),
        channel_summary=[f"{one_line(name)}: {one.kind}" for name, one in config.channels.items()]
        if asked.include_channel_summary
        else [],
        queued_system_events=[],
        tasks=_in_their_words(counts),
        task_audit=report,
        sessions=SessionTotalsView(
            paths=[where],
            count=len(shown),
            recent=[_age(one, now) for one in shown[:RECENT]],
            by_agent=[
                SessionStoreView(
                    agent_id=one_line(name),
                    path=where,
                    count=len(own := [one for one in shown if one.agent == name]),
                    recent=[_age(one, now) for one in own[:RECENT]],
                )
                for name in agents
            ],
        ),
        pid=os.getpid(),
        cli_projection=_projection(agents, default_id) if asked.include_cli_projection else None,
    )


async def presence(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> PresenceView:  # noqa: ARG001 - a method
    found = gateway.status()
    return PresenceView(
        gateway=PresenceEntryView(
            host=one_line(socket.gethostname()) or "localhost",
            version=our_version(),
            platform=platform.system().lower(),
            mode="gateway",
            reason="self",
            text=f"Holdfast {our_version()}: {found.status}",
            ts=millis(gateway.clock.now()) or 0,
        )
    )


async def channels(gateway: GatewayDoor, asked: ChannelsAsked, caller: Caller) -> ChannelStatusView:  # noqa: ARG001 - a method
    """The channels of the settings, each with the newest failure among the failed deliveries.

    Raises NotFound for an unknown channel.
    """
    declared = gateway.config.channels
    if asked.channel is not None and asked.channel not in declared:
        raise NotFound("channel", asked.channel)
    wanted = {name: one for name, one in declared.items() if asked.channel in (None, name)}
    failures = await gateway.store.read(_failures)
    accounts = {
        one_line(name): _account(name, settings, failures.get(name)) for name, settings in wanted.items()
    }
    return ChannelStatusView(
        ts=millis(gateway.clock.now()) or 0,
        channel_order=list(accounts),
        channel_labels={name: name for name in accounts},
        channels=accounts,
        channel_accounts={name: [one] for name, one in accounts.items()},
        channel_default_account_id=dict.fromkeys(accounts, ACCOUNT),
    )


async def config_schema(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> ConfigSchemaView:  # noqa: ARG001 - a method
    from holdfast.config.sections import Config

    return ConfigSchemaView(
        schema=msgspec.json.schema(Config),
        ui_hints={},
        version=our_version(),
        generated_at=gateway.clock.now().isoformat(),
    )


def _account(name: str, settings: ChannelSettings, error: str | None = None) -> ChannelAccountView:
    takes = settings.kind == "webhook" and settings.agent is not None
    return ChannelAccountView(
        account_id=ACCOUNT,
        enabled=True,
        configured=True,
        mode=settings.kind,
        webhook_path=f"/channels/{one_line(name)}" if takes else None,
        last_error=error,
    )


def _failures(tx: Tx) -> dict[str, str]:
    """For each channel, why its newest failed delivery failed."""
    try:
        found = tx.deliveries.failed(limit=COUNTED_AT_MOST)
    except HoldfastError:  # a damaged record: `holdfast doctor` reports it
        return {}
    return {
        one.channel: one_line(one.failure.message, MAX_REASON_CHARS)
        for one in found
        if one.failure is not None
    }


def _health_of(sessions: list[Session], now: datetime, found: int) -> SessionsHealthView:
    return SessionsHealthView(
        path=_ledger(found),
        count=len(sessions),
        recent=[
            RecentSessionView(key=age.key, updated_at=age.updated_at, age=age.age)
            for age in (_age(one, now) for one in sessions[:RECENT])
        ],
    )


def _ledger(found: int) -> str:
    """Where the sessions are, for a field that is a path in OpenClaw."""
    if found > COUNTED_AT_MOST:
        return f"the ledger; only the {COUNTED_AT_MOST} most recently used sessions are counted"
    return "the ledger"


def _age(session: Session, now: datetime) -> SessionAgeView:
    return SessionAgeView(
        key=one_line(session.key),
        agent_id=one_line(session.agent),
        session_id=one_line(session.id),
        updated_at=millis(session.updated_at) or 0,
        age=max(0, int((now - session.updated_at).total_seconds() * 1000)),
    )


def _in_their_words(counts: TaskCountsView) -> TaskCountsView:
    by_runtime: dict[str, int] = {}
    for runtime, number in counts.by_runtime.items():
        named = _RUNTIMES.get(runtime, runtime)
        by_runtime[named] = by_runtime.get(named, 0) + number
    return msgspec.structs.replace(counts, by_runtime=by_runtime)


def _projection(agents: list[str], default_id: str | None) -> CliProjectionView:
    shown = [ProjectedAgentView(id=one_line(name), name=one_line(name)) for name in agents]
    return CliProjectionView(agents=ProjectedAgentsView(rows=shown, default_id=default_id))
