"""Reads and writes of alerts, of their actions, of watched verdicts and of silences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.alert import Alert, AlertAction, Silence, VerdictKey, WatchedVerdict
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.ids import AlertId
from holdfast.core.task import LOWEST_PRIORITY
from holdfast.core.transitions import AlertActionStatus, AlertStatus
from holdfast.store.contract import Row
from holdfast.store.records import Records
from holdfast.store.rows.alerts import (
    action_from_row,
    alert_from_row,
    row_from_action,
    row_from_alert,
    row_from_silence,
    row_from_verdict,
    silence_from_row,
    verdict_from_row,
)
from holdfast.store.tasks import LAST, resolve

PAGE = 500
MAX_SILENCES = 1000


class UnheardRun(msgspec.Struct, frozen=True, kw_only=True):
    """A running run of a campaign, and when it last gave a sign of life."""

    task_id: str
    run_id: str
    heard_at: datetime


class AlertTable(Records[Alert]):
    noun = "alert"
    has_key = True
    from_row = staticmethod(alert_from_row)
    to_row = staticmethod(row_from_alert)

    def find(self, key: VerdictKey) -> Alert | None:
        """The alert of this rule and subject that is not cleared yet."""
        row = self._sql.one("find_alert", _key(key))
        return None if row is None else alert_from_row(row)

    def resolve(self, prefix: str) -> AlertId:
        return AlertId(resolve(self._tx, "alert", "find_alerts", prefix))

    def move(self, record_id: str, to: StrEnum, *, now: datetime, **guards: object) -> Alert:
        """As for every record; `why` says why it was cleared."""
        return super().move(record_id, to, now=now, **{"why": None} | guards)

    def live(self) -> list[Alert]:
        """All that are not cleared yet; a damaged one is left out, and `holdfast store verify` reports it."""
        found: list[Alert] = []
        after = {"rule": "", "kind": "", "subject": ""}
        while True:
            rows = self._sql.all("live_alerts", after | {"limit": PAGE})
            found += readable(rows)
            if len(rows) < PAGE:
                return found
            after = {"rule": rows[-1][1], "kind": rows[-1][2], "subject": rows[-1][3]}

    def live_of(self, subject: str, *, limit: int) -> list[Alert]:
        """Those of one campaign, oldest first."""
        return readable(self._sql.all("live_alerts_of", {"subject": subject, "limit": limit}))

    def page(self, *, rule: str | None = None, before: str = LAST, limit: int = 50) -> list[Alert]:
        """All, or those of one rule, newest first; the last id of a page is the page token of the next."""
        params: dict[str, object] = {"before": before, "limit": limit}
        if rule is None:
            return readable(self._sql.all("page_of_alerts", params))
        return readable(self._sql.all("page_of_alerts_of_rule", params | {"rule": rule}))

    def prune(self, *, before: datetime, limit: int) -> int:
        """Delete alerts that were cleared before then, with their actions; returns how many."""
        rows = self._sql.all("delete_old_alerts", {"before": to_micros(before), "limit": limit})
        if rows:
            self._sql.run("delete_actions_of_alerts", {"ids": self._sql.pack([row[0] for row in rows])})
            self._tx.count("alert", AlertStatus.CLEARED, -len(rows))
        return len(rows)

    # --- actions

    def add_action(self, action: AlertAction) -> bool:
        """Whether it is new."""
        return self._sql.one("insert_alert_action", row_from_action(action)) is not None

    def actions_of(self, alert_ids: Sequence[str]) -> dict[str, list[AlertAction]]:
        found: dict[str, list[AlertAction]] = {alert_id: [] for alert_id in alert_ids}
        for row in self._sql.all("actions_of_alerts", {"ids": self._sql.pack(alert_ids)}):
            found[row[0]].append(action_from_row(row))
        return found

    def due_actions(self, *, now: datetime, limit: int) -> list[AlertAction]:
        rows = self._sql.all("due_alert_actions", {"now": to_micros(now), "limit": limit})
        return [action_from_row(row) for row in rows]

    def end_action(
        self, action: AlertAction, to: AlertActionStatus, *, outcome: str, now: datetime
    ) -> AlertAction | None:
        """None if it is not pending any more: another gateway did it."""
        params = _action_key(action) | {"to": to.value, "outcome": outcome, "now": to_micros(now)}
        row = self._sql.one("end_alert_action", params)
        return None if row is None else action_from_row(row)

    def put_off_action(
        self, action: AlertAction, *, until: datetime, outcome: str, has_failed: bool, now: datetime
    ) -> AlertAction | None:
        """It is tried again then; None if another gateway has tried it meanwhile."""
        params = _action_key(action) | {
            "attempts": action.attempts,
            "failed": int(has_failed),
            "due_at": to_micros(until),
            "outcome": outcome,
            "now": to_micros(now),
        }
        row = self._sql.one("put_off_alert_action", params)
        return None if row is None else action_from_row(row)

    # --- what figures are made of

    def last_change(self, campaign_id: str) -> datetime | None:
        """When an item of the campaign last changed in a phase."""
        row = self._sql.one("last_change_of_campaign", {"campaign_id": campaign_id})
        return None if row is None else from_micros(row[0])

    def unheard_runs(self, campaign_id: str, *, limit: int) -> list[UnheardRun]:
        """Those that gave no sign of life for the longest come first."""
        params = {"campaign_id": campaign_id, "limit": limit}
        return [
            UnheardRun(task_id=row[0], run_id=row[1], heard_at=from_micros(row[2]))
            for row in self._sql.all("unheard_runs_of_campaign", params)
        ]

    def oldest_ready(self) -> datetime | None:
        """When the run that waits longest for a worker became due."""
        rows = [
            self._sql.one("oldest_ready_run", {"priority": priority})
            for priority in range(LOWEST_PRIORITY + 1)
        ]
        return min((from_micros(row[0]) for row in rows if row is not None), default=None)

    # --- verdicts and silences

    def verdicts(self) -> dict[VerdictKey, WatchedVerdict]:
        found: dict[VerdictKey, WatchedVerdict] = {}
        after = {"rule": "", "kind": "", "subject": ""}
        while True:
            rows = self._sql.all("alert_verdicts", after | {"limit": PAGE})
            found |= {one.key: one for one in map(verdict_from_row, rows)}
            if len(rows) < PAGE:
                return found
            after = {"rule": rows[-1][0], "kind": rows[-1][1], "subject": rows[-1][2]}

    def set_verdict(self, verdict: WatchedVerdict, seen: WatchedVerdict | None) -> bool:
        """Remember it, if it is still as it was seen; None for one that was not remembered."""
        if seen is None:
            return self._sql.one("insert_alert_verdict", row_from_verdict(verdict)) is not None
        params = row_from_verdict(msgspec.structs.replace(verdict, revision=seen.revision))
        return self._sql.one("change_alert_verdict", params) is not None

    def forget_verdict(self, seen: WatchedVerdict) -> bool:
        params = _key(seen.key) | {"revision": seen.revision}
        return self._sql.one("delete_alert_verdict", params) is not None

    def see_verdicts(self, place: str, *, before: datetime, now: datetime) -> None:
        """The gateway at this place still watches its verdicts."""
        params = {"place": place, "before": to_micros(before), "now": to_micros(now)}
        self._sql.run("see_alert_verdicts", params)

    def silence(self, silence: Silence) -> None:
        self._sql.run("set_alert_silence", row_from_silence(silence))

    def end_silences(self, *, now: datetime) -> None:
        self._sql.run("delete_alert_silences", {"now": to_micros(now)})

    def silences(self) -> dict[str, Silence]:
        """By the name of the rule."""
        rows = self._sql.all("alert_silences", {"limit": MAX_SILENCES})
        return {one.rule: one for one in map(silence_from_row, rows)}


def readable(rows: Sequence[Row]) -> list[Alert]:
    """The alerts that can be read: a damaged one must not hide the others."""
    found = []
    for row in rows:
        try:
            found.append(alert_from_row(row))
        except RowDamaged:
            continue
    return found


def _key(key: VerdictKey) -> dict[str, object]:
    rule, kind, subject = key
    return {"rule": rule, "kind": kind.value, "subject": subject}


def _action_key(action: AlertAction) -> dict[str, object]:
    return {"alert_id": action.alert_id, "action": action.action.value}
