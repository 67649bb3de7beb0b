"""AlertView, AlertRuleView, AlertCheckView: alerts, their rules, and rules against the live figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.alerts.checking import CheckedRule, CheckedRules, CheckedSubject
from holdfast.core.alert import (
    LEDGER,
    Alert,
    AlertAction,
    AlertActionKind,
    AlertRule,
    AlertSeverity,
    Silence,
    VerdictKind,
)
from holdfast.core.transitions import AlertActionStatus, AlertStatus
from holdfast.views.text import maybe_line, one_line

MAX_WORDS_CHARS = 600


class AlertActionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One action of an alert. A pending one that was put off says why in `outcome`."""

    action: AlertActionKind
    status: AlertActionStatus
    attempts: int
    outcome: str | None
    updated_at: datetime

    @classmethod
    def of(cls, action: AlertAction) -> AlertActionView:
        return cls(
            action=action.action,
            status=action.status,
            attempts=action.attempts,
            outcome=maybe_line(action.outcome),
            updated_at=action.updated_at,
        )


class AlertView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One time that a rule was true, from its raise to its clear."""

    id: str
    rule: str
    # `condition`, or `failure` if the rule could not be evaluated.
    kind: VerdictKind
    # Null for a rule over the whole ledger.
    campaign_id: str | None
    campaign: str | None
    severity: AlertSeverity
    status: AlertStatus
    # The condition with its figures, in one line.
    words: str
    figures: dict[str, float]
    raised_at: datetime
    cleared_at: datetime | None
    why_cleared: str | None
    actions: list[AlertActionView]

    @classmethod
    def of(cls, alert: Alert, actions: Sequence[AlertAction] = ()) -> AlertView:
        is_of_ledger = alert.subject == LEDGER
        return cls(
            id=one_line(alert.id),
            rule=one_line(alert.rule),
            kind=alert.kind,
            campaign_id=None if is_of_ledger else one_line(alert.subject),
            campaign=None if is_of_ledger else one_line(alert.subject_name),
            severity=alert.severity,
            status=alert.status,
            words=one_line(alert.words, MAX_WORDS_CHARS),
            figures={one_line(name): value for name, value in alert.figures.items()},
            raised_at=alert.raised_at,
            cleared_at=alert.cleared_at,
            why_cleared=maybe_line(alert.why_cleared),
            actions=[AlertActionView.of(one) for one in actions],
        )


class AlertPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of alerts, newest first."""

    alerts: list[AlertView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class AlertRuleView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One rule of the settings."""

    name: str
    condition: str
    # What it is evaluated for: each `campaign` that runs, or the `ledger`.
    scope: str
    severity: AlertSeverity
    actions: list[AlertActionKind]
    raise_after_s: float
    clear_after_s: float
    # Null: the alert is cleared when the condition is false.
    clear_when: str | None
    # Empty for all.
    campaigns: list[str]
    # Where its notices go; empty if there is no channel.
    channels: list[str]
    # Until then it notifies no person and does nothing; null if it is not silenced.
    silenced_until: datetime | None

    @classmethod
    def of(cls, rule: AlertRule, *, channels: Sequence[str], silence: Silence | None) -> AlertRuleView:
        return cls(
            name=one_line(rule.name),
            condition=one_line(rule.condition.text, MAX_WORDS_CHARS),
            scope=rule.condition.scope.value,
            severity=rule.severity,
            actions=list(rule.actions),
            raise_after_s=rule.raise_after.total_seconds(),
            clear_after_s=rule.clear_after.total_seconds(),
            clear_when=None if rule.clear_when is None else one_line(rule.clear_when.text, MAX_WORDS_CHARS),
            campaigns=[one_line(one) for one in rule.campaigns],
            channels=[one_line(one) for one in rule.channels or channels],
            silenced_until=None if silence is None else silence.until,
        )


class AlertRulesView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The rules that are evaluated."""

    rules: list[AlertRuleView] = []


class CheckedFiguresView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All figures of the ledger, or of one running campaign."""

    campaign_id: str | None
    campaign: str | None
    figures: dict[str, float]
    # Why they cannot be read.
    problem: str | None

    @classmethod
    def of(cls, subject: CheckedSubject) -> CheckedFiguresView:
        is_of_ledger = subject.id == LEDGER
        return cls(
            campaign_id=None if is_of_ledger else one_line(subject.id),
            campaign=None if is_of_ledger else one_line(subject.name),
            figures={name: round(value, 4) for name, value in subject.figures.items()},
            problem=maybe_line(subject.problem),
        )


class CheckedRuleView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One rule and what it is about now."""

    rule: str
    campaign_id: str | None
    campaign: str | None
    condition: str
    # Null if it cannot be evaluated; then `problem` says why.
    is_true: bool | None
    # The figures that it names.
    figures: dict[str, float]
    problem: str | None

    @classmethod
    def of(cls, checked: CheckedRule) -> CheckedRuleView:
        is_of_ledger = checked.subject == LEDGER
        return cls(
            rule=one_line(checked.rule.name),
            campaign_id=None if is_of_ledger else one_line(checked.subject),
            campaign=None if is_of_ledger else one_line(checked.name),
            condition=one_line(checked.rule.condition.text, MAX_WORDS_CHARS),
            is_true=checked.is_true,
            figures=checked.figures,
            problem=maybe_line(checked.problem),
        )


class AlertCheckView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Every rule against the live figures. Nothing is raised, and nothing is done."""

    rules: list[CheckedRuleView] = []
    subjects: list[CheckedFiguresView] = []
    # Whether more campaigns run than were looked at.
    has_more: bool = False

    @classmethod
    def of(cls, checked: CheckedRules) -> AlertCheckView:
        return cls(
            rules=[CheckedRuleView.of(one) for one in checked.rules],
            subjects=[CheckedFiguresView.of(one) for one in checked.subjects],
            has_more=checked.has_more,
        )


class SilencedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule and until when it is silent; null if a silence was ended."""

    rule: str
    silenced_until: datetime | None
    reason: str | None


def alert_views(alerts: Sequence[Alert], actions: Mapping[str, Sequence[AlertAction]]) -> list[AlertView]:
    return [AlertView.of(one, actions.get(one.id, ())) for one in alerts]
