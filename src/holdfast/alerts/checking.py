"""Evaluates rules once against the live figures, without raising anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.alerts.figures import Figures, ages_from, campaign_figures, ledger_figures
from holdfast.config.conditions import ConditionFailed, evaluate
from holdfast.core.alert import LEDGER, AlertRule
from holdfast.core.alert_condition import FigureScope
from holdfast.core.errors import RowDamaged
from holdfast.core.transitions import CampaignStatus
from holdfast.store import Tx

# How many running campaigns are looked at.
MAX_CAMPAIGNS = 100


class CheckedSubject(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of the ledger, or of one running campaign; or why they cannot be read."""

    id: str
    name: str
    figures: Figures
    problem: str | None = None


class CheckedRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule and one subject: whether the condition is true, or why it cannot be evaluated."""

    rule: AlertRule
    subject: str
    name: str
    is_true: bool | None
    figures: Figures
    problem: str | None = None


class CheckedRules(msgspec.Struct, frozen=True, kw_only=True):
    """The subjects with their figures, and each rule for each of them."""

    subjects: list[CheckedSubject]
    rules: list[CheckedRule]
    # Whether there are more running campaigns than were looked at.
    has_more: bool = False


def check_rules(tx: Tx, rules: Sequence[AlertRule], *, now: datetime) -> CheckedRules:
    since = ages_from(tx)
    ledger = ledger_figures(tx, now=now, ages_from=since)
    subjects = [CheckedSubject(id=LEDGER, name=LEDGER, figures=ledger)]
    campaigns = tx.campaigns.in_status(CampaignStatus.RUNNING, limit=MAX_CAMPAIGNS + 1)
    for campaign in campaigns[:MAX_CAMPAIGNS]:
        try:
            found, problem = campaign_figures(tx, campaign, now=now, ages_from=since), None
        except RowDamaged as error:
            found, problem = {}, str(error)
        subjects.append(CheckedSubject(id=campaign.id, name=campaign.name, figures=found, problem=problem))
    checked = [_checked(rule, one, ledger) for rule in rules for one in subjects if _is_about(rule, one)]
    return CheckedRules(subjects=subjects, rules=checked, has_more=len(campaigns) > MAX_CAMPAIGNS)


def _is_about(rule: AlertRule, subject: CheckedSubject) -> bool:
    if rule.condition.scope is FigureScope.LEDGER:
        return subject.id == LEDGER
    return subject.id != LEDGER and rule.is_about(subject.name)


def _checked(rule: AlertRule, subject: CheckedSubject, ledger: Figures) -> CheckedRule:
    figures = ledger | subject.figures
    shown = {name: round(float(figures[name]), 4) for name in sorted(rule.condition.names) if name in figures}
    is_true, problem = None, subject.problem
    if problem is None:
        try:
            is_true = evaluate(rule.condition, figures)
        except ConditionFailed as error:
            problem = str(error)
    return CheckedRule(
        rule=rule, subject=subject.id, name=subject.name, is_true=is_true, figures=shown, problem=problem
    )
