"""What each action of a rule does to its campaign, inside the write that records it."""

from __future__ import annotations

from datetime import datetime

from holdfast.alerts.actions import Act
from holdfast.alerts.figures import ages_from, figures_of, minutes_since
from holdfast.alerts.raising import is_still_true
from holdfast.config.alerts import HEARTBEAT
from holdfast.config.conditions import evaluate
from holdfast.core.alert import Alert, AlertActionKind, AlertRule
from holdfast.core.campaign import Campaign
from holdfast.core.events import EventKind
from holdfast.core.transitions import AlertActionStatus, AlertStatus, CampaignStatus, ItemStatus
from holdfast.engine.campaigns.agent_changes import AgentRestartRequest, restarting_agent
from holdfast.engine.campaigns.agents import agent_of_task
from holdfast.engine.campaigns.changes import pausing_campaign
from holdfast.store import Tx, Write

# In one write; the next pass restarts more, while the alert is raised.
MAX_RESTARTED = 100
_SHOWN = 5


def restart_agent(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> str:
    """Restart every running agent of whose own heartbeat the condition is true now. One that has ended
    meanwhile, or has given a sign of life, is left alone."""
    return told_restarts(restart_silent(tx, alert, rule, now)) or "no running agent is silent any more"


def restart_silent(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> list[str]:
    """Restart the agents that are silent for so long; an agent that waits for its next run is not restarted
    again. Returns their ids."""
    campaign = tx.campaigns.get(alert.subject)
    restarted: list[str] = []
    for agent_id, run_id in silent_agents(tx, campaign, rule, now):
        write = restarting_agent(
            campaign.id,
            agent_id,
            now=now,
            reason=f"alert {rule.name}",
            request=AgentRestartRequest(run_id=run_id),
        )
        if write(tx).item_status is not ItemStatus.RUNNING:
            restarted.append(agent_id)
    return restarted


def silent_agents(tx: Tx, campaign: Campaign, rule: AlertRule, now: datetime) -> list[tuple[str, str]]:
    """The running agents of whose own heartbeat the condition is true, each with its run."""
    since = ages_from(tx)
    figures = figures_of(tx, campaign.id, now=now)
    found = []
    for run in tx.alerts.unheard_runs(campaign.id, limit=MAX_RESTARTED):
        if evaluate(rule.condition, figures | {HEARTBEAT: minutes_since(run.heard_at, now, since)}):
            agent = agent_of_task(tx, campaign, run.task_id)
            if agent is not None and agent.item_status is ItemStatus.RUNNING:
                found.append((agent.id, run.run_id))
    return found


def told_restarts(restarted: list[str]) -> str:
    if not restarted:
        return ""
    more = f" and {len(restarted) - _SHOWN} more" if len(restarted) > _SHOWN else ""
    return f"restarted {', '.join(restarted[:_SHOWN])}{more}"


def restarting_more(alert_id: str, rule: AlertRule, *, now: datetime) -> Write[None]:
    """The write that restarts agents which fell silent after the action of a raised alert was done."""

    def restart_more(tx: Tx) -> None:
        alert = tx.alerts.get(alert_id)
        action = {one.action: one for one in tx.alerts.actions_of([alert_id])[alert_id]}.get(
            AlertActionKind.RESTART_AGENT
        )
        if alert.status is not AlertStatus.RAISED or action is None:
            return
        if action.status is AlertActionStatus.PENDING:  # it is still to be done for all of them
            return
        restarted = restart_silent(tx, alert, rule, now)
        if restarted:
            tx.emit(
                EventKind.ALERT_ACTION_ENDED,
                alert.id,
                at=now,
                rule=alert.rule,
                subject=alert.subject,
                action=AlertActionKind.RESTART_AGENT.value,
                status=AlertActionStatus.DONE.value,
                outcome=told_restarts(restarted),
            )

    return restart_more


def pause_campaign(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> str:
    """No more items start; those that run come to their end. If the condition is not true any more, the
    campaign goes on: the process that looked may have been frozen since."""
    campaign = tx.campaigns.get(alert.subject)
    if not is_still_true(tx, rule, alert.subject, now):
        return f"{campaign.name} goes on: the condition is not true any more"
    if campaign.status is not CampaignStatus.RUNNING:
        return f"{campaign.name} is {campaign.status.value} already"
    pausing_campaign(alert.subject, now=now, reason=f"alert {rule.name}: {alert.words}"[:500])(tx)
    return f"{campaign.name} is paused; go on: holdfast campaign resume {campaign.name}"


def force_checkpoint(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> str:
    """The service that saves campaigns saves this one at its next pass, also after a restart."""
    campaign = tx.campaigns.get(alert.subject)
    tx.campaign_saves.want(campaign.id, f"alert-{rule.name}", now=now)
    tx.hint("campaigns")
    return f"{campaign.name} is saved now; look: holdfast checkpoints list --campaign {campaign.name}"


ACTS: dict[AlertActionKind, Act] = {
    AlertActionKind.RESTART_AGENT: restart_agent,
    AlertActionKind.FORCE_CHECKPOINT: force_checkpoint,
    AlertActionKind.PAUSE_CAMPAIGN: pause_campaign,
}
