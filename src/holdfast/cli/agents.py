"""agents list, show, pause, resume, restart: the agents of the gateway and of campaigns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import click
import msgspec

from holdfast.api.agents import (
    AgentPauseAsked,
    AgentRestartAsked,
    AgentsAsked,
    OneAgentAsked,
    pausing,
    read_agent,
    read_agents,
    restarting,
    resuming,
)
from holdfast.api.params import Nothing
from holdfast.cli.campaign_names import campaign_name
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import Invocation, page_option, shared_options
from holdfast.cli.output import Output, ago
from holdfast.cli.sessions import configured_agents
from holdfast.core.agent import AgentStatus
from holdfast.core.errors import BadInput, HoldfastError, NoLedger, NotFound
from holdfast.engine.campaigns.agent_changes import PAUSED_BY_OPERATOR, RESTARTED_BY_OPERATOR
from holdfast.store.contract import Write
from holdfast.views.agents import (
    AgentChangedView,
    AgentDetailView,
    AgentLineView,
    AgentListView,
)
from holdfast.views.sessions import AgentPageView
from holdfast.views.text import one_line

F = TypeVar("F", bound=Callable[..., Any])
# The timeout for lists: the gateway may be frozen.
PATIENCE_S = 5.0


@click.group("agents", cls=ListGroup)
@shared_options
def agents() -> None:
    """Agents of the gateway and of campaigns."""


def campaign_option(command: F) -> F:
    return click.option(
        "--campaign", metavar="NAME", callback=campaign_name, help="Of this campaign; its name or id."
    )(command)


# --- list, show


@agents.command("list", short_help="Agents, by campaign, status or type.")
@campaign_option
@click.option(
    "--status", type=click.Choice([one.value for one in AgentStatus]), help="Only agents in this status."
)
@click.option("--type", "kind", metavar="TYPE", help="Only this type, such as analyzer or conversation.")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_them(
    call: Invocation,
    *,
    campaign: str | None,
    status: str | None,
    kind: str | None,
    limit: int,
    page: str | None,
) -> None:
    """The agents of the gateway, then those of campaigns, newest campaign first, a page at a time.

    An agent of a campaign is one item in one phase: repo-001-analyzer. It is idle before it begins and when
    it is done, active while its item runs, paused, or in error when its item failed.
    """
    asked = AgentsAsked(
        campaign=campaign,
        status=None if status is None else AgentStatus(status),
        type=kind,
        limit=limit,
        page_token=page,
    )
    if call.gateway_url is not None:
        view = call.ask("agents.page", asked, AgentListView)
    else:
        own = _own(call)
        with call.listing() as ledger:
            if ledger is None:
                view = _without_ledger(asked, own)
            else:
                view = ledger.read_now(lambda tx: read_agents(tx, asked, own, projection=call.projection()))
    if view.settings_refused is not None:
        call.output.say(
            f"{view.settings_refused}; the gateway still uses these agents; see `holdfast config check`"
        )
    call.output.show(view, lambda: _print_agents(call, asked, view, call.clock.now()))


def _own(call: Invocation) -> AgentPageView:
    """The agents of the settings; if the running gateway refused those, the agents that it uses."""
    view = configured_agents(call)
    refused = _those_of_gateway(call)
    return view if refused is None else refused


def _those_of_gateway(call: Invocation) -> AgentPageView | None:
    from holdfast.cli.client import is_listening

    if not is_listening(call.settings.home):
        return None
    try:
        view = call.ask("agents.list", Nothing(), AgentPageView, timeout_s=PATIENCE_S)
    except HoldfastError:  # no gateway answers, so none refused them
        return None
    return None if view.settings_refused is None else view


def _without_ledger(asked: AgentsAsked, own: AgentPageView) -> AgentListView:
    """Before the first start, only the settings know agents."""
    if asked.campaign is not None:
        raise NotFound("campaign", asked.campaign)
    lines = [
        AgentLineView.of_gateway(one, None, is_active=False, heard_at=None)
        for one in own.agents
        if asked.page_token is None
    ]
    wanted = [one for one in lines if asked.status in (None, one.status) and asked.type in (None, one.type)]
    return AgentListView(agents=wanted, settings_refused=own.settings_refused)


def _print_agents(call: Invocation, asked: AgentsAsked, view: AgentListView, now: datetime) -> None:
    output = call.output
    if not view.agents and asked != AgentsAsked(limit=asked.limit):
        output.say("no agents like that; all of them: `holdfast agents list`")
        return
    if not view.agents:
        output.say(
            "no agents: add [agents.NAME] to holdfast.toml, or create a campaign: holdfast campaign create"
        )
        return
    has_campaigns = any(one.campaign is not None for one in view.agents)
    if has_campaigns:
        _print_all(output, view.agents, now)
    else:
        _print_own(output, view.agents)
    if view.next_page_token is not None:
        output.say(f"more: --page {view.next_page_token}")


def _print_all(output: Output, found: Sequence[AgentLineView], now: datetime) -> None:
    rows = [
        (
            one.id,
            one.type,
            one.status,
            one.item_status or "-",
            "-" if one.last_heartbeat is None else f"{ago(one.last_heartbeat, now)} ago",
            one.campaign or "-",
            one.reason or "",
        )
        for one in found
    ]
    headers = ("AGENT", "TYPE", "STATUS", "ITEM", "HEARD", "CAMPAIGN", "WHY")
    output.table(headers, rows, leave=("WHY", "CAMPAIGN", "ITEM"), matters="AGENT")


def _print_own(output: Output, found: Sequence[AgentLineView]) -> None:
    rows = [
        (one.id, one.status, one.runtime or "-", one.main_session or "-", one_line(one.target or "-"))
        for one in found
    ]
    headers = ("NAME", "STATUS", "RUNTIME", "MAIN SESSION", "COMMAND OR MODULE")
    output.table(headers, rows, leave=("RUNTIME", "MAIN SESSION"))


@agents.command("show", short_help="One agent in full.")
@click.argument("agent", metavar="AGENT")
@campaign_option
@shared_options
@click.pass_obj
def show_agent(call: Invocation, agent: str, campaign: str | None) -> None:
    """One agent by its id; without --campaign one of the gateway, or that of the newest campaign."""
    asked = _asked(OneAgentAsked, agent, campaign)
    if call.gateway_url is not None:
        view = call.ask("agents.get", asked, AgentDetailView)
    else:
        own = _own(call)
        try:
            with call.reading() as ledger:
                view = ledger.read_now(lambda tx: read_agent(tx, asked, own, projection=call.projection()))
        except NoLedger:
            raise NotFound("agent", agent) from None
    call.output.show(view, lambda: _print_agent(call, view, call.clock.now()))


def _print_agent(call: Invocation, view: AgentDetailView, now: datetime) -> None:
    one = view.agent
    heard = None if one.last_heartbeat is None else f"{ago(one.last_heartbeat, now)} ago"
    call.output.fields(
        [
            ("agent", one.id),
            ("kind", one.kind),
            ("type", one.type),
            ("status", one.status),
            ("why", one.reason),
            ("paused", None if view.paused_at is None else f"{ago(view.paused_at, now)} ago"),
            ("heard", heard),
            ("campaign", one.campaign),
            ("item", None if one.item_id is None else f"{one.item_id} ({one.item_status})"),
            ("name", one.item_name),
            ("phase", one.phase),
            ("stage", view.stage),
            ("percent", None if view.percent is None else str(view.percent)),
            ("tasks", None if view.attempt is None else str(view.attempt)),
            ("task", one.task_id),
            ("run", view.run_status),
            ("runtime", one.runtime),
            ("session", one.main_session),
            ("target", one.target),
            ("answering", None if view.busy_sessions is None else str(view.busy_sessions)),
        ]
    )


# --- pause, resume, restart


@agents.command("pause", short_help="Stop an agent at its next step; messages wait.")
@click.argument("agent", metavar="AGENT")
@campaign_option
@click.option("--reason", default=PAUSED_BY_OPERATOR, show_default=True, help="Reason to record.")
@shared_options
@click.pass_obj
def pause_agent(call: Invocation, agent: str, campaign: str | None, reason: str) -> None:
    """Pause an agent; it stays paused, also across restarts, until it is resumed.

    An agent of a campaign stops at its next step, keeps what it saved, and frees its slot. An agent of the
    gateway ends the answer in progress; later messages are stored and wait in their sessions.
    """
    asked = _asked(AgentPauseAsked, agent, campaign, reason=reason)
    _change(call, "agents.pause", asked, partial(pausing, who=call.actor.who))


@agents.command("resume", short_help="Let a paused agent go on.")
@click.argument("agent", metavar="AGENT")
@campaign_option
@shared_options
@click.pass_obj
def resume_agent(call: Invocation, agent: str, campaign: str | None) -> None:
    """Let a paused agent go on after its last saved step, when it gets a slot, or with the messages that
    waited."""
    _change(call, "agents.resume", _asked(OneAgentAsked, agent, campaign), resuming)


@agents.command("restart", short_help="Cancel the run of an agent; its task goes on in a new one.")
@click.argument("agent", metavar="AGENT")
@campaign_option
@click.option("--reason", default=RESTARTED_BY_OPERATOR, show_default=True, help="Reason to record.")
@shared_options
@click.pass_obj
def restart_agent(call: Invocation, agent: str, campaign: str | None, reason: str) -> None:
    """Cancel the run of an agent of a campaign, and let its task go on from what it saved.

    The run stops at its next step, and is cut off after the grace. No saved step runs again. An agent that
    failed, or is paused, goes on, too.
    """
    _change(call, "agents.restart", _asked(AgentRestartAsked, agent, campaign, reason=reason), restarting)


A = TypeVar("A", bound=OneAgentAsked)


def _asked(kind: type[A], agent: str, campaign: str | None, **more: str) -> A:
    """Checked as the gateway would."""
    given = {"agent": agent, "campaign": campaign, **more}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise BadInput("agent", f"{error}; write an id such as repo-001-analyzer") from error


def _change(
    call: Invocation, method: str, asked: OneAgentAsked, writing: Callable[..., Write[AgentChangedView]]
) -> None:
    if call.gateway_url is not None:
        view = call.ask(method, asked, AgentChangedView)
    else:
        view = _change_here(call, method, asked, writing)
    call.output.show(
        view, lambda: call.output.line(f"{view.agent.id} is {view.agent.status}: {view.outcome}")
    )


def _change_here(
    call: Invocation, method: str, asked: OneAgentAsked, writing: Callable[..., Write[AgentChangedView]]
) -> AgentChangedView:
    """One write with its audit entry, here if no process holds the home, else through the gateway."""
    from holdfast.api.audit import recorded

    own = _own(call)
    try:
        with call.writing_or_asking(may_upgrade=False) as store:
            if store is None:
                return call.ask(method, asked, AgentChangedView)
            now = store.clock.now()
            write = writing(asked, own, now=now)
            return store.write_now(recorded(write, call.actor, method, asked, now=now))
    except NoLedger:
        raise NotFound("agent", asked.agent) from None
