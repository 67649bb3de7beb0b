"""AgentLineView, a page of agents, and one in full: of the gateway and of campaigns, in one list."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.agent import AgentStatus, CampaignAgent, PausedAgent
from holdfast.core.projection import ProjectedStatus
from holdfast.views.sessions import AgentView
from holdfast.views.text import bounded, maybe_line, one_line

MAX_ERROR_CHARS = 500
# The kinds of agents.
GATEWAY, CAMPAIGN = "gateway", "campaign"
# The type of an agent of the gateway: it answers the messages of sessions.
CONVERSATION = "conversation"


class AgentLineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One agent: of the gateway, or of a campaign, where it is one item in one phase."""

    # Its name in the settings, or item and role: `repo-001-analyzer`, unique in its campaign.
    id: str
    # gateway or campaign.
    kind: str
    # conversation, or the role of its phase, such as analyzer.
    type: str
    # active, idle, paused or error.
    status: str
    # When the ledger last heard of it; null if it has not begun, or does nothing now.
    last_heartbeat: datetime | None = None
    # Why it is paused, or what went wrong.
    reason: str | None = None
    # Of a campaign.
    campaign: str | None = None
    item_id: str | None = None
    item_name: str | None = None
    phase: str | None = None
    # pending, running, paused, done or failed.
    item_status: str | None = None
    task_id: str | None = None
    # Of the live run of its task; only from a `running` one should the ledger hear now.
    run_status: str | None = None
    # Of the gateway: what an agent of the settings has.
    name: str | None = None
    runtime: str | None = None
    target: str | None = None
    main_session: str | None = None

    @classmethod
    def of(cls, agent: CampaignAgent, shown: ProjectedStatus | None = None) -> AgentLineView:
        """With `shown`, its process is gone, and it is as the next rescue will leave it."""
        status, run_status = agent.status, agent.run_status
        why = agent.error if status is AgentStatus.ERROR else agent.note
        if shown is not None:
            status, run_status, why = AgentStatus.PAUSED, shown.run_status, shown.why
        return cls(
            id=one_line(agent.id),
            kind=CAMPAIGN,
            type=one_line(agent.type),
            status=status.value,
            last_heartbeat=agent.last_heartbeat,
            reason=None if why is None else bounded(one_line(why, MAX_ERROR_CHARS), MAX_ERROR_CHARS),
            campaign=one_line(agent.campaign),
            item_id=one_line(agent.item_id),
            item_name=one_line(agent.item_name),
            phase=one_line(agent.phase),
            item_status=agent.item_status.value,
            task_id=agent.task_id,
            run_status=None if run_status is None else run_status.value,
        )

    @classmethod
    def of_gateway(
        cls, agent: AgentView, paused: PausedAgent | None, *, is_active: bool, heard_at: datetime | None
    ) -> AgentLineView:
        status = AgentStatus.ACTIVE if is_active else AgentStatus.IDLE
        if paused is not None:
            status = AgentStatus.PAUSED
        return cls(
            id=agent.name,
            kind=GATEWAY,
            type=CONVERSATION,
            status=status.value,
            last_heartbeat=heard_at,
            reason=None
            if paused is None
            else maybe_line(f"{paused.reason} ({paused.paused_by})", MAX_ERROR_CHARS),
            name=agent.name,
            runtime=agent.runtime,
            target=agent.target,
            main_session=agent.main_session,
        )


class AgentListView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of agents: first those of the gateway, then those of campaigns, newest campaign first."""

    agents: list[AgentLineView] = []
    # Why the running gateway refused the settings in the files; then its agents are those that it uses.
    settings_refused: str | None = None
    next_page_token: str | None = None


class AgentDetailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One agent in full."""

    agent: AgentLineView
    # Of a campaign: how many tasks it has had, its stage, and the status of its run.
    attempt: int | None = None
    stage: str | None = None
    percent: int | None = None
    run_status: str | None = None
    # Of the gateway: sessions that it answers now, and messages that wait for it.
    busy_sessions: int | None = None
    paused_at: datetime | None = None


class AgentChangedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of an agent that was to be paused, resumed or restarted."""

    agent: AgentLineView
    # In a sentence.
    outcome: str
