"""questions list, answer: what tasks ask is shown, and answered once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.core.program_records import Question
from holdfast.core.transitions import RunStatus
from holdfast.store import Store
from tests.builders import later, stored_run
from tests.doors.calls import CANARIES, HOSTILE, UNFIT, Opens, Run
from tests.doors.test_tasks import damage
from tests.store.program_records import a_question


def asked(store: Store, **changes: Any) -> Question:
    """A question, and the run that waits for its answer."""
    run = stored_run(store, RunStatus.WAITING, task={"waits_on": "something"})
    question = a_question(run, **changes)
    store.write_now(lambda tx: tx.questions.create(question))
    return question


def asked_by_waiting_run(store: Store) -> Question:
    from holdfast.core.ids import new_question_id

    question_id = new_question_id(later(seconds=1))
    waits_on = f"answer:{question_id}"
    run = stored_run(store, RunStatus.WAITING, task={"waits_on": waits_on}, waits_on=waits_on)
    question = a_question(run, id=question_id)
    store.write_now(lambda tx: tx.questions.create(question))
    return question


# --- list


def test_a_list_shows_what_is_asked_with_its_choices(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store)

    called = run("questions", "list")

    assert called.out.splitlines()[0].split() == ["ID", "TASK", "ASKED", "LEFT", "QUESTION"]
    assert question.id in called.out
    assert "Shall I send it? [yes | no]" in called.out
    assert f"holdfast questions answer {question.id}" in called.err


def test_a_list_as_json_has_the_whole_question(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store)

    listing = run("questions", "list", "--json").json

    assert set(listing) == {"questions", "nextPageToken", "problems"}
    assert listing["questions"] == [
        {
            "id": question.id,
            "taskId": question.task_id,
            "taskName": "research",
            "taskStatus": "waiting",
            "question": "Shall I send it?",
            "choices": ["yes", "no"],
            "hasDefault": True,
            "default": "no",
            "askedAt": "2026-01-01T00:00:00Z",
            "dueAt": "2026-01-01T01:00:00Z",
            "answeredAt": None,
            "answeredBy": None,
            "answer": None,
            "goal": "find out how tides work",
        }
    ]


def test_what_was_answered_or_asked_by_a_task_that_ended_is_not_listed(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        answered, cancelled, alive = asked(store), asked(store), asked(store)
    run("questions", "answer", answered.id, "yes")
    run("tasks", "cancel", cancelled.task_id)

    assert [one["id"] for one in run("questions", "list", "--json").json["questions"]] == [alive.id]


def test_pages_follow_each_other_without_a_gap(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        questions = sorted((asked(store) for _ in range(7)), key=lambda one: one.id)
    for ended in questions[1:4]:
        run("tasks", "cancel", ended.task_id)

    first = run("questions", "list", "--json", "--limit", "2").json
    second = run("questions", "list", "--json", "--limit", "2", "--page", first["nextPageToken"]).json

    shown = [one["id"] for one in first["questions"] + second["questions"]]
    assert shown == [questions[place].id for place in (0, 4, 5, 6)]
    assert second["nextPageToken"] is None


def test_a_list_says_when_no_run_asks_anything(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        stored_run(store)

    called = run("questions", "list")

    assert (called.out, called.err) == ("", "there are no open questions\n")


def test_a_damaged_question_hides_no_other(run: Run, ledger: Opens, home: Path) -> None:
    with ledger() as store:
        questions = sorted((asked(store) for _ in range(3)), key=lambda one: one.id)
    damage(home, f"UPDATE questions SET question = 'other' WHERE id = '{questions[0].id}'")

    listing = run("questions", "list", "--json").json

    assert [one["id"] for one in listing["questions"]] == [questions[1].id, questions[2].id]
    assert questions[0].id in listing["problems"][0]


def test_a_hostile_question_is_shown_clean(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        asked(store, question=f"{HOSTILE} {CANARIES[0]}", choices=(HOSTILE, "b"))

    shown = run("questions", "list").out + run("questions", "list", "--json").out

    assert UNFIT.search(shown) is None
    assert CANARIES[0] not in shown


# --- answer


def test_an_answer_wakes_the_task_that_asked(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked_by_waiting_run(store)

    called = run("questions", "answer", question.id.removeprefix("ques_")[:14], "yes")

    assert called.status == 0
    assert f"{question.id} is answered; task {question.task_id} is queued" in called.out
    assert run("tasks", "show", question.task_id, "--json").json["task"]["status"] == "queued"


def test_an_answer_as_json_is_the_question_with_it(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store)

    view = run("questions", "answer", question.id, "yes", "--by", "ada", "--json").json

    assert (view["question"]["answer"], view["question"]["answeredBy"]) == ("yes", "ada")
    assert question.task_id in view["next"]


def test_a_json_answer_is_any_value(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store, choices=None)

    view = run("questions", "answer", question.id, '{"a": [1]}', "--json-answer", "--json").json

    assert view["question"]["answer"] == {"a": [1]}


def test_an_answer_is_text_unless_it_is_said_to_be_json(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store, choices=None)

    assert run("questions", "answer", question.id, "12", "--json").json["question"]["answer"] == "12"


def test_only_a_choice_is_an_answer(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store)

    called = run("questions", "answer", question.id, "perhaps")

    assert called.status == 2
    assert "choose one of: yes, no" in called.err
    assert len(run("questions", "list", "--json").json["questions"]) == 1


def test_the_first_answer_stays(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store)
    run("questions", "answer", question.id, "yes", "--by", "ada")

    called = run("questions", "answer", question.id, "no", "--by", "bob")

    assert called.status == 3
    assert "is answered" in called.err


def test_a_task_that_has_ended_hears_no_answer(run: Run, ledger: Opens) -> None:
    with ledger() as store:
        question = asked(store)
    run("tasks", "cancel", question.task_id)

    called = run("questions", "answer", question.id, "yes")

    assert called.status == 3
    assert f"task {question.task_id} is cancelled" in called.err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("ques_zzz", "yes"), 4),
        (("task_0", "yes"), 4),
        (("no such!", "yes"), 2),
        (("QUESTION",), 2),
        (("QUESTION", "{", "--json-answer"), 2),
        (("QUESTION", "yes", "--by", ""), 2),
        (("QUESTION", ""), 2),
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_changes_nothing(
    run: Run, ledger: Opens, arguments: tuple[str, ...], status: int
) -> None:
    with ledger() as store:
        question = asked(store)

    called = run("questions", "answer", *(question.id if one == "QUESTION" else one for one in arguments))

    assert called.status == status
    assert len(run("questions", "list", "--json").json["questions"]) == 1
