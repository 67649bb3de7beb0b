"""tasks.dismiss: what is owed because of a task is dismissed whole, once, and never what is being sent."""

from __future__ import annotations

import pytest

from holdfast.api.openclaw import SeveralAsked, dismissing_tasks
from holdfast.core.delivery import Delivery
from holdfast.core.transitions import DeliveryStatus
from holdfast.store import Store, Tx
from holdfast.store.contract import Write
from holdfast.testing import Crashed, FailingStore, RepeatingStore, contents_of
from holdfast.views.wire import TasksDismissed
from tests.builders import BOOT, START, a_delivery, a_task, later

D = DeliveryStatus


def owing(store: Store, *statuses: DeliveryStatus) -> str:
    task = a_task()

    def write(tx: Tx) -> None:
        tx.tasks.create(task)
        for status in statuses:
            tx.deliveries.create(a_delivery(task_id=task.id, status=status))

    store.write_now(write)
    return task.id


def dismissal(task_id: str) -> Write[TasksDismissed]:
    return dismissing_tasks(SeveralAsked(task_ids=[task_id]), now=later(seconds=1))


def statuses_of(store: Store, task_id: str) -> set[DeliveryStatus]:
    return {one.status for one in store.read_now(lambda tx: tx.deliveries.of_task(task_id))}


def test_a_dismissal_that_runs_again_after_its_commit_answers_the_same(store: Store) -> None:
    task_id = owing(store, D.PENDING, D.FAILED)

    answer = RepeatingStore(store).write_now(dismissal(task_id))

    assert [one.ok for one in answer.results] == [True]
    assert statuses_of(store, task_id) == {D.DISMISSED}


def test_a_process_that_dies_in_it_has_dismissed_everything_or_nothing(store: Store) -> None:
    task_id = owing(store, D.PENDING, D.FAILED, D.PARENT_MISSING)
    write, recording = dismissal(task_id), FailingStore(store)
    with pytest.raises(_Undone):
        recording.write_now(lambda tx: _undo(write, tx))
    before = store.read_now(contents_of)
    deaths = [point for point in recording.failpoints() if point.where != "after"]
    assert len(deaths) > 3

    for point in deaths:
        with pytest.raises(Crashed):
            FailingStore(store, [point]).write_now(write)
        assert store.read_now(contents_of) == before

    store.write_now(write)
    assert statuses_of(store, task_id) == {D.DISMISSED}
    assert store.verify() == []


class _Undone(Exception):
    """The recording leaves the ledger as it was."""


def _undo(write: Write[TasksDismissed], tx: Tx) -> None:
    write(tx)
    raise _Undone


def test_what_is_being_sent_is_not_called_back_and_what_is_dismissed_is_not_sent(store: Store) -> None:
    sending, dismissed = owing(store, D.PENDING), owing(store, D.PENDING)

    assert store.write_now(attempting(store, sending)) is not None
    (refused,) = store.write_now(dismissal(sending)).results
    store.write_now(dismissal(dismissed))

    assert not refused.ok
    assert statuses_of(store, sending) == {D.ATTEMPTING}
    assert store.write_now(attempting(store, dismissed)) is None


def attempting(store: Store, task_id: str) -> Write[Delivery | None]:
    (owed,) = store.read_now(lambda tx: tx.deliveries.of_task(task_id))
    return lambda tx: tx.deliveries.attempt(owed.id, boot_id=BOOT, lease_until=later(minutes=1), now=START)
