"""Reports schedules that are overdue because no gateway has their agent or task any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast.core.finding import Finding, FindingCode, Severity
from holdfast.engine.schedules.targets import OVERDUE, without_target
from holdfast.store import Tx

# How many overdue schedules one audit looks at.
MOST_OVERDUE = 1000


def findings_of_schedules(tx: Tx, now: datetime) -> Iterator[Finding]:
    overdue = tx.schedules.due(now=now - OVERDUE, limit=MOST_OVERDUE).schedules
    problems = without_target(tx, overdue, now)
    for one in overdue:
        why = problems.get(one.name)
        if why is None or one.due_at is None:
            continue
        yield Finding(
            code=FindingCode.SCHEDULE_WITHOUT_TARGET,
            severity=Severity.WARNING,
            message=f"schedule {one.name} is due since {one.due_at:%Y-%m-%d %H:%M:%S} UTC, and {why}: "
            "declare it in the settings of a gateway, or remove the schedule",
            evidence={"schedule": one.name, "due_at": one.due_at.isoformat(), "target": one.spec.target},
            repair=f"holdfast cron show {one.name}",
        )
