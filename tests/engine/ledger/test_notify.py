"""Of what a requester is told is decided by the policy at the moment when the task ends."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.run import RunOutcome
from holdfast.core.task import NotifyPolicy, Origin, Task
from holdfast.core.transitions import RunStatus
from holdfast.engine.ledger.ledger import DEFAULT_RETENTION, end_task
from holdfast.engine.ledger.updates import setting_policy
from holdfast.store import Store, Tx
from holdfast.store.contract import Write
from holdfast.testing import Crashed, FailingStore, RepeatingStore, contents_of
from tests.builders import START, later, running_run

P = NotifyPolicy
SOMEONE = Origin(channel="hook", peer="ada")


def running(store: Store, policy: NotifyPolicy = P.DONE_ONLY) -> tuple[Any, Task]:
    """A run and its task, as the worker that claimed them has them."""
    run, _ = running_run(store, task={"origin": SOMEONE, "notify": policy})
    return run, store.read_now(lambda tx: tx.tasks.get(run.task_id))


def ending(run: Any, task: Task) -> Write[None]:
    def end(tx: Tx) -> None:
        if (
            tx.runs.end(run.id, run.fence, RunStatus.SUCCEEDED, failure=None, now=later(seconds=2))
            is not None
        ):
            outcome = RunOutcome(status=RunStatus.SUCCEEDED, result=b"1")
            end_task(tx, run, outcome, now=later(seconds=2), retention=DEFAULT_RETENTION, task=task)

    return end


def owed(store: Store, task: Task) -> int:
    return len(store.read_now(lambda tx: tx.deliveries.of_task(task.id)))


def test_a_change_during_a_run_counts_although_the_worker_has_the_task_as_it_was_before(store: Store) -> None:
    silenced, told = running(store), running(store, P.SILENT)

    store.write_now(setting_policy(silenced[1].id, P.SILENT, now=later(seconds=1)))
    store.write_now(setting_policy(told[1].id, P.STATE_CHANGES, now=later(seconds=1)))
    store.write_now(ending(*silenced))
    store.write_now(ending(*told))

    assert (owed(store, silenced[1]), owed(store, told[1])) == (0, 1)


def test_a_changed_task_is_sound_and_the_change_is_an_event(store: Store) -> None:
    _, task = running(store)

    store.write_now(setting_policy(task.id, P.SILENT, now=later(seconds=1)))
    store.write_now(setting_policy(task.id, P.SILENT, now=later(seconds=2)))

    changed = store.read_now(lambda tx: tx.tasks.get(task.id))
    events = store.read_now(lambda tx: tx.events.newest(limit=10))
    assert (changed.notify, changed.updated_at) == (P.SILENT, later(seconds=1))
    assert [one.facts for one in events if one.kind is EventKind.TASK_NOTIFY_CHANGED] == [
        {"notify": "silent"}
    ]
    assert store.verify() == []


def test_after_the_end_nothing_changes_and_what_is_owed_stays_owed(store: Store) -> None:
    run, task = running(store)
    store.write_now(ending(run, task))

    after = store.write_now(setting_policy(task.id, P.SILENT, now=later(seconds=3)))

    assert (after.notify, owed(store, task)) == (P.DONE_ONLY, 1)


def test_a_missing_task_and_a_damaged_one_are_refused(store: Store) -> None:
    _, task = running(store)

    def damage(tx: Tx) -> None:
        tx.statements.run(
            "set_notify", {"id": task.id, "notify": "silent", "digest": b"x", "from": digest(tx), "now": 0}
        )

    def digest(tx: Tx) -> Any:
        row = tx.statements.one("get_task", {"id": task.id})
        assert row is not None
        return row[13]

    store.write_now(damage)

    with pytest.raises(NotFound):
        store.write_now(setting_policy("task_none", P.SILENT, now=START))
    with pytest.raises(RowDamaged):
        store.write_now(setting_policy(task.id, P.DONE_ONLY, now=START))


def test_a_change_and_an_end_at_the_same_moment_agree(store: Store) -> None:
    """Whichever commits first: nothing is owed exactly if the task ended as a silent one."""
    for _ in range(15):
        run, task = running(store)
        together = threading.Barrier(2)

        def write(one: Write[Any], together: threading.Barrier = together) -> None:
            together.wait()
            store.write_now(one)

        change = setting_policy(task.id, P.SILENT, now=later(seconds=1))
        racers = [threading.Thread(target=write, args=(one,)) for one in (ending(run, task), change)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()

        ended = store.read_now(lambda tx: tx.tasks.get(task.id))  # noqa: B023 - read at once
        assert ended.has_ended
        assert owed(store, task) == (0 if ended.notify is P.SILENT else 1)


class _Undone(Exception):
    """The recording leaves the ledger as it was."""


def test_a_process_that_dies_in_a_change_has_changed_everything_or_nothing(store: Store) -> None:
    _, task = running(store)
    write, recording = setting_policy(task.id, P.SILENT, now=later(seconds=1)), FailingStore(store)

    def record(tx: Tx) -> None:
        write(tx)
        raise _Undone

    with pytest.raises(_Undone):
        recording.write_now(record)
    before = store.read_now(contents_of)
    deaths = [point for point in recording.failpoints() if point.where != "after"]
    assert len(deaths) > 2

    for point in deaths:
        with pytest.raises(Crashed):
            FailingStore(store, [point]).write_now(write)
        assert store.read_now(contents_of) == before

    assert RepeatingStore(store).write_now(write).notify is P.SILENT
    assert store.verify() == []
