"""questions list, answer: what tasks want to know from a person."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation, question_prefix, read_json, shared_options, whoever
from holdfast.cli.output import Output, ago
from holdfast.cli.pages import read_sound
from holdfast.cli.reviews import what_next
from holdfast.core.errors import IllegalMove, NotFound
from holdfast.views.questions import AnsweredView, QuestionPageView, QuestionView

if TYPE_CHECKING:
    from holdfast.core.scope import Question
    from holdfast.core.task import Task
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx


@click.group("questions")
@shared_options
def questions() -> None:
    """What tasks want to know from a person."""


# --- list


@questions.command("list", short_help="What is asked, oldest first.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most."
)
@click.option("--page", callback=question_prefix, metavar="ID", help="Newer than this one: the next page.")
@shared_options
@click.pass_obj
def list_questions(call: Invocation, limit: int, page: str | None) -> None:
    """What tasks that have not ended ask, oldest first, a page at a time."""
    with call.listing() as ledger:
        view = QuestionPageView()
        if ledger is not None:
            view = ledger.read_now(lambda tx: read_page(tx, after=page or "", limit=limit))
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def read_page(tx: Tx, *, after: str, limit: int) -> QuestionPageView:
    """Nobody waits for the answer to a question of a task that has ended."""
    problems: list[str] = []
    shown: list[QuestionView] = []
    while len(shown) <= limit:
        page = read_sound(tx.questions.open_page, after=after, limit=limit + 1, problems=problems)
        tasks = tx.tasks.get_many([question.task_id for question in page])
        shown += [
            QuestionView.of(question, task)
            for question in page
            if (task := tasks.get(question.task_id)) is not None and not task.has_ended
        ]
        if len(page) <= limit:
            break
        after = page[-1].id
    return QuestionPageView(
        questions=shown[:limit],
        next_page_token=shown[limit - 1].id if len(shown) > limit else None,
        problems=problems,
    )


def _print_page(output: Output, view: QuestionPageView, now: datetime) -> None:
    if view.questions:
        rows = [
            (one.id, one.task_name or "-", ago(one.asked_at, now), left(one, now), _asked(one))
            for one in view.questions
        ]
        output.table(("ID", "TASK", "ASKED", "LEFT", "QUESTION"), rows)
        output.say(f"answer: holdfast questions answer {view.questions[0].id} ANSWER")
    else:
        output.say("nobody asks anything")
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say(f"more: --page {view.next_page_token}")


def left(question: QuestionView, now: datetime) -> str:
    """How long there is to answer."""
    if question.due_at is None:
        return "-"
    return "over" if question.due_at <= now else ago(now, question.due_at)


def _asked(question: QuestionView) -> str:
    return question.question + ("" if question.choices is None else f" [{' | '.join(question.choices)}]")


# --- answer


@questions.command("answer", short_help="Answer a question.")
@click.argument("question_id", metavar="QUESTION", callback=question_prefix)
@click.argument("answer")
@click.option("--json-answer", is_flag=True, help="ANSWER is JSON, not text.")
@click.option("--by", metavar="NAME", help="Who answers. [default: the user of this process]")
@shared_options
@click.pass_obj
def answer_question(
    call: Invocation, question_id: str, answer: str, by: str | None, *, json_answer: bool
) -> None:
    """Answer a question, once: the first answer stays, and the task that asked goes on with it.

    Status 2 when the question allows only other answers, 3 when it was answered before or its task has ended.
    """
    value = read_json("ANSWER", answer) if json_answer else answer
    with call.writing() as store:
        whole_id = store.read_now(lambda tx: tx.questions.resolve(question_id))
        question = store.write_now(_answering(whole_id, value, by=whoever(by), now=call.clock.now()))
        task = store.read_now(lambda tx: _task_of(tx, question))
    view = AnsweredView(question=QuestionView.of(question, task), next=what_next(task))
    call.output.show(view, lambda: call.output.line(f"{question.id} is answered; {view.next}"))


def _answering(question_id: str, answer: object, *, by: str, now: datetime) -> Write[Question]:
    from holdfast.engine.waits import answering

    answer_it = answering(question_id, answer, by=by, now=now)

    def answer_alive(tx: Tx) -> Question:
        question = tx.questions.get(question_id)
        task = _task_of(tx, question)
        # An answer that is ours, from a commit whose answer was lost, stays ours.
        if question.answered_at is None and task is not None and task.has_ended:
            raise IllegalMove("task", task.id, task.status.value, "one that hears an answer")
        return answer_it(tx)

    return answer_alive


def _task_of(tx: Tx, question: Question) -> Task | None:
    try:
        return tx.tasks.look(question.task_id)
    except NotFound:
        return None
