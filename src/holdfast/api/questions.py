"""Questions for the API and the CLI: list and answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api.pages import place_of, read_sound
from holdfast.api.params import IdText, NameText, PageSize, PageToken, Params, credited
from holdfast.core.errors import IllegalMove, NotFound
from holdfast.core.secret import refuse_references
from holdfast.views.questions import AnsweredView, QuestionPageView, QuestionView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.program_records import Question
    from holdfast.core.task import Task
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx


class QuestionsAsked(Params, frozen=True, kw_only=True):
    """Open questions of tasks that have not ended, oldest first."""

    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class QuestionAsked(Params, frozen=True, kw_only=True):
    """One question, also one that was answered."""

    question_id: IdText


class AnswerAsked(Params, frozen=True, kw_only=True):
    """The answer to one question: any JSON value that it allows."""

    question_id: IdText
    answer: Any
    by: NameText | None = None


def read_page(tx: Tx, *, after: str, limit: int) -> QuestionPageView:
    """A page of open questions, without those of tasks that have ended."""
    problems: list[str] = []
    after = place_of("ques", after, tx.questions.resolve) if after else ""
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


def read_question(tx: Tx, asked: QuestionAsked) -> QuestionView:
    question = tx.questions.get(tx.questions.resolve(asked.question_id))
    return QuestionView.of(question, _task_of(tx, question))


def recording_answer(asked: AnswerAsked, *, by: str, now: datetime) -> Write[tuple[Question, Task | None]]:
    """The write of an answer; the first answer counts. Raises IllegalMove if the task has ended."""
    from holdfast.engine.conversation.questions import answering

    refuse_references("answer", asked.answer)

    def answer(tx: Tx) -> tuple[Question, Task | None]:
        question_id = tx.questions.resolve(asked.question_id)
        question = tx.questions.get(question_id)
        task = _task_of(tx, question)
        # If our own earlier commit recorded this answer, report success.
        if question.answered_at is None and task is not None and task.has_ended:
            raise IllegalMove("task", task.id, task.status.value, "answered")
        answered = answering(question_id, asked.answer, by=credited(asked.by, by), now=now)(tx)
        return answered, _task_of(tx, answered)

    return answer


def answering_question(
    asked: AnswerAsked, *, by: str, now: datetime, has_gateway: bool = True
) -> Write[AnsweredView]:
    """The same with its view, for the CLI, where building the view inside the write blocks no event loop."""
    answer = recording_answer(asked, by=by, now=now)

    def answer_and_show(tx: Tx) -> AnsweredView:
        return AnsweredView.of(*answer(tx), has_gateway=has_gateway)

    return answer_and_show


def _task_of(tx: Tx, question: Question) -> Task | None:
    try:
        return tx.tasks.look(question.task_id)
    except NotFound:
        return None
