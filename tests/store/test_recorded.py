"""Recorded tasks: their facts, a report that came too late, and reports that never came."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import RowDamaged
from holdfast.core.ids import RunId
from holdfast.core.recorded import LateReport, RecordedDetails, ScopeKind
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import Failure, RuntimeName
from holdfast.core.transitions import RunStatus
from holdfast.store import Store
from tests.builders import START, later, stored_run
from tests.engine.tables import dump, execute
from tests.fake_secrets import SHAPES

SECRET = SHAPES["github"][0]


def recorded(store: Store, **changes: Any) -> RunRecord:
    """A run of recorded work, with its facts."""
    run = stored_run(
        store, RunStatus.RUNNING, task={"runtime": RuntimeName.MEDIA}, queue=Queue.PRODUCER, **changes
    )
    details = RecordedDetails(
        task_id=run.task_id, scope=ScopeKind.SYSTEM, created_at=START, last_event_at=START
    )
    store.write_now(lambda tx: tx.recorded.create(details))
    return run


def a_late_report(run: RunRecord, **changes: Any) -> LateReport:
    facts: dict[str, Any] = {"at": later(minutes=1), "run_id": RunId(run.id), "status": RunStatus.SUCCEEDED}
    return LateReport(**facts | changes)


def details_of(store: Store, run: RunRecord) -> RecordedDetails:
    found = store.read_now(lambda tx: tx.recorded.get(run.task_id))
    assert found is not None
    return found


def keep(store: Store, run: RunRecord, late: LateReport) -> bool:
    return store.write_now(lambda tx: tx.recorded.keep_late(run.task_id, late, now=late.at))


def test_the_first_late_report_is_kept_and_comes_back_as_it_was(store: Store) -> None:
    run, other = recorded(store), recorded(store)
    failure = Failure(kind="exit", message="it exited with 1")
    first = a_late_report(run, summary="three frames", result=b'{"frames":3}')
    second = a_late_report(run, status=RunStatus.FAILED, failure=failure)

    kept = [keep(store, run, first), keep(store, run, second), keep(store, other, second)]

    assert kept == [True, False, True]
    assert details_of(store, run).late_report == first
    assert details_of(store, other).late_report == second
    found = store.read_now(lambda tx: tx.recorded.with_late_reports(limit=9))
    assert {one.task_id for one in found} == {run.task_id, other.task_id}


def test_a_late_result_with_a_secret_is_sealed_and_the_rest_of_the_report_is_not(store: Store) -> None:
    run = recorded(store)
    late = a_late_report(run, summary="a token was made", result=f'"{SECRET}"'.encode())

    keep(store, run, late)

    assert details_of(store, run).late_report == late
    (row,) = dump(store)["recorded_tasks"]
    assert SECRET not in str(row)
    assert "a token was made" in str(row)


def test_a_late_report_that_does_not_decode_is_damage(store: Store) -> None:
    run = recorded(store)
    keep(store, run, a_late_report(run))
    execute(store, "UPDATE recorded_tasks SET late_report = CAST('{' AS " + blob_of(store) + ")")

    with pytest.raises(RowDamaged):
        details_of(store, run)
    assert store.read_now(lambda tx: tx.recorded.readable([run.task_id])) == {}
    assert store.verify()


def blob_of(store: Store) -> str:
    return "BYTEA" if "Postgres" in type(store).__name__ else "BLOB"


def test_a_count_of_dropped_reports_never_falls(store: Store) -> None:
    run = recorded(store)

    noted = [store.write_now(lambda tx, n=n: tx.recorded.note_dropped(run.task_id, n)) for n in (2, 5, 5, 3)]  # type: ignore[misc]

    assert noted == [True, True, False, False]
    assert details_of(store, run).dropped_reports == 5
    assert [one.task_id for one in store.read_now(lambda tx: tx.recorded.with_drops(limit=9))] == [
        run.task_id
    ]


def test_only_live_recorded_work_whose_cancel_was_requested_is_to_be_stopped(store: Store) -> None:
    asked, _, workers = recorded(store), recorded(store), stored_run(store, RunStatus.RUNNING)
    for run in (asked, workers):
        store.write_now(lambda tx, run=run: tx.tasks.request_cancel(run.task_id, "enough", now=START))  # type: ignore[misc]

    found = store.read_now(lambda tx: tx.runs.recorded_to_stop(limit=9))

    assert [run.id for run in found] == [asked.id]


def test_only_running_recorded_work_of_the_same_fence_is_handed_over(store: Store) -> None:
    run, workers = recorded(store), stored_run(store, RunStatus.RUNNING)

    done = store.write_now(
        lambda tx: [
            tx.runs.hand_over(run.id, run.fence + 1, claimed_by="producer:media"),
            tx.runs.hand_over(workers.id, workers.fence, claimed_by="producer:media"),
            tx.runs.hand_over(run.id, run.fence, claimed_by="producer:media"),
        ]
    )

    assert done == [False, False, True]
    assert store.read_now(lambda tx: tx.runs.get(run.id)).claimed_by == "producer:media"


def test_the_newest_run_and_delivery_of_several_tasks_are_found_at_once(store: Store) -> None:
    first, second = recorded(store), recorded(store)

    ids = store.read_now(lambda tx: tx.runs.last_ids_of_tasks([first.task_id, second.task_id, "task_none"]))
    statuses = store.read_now(lambda tx: tx.deliveries.last_statuses_of_tasks([first.task_id]))

    assert ids == {first.task_id: first.id, second.task_id: second.id}
    assert statuses == {}
