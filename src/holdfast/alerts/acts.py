"""What each action of a rule does to its campaign, inside the write that records it."""

from __future__ import annotations

from datetime import datetime

from holdfast.alerts.actions import Act
from holdfast.alerts.figures import ages_from, campaign_figures, ledger_figures, minutes_since
from holdfast.config.alerts import HEARTBEAT
from holdfast.config.conditions import evaluate
from holdfast.core.alert import Alert, AlertActionKind, AlertRule
from holdfast.core.transitions import CampaignStatus, ItemStatus
from holdfast.engine.campaigns.agent_changes import AgentRestartRequest, restarting_agent
from holdfast.engine.campaigns.agents import agent_of_task
from holdfast.engine.campaigns.changes import pausing_campaign
from holdfast.store import Tx

# More agents than this that are silent at once are a host that is gone, and its claims lapse by themselves.
MAX_RESTARTED = 100
_SHOWN = 5


def restart_agent(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> str:
    """Restart every running agent of whose own heartbeat the condition is true now. One that has ended
    meanwhile, or has given a sign of life, is left alone."""
    campaign = tx.campaigns.get(alert.subject)
    since = ages_from(tx)
    figures = ledger_figures(tx, now=now, ages_from=since)
    figures |= campaign_figures(tx, campaign, now=now, ages_from=since)
    restarted: list[str] = []
    for run in tx.alerts.unheard_runs(campaign.id, limit=MAX_RESTARTED):
        if not evaluate(rule.condition, figures | {HEARTBEAT: minutes_since(run.heard_at, now, since)}):
            continue
        agent = agent_of_task(tx, campaign, run.task_id)
        if agent is not None and agent.item_status is ItemStatus.RUNNING:
            silent = AgentRestartRequest(run_id=run.run_id)
            write = restarting_agent(
                campaign.id, agent.id, now=now, reason=f"alert {rule.name}", request=silent
            )
            if write(tx).item_status is not ItemStatus.RUNNING:
                restarted.append(agent.id)
    if not restarted:
        return "no running agent is silent any more"
    more = f" and {len(restarted) - _SHOWN} more" if len(restarted) > _SHOWN else ""
    return f"restarted {', '.join(restarted[:_SHOWN])}{more}"


def pause_campaign(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> str:
    """No more items start; those that run come to their end."""
    campaign = tx.campaigns.get(alert.subject)
    if campaign.status is not CampaignStatus.RUNNING:
        return f"{campaign.name} is {campaign.status.value} already"
    pausing_campaign(alert.subject, now=now, reason=f"alert {rule.name}: {alert.words}"[:500])(tx)
    return f"{campaign.name} is paused; go on: holdfast campaign resume {campaign.name}"


def force_checkpoint(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> str:
    """The service that saves campaigns saves this one at its next pass, also after a restart."""
    campaign = tx.campaigns.get(alert.subject)
    tx.campaign_saves.want(campaign.id, f"alert-{rule.name}", now=now)
    tx.hint("campaigns")
    return f"{campaign.name} is saved now; look: holdfast checkpoints list"


ACTS: dict[AlertActionKind, Act] = {
    AlertActionKind.RESTART_AGENT: restart_agent,
    AlertActionKind.FORCE_CHECKPOINT: force_checkpoint,
    AlertActionKind.PAUSE_CAMPAIGN: pause_campaign,
}
