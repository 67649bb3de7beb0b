"""Rows of alerts: one that is not cleared for each rule and subject, verdicts by revision, and history."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

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
from holdfast.core.ids import new_alert_id
from holdfast.core.transitions import AlertActionStatus, AlertStatus
from holdfast.store import Store
from tests.builders import START

LATER = START + timedelta(hours=1)


def an_alert(**changes: Any) -> Alert:
    values: dict[str, Any] = {
        "id": new_alert_id(START),
        "rule": "stalled",
        "kind": VerdictKind.CONDITION,
        "subject": "camp_1",
        "subject_name": "rd-os",
        "severity": AlertSeverity.WARNING,
        "condition": "percent < 3",
        "figures": {"percent": 1.5},
        "raised_at": START,
        "updated_at": START,
    }
    return Alert(**values | changes)


def a_verdict(**changes: Any) -> WatchedVerdict:
    values: dict[str, Any] = {
        "rule": "stalled",
        "kind": VerdictKind.CONDITION,
        "subject": "camp_1",
        "digest": "d",
        "place": "here",
        "is_true": True,
        "since": START,
        "seen_at": START,
    }
    return WatchedVerdict(**values | changes)


def an_action(alert: Alert, **changes: Any) -> AlertAction:
    values: dict[str, Any] = {
        "alert_id": alert.id,
        "action": AlertActionKind.NOTIFY_HUMAN,
        "due_at": START,
        "updated_at": START,
    }
    return AlertAction(**values | changes)


def test_an_alert_comes_back_as_it_was(store: Store) -> None:
    alert = an_alert(problem="division by zero")
    store.write_now(lambda tx: tx.alerts.create(alert))

    assert store.read_now(lambda tx: tx.alerts.get(alert.id)) == alert


def test_of_one_rule_and_subject_one_alert_is_not_cleared(store: Store) -> None:
    first, second, other = an_alert(), an_alert(), an_alert(subject="camp_2")

    kept = [
        store.write_now(lambda tx, one=one: tx.alerts.create(one)).id  # type: ignore[misc]
        for one in (first, second, other)
    ]
    store.write_now(lambda tx: tx.alerts.move(first.id, AlertStatus.CLEARED, now=LATER, why="over"))
    again = store.write_now(lambda tx: tx.alerts.create(second)).id

    assert kept == [first.id, first.id, other.id]
    assert again == second.id
    assert {one.id for one in store.read_now(lambda tx: tx.alerts.live())} == {second.id, other.id}


def test_a_cleared_alert_has_its_time_and_reason(store: Store) -> None:
    alert = store.write_now(lambda tx: tx.alerts.create(an_alert()))
    moved = store.write_now(lambda tx: tx.alerts.move(alert.id, AlertStatus.CLEARED, now=LATER, why="over"))

    assert (moved.status, moved.cleared_at, moved.why_cleared) == (AlertStatus.CLEARED, LATER, "over")


def test_a_verdict_changes_only_as_it_was_seen(store: Store) -> None:
    new = a_verdict()
    made = [store.write_now(lambda tx: tx.alerts.set_verdict(new, None)) for _ in range(2)]
    (seen,) = store.read_now(lambda tx: tx.alerts.verdicts()).values()
    turned = msgspec.structs.replace(new, is_true=False, since=LATER)
    changed = [store.write_now(lambda tx: tx.alerts.set_verdict(turned, seen)) for _ in range(2)]
    forgotten_as_old = store.write_now(lambda tx: tx.alerts.forget_verdict(seen))
    (now,) = store.read_now(lambda tx: tx.alerts.verdicts()).values()
    forgotten = store.write_now(lambda tx: tx.alerts.forget_verdict(now))

    assert made == changed == [True, False]
    assert (now.is_true, now.since, now.revision) == (False, LATER, 2)
    assert (forgotten_as_old, forgotten) == (False, True)


def test_an_action_is_due_once_and_waits_while_its_alert_is_silenced(store: Store) -> None:
    alert = store.write_now(lambda tx: tx.alerts.create(an_alert()))
    action = an_action(alert)
    added = [store.write_now(lambda tx: tx.alerts.add_action(action)) for _ in range(2)]
    due = store.read_now(lambda tx: tx.alerts.due_actions(now=START, limit=9))
    store.write_now(lambda tx: tx.alerts.move(alert.id, AlertStatus.SILENCED, now=START))
    silent = store.read_now(lambda tx: tx.alerts.due_actions(now=START, limit=9))
    store.write_now(lambda tx: tx.alerts.move(alert.id, AlertStatus.RAISED, now=START))
    ended = [
        store.write_now(
            lambda tx: tx.alerts.end_action(action, AlertActionStatus.DONE, outcome="sent", now=LATER)
        )
        for _ in range(2)
    ]

    assert added == [True, False]
    assert due == [action]
    assert silent == []
    assert ended[0] is not None
    assert (ended[0].status, ended[0].outcome, ended[0].attempts) == (AlertActionStatus.DONE, "sent", 1)
    assert ended[1] is None


def test_an_action_is_put_off_by_the_one_that_tried_it(store: Store) -> None:
    alert = store.write_now(lambda tx: tx.alerts.create(an_alert()))
    action = an_action(alert)
    store.write_now(lambda tx: tx.alerts.add_action(action))

    put = [
        store.write_now(
            lambda tx: tx.alerts.put_off_action(action, until=LATER, outcome="no", has_failed=True, now=START)
        )
        for _ in range(2)
    ]

    assert put[0] is not None
    assert (put[0].attempts, put[0].due_at, put[0].outcome) == (1, LATER, "no")
    assert put[1] is None


def test_old_alerts_are_deleted_with_their_actions_and_live_ones_stay(store: Store) -> None:
    old, live = an_alert(), an_alert(subject="camp_2")
    for one in (old, live):
        store.write_now(lambda tx, one=one: tx.alerts.create(one))  # type: ignore[misc]
        store.write_now(lambda tx, one=one: tx.alerts.add_action(an_action(one)))  # type: ignore[misc]
    store.write_now(lambda tx: tx.alerts.move(old.id, AlertStatus.CLEARED, now=START, why="over"))

    deleted = store.write_now(lambda tx: tx.alerts.prune(before=LATER, limit=9))

    assert deleted == 1
    assert [one.id for one in store.read_now(lambda tx: tx.alerts.page())] == [live.id]
    actions = store.read_now(lambda tx: tx.alerts.actions_of([old.id, live.id]))
    assert {alert_id: len(found) for alert_id, found in actions.items()} == {old.id: 0, live.id: 1}


def test_a_silence_replaces_the_one_before_and_ends(store: Store) -> None:
    first = Silence(rule="stalled", until=START, silenced_by="ada", created_at=START)
    second = msgspec.structs.replace(first, until=LATER, reason="we know")
    for one in (first, second):
        store.write_now(lambda tx, one=one: tx.alerts.silence(one))  # type: ignore[misc]

    silences = store.read_now(lambda tx: tx.alerts.silences())
    store.write_now(lambda tx: tx.alerts.end_silences(now=LATER))

    assert silences == {"stalled": second}
    assert store.read_now(lambda tx: tx.alerts.silences()) == {}
