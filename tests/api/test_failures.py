"""failures.list and failures.retry: groups by cause, bounded, and a retry that may be repeated."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.api import failures
from holdfast.api.failures import FailuresAsked, FailuresRetryAsked, read_failures, retry_failures
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.store import Store
from holdfast.views.failures import FailuresView
from tests.api.stand_in import OWNER, OWNER_TOKEN, READ_TOKEN, ServedDoors
from tests.builders import START, later, stored_run


def failed(store: Store, message: str, *, kind: str = "PumpError", minute: int = 0, **task: Any) -> str:
    failure = Failure(kind=kind, message=message, facts={"traceback": ["orchard.py:49 in start"]})
    at = later(minutes=minute)
    changes = {"failure": failure, "created_at": at, "ended_at": at, "status": TaskStatus.FAILED}
    run = stored_run(store, RunStatus.FAILED, task=changes | task, failure=failure, created_at=at)
    return run.task_id


def groups(store: Store, **asked: Any) -> FailuresView:
    return store.read_now(lambda tx: read_failures(tx, FailuresAsked(**asked), now=later(hours=1)))


def test_tasks_that_failed_in_the_same_way_are_one_group(store: Store) -> None:
    first = failed(store, "pump 1 is dry")
    last = failed(store, "pump 22 is dry", minute=5, name="water")
    other = failed(store, "pump 3 is stuck", minute=2)

    found = groups(store)

    assert [(one.count, one.pattern) for one in found.groups] == [
        (2, "pump # is dry"),
        (1, "pump # is stuck"),
    ]
    group = found.groups[0]
    assert (group.kind, group.place) == ("PumpError", "orchard.py in start")
    assert (group.first_at, group.last_at) == (START, later(minutes=5))
    assert group.names == {"research": 1, "water": 1}
    assert [one.task_id for one in group.newest] == [last, first]
    assert group.example is not None
    assert group.example.message == "pump 22 is dry"
    assert other in {one.task_id for one in found.groups[1].newest}
    assert (found.tasks_read, found.has_older, found.more_groups) == (3, False, 0)
    assert len(groups(store, fingerprint=group.fingerprint).groups) == 1
    assert groups(store, limit=1).more_groups == 1


def test_a_task_without_a_failure_is_in_the_group_of_its_status(store: Store) -> None:
    stored_run(store, RunStatus.LOST, task={"status": TaskStatus.LOST})

    assert [(one.kind, one.statuses) for one in groups(store).groups] == [("lost", {"lost": 1})]


def test_only_the_newest_are_read_and_the_answer_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "READ_AT_MOST", 2)
    for minute in range(3):
        failed(store, "dry", minute=minute)

    found = groups(store)

    assert (found.tasks_read, found.has_older, found.groups[0].count) == (2, True, 2)


def test_a_retry_takes_each_task_once_and_names_those_that_it_may_not_retry(store: Store) -> None:
    again = failed(store, "pump 1 is dry")
    told = failed(store, "pump 2 is dry", session_key="main")
    failed(store, "pump 3 is stuck")
    fingerprint = groups(store).groups[0].fingerprint
    asked = FailuresRetryAsked(fingerprint=fingerprint, ended_until=later(hours=1))

    first, second = retry_failures(store, asked), retry_failures(store, asked)

    assert (first.count, first.task_ids) == (1, [again])
    assert [(one.task_id, one.code) for one in first.refused] == [(told, "refused")]
    assert "sessions send" in first.refused[0].why
    assert (second.count, len(second.refused)) == (0, 1)
    assert store.read_now(lambda tx: tx.tasks.look(again)).status is TaskStatus.QUEUED


def test_a_retry_leaves_tasks_alone_that_failed_after_the_list_was_read(store: Store) -> None:
    old = failed(store, "dry")
    failed(store, "dry", minute=9)
    asked = FailuresRetryAsked(fingerprint=groups(store).groups[0].fingerprint)

    until = later(minutes=5)
    found = retry_failures(store, FailuresRetryAsked(fingerprint=asked.fingerprint, ended_until=until))

    assert found.task_ids == [old]


def test_a_bounded_retry_says_how_many_are_left(store: Store) -> None:
    for minute in range(3):
        failed(store, "dry", minute=minute)
    fingerprint = groups(store).groups[0].fingerprint

    found = retry_failures(store, FailuresRetryAsked(fingerprint=fingerprint, limit=2))

    assert (found.count, found.left) == (2, 1)


@pytest.mark.slow
def test_a_retry_is_in_the_audit_log_and_each_caller_reaches_only_its_own(house: ServedDoors) -> None:
    store, now = house.gateway.store, house.gateway.clock.now() - timedelta(hours=1)
    ours = failed(store, "dry", owner=OWNER, created_at=now, ended_at=now)
    theirs = failed(store, "dry", owner="eve", created_at=now, ended_at=now)
    fingerprint = house.post("failures.list").json()["groups"][0]["fingerprint"]

    assert house.post("failures.list", token=OWNER_TOKEN).json()["groups"][0]["count"] == 1
    assert house.post("failures.retry", {"fingerprint": fingerprint}, token=READ_TOKEN).status_code == 403
    assert house.post("failures.retry", {"fingerprint": "x"}).status_code == 400
    limited = house.post("failures.retry", {"fingerprint": fingerprint}, token=OWNER_TOKEN).json()
    rest = house.post("failures.retry", {"fingerprint": fingerprint}).json()

    assert (limited["taskIds"], rest["taskIds"]) == ([ours], [theirs])
    entries = house.post("audit.list", {"action": "failures.retry"}).json()["entries"]
    assert len(entries) == 2
