"""Questions: asked once, the first answer stays, and the open ones are found a page at a time."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.ids import QuestionId
from holdfast.store import Store, Tx
from holdfast.testing import RepeatingStore, contents_of
from tests.builders import START, later, running_run
from tests.conftest import Ledger
from tests.store.program_records import a_question, flip

PATIENCE_S = 30.0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"choices": None, "default_answer": None, "due_at": None},
        {"choices": (), "question": "Wie weiter?\n🌊"},
        {"answered_at": later(seconds=1), "answer": b"null", "answered_by": "ada"},
    ],
    ids=["whole", "bare", "no choice", "answered"],
)
def test_a_question_is_read_back_as_it_was_asked(store: Store, changes: dict[str, Any]) -> None:
    run, _ = running_run(store)
    question = a_question(run, **changes)

    assert store.write_now(lambda tx: tx.questions.create(question)) == question
    assert store.read_now(lambda tx: tx.questions.get(question.id)) == question


def test_asking_again_finds_the_question_as_it_stands(store: Store) -> None:
    run, _ = running_run(store)
    question = a_question(run)
    RepeatingStore(store).write_now(lambda tx: tx.questions.create(question))
    store.write_now(lambda tx: tx.questions.answer(question.id, b'"yes"', by="ada", now=START))
    other = msgspec.structs.replace(question, question="Really?")

    found = store.write_now(lambda tx: tx.questions.create(other))

    assert (found.question, found.answer) == (question.question, b'"yes"')


def test_the_first_answer_stays(store: Store) -> None:
    run, _ = running_run(store)
    question = a_question(run)
    store.write_now(lambda tx: tx.questions.create(question))

    assert store.write_now(
        lambda tx: tx.questions.answer(question.id, b'"yes"', by="ada", now=later(seconds=1))
    )
    before = store.read_now(contents_of)
    assert not store.write_now(
        lambda tx: tx.questions.answer(question.id, b'"no"', by="bob", now=later(seconds=2))
    )

    assert store.read_now(contents_of) == before
    assert store.read_now(lambda tx: tx.questions.get(question.id)) == msgspec.structs.replace(
        question, answered_at=later(seconds=1), answer=b'"yes"', answered_by="ada"
    )


def test_two_people_who_answer_at_once_give_one_answer(ledger: Ledger) -> None:
    stores = [ledger.open(), ledger.open()]
    run, _ = running_run(stores[0])
    if stores[1].read_now(lambda tx: tx.tasks.page()) == []:
        pytest.skip("this kind of store shares nothing")
    questions = [a_question(run) for _ in range(20)]
    stores[0].write_now(lambda tx: [tx.questions.create(question) for question in questions])
    answered: dict[str, list[str]] = {question.id: [] for question in questions}

    def answer_all(store: Store, by: str) -> None:
        for question in questions:

            def answer(tx: Tx, question_id: str = question.id) -> bool:
                return tx.questions.answer(question_id, f'"{by}"'.encode(), by=by, now=START)

            if store.write_now(answer):
                answered[question.id].append(by)

    people = [
        threading.Thread(target=answer_all, args=pair) for pair in zip(stores, ("ada", "bob"), strict=True)
    ]
    for person in people:
        person.start()
    for person in people:
        person.join(PATIENCE_S)

    kept = stores[0].read_now(lambda tx: [tx.questions.get(question_id) for question_id in answered])
    assert {question.id: [question.answered_by] for question in kept} == answered


def test_what_was_never_asked_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="ques_nothing"):
        store.read_now(lambda tx: tx.questions.get("ques_nothing"))
    with pytest.raises(NotFound, match="ques_nothing"):
        store.write_now(lambda tx: tx.questions.answer("ques_nothing", b"1", by="ada", now=START))


def test_the_open_questions_come_oldest_first_a_page_at_a_time(store: Store) -> None:
    one, two = (running_run(store)[0] for _ in range(2))
    questions = [
        a_question(one if number % 2 else two, id=QuestionId(f"ques_{number}")) for number in range(6)
    ]

    def ask(tx: Tx) -> None:
        for question in reversed(questions):
            tx.questions.create(question)
        tx.questions.answer("ques_2", b"1", by="ada", now=START)

    store.write_now(ask)

    def ids(found: list[Any]) -> list[str]:
        return [question.id for question in found]

    read = store.read_now
    assert ids(read(lambda tx: tx.questions.open_page(2))) == ["ques_0", "ques_1"]
    assert ids(read(lambda tx: tx.questions.open_page(2, after="ques_1"))) == ["ques_3", "ques_4"]
    assert ids(read(lambda tx: tx.questions.open_page(limit=9, after="ques_4"))) == ["ques_5"]
    assert ids(read(lambda tx: tx.questions.open_of_task(two.task_id, limit=9))) == ["ques_0", "ques_4"]


@pytest.mark.parametrize(
    "column",
    [
        "run_id",
        "question",
        "choices",
        "default_answer",
        "asked_at",
        "due_at",
        "digest",
        "answer",
        "answer_digest",
    ],
)
def test_a_damaged_question_or_answer_is_not_handed_out(store: Store, column: str) -> None:
    run, _ = running_run(store)
    question = a_question(run)

    def ask_and_answer(tx: Tx) -> None:
        tx.questions.create(question)
        tx.questions.answer(question.id, b'"yes"', by="ada", now=START)

    store.write_now(ask_and_answer)
    assert store.verify() == []
    flip(store, "questions", column)

    with pytest.raises(RowDamaged, match=question.id):
        store.read_now(lambda tx: tx.questions.get(question.id))

    assert any(question.id in problem for problem in store.verify())
