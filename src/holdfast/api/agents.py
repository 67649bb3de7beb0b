"""agents.page, get, pause, resume, restart: the agents of the gateway and of campaigns."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

from holdfast.api.campaigns import CampaignText, campaign_owner, reached_campaign
from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.pages import bad_token
from holdfast.api.params import NameText, PageSize, PageToken, Params, ShortText
from holdfast.core.agent import AgentStatus, CampaignAgent, PausedAgent
from holdfast.core.campaign import Campaign
from holdfast.core.errors import NotFound, Refused
from holdfast.core.redaction import redact_name, redact_text
from holdfast.core.transitions import CampaignStatus, ItemStatus, RunStatus
from holdfast.engine.campaigns.agent_changes import (
    PAUSED_BY_OPERATOR,
    RESTARTED_BY_OPERATOR,
    AgentRestartRequest,
    pausing_agent,
    restarting_agent,
    resuming_agent,
)
from holdfast.engine.campaigns.agents import AgentPosition, find_agent, page_of_agents
from holdfast.store.contract import Write
from holdfast.store.transaction import Tx
from holdfast.upkeep.projection import Projection
from holdfast.views.agents import (
    CONVERSATION,
    AgentChangedView,
    AgentDetailView,
    AgentLineView,
    AgentListView,
)
from holdfast.views.sessions import AgentPageView, AgentView

# Answers in progress that are looked at, to tell which agents of the gateway are active.
_MAX_BUSY = 1000
_TOKEN = re.compile(r"(camp_[0-9a-z]{1,40})\.([0-9]{1,4})\.(-1|[0-9]{1,9})")

AgentText: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class AgentsAsked(Params, frozen=True, kw_only=True):
    """A page of agents: of the gateway and all campaigns, or of one; in this status, of this type."""

    campaign: CampaignText | None = None
    status: AgentStatus | None = None
    # A role such as analyzer; conversation for those of the gateway.
    type: NameText | None = None
    limit: PageSize = 100
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class OneAgentAsked(Params, frozen=True, kw_only=True):
    """One agent by its id; without a campaign one of the gateway, or that of the newest campaign."""

    agent: AgentText
    campaign: CampaignText | None = None


class AgentPauseAsked(OneAgentAsked, frozen=True, kw_only=True):
    """Pause one agent, with the reason."""

    reason: ShortText = PAUSED_BY_OPERATOR


class AgentRestartAsked(OneAgentAsked, frozen=True, kw_only=True):
    """Restart one agent, with the reason."""

    reason: ShortText = RESTARTED_BY_OPERATOR


# --- look


def read_agents(
    tx: Tx, asked: AgentsAsked, own: AgentPageView, *, projection: Projection, reach: Reach = EVERYTHING
) -> AgentListView:
    """`own` are those of the gateway; they stand on the first page, beside `limit` others."""
    owner = _owner(reach)
    campaign = None if asked.campaign is None else reached_campaign(tx, asked.campaign, reach)
    after = None if asked.page_token is None else _position(tx, asked.page_token, reach)
    found = []
    if campaign is None and after is None and asked.type in (None, CONVERSATION):
        found = [one for one in _own_lines(tx, own.agents) if asked.status in (None, one.status)]
    page = page_of_agents(
        tx,
        campaign=campaign,
        status=asked.status,
        type=asked.type,
        after=after,
        limit=asked.limit,
        owner=owner,
    )
    return AgentListView(
        agents=[*found, *_lines(tx, page.agents, projection)],
        settings_refused=own.settings_refused,
        next_page_token=None if page.following is None else _token(page.following),
    )


def read_agent(
    tx: Tx, asked: OneAgentAsked, own: AgentPageView, *, projection: Projection, reach: Reach = EVERYTHING
) -> AgentDetailView:
    """Raises NotFound, and Conflict if two agents of one campaign share the id."""
    mine = _own(asked, own)
    if mine is not None:
        (line,) = _own_lines(tx, [mine])
        paused = tx.paused_agents.all().get(mine.name)
        return AgentDetailView(
            agent=line,
            busy_sessions=sum(one.agent == mine.name for one in tx.sessions.busy(limit=_MAX_BUSY)),
            paused_at=None if paused is None else paused.paused_at,
        )
    agent = _found(tx, asked, reach)
    rows = tx.item_phases.look_of_items(agent.campaign_id, agent.phase_number, [agent.item_id])
    (line,) = _lines(tx, [agent], projection)
    return AgentDetailView(
        agent=line,
        attempt=agent.attempt,
        stage=rows[0].stage if rows else None,
        percent=rows[0].percent if rows else None,
        run_status=line.run_status,
    )


def _lines(tx: Tx, agents: Sequence[CampaignAgent], projection: Projection) -> list[AgentLineView]:
    """One whose process is gone does not read as active."""
    running = [str(one.task_id) for one in agents if one.run_status is RunStatus.RUNNING]
    shown = projection.of_runs(tx, list(tx.runs.live_of_tasks(running).values())) if running else {}
    return [AgentLineView.of(one, shown.get(str(one.task_id))) for one in agents]


# --- change


def pausing(
    asked: AgentPauseAsked,
    own: AgentPageView,
    *,
    now: datetime,
    who: str,
    reach: Reach = EVERYTHING,
) -> Write[AgentChangedView]:
    """The write that pauses one; one that is paused stays so."""
    mine = _own(asked, own)

    def pause(tx: Tx) -> AgentChangedView:
        if mine is not None:
            reason = redact_text(" ".join(asked.reason.split()))
            tx.paused_agents.pause(
                PausedAgent(name=mine.name, reason=reason, paused_by=redact_name(who), paused_at=now)
            )
            return _changed(tx, mine, "it answers no message from now on; they wait in their sessions")
        agent = _found(tx, asked, reach)
        write = pausing_agent(agent.campaign_id, agent.id, now=now, reason=asked.reason)
        return AgentChangedView(
            agent=AgentLineView.of(write(tx)),
            outcome="it stops at its next step and keeps what it saved"
            if agent.item_status is ItemStatus.RUNNING
            else "it does not start until it is resumed",
        )

    return pause


def resuming(
    asked: OneAgentAsked, own: AgentPageView, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[AgentChangedView]:
    """The write that lets a paused one go on; any other stays as it is."""
    mine = _own(asked, own)

    def resume(tx: Tx) -> AgentChangedView:
        if mine is not None:
            was_paused = tx.paused_agents.resume(mine.name)
            tx.hint("sessions")
            outcome = "it answers the messages that waited, in order" if was_paused else "it was not paused"
            return _changed(tx, mine, outcome)
        agent = _found(tx, asked, reach)
        after = resuming_agent(agent.campaign_id, agent.id, now=now)(tx)
        outcome = _what_next(agent) + _when(tx, agent)
        if agent.item_status is not ItemStatus.PAUSED:
            outcome = f"it was not paused: its item is {agent.item_status.value}"
        return AgentChangedView(agent=AgentLineView.of(after), outcome=outcome)

    return resume


def _what_next(agent: CampaignAgent) -> str:
    began = agent.attempt > 0
    return "it goes on after its last saved step" if began else "it begins"


def restarting(
    asked: AgentRestartAsked, own: AgentPageView, *, now: datetime, reach: Reach = EVERYTHING
) -> Write[AgentChangedView]:
    """The write that cancels its run, so that its task goes on in a new one. Raises Refused for an agent of
    the gateway, which has no run of its own."""
    mine = _own(asked, own)
    if mine is not None:
        raise Refused(
            f"{mine.name} is an agent of the gateway: each message is a task of its own; cancel the one in "
            f"progress (holdfast sessions tasks {mine.main_session}), pause the agent (holdfast agents pause "
            f"{mine.name}), or restart the gateway (holdfast gateway restart)"
        )

    # It outlives the write, which may run again after its own commit.
    request = AgentRestartRequest()

    def restart(tx: Tx) -> AgentChangedView:
        agent = _found(tx, asked, reach)
        write = restarting_agent(agent.campaign_id, agent.id, now=now, reason=asked.reason, request=request)
        after = write(tx)
        outcome = _what_next(agent) + _when(tx, agent)
        if after.item_status is ItemStatus.RUNNING:
            outcome = "the run that it had is over, and it goes on in a new one already"
        elif agent.item_status is ItemStatus.RUNNING:
            outcome = f"its run is cancelled; then {outcome}"
        return AgentChangedView(agent=AgentLineView.of(after), outcome=outcome)

    return restart


def _changed(tx: Tx, agent: AgentView, outcome: str) -> AgentChangedView:
    (line,) = _own_lines(tx, [agent])
    return AgentChangedView(agent=line, outcome=outcome)


def _when(tx: Tx, agent: CampaignAgent) -> str:
    campaign = tx.campaigns.get(agent.campaign_id)
    if campaign.status is CampaignStatus.RUNNING:
        return ", when it gets a slot"
    return f", when its campaign, which is {campaign.status.value}, does"


# --- which one


def _owner(reach: Reach) -> str | None:
    owner = campaign_owner(reach)
    return None if owner is None else redact_name(owner)


def _own(asked: OneAgentAsked, own: AgentPageView) -> AgentView | None:
    """The agent of the gateway that is meant; with a campaign, none is."""
    if asked.campaign is not None:
        return None
    return next((one for one in own.agents if one.name == asked.agent), None)


def _found(tx: Tx, asked: OneAgentAsked, reach: Reach) -> CampaignAgent:
    campaign: Campaign | None = None
    if asked.campaign is not None:
        campaign = reached_campaign(tx, asked.campaign, reach)
    return find_agent(tx, asked.agent, campaign=campaign, owner=_owner(reach))


def _own_lines(tx: Tx, own: Collection[AgentView]) -> list[AgentLineView]:
    if not own:
        return []
    busy = tx.sessions.busy(limit=_MAX_BUSY)
    runs = tx.runs.live_of_tasks([one.task_id for one in busy if one.task_id is not None])
    paused = tx.paused_agents.all()
    heard: dict[str, datetime] = {}
    for one in busy:
        run = runs.get(str(one.task_id))
        if run is not None and run.beat_at is not None:
            heard[one.agent] = max(run.beat_at, heard.get(one.agent, run.beat_at))
    active = {one.agent for one in busy}
    return [
        AgentLineView.of_gateway(
            one, paused.get(one.name), is_active=one.name in active, heard_at=heard.get(one.name)
        )
        for one in own
    ]


def _token(position: AgentPosition) -> str:
    return f"{position.campaign_id}.{position.phase}.{position.place}"


def _position(tx: Tx, token: str, reach: Reach) -> AgentPosition:
    """Raises BadInput for a token that no page gave, or of a campaign that is gone."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise bad_token(token)
    try:
        campaign = reached_campaign(tx, found[1], reach)
    except NotFound as error:
        raise bad_token(token) from error
    if campaign.id != found[1]:
        raise bad_token(token)
    return AgentPosition(campaign_id=campaign.id, phase=int(found[2]), place=int(found[3]))
