"""Reads for people: the newest of what may be endless, and records by the beginning of their id."""

from __future__ import annotations

import pytest

from holdfast.core.errors import AmbiguousId, NotFound
from holdfast.core.transitions import EffectStatus
from holdfast.store import Store, Tx
from holdfast.store.journal import saving_step
from holdfast.store.sealing import CLOSED
from tests.builders import START, a_step, a_task, an_effect, later, running_run
from tests.store.program_records import a_delta, a_question


def test_the_end_of_a_journal_is_read_without_its_beginning(store: Store) -> None:
    run, claim = running_run(store)
    other, _ = running_run(store)

    def write(tx: Tx) -> None:
        for place in range(5):
            saving_step(a_step(run, name=f"step {place}", seq=place), claim.fence, CLOSED)(tx)
        saving_step(a_step(other, seq=9), other.fence, CLOSED)(tx)

    store.write_now(write)

    found = store.read_now(lambda tx: tx.journal.newest_steps(run.task_id, limit=2))
    assert [step.name for step in found] == ["step 4", "step 3"]


def test_the_newest_effects_of_a_task_come_first(store: Store) -> None:
    run, _ = running_run(store)
    effects = sorted((an_effect(task_id=run.task_id) for _ in range(4)), key=lambda one: one.id)

    def write(tx: Tx) -> None:
        for effect in (*effects, an_effect()):
            tx.effects.create(effect)

    store.write_now(write)

    found = store.read_now(lambda tx: tx.effects.newest_of_task(run.task_id, limit=2))
    assert found == [effects[3], effects[2]]


def test_the_newest_children_of_a_task_come_first(store: Store) -> None:
    run, _ = running_run(store)
    children = sorted((a_task(parent_task_id=run.task_id) for _ in range(4)), key=lambda one: one.id)

    def write(tx: Tx) -> None:
        for child in (*children, a_task()):
            tx.tasks.create(child)

    store.write_now(write)

    found = store.read_now(lambda tx: tx.tasks.newest_children(run.task_id, limit=2))
    assert [child.id for child in found] == [children[3].id, children[2].id]


def test_the_open_questions_of_a_task_are_those_without_an_answer(store: Store) -> None:
    run, _ = running_run(store)
    other, _ = running_run(store)
    questions = sorted((a_question(run) for _ in range(3)), key=lambda one: one.id)

    def write(tx: Tx) -> None:
        for question in (*questions, a_question(other)):
            tx.questions.create(question)
        tx.questions.answer(questions[0].id, b'"yes"', by="ada", now=START)

    store.write_now(write)

    assert store.read_now(lambda tx: tx.questions.open_of_task(run.task_id)) == questions[1:]
    assert store.read_now(lambda tx: tx.questions.open_of_task(run.task_id, limit=1)) == questions[1:2]


def test_a_list_is_as_long_as_all_that_was_appended(store: Store) -> None:
    run, _ = running_run(store)
    other, _ = running_run(store)

    def write(tx: Tx) -> None:
        tx.lists.append(a_delta(run))
        tx.lists.append(a_delta(run, start=2, count=1, items=b'["c"]', written_at=later(seconds=1)))
        tx.lists.append(a_delta(run, name="notes", count=1, items=b'["n"]'))
        tx.lists.append(a_delta(other))

    store.write_now(write)

    assert store.read_now(lambda tx: tx.lists.lengths(run.task_id)) == {"messages": 3, "notes": 1}
    assert store.read_now(lambda tx: tx.lists.lengths("task_none")) == {}


@pytest.mark.parametrize("noun", ["effects", "questions"])
def test_the_beginning_of_an_id_is_enough_when_it_fits_one(store: Store, noun: str) -> None:
    run, _ = running_run(store)
    ids: list[str] = []
    for _ in range(2):
        effect, question = an_effect(task_id=run.task_id, status=EffectStatus.UNKNOWN), a_question(run)
        store.write_now(lambda tx: (tx.effects.create(effect), tx.questions.create(question)))  # noqa: B023
        ids.append(effect.id if noun == "effects" else question.id)

    def resolve(prefix: str) -> str:
        return str(store.read_now(lambda tx: getattr(tx, noun).resolve(prefix)))

    assert resolve(ids[0]) == ids[0]
    assert resolve(ids[1][:-1]) == ids[1]
    with pytest.raises(AmbiguousId):
        resolve(ids[0][:8])
    with pytest.raises(NotFound, match="list` to see what there is"):
        resolve(f"{ids[0][:5]}zzz")
