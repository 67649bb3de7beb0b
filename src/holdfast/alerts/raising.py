"""The writes that raise, silence and clear alerts, each of them once.

Of several gateways that see the same, one makes each change: the revision of the verdict decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.alerts.figures import figures_of
from holdfast.config.conditions import evaluate
from holdfast.core.alert import (
    Alert,
    AlertAction,
    AlertActionKind,
    AlertRule,
    Silence,
    VerdictKey,
    VerdictKind,
    WatchedVerdict,
)
from holdfast.core.errors import IllegalMove
from holdfast.core.events import EventKind
from holdfast.core.ids import new_alert_id
from holdfast.core.payload import clean_text
from holdfast.core.transitions import AlertActionStatus, AlertStatus
from holdfast.store import Tx, Write

MAX_PROBLEM_CHARS = 300


class SeenVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict as one look at the ledger saw it, and what is known about it now."""

    rule: AlertRule
    kind: VerdictKind
    subject: str
    subject_name: str
    # As the ledger has it; None if it is not remembered.
    verdict: WatchedVerdict | None
    alert: Alert | None
    figures: dict[str, float] = {}
    problem: str | None = None

    @property
    def key(self) -> VerdictKey:
        return self.rule.name, self.kind, self.subject

    def turned(self, is_true: bool, *, place: str, now: datetime) -> WatchedVerdict:
        return WatchedVerdict(
            rule=self.rule.name,
            kind=self.kind,
            subject=self.subject,
            digest=self.rule.digest,
            place=place,
            is_true=is_true,
            since=now,
            seen_at=now,
        )


def turning(seen: SeenVerdict, is_true: bool, *, place: str, now: datetime) -> Write[bool]:
    """The write that remembers since when a rule is true, or false; False if another gateway was first."""
    return lambda tx: tx.alerts.set_verdict(seen.turned(is_true, place=place, now=now), seen.verdict)


def forgetting(verdict: WatchedVerdict) -> Write[bool]:
    """The write after which a verdict that is false is not remembered."""
    return lambda tx: tx.alerts.forget_verdict(verdict)


def raising(seen: SeenVerdict, *, place: str, now: datetime) -> Write[Alert | None]:
    """The write that raises an alert with its actions; None if another gateway did, or if the condition is
    not true any more: this process may have been frozen since it looked. While the rule is silenced, the
    alert is only recorded."""
    alert = Alert(
        id=new_alert_id(now),
        rule=seen.rule.name,
        kind=seen.kind,
        subject=seen.subject,
        subject_name=seen.subject_name,
        severity=seen.rule.severity,
        condition=seen.rule.condition.text,
        figures=seen.figures,
        problem=None if seen.problem is None else clean_text(seen.problem, max_chars=MAX_PROBLEM_CHARS),
        raised_at=now,
        updated_at=now,
    )

    def raise_it(tx: Tx) -> Alert | None:
        if seen.kind is VerdictKind.CONDITION and not is_still_true(tx, seen.rule, seen.subject, now):
            return None
        verdict = seen.turned(True, place=place, now=now)
        if seen.verdict is not None and seen.verdict.is_true:
            verdict = msgspec.structs.replace(verdict, since=seen.verdict.since)
        if not tx.alerts.set_verdict(verdict, seen.verdict):
            return None
        is_silent = _is_silent(tx.alerts.silences(), seen.rule.name, now)
        status = AlertStatus.SILENCED if is_silent else AlertStatus.RAISED
        kept = tx.alerts.create(msgspec.structs.replace(alert, status=status))
        if kept.id != alert.id:
            return None
        tx.count("alert", status, 1)
        tx.emit(
            EventKind.ALERT_RAISED,
            kept.id,
            at=now,
            rule=kept.rule,
            subject=kept.subject,
            name=kept.subject_name,
            severity=kept.severity.value,
            status=kept.status.value,
            words=kept.words,
        )
        if not is_silent:
            _add_actions(tx, kept, seen.rule, now)
        return kept

    return raise_it


