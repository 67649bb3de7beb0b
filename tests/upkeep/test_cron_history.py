"""Recorded cron work gets the outcome that the history of its schedule has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.recorded import RecordedWork
from holdfast.core.task import RuntimeName
from holdfast.core.transitions import FiringStatus, TaskStatus
from holdfast.engine.producers.contract import Alive, Dead, LifeUnknown, NotMine
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.upkeep.cron_history import FiringHistory
from holdfast.upkeep.proofs import RuntimeProofs
from holdfast.upkeep.sweep import Sweep, Swept
from tests.builders import START, a_firing, a_task, write
from tests.upkeep.recorded import recorded_run, task_of


def cron_work(store: Store, **details: Any) -> RecordedWork:
    run = recorded_run(store, runtime=RuntimeName.CRON, details=details)
    return store.read_now(
        lambda tx: RecordedWork(
            task=tx.tasks.look(run.task_id), run=run, details=tx.recorded.get(run.task_id)
        )
    )


@pytest.mark.parametrize("field", ["reference", "source_id"])
async def test_a_lost_report_is_recovered_from_the_history_with_the_result_of_its_task(
    store: Store, clock: FakeClock, field: str
) -> None:
    done = a_task(status=TaskStatus.SUCCEEDED, result=b'"high tide at six"', cleanup_after=START)
    firing = a_firing(status=FiringStatus.DONE, task_id=done.id)
    write(store, lambda tx: (tx.tasks.create(done), tx.firings.create(firing)))
    run = recorded_run(store, runtime=RuntimeName.CRON, details={field: firing.id})
    sweep = Sweep(store, clock, proofs=RuntimeProofs([FiringHistory(store)]))
    clock.advance(minutes=5)

    plan = await sweep.plan(prunes=False)
    swept = await sweep.apply(plan)

    task = task_of(store, run)
    assert swept == Swept(settled=1)
    assert (task.status, task.result) == (TaskStatus.SUCCEEDED, b'"high tide at six"')
    assert plan.changes[0].reason == f"the history of the schedule {firing.schedule} has it as done"


async def test_a_failed_firing_is_a_failure_of_the_record(store: Store, clock: FakeClock) -> None:
    firing = a_firing(status=FiringStatus.FAILED)
    write(store, lambda tx: tx.firings.create(firing))
    run = recorded_run(store, runtime=RuntimeName.CRON, details={"reference": firing.id})
    sweep = Sweep(store, clock, proofs=RuntimeProofs([FiringHistory(store)]))
    clock.advance(minutes=5)

    await sweep.apply(await sweep.plan())

    task = task_of(store, run)
    assert task.status is TaskStatus.FAILED
    assert task.failure is not None
    assert task.failure.kind == "firing_failed"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (FiringStatus.DUE, Alive),
        (FiringStatus.RUNNING, Alive),
        (FiringStatus.REQUEUED, Alive),
        (FiringStatus.MISSED, Dead),
    ],
)
async def test_the_history_says_whether_cron_work_is_still_to_end(
    store: Store, status: FiringStatus, answer: type
) -> None:
    firing = a_firing(status=status)
    write(store, lambda tx: tx.firings.create(firing))

    assert isinstance(await FiringHistory(store).is_alive(cron_work(store, reference=firing.id)), answer)


async def test_only_cron_work_that_names_its_firing_is_answered_for(store: Store) -> None:
    history = FiringHistory(store)
    work = cron_work(store, source_id="nightly")
    gone = cron_work(store, reference="fire_gone")
    other = msgspec.structs.replace(gone, task=msgspec.structs.replace(gone.task, runtime=RuntimeName.CLI))

    assert isinstance(await history.is_alive(work), NotMine)
    assert isinstance(await history.is_alive(gone), LifeUnknown)
    assert isinstance(await history.is_alive(other), NotMine)
    assert isinstance(await history.cancel(gone, "no more"), NotMine)
    assert isinstance(await history.reattach(gone), NotMine)
