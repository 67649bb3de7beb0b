"""The raised alerts of a campaign, as short lines for a document that an agent reads."""

from __future__ import annotations

from holdfast.core.alert import Alert, VerdictKind, in_short
from holdfast.core.transitions import AlertStatus
from holdfast.store import Tx

MOST_ISSUES = 5
_MAX_CHARS = 100


def issues_of(tx: Tx, campaign_id: str, *, limit: int = MOST_ISSUES) -> list[str]:
    """The most severe ones first; those of silenced rules are left out."""
    found = tx.alerts.live_of(campaign_id, limit=100)
    raised = [one for one in found if one.status is AlertStatus.RAISED]
    # `critical` comes before `info` and `warning`, and of two equal ones the older one.
    raised.sort(key=lambda one: (one.severity != "critical", one.severity == "info", one.id))
    return [_line(one) for one in raised[:limit]]


def _line(alert: Alert) -> str:
    if alert.kind is VerdictKind.FAILURE:
        what = "the rule cannot be evaluated"
    else:
        what = ", ".join(f"{name} {in_short(value)}" for name, value in sorted(alert.figures.items()))
    return f"{alert.severity.value}: {alert.rule} ({what})"[:_MAX_CHARS]
