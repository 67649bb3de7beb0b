"""What a follower tells a person: the line, the remarks, and when only a person can help."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from holdfast.cli import screen as screens
from holdfast.cli.follow import MAX_TREE, TaskTree, answer_of, look, look_at_tree, words_of
from holdfast.cli.output import Output
from holdfast.cli.screen import PlainLines, ProgressSnapshot, screen_for
from holdfast.core.errors import BadInput
from holdfast.core.events import Event, EventKind
from holdfast.core.run import RunRecord
from holdfast.core.task import Task
from holdfast.core.transitions import EffectStatus, RunStatus, TaskStatus
from holdfast.store import Tx
from holdfast.store.events import START as FIRST
from tests.builders import START, a_run, a_task, an_effect, put, running_run, stored_run
from tests.doors.calls import HOSTILE, UNFIT, Opens
from tests.store.program_records import a_question, a_turn

# --- how far it is


@pytest.mark.parametrize(
    ("glance", "words"),
    [
        (ProgressSnapshot(status="queued"), "queued"),
        (
            ProgressSnapshot(status="running", done=3, total=12, subtask="reading"),
            "running · 3/12 (25%) reading",
        ),
        (ProgressSnapshot(status="running", done=3), "running · 3"),
        (ProgressSnapshot(status="running", total=0), "running · 0/0"),
        (ProgressSnapshot(status="running", turns=1, steps=1), "running · 1 turn · 1 step"),
        (
            ProgressSnapshot(status="waiting for an answer", steps=2, last_step="ask", last_event="woken"),
            "waiting for an answer · 2 steps (ask) · woken",
        ),
    ],
)
def test_a_glance_says_only_what_there_is(glance: ProgressSnapshot, words: str) -> None:
    assert glance.words() == words


def test_without_a_terminal_progress_is_told_now_and_then_and_only_when_there_is_some(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(0.0, screens.TELL_EVERY_S / 2)
    monkeypatch.setattr(screens, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    remarks = PlainLines(Output(as_json=False))

    for done in (0, 1, 2, 2, 2, 3, 4):
        remarks.show(ProgressSnapshot(status="running", done=done))

    assert capfd.readouterr().err.splitlines() == ["running · 2", "running · 3"]


def test_a_pipe_gets_remarks_and_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    with screen_for(Output(as_json=False)) as screen:
        screen.say("a\x1b[31m remark")
        screen.ask("a prompt: ")
        screen.go_on()

    assert capfd.readouterr().err == "a remark\na prompt:\n"


# --- what happened


@pytest.mark.parametrize("kind", EventKind, ids=str)
def test_every_event_is_said_in_words_that_a_screen_can_show(kind: EventKind) -> None:
    facts: dict[str, object] = dict.fromkeys(("why", "step", "by", "name", "told", "reason"), HOSTILE)

    bare, _ = words_of(event_of(kind, {}))
    words, _ = words_of(event_of(kind, facts))

    assert UNFIT.search(bare + words) is None


def test_what_a_program_tells_is_a_remark() -> None:
    event = event_of(EventKind.PROGRAM_TOLD, {"name": "found", "told": {"pages": 3}})

    assert words_of(event) == ('found {"pages":3}', True)


def event_of(kind: EventKind, facts: dict[str, object]) -> Event:
    return Event(position="0.1", at=START, kind=kind, task_id=None, subject_id="x", facts=facts)


# --- one look


def test_a_look_counts_turns_and_steps_and_reads_on_from_a_position(ledger: Opens) -> None:
    with ledger() as store:
        run, _ = running_run(store)

        def write(tx: Tx) -> None:
            tx.turns.commit(a_turn(run, seq=1), "main:1", is_over=False)
            tx.turns.commit(a_turn(run, seq=2), "main:2", is_over=False)
            tx.emit(EventKind.RUN_WOKEN, run.id, at=START, task_id=run.task_id)

        store.write_now(write)
        first = store.read_now(lambda tx: look(tx, run.task_id, FIRST))
        second = store.read_now(lambda tx: look(tx, run.task_id, first.position))

    assert (first.turns, first.steps, first.last_step) == (2, 4, "act 🌊")
    assert [event.kind for event in first.events] == [EventKind.RUN_WOKEN]
    assert second.events == []
    assert second.position == first.position


# --- who is stuck


def in_review(**changes: object) -> Task:
    return a_task(status=TaskStatus.NEEDS_REVIEW, waits_on="review:eff_1", **changes)


def waits_for(what: str) -> Task:
    return a_task(status=TaskStatus.WAITING, waits_on=what)


@pytest.mark.parametrize(
    ("tasks", "is_stuck"),
    [
        ([in_review()], True),
        ([waits_for("child:task_1"), in_review()], True),
        ([waits_for("children"), in_review(), in_review()], True),
        ([a_task(status=TaskStatus.RUNNING), in_review()], False),
        ([waits_for("children"), in_review(), a_task()], False),
        ([waits_for("children"), in_review(), waits_for("sleep")], False),
        ([waits_for("answer:ques_1")], False),
        ([waits_for("child:task_1")], False),
        ([a_task()], False),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else "",
)
def test_a_tree_is_stuck_when_nothing_but_a_review_can_move_it(tasks: list[Task], *, is_stuck: bool) -> None:
    tree = TaskTree(tasks=tasks, questions=[], reviews=[], is_whole=True)

    assert tree.is_stuck is is_stuck


def test_a_tree_that_is_not_known_whole_is_not_called_stuck() -> None:
    assert not TaskTree(tasks=[in_review()], questions=[], reviews=[], is_whole=False).is_stuck


def test_the_whole_tree_is_looked_at_for_questions_and_reviews(ledger: Opens) -> None:
    with ledger() as store:
        root, _ = running_run(store)
        effect = an_effect(status=EffectStatus.UNKNOWN)
        child = a_task(parent_task_id=root.task_id)
        grandchild = a_task(
            parent_task_id=child.id, status=TaskStatus.NEEDS_REVIEW, waits_on=f"review:{effect.id}"
        )
        ended = stored_run(store, RunStatus.FAILED, task={"parent_task_id": root.task_id})
        question, late = a_question(root, task_id=child.id), a_question(ended)

        def write(tx: Tx) -> None:
            put(tx, child)
            put(tx, grandchild)
            tx.effects.create(effect)
            tx.questions.create(question)
            tx.questions.create(late)

        store.write_now(write)
        tree = store.read_now(lambda tx: look_at_tree(tx, tx.tasks.get(root.task_id)))

    assert [task.id for task in tree.tasks] == [root.task_id, child.id, grandchild.id]
    assert tree.questions == [question]
    assert tree.reviews == [effect]
    assert tree.is_whole


def test_of_a_huge_tree_only_a_part_is_looked_at(ledger: Opens) -> None:
    with ledger() as store:
        root, _ = running_run(store)
        children = [a_task(parent_task_id=root.task_id) for _ in range(MAX_TREE)]
        store.write_now(lambda tx: [tx.tasks.create(child) for child in children])
        tree = store.read_now(lambda tx: look_at_tree(tx, tx.tasks.get(root.task_id)))

    assert len(tree.tasks) == MAX_TREE
    assert not tree.is_whole


# --- what a person types


@pytest.mark.parametrize(
    ("typed", "choices", "default", "answer"),
    [
        ("anything", None, None, "anything"),
        ("12", None, None, "12"),
        ("", None, b'{"a":1}', {"a": 1}),
        ("yes", ("yes", "no"), None, "yes"),
        ("2", ("yes", "no"), None, "no"),
        ("2", ("2", "1"), None, "2"),
    ],
)
def test_an_answer_is_a_text_a_choice_its_number_or_the_default(
    typed: str, choices: tuple[str, ...] | None, default: bytes | None, answer: object
) -> None:
    question = a_question(run_without_a_task(), choices=choices, default_answer=default)

    assert answer_of(question, typed) == answer


@pytest.mark.parametrize("typed", ["", "3", "0", "-1", "maybe", "²"])
def test_what_is_no_answer_is_asked_for_again(typed: str) -> None:
    question = a_question(run_without_a_task(), choices=("yes", "no"), default_answer=None)

    with pytest.raises(BadInput):
        answer_of(question, typed)


def run_without_a_task() -> RunRecord:
    return a_run(a_task())
