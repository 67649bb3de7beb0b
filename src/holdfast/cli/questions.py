"""questions list, answer: what tasks want to know from a person."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import click

from holdfast.api.questions import AnswerAsked, QuestionsAsked, answering_question, read_page
from holdfast.cli.invocation import Invocation, question_prefix, read_json, shared_options, whoever
from holdfast.cli.output import Output, ago
from holdfast.views.questions import AnsweredView, QuestionPageView, QuestionView


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
    view = call.look_at_list(
        "questions.list",
        QuestionsAsked(limit=limit, after=page),
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
    asked = AnswerAsked(question_id=question_id, answer=value, by=whoever(by))
    answering = partial(answering_question, by=whoever(by), has_gateway=False)
    view = call.change("questions.answer", asked, answering, AnsweredView)
    call.output.show(view, lambda: call.output.line(f"{view.question.id} is answered; {view.next}"))
