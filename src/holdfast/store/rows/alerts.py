"""Rows of alerts, of their actions, of watched verdicts and of silences."""

from __future__ import annotations

import msgspec

from holdfast.core.alert import (
    Alert,
    AlertAction,
    AlertActionKind,
    AlertSeverity,
    Silence,
    VerdictKind,
    WatchedVerdict,
)
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.payload import digest_of
from holdfast.core.transitions import AlertActionStatus, AlertStatus
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, encode, micros_of, moment_of, reads

_figures = msgspec.json.Decoder(dict[str, float]).decode


@reads("alert")
def alert_from_row(row: Row) -> Alert:
    if digest_of(*row[:10]) != row[10]:
        raise RowDamaged("alert", row[0])
    return Alert(
        id=row[0],
        rule=row[1],
        kind=VerdictKind(row[2]),
        subject=row[3],
        subject_name=row[4],
        severity=AlertSeverity(row[5]),
        condition=row[6],
        figures=_figures(row[7]),
        problem=row[8],
        raised_at=from_micros(row[9]),
        status=AlertStatus(row[11]),
        why_cleared=row[12],
        updated_at=from_micros(row[13]),
        cleared_at=moment_of(row[14]),
    )


def row_from_alert(alert: Alert) -> Params:
    row: Params = {
        "id": alert.id,
        "rule": alert.rule,
        "kind": alert.kind.value,
        "subject": alert.subject,
        "subject_name": alert.subject_name,
        "severity": alert.severity.value,
        "condition": alert.condition,
        "figures": encode(alert.figures),
        "problem": alert.problem,
        "raised_at": to_micros(alert.raised_at),
    }
    return row | {
        "digest": digest_of(*row.values()),
        "status": alert.status.value,
        "why_cleared": alert.why_cleared,
        "updated_at": to_micros(alert.updated_at),
        "cleared_at": micros_of(alert.cleared_at),
    }


@reads("alert action")
def action_from_row(row: Row) -> AlertAction:
    return AlertAction(
        alert_id=row[0],
        action=AlertActionKind(row[1]),
        status=AlertActionStatus(row[2]),
        attempts=row[3],
        due_at=from_micros(row[4]),
        outcome=row[5],
        updated_at=from_micros(row[6]),
    )


def row_from_action(action: AlertAction) -> Params:
    return {
        "alert_id": action.alert_id,
        "action": action.action.value,
        "status": action.status.value,
        "attempts": action.attempts,
        "due_at": to_micros(action.due_at),
        "outcome": action.outcome,
        "updated_at": to_micros(action.updated_at),
    }


@reads("alert verdict")
def verdict_from_row(row: Row) -> WatchedVerdict:
    return WatchedVerdict(
        rule=row[0],
        kind=VerdictKind(row[1]),
        subject=row[2],
        digest=row[3],
        place=row[4],
        is_true=bool(row[5]),
        since=from_micros(row[6]),
        revision=row[7],
        seen_at=from_micros(row[8]),
    )


def row_from_verdict(verdict: WatchedVerdict) -> Params:
    return {
        "rule": verdict.rule,
        "kind": verdict.kind.value,
        "subject": verdict.subject,
        "digest": verdict.digest,
        "place": verdict.place,
        "is_true": int(verdict.is_true),
        "since_at": to_micros(verdict.since),
        "revision": verdict.revision,
        "seen_at": to_micros(verdict.seen_at),
    }


@reads("silence")
def silence_from_row(row: Row) -> Silence:
    return Silence(
        rule=row[0],
        until=from_micros(row[1]),
        silenced_by=row[2],
        reason=row[3],
        created_at=from_micros(row[4]),
    )


def row_from_silence(silence: Silence) -> Params:
    return {
        "rule": silence.rule,
        "until_at": to_micros(silence.until),
        "silenced_by": silence.silenced_by,
        "reason": silence.reason,
        "created_at": to_micros(silence.created_at),
    }
