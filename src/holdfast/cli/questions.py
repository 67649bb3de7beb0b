"""questions list, answer: questions that tasks ask a person."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import click

from holdfast.api.questions import AnswerAsked, QuestionsAsked, answering_question, read_page
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import (
    Invocation,
    page_option,
    question_prefix,
    read_json,
    shared_options,
    user_name,
)
from holdfast.cli.output import Output, ago
from holdfast.views.questions import AnsweredView, QuestionPageView, QuestionView


@click.group("questions", cls=ListGroup)
@shared_options
def questions() -> None:
    """Questions that tasks ask a person."""


# --- list


@questions.command("list", short_help="Open questions, oldest first.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_questions(call: Invocation, limit: int, page: str | None) -> None:
    """Open questions of tasks that have not ended, oldest first, a page at a time."""
    view = call.look_at_list(
        "questions.list",
        QuestionsAsked(limit=limit, page_token=page),
        lambda tx: read_page(tx, after=page or "", limit=limit),
        QuestionPageView(),
    )
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: QuestionPageView, now: datetime) -> None:
    if view.questions:
        rows = [
            (one.id, one.task_name or "-", ago(one.asked_at, now), left(one, now), _asked(one))
            for one in view.questions
        ]
        output.table(("ID", "TASK", "ASKED", "LEFT", "QUESTION"), rows, leave=("ASKED", "TASK", "LEFT"))
        output.say(f"to answer: holdfast questions answer {view.questions[0].id} ANSWER")
    else:
        output.say("there are no open questions")
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def left(question: QuestionView, now: datetime) -> str:
    """The time left to answer."""
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
@click.option("--by", metavar="NAME", help="Name to record. [default: the current user]")
@shared_options
@click.pass_obj
def answer_question(
    call: Invocation, question_id: str, answer: str, by: str | None, *, json_answer: bool
) -> None:
    """Answer a question. The first answer counts, and the task continues with it.

    \b
    holdfast questions answer ques_01h8 yes
    holdfast questions answer ques_01h8 '{"amount": 5}' --json-answer

    Exit status 2 if the question does not allow this answer, 3 if it was answered before or its task has
    ended.
    """
    value = read_json("ANSWER", answer) if json_answer else answer
    asked = AnswerAsked(question_id=question_id, answer=value, by=user_name(by))
    answering = partial(answering_question, by=user_name(by), has_gateway=False)
    view = call.change("questions.answer", asked, answering, AnsweredView)
    call.output.show(view, lambda: call.output.line(f"{view.question.id} is answered; {view.next}"))
