"""The words of notices about alerts, and their deliveries: one for each channel, once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.alert import LEDGER, Alert, AlertAction, AlertActionKind, VerdictKind
from holdfast.core.delivery import Delivery, DeliveryText
from holdfast.core.ids import DeliveryId, TaskId, derived_id
from holdfast.core.payload import clean_text
from holdfast.core.task import Origin
from holdfast.core.transitions import AlertActionStatus
from holdfast.store import Tx

MAX_TEXT_CHARS = 2000
NO_CHANNEL = (
    "no channel leads to a person: set gateway.alert_urls, or declare a channel of kind apprise, or name a "
    "channel in the rule"
)


def owe_notice(
    tx: Tx, alert: Alert, action: AlertActionKind, text: str, channels: Sequence[str], *, now: datetime
) -> None:
    """Owe the notice to each channel; the outbox sends it. The same notice again changes nothing."""
    letter = msgspec.json.encode(DeliveryText(text=clean_text(text, max_chars=MAX_TEXT_CHARS)))
    for channel in channels:
        key = f"alert:{alert.id}:{action.value}:{channel}"
        tx.deliveries.create(
            Delivery(
                id=DeliveryId(derived_id("dlv", now, key)),
                task_id=TaskId(""),
                idempotency_key=key,
                origin=Origin(channel=channel),
                message=letter,
                created_at=now,
                due_at=now,
                updated_at=now,
            )
        )
    tx.hint("deliveries")


def words_of(alert: Alert, action: AlertAction, others: Sequence[AlertAction], *, is_late: bool) -> str:
    """The text of one notice. A late one was held back by quiet hours, and says so."""
    if action.action is AlertActionKind.NOTIFY_CLEARED:
        assert alert.cleared_at is not None
        return f"{_title(alert, 'over')}\n{alert.why_cleared or 'it is over'}, at {_at(alert.cleared_at)}"
    if action.action is AlertActionKind.NOTIFY_FAILED:
        failed = [one for one in others if one.status is AlertActionStatus.FAILED]
        lines = [f"{one.action.value} was given up: {one.outcome}" for one in failed]
        return "\n".join([_title(alert, alert.severity.value), *lines, _look(alert)])
    lines = [_title(alert, alert.severity.value), alert.words, f"since {_at(alert.raised_at)}"]
    if is_late:
        lines.append("this notice was held back by quiet hours")
    if alert.cleared_at is not None:
        lines.append(f"over since {_at(alert.cleared_at)}: {alert.why_cleared or 'it is over'}")
    return "\n".join([*lines, _look(alert), f"silence it: holdfast alerts silence {alert.rule} 2h"])


def _title(alert: Alert, what: str) -> str:
    about = "" if alert.subject == LEDGER else f" of {alert.subject_name}"
    return f"[{what}] {alert.rule}{about}"


def _look(alert: Alert) -> str:
    if alert.kind is VerdictKind.FAILURE:
        return "mend the rule, then try it: holdfast alerts check"
    if alert.subject == LEDGER:
        return "look at it: holdfast status"
    return f"look at it: holdfast progress {alert.subject_name}"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
