"""The writes of an operator to one agent of a campaign: pause it, let it go on, restart it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.agent import CampaignAgent
from holdfast.core.campaign import Campaign, ItemPhase
from holdfast.core.errors import Conflict
from holdfast.core.ids import check_id
from holdfast.core.payload import check_text
from holdfast.core.transitions import ItemStatus
from holdfast.engine.campaigns.agents import find_agent
from holdfast.engine.campaigns.changes import pausing_items, resuming_items, retrying_items
from holdfast.engine.campaigns.creating import owned_campaign
from holdfast.engine.ledger.campaign_progress import count_move
from holdfast.store import Tx, Write

PAUSED_BY_OPERATOR = "paused by an operator"
RESTARTED_BY_OPERATOR = "restarted by an operator"


def pausing_agent(
    campaign_id: str,
    agent: str,
    *,
    now: datetime,
    reason: str = PAUSED_BY_OPERATOR,
    owner: str | None = None,
) -> Write[CampaignAgent]:
    """The write that stops an agent at its next step. Its slot is free then, and it stays paused.

    Raises Conflict if its item is done.
    """
    check_id("campaign", campaign_id)
    why = check_text("reason", reason)

    def pause(tx: Tx) -> CampaignAgent:
        campaign, found = _found(tx, campaign_id, agent, owner)
        _refuse_done(found, "paused")
        if found.item_status is not ItemStatus.PAUSED:
            pausing_items(campaign.id, [found.item_id], now=now, phase=found.phase, reason=why)(tx)
        return find_agent(tx, agent, campaign=campaign)

    return pause


def resuming_agent(
    campaign_id: str, agent: str, *, now: datetime, owner: str | None = None
) -> Write[CampaignAgent]:
    """The write that lets a paused agent go on after its last saved step, when it gets a slot.

    One that is not paused stays as it is.
    """
    check_id("campaign", campaign_id)

    def resume(tx: Tx) -> CampaignAgent:
        campaign, found = _found(tx, campaign_id, agent, owner)
        if found.item_status is ItemStatus.PAUSED:
            resuming_items(campaign.id, now=now, item_ids=[found.item_id], phase=found.phase)(tx)
        return find_agent(tx, agent, campaign=campaign)

    return resume


class AgentRestartRequest(msgspec.Struct):
    """One request to restart an agent. It remembers the run that it saw first, because its write may run
    again after its own commit, when the next run may have begun."""

    run_id: str | msgspec.UnsetType | None = msgspec.UNSET

    def sees(self, run_id: str | None) -> bool:
        """Whether that run is the one to cancel."""
        if self.run_id is msgspec.UNSET:
            self.run_id = run_id
        return self.run_id == run_id


def restarting_agent(
    campaign_id: str,
    agent: str,
    *,
    now: datetime,
    reason: str = RESTARTED_BY_OPERATOR,
    owner: str | None = None,
    request: AgentRestartRequest | None = None,
) -> Write[CampaignAgent]:
    """The write that cancels the run of an agent and lets its task go on after its last saved step.

    The worker stops the run at its next step, and without it after the grace. Then the task gets one new run;
    what was saved is not done again. An agent that failed or is paused goes on, too. A second restart before
    the new run exists changes nothing; nor does one whose request has seen another run than the present one:
    then the agent that it returns is still running. Raises Conflict if its item is done.
    """
    check_id("campaign", campaign_id)
    why = check_text("reason", reason)
    asked = AgentRestartRequest() if request is None else request

    def restart(tx: Tx) -> CampaignAgent:
        campaign, found = _found(tx, campaign_id, agent, owner)
        _refuse_done(found, "restarted")
        ids, phase = [found.item_id], found.phase
        if found.item_status is ItemStatus.FAILED:
            retrying_items(campaign.id, now=now, item_ids=ids, phase=phase)(tx)
        elif found.item_status is ItemStatus.PAUSED:
            resuming_items(campaign.id, now=now, item_ids=ids, phase=phase)(tx)
        elif found.item_status is ItemStatus.RUNNING and asked.sees(_run_of(tx, found)):
            pausing_items(campaign.id, ids, now=now, phase=phase, reason=why)(tx)
            _let_go_on(tx, campaign, found, now)
        return find_agent(tx, agent, campaign=campaign)

    return restart


def _found(tx: Tx, campaign_id: str, agent: str, owner: str | None) -> tuple[Campaign, CampaignAgent]:
    campaign = owned_campaign(tx.campaigns.lock(campaign_id), owner)
    return campaign, find_agent(tx, agent, campaign=campaign)


def _refuse_done(agent: CampaignAgent, what: str) -> None:
    if agent.item_status is ItemStatus.DONE:
        raise Conflict(
            f"{agent.id} of {agent.campaign} is done, so it cannot be {what}; look at its result: "
            f"holdfast agents show {agent.id} --campaign {agent.campaign}"
        )


def _run_of(tx: Tx, agent: CampaignAgent) -> str | None:
    run = None if agent.task_id is None else tx.runs.live_of_task(agent.task_id)
    return None if run is None else run.id


def _let_go_on(tx: Tx, campaign: Campaign, agent: CampaignAgent, now: datetime) -> None:
    """It waits for a slot at once; the starter waits for the end of its run."""
    rows: list[ItemPhase] = [
        one
        for one in tx.item_phases.lock_of_items(campaign.id, agent.phase_number, [agent.item_id])
        if one.status is ItemStatus.PAUSED
    ]
    tx.item_phases.go_on(rows, now=now)
    for one in rows:
        count_move(tx, one, ItemStatus.PENDING, now=now)