def is_still_true(tx: Tx, rule: AlertRule, subject: str, now: datetime) -> bool:
    """Whether the condition is true of what the ledger says in this write. Raises HoldfastError."""
    return evaluate(rule.condition, figures_of(tx, subject, now=now))


def clearing(
    alert: Alert, verdict: WatchedVerdict | None, *, why: str, rule: AlertRule | None, now: datetime
) -> Write[Alert | None]:
    """The write that clears an alert; None if another gateway did. Without a rule no person is told."""

    def clear(tx: Tx) -> Alert | None:
        if verdict is not None and not tx.alerts.forget_verdict(verdict):
            return None
        found = tx.alerts.get(alert.id)
        try:
            cleared = tx.alerts.move(alert.id, AlertStatus.CLEARED, now=now, why=why)
        except IllegalMove:  # another gateway was first
            return None
        tx.moved("alert", found.status, AlertStatus.CLEARED)
        tx.emit(
            EventKind.ALERT_CLEARED,
            alert.id,
            at=now,
            rule=alert.rule,
            subject=alert.subject,
            name=alert.subject_name,
            why=why,
        )
        was_told = any(
            one.action is AlertActionKind.NOTIFY_HUMAN and one.status is AlertActionStatus.DONE
            for one in tx.alerts.actions_of([alert.id])[alert.id]
        )
        if was_told and rule is not None and found.status is AlertStatus.RAISED:
            _add_action(tx, cleared, AlertActionKind.NOTIFY_CLEARED, now)
        return cleared

    return clear


def silencing(silence: Silence) -> Write[Silence]:
    """The write that silences a rule until then; it replaces an earlier silence. One that is over already
    ends it."""

    def silence_it(tx: Tx) -> Silence:
        tx.alerts.silence(silence)
        tx.emit(
            EventKind.ALERT_RULE_SILENCED,
            silence.rule,
            at=silence.created_at,
            rule=silence.rule,
            until=silence.until.isoformat(),
            by=silence.silenced_by,
            reason=silence.reason,
        )
        tx.hint("alerts")
        return silence

    return silence_it


def moving_to_silence(
    alerts: list[Alert], rules: Mapping[str, AlertRule], *, now: datetime
) -> Write[list[Alert]]:
    """The write that silences raised alerts of silenced rules, and raises those whose silence is over; their
    actions are then done, if they were not before."""

    def move(tx: Tx) -> list[Alert]:
        silences = tx.alerts.silences()
        moved = []
        for one in alerts:
            found = tx.alerts.get(one.id)
            to = AlertStatus.SILENCED if _is_silent(silences, one.rule, now) else AlertStatus.RAISED
            if found.status in (to, AlertStatus.CLEARED):
                continue
            try:
                moved.append(tx.alerts.move(one.id, to, now=now))
            except IllegalMove:  # another gateway was first
                continue
            tx.moved("alert", found.status, to)
            tx.emit(
                EventKind.ALERT_MOVED, one.id, at=now, rule=one.rule, subject=one.subject, status=to.value
            )
            if to is AlertStatus.RAISED and one.rule in rules:
                _add_actions(tx, found, rules[one.rule], now)
        tx.alerts.end_silences(now=now)
        return moved

    return move


def is_to_move(alert: Alert, silences: Mapping[str, Silence], now: datetime) -> bool:
    """Whether the status of an alert disagrees with the silence of its rule."""
    return _is_silent(silences, alert.rule, now) is not (alert.status is AlertStatus.SILENCED)


def _is_silent(silences: Mapping[str, Silence], rule: str, now: datetime) -> bool:
    silence = silences.get(rule)
    return silence is not None and now < silence.until


def _add_actions(tx: Tx, alert: Alert, rule: AlertRule, now: datetime) -> None:
    """A rule that cannot be evaluated only tells a person."""
    actions = (AlertActionKind.NOTIFY_HUMAN,) if alert.kind is VerdictKind.FAILURE else rule.actions
    for action in actions:
        _add_action(tx, alert, action, now)


def _add_action(tx: Tx, alert: Alert, action: AlertActionKind, now: datetime) -> None:
    tx.alerts.add_action(AlertAction(alert_id=alert.id, action=action, due_at=now, updated_at=now))
