"""Every write of the doors gives the same answer when it is run again after its own commit."""

from __future__ import annotations

from datetime import datetime

import pytest

from holdfast.api.checkpoints import CheckpointAsked, retrying_checkpoint
from holdfast.api.ledger import CreateAsked, creating_task
from holdfast.api.openclaw import SeveralAsked, WireCancelAsked, cancelling_wire_task, retrying_tasks
from holdfast.api.questions import AnswerAsked, answering_question
from holdfast.api.reviews import ResolveAsked, resolving_effect
from holdfast.api.sessions import ChatAsked, posting
from holdfast.api.task_changes import CancelAsked, NotifyAsked, cancelling_task, setting_notify
from holdfast.api.tasks import RetryAsked, retrying_one
from holdfast.core.task import NotifyPolicy
from holdfast.core.transitions import CheckpointStatus, RunStatus
from holdfast.store import Store, Write
from holdfast.testing.stores import RepeatingStore, memory_store
from tests.builders import later, stored_checkpoint, stored_run
from tests.doors.test_questions import asked_by_waiting_run
from tests.doors.test_reviews import in_doubt

pytestmark = pytest.mark.slow

NOW: datetime = later(hours=1)


def cancels(store: Store) -> Write[object]:
    return cancelling_task(CancelAsked(task_id=stored_run(store).task_id), now=NOW)


def sets_what_is_told(store: Store) -> Write[object]:
    asked = NotifyAsked(task_id=stored_run(store).task_id, notify=NotifyPolicy.SILENT)
    return setting_notify(asked, now=NOW)


def cancels_what_runs(store: Store) -> Write[object]:
    run = stored_run(store, RunStatus.RUNNING)
    return cancelling_wire_task(WireCancelAsked(task_id=run.task_id), now=NOW)


def cancels_nothing(store: Store) -> Write[object]:
    return cancelling_wire_task(WireCancelAsked(task_id="task_none"), now=NOW)


def resolves(store: Store) -> Write[object]:
    asked = ResolveAsked(effect_id=in_doubt(store).id, decision="done", result=7)
    return resolving_effect(asked, by="ada", now=NOW)


def answers(store: Store) -> Write[object]:
    question = asked_by_waiting_run(store)
    return answering_question(AnswerAsked(question_id=question.id, answer="yes"), by="ada", now=NOW)


def retries(store: Store) -> Write[object]:
    failed = stored_checkpoint(store, CheckpointStatus.FAILED_RESUME)
    return retrying_checkpoint(CheckpointAsked(checkpoint_id=failed.id), now=NOW)


def retries_several(store: Store) -> Write[object]:
    failed = stored_checkpoint(store, CheckpointStatus.FAILED_RESUME)
    return retrying_tasks(SeveralAsked(task_ids=[failed.task_id, "task_none"]), now=NOW)


def retries_a_task(store: Store) -> Write[object]:
    task_id = stored_run(store, RunStatus.FAILED).task_id
    return retrying_one(RetryAsked(task_id=task_id), now=NOW)


def creates(store: Store) -> Write[object]:
    return creating_task(CreateAsked(name="research", goal="tides", key="k"), now=NOW)


def posts(store: Store) -> Write[object]:
    asked = ChatAsked(session_key="agent:ada:main", message="hello", idempotency_key="k")
    return posting(asked, by="ada", now=NOW)


@pytest.mark.parametrize(
    "prepare",
    [
        cancels,
        cancels_what_runs,
        sets_what_is_told,
        cancels_nothing,
        resolves,
        answers,
        retries,
        retries_several,
        retries_a_task,
        creates,
        posts,
    ],
)
def test_a_write_that_runs_twice_gives_the_same_answer_and_changes_nothing(prepare: object) -> None:
    store = memory_store()
    assert callable(prepare)
    write = prepare(store)

    # It raises unless the second run gives the same answer and changes nothing.
    RepeatingStore(store).write_now(write)
    store.close()
