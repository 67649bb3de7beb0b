"""Reports rules of alerts that cannot be evaluated with the present figures."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.alert import LEDGER, VerdictKind
from holdfast.core.finding import Finding, FindingCode, Severity
from holdfast.store import Tx


def findings_of_rules(tx: Tx) -> Iterator[Finding]:
    """One for each rule and subject, from the alert that the failure raised."""
    for alert in tx.alerts.live():
        if alert.kind is not VerdictKind.FAILURE:
            continue
        about = "" if alert.subject == LEDGER else f" for {alert.subject_name}"
        yield Finding(
            code=FindingCode.ALERT_RULE_FAILED,
            severity=Severity.WARNING,
            record_ids=(alert.id,),
            message=f"the rule {alert.rule} cannot be evaluated{about}: {alert.problem}",
            evidence={"rule": alert.rule, "since": alert.raised_at.isoformat(), "problem": alert.problem},
            repair=f"holdfast alerts check {alert.rule}",
        )
