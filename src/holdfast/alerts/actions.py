"""The write that does one action of an alert and records its outcome: both happen, or neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from holdfast.alerts.notices import NO_CHANNEL, owe_notice, words_of
from holdfast.core.alert import (
    MAX_ATTEMPTS,
    MAX_OUTCOME_CHARS,
    NOTICES,
    Alert,
    AlertAction,
    AlertActionKind,
    AlertRule,
    pause_after,
)
from holdfast.core.errors import HoldfastError, StoreUnavailable
from holdfast.core.events import EventKind
from holdfast.core.payload import clean_text
from holdfast.core.quiet_hours import QuietHours
from holdfast.core.transitions import AlertActionStatus, AlertStatus
from holdfast.store import Tx, Write

# How often a notice that cannot be sent yet is looked at, so that changed settings count soon.
_LOOK_AGAIN = timedelta(minutes=15)
_DONE, _FAILED, _SKIPPED = AlertActionStatus.DONE, AlertActionStatus.FAILED, AlertActionStatus.SKIPPED

# Does the action for an alert inside a write, and says in a few words what it did. Raises HoldfastError.
Act: TypeAlias = "Callable[[Tx, Alert, AlertRule, datetime], str]"


class AlertOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say about alerts."""

    rules: tuple[AlertRule, ...] = ()
    # Where notices go if the rule names no channel.
    channels: tuple[str, ...] = ()
    quiet_hours: QuietHours | None = None

    @property
    def by_name(self) -> dict[str, AlertRule]:
        return {rule.name: rule for rule in self.rules}


class _DoneElsewhere(HoldfastError):
    """Another gateway did the action meanwhile: what this write did is undone."""

    code = "done_elsewhere"


def performing(
    action: AlertAction, options: AlertOptions, acts: Mapping[AlertActionKind, Act], *, now: datetime
) -> Write[AlertAction | None]:
    """The write that does an action once; None if another gateway did. Raises HoldfastError if the action
    failed; then nothing has changed, and `putting_off` records it."""

    def perform(tx: Tx) -> AlertAction | None:
        alert = tx.alerts.get(action.alert_id)
        present = {one.action: one for one in tx.alerts.actions_of([alert.id])[alert.id]}
        pending = present.get(action.action)
        if pending is None or pending.status is not AlertActionStatus.PENDING:
            return None
        rule = options.by_name.get(alert.rule)
        if action.action in NOTICES:
            return _notify(tx, alert, pending, list(present.values()), rule, options, now)
        if alert.status is AlertStatus.CLEARED:
            return _end(tx, alert, pending, _SKIPPED, "the alert was cleared before", now)
        if rule is None:
            return _end(tx, alert, pending, _SKIPPED, "the settings have no such rule any more", now)
        outcome = acts[action.action](tx, alert, rule, now)
        return _end(tx, alert, pending, _DONE, outcome, now)

    return perform


def putting_off(action: AlertAction, error: Exception, *, now: datetime) -> Write[AlertAction | None]:
    """The write that records a failed attempt: the action is tried again later, or given up and told."""
    why = clean_text(str(error) or type(error).__name__, max_chars=MAX_OUTCOME_CHARS)

    def put_off(tx: Tx) -> AlertAction | None:
        number = action.attempts + 1
        put = tx.alerts.put_off_action(
            action, until=now + pause_after(number), outcome=why, has_failed=True, now=now
        )
        if put is None or number < MAX_ATTEMPTS:
            return put
        alert = tx.alerts.get(action.alert_id)
        ended = _end(tx, alert, put, _FAILED, f"{why} (after {number} attempts)", now)
        if action.action not in NOTICES:
            notice = AlertAction(
                alert_id=alert.id, action=AlertActionKind.NOTIFY_FAILED, due_at=now, updated_at=now
            )
            tx.alerts.add_action(notice)
        return ended

    return put_off


def _notify(
    tx: Tx,
    alert: Alert,
    action: AlertAction,
    others: list[AlertAction],
    rule: AlertRule | None,
    options: AlertOptions,
    now: datetime,
) -> AlertAction | None:
    quiet = options.quiet_hours
    if quiet is not None and quiet.holds(alert.severity, now):
        until = quiet.ends_at(now)
        outcome = f"held back by quiet hours until {until:%Y-%m-%d %H:%M} UTC"
        return tx.alerts.put_off_action(
            action, until=min(until, now + _LOOK_AGAIN), outcome=outcome, has_failed=False, now=now
        )
    channels = (rule.channels if rule is not None else ()) or options.channels
    if not channels and alert.status is AlertStatus.CLEARED:
        return _end(tx, alert, action, _FAILED, NO_CHANNEL, now)
    if not channels:
        # A channel that is declared later gets the notice of an alert that is still raised.
        return tx.alerts.put_off_action(
            action, until=now + _LOOK_AGAIN, outcome=NO_CHANNEL, has_failed=False, now=now
        )
    text = words_of(alert, action, others, is_late=action.outcome is not None)
    owe_notice(tx, alert, action.action, text, channels, now=now)
    return _end(tx, alert, action, _DONE, f"sent to {', '.join(channels)}", now)


def _end(
    tx: Tx, alert: Alert, action: AlertAction, to: AlertActionStatus, outcome: str, now: datetime
) -> AlertAction:
    outcome = clean_text(outcome, max_chars=MAX_OUTCOME_CHARS)
    ended = tx.alerts.end_action(action, to, outcome=outcome, now=now)
    if ended is None:
        raise _DoneElsewhere(f"{action.action.value} of {alert.id} was done by another gateway")
    tx.emit(
        EventKind.ALERT_ACTION_ENDED,
        alert.id,
        at=now,
        rule=alert.rule,
        subject=alert.subject,
        action=action.action.value,
        status=to.value,
        outcome=outcome,
    )
    return ended


def is_failure(error: Exception) -> bool:
    """Whether the action itself failed: if the ledger is away, it is simply tried again."""
    return not isinstance(error, (StoreUnavailable, _DoneElsewhere))
