"""The methods of agents, beside agents.list in OpenClaw's format."""

from __future__ import annotations

from holdfast.api import agents
from holdfast.api.contract import READ, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, audited, calls, run_write
from holdfast.api.sessions import list_agents
from holdfast.views.agents import AgentChangedView, AgentDetailView, AgentListView
from holdfast.views.sessions import AgentPageView


def _own(gateway: GatewayDoor, caller: Caller) -> AgentPageView:
    """The agents of the gateway; a caller that is limited to an owner gets none."""
    if caller.reach.is_bound:
        return AgentPageView()
    return list_agents(gateway.config, settings_refused=gateway.status().settings_refused)


async def _page(gateway: GatewayDoor, asked: agents.AgentsAsked, caller: Caller) -> AgentListView:
    own, reach, projection = _own(gateway, caller), caller.reach, gateway.projection()
    return await gateway.store.read(
        lambda tx: agents.read_agents(tx, asked, own, projection=projection, reach=reach)
    )


async def _get(gateway: GatewayDoor, asked: agents.OneAgentAsked, caller: Caller) -> AgentDetailView:
    own, reach, projection = _own(gateway, caller), caller.reach, gateway.projection()
    return await gateway.store.read(
        lambda tx: agents.read_agent(tx, asked, own, projection=projection, reach=reach)
    )


async def _pause(gateway: GatewayDoor, asked: agents.AgentPauseAsked, caller: Caller) -> AgentChangedView:
    more = {"own": _own(gateway, caller), "who": caller.who, "reach": caller.reach}
    return await run_write(gateway, "agents.pause", agents.pausing, asked, caller, **more)


async def _resume(gateway: GatewayDoor, asked: agents.OneAgentAsked, caller: Caller) -> AgentChangedView:
    more = {"own": _own(gateway, caller), "reach": caller.reach}
    return await run_write(gateway, "agents.resume", agents.resuming, asked, caller, **more)


async def _restart(gateway: GatewayDoor, asked: agents.AgentRestartAsked, caller: Caller) -> AgentChangedView:
    more = {"own": _own(gateway, caller), "reach": caller.reach}
    return await run_write(gateway, "agents.restart", agents.restarting, asked, caller, **more)


AGENT_METHODS: list[Method] = [
    calls(
        "agents.page",
        READ,
        agents.AgentsAsked,
        AgentListView,
        _page,
        "Agents of the gateway and of campaigns, by campaign, status or type.",
        is_owned=True,
    ),
    calls(
        "agents.get",
        READ,
        agents.OneAgentAsked,
        AgentDetailView,
        _get,
        "One agent: what it works on, since when, and why it does not go on.",
        is_owned=True,
    ),
    audited(
        "agents.pause",
        agents.AgentPauseAsked,
        AgentChangedView,
        _pause,
        "Stop one agent at its next step; messages of an agent of the gateway wait.",
        is_owned=True,
    ),
    audited(
        "agents.resume",
        agents.OneAgentAsked,
        AgentChangedView,
        _resume,
        "Let a paused agent go on after its last saved step.",
        is_owned=True,
    ),
    audited(
        "agents.restart",
        agents.AgentRestartAsked,
        AgentChangedView,
        _restart,
        "Cancel the run of an agent of a campaign; its task goes on in a new one.",
        is_owned=True,
    ),
]
