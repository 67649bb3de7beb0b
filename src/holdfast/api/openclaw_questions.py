"""question.*: questions that tasks ask a person, in the format of OpenClaw's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.pages import read_sound
from holdfast.api.params import IdText, NameText, Nothing, Params
from holdfast.api.questions import AnswerAsked, recording_answer
from holdfast.core.errors import BadInput
from holdfast.views.openclaw_questions import (
    QUESTION_ID,
    QuestionAnswers,
    QuestionFound,
    QuestionRecord,
    QuestionRecords,
    QuestionResolved,
)

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

# The protocol has no pages here: the oldest questions come first, and answered ones make room.
MAX_LISTED = 200


class ForeignQuestionAsked(Params, frozen=True, kw_only=True):
    """One question."""

    id: IdText


class QuestionResolveAsked(Params, frozen=True, kw_only=True):
    """The answer: `{"answers": {"answer": ["…"]}}`. The first answer counts."""

    id: IdText
    answers: QuestionAnswers | None = None
    # A question ends with its task: true is refused.
    cancel: bool = False
    resolved_by: NameText | None = None
    resolution_id: NameText | None = None


def list_questions(tx: Tx, asked: Nothing) -> QuestionRecords:  # noqa: ARG001 - the signature of a read
    found = read_sound(tx.questions.open_page, after="", limit=MAX_LISTED, problems=[])
    tasks = tx.tasks.get_many([question.task_id for question in found])
    return QuestionRecords(
        questions=[
            QuestionRecord.of(question, task)
            for question in found
            if (task := tasks.get(question.task_id)) is not None and not task.has_ended
        ]
    )


def get_question(tx: Tx, asked: ForeignQuestionAsked) -> QuestionFound:
    """Raises NotFound."""
    question = tx.questions.get(tx.questions.resolve(asked.id))
    task = tx.tasks.get_many([question.task_id]).get(question.task_id)
    return QuestionFound(question=QuestionRecord.of(question, task))


def resolving_question(asked: QuestionResolveAsked, *, by: str, now: datetime) -> Write[QuestionResolved]:
    """The write of an answer. Raises BadInput if it is not one text for the one question of the record."""
    if asked.cancel:
        raise BadInput("cancel", "a question ends with its task; cancel the task with tasks.cancel")
    given = {} if asked.answers is None else asked.answers.answers
    if list(given) != [QUESTION_ID] or len(given[QUESTION_ID]) != 1:
        raise BadInput("answers", f'one answer is needed: {{"answers": {{"{QUESTION_ID}": ["…"]}}}}')
    ours = AnswerAsked(question_id=asked.id, answer=given[QUESTION_ID][0], by=asked.resolved_by)
    answer = recording_answer(ours, by=by, now=now)

    def resolve(tx: Tx) -> QuestionResolved:
        question, task = answer(tx)
        shown = QuestionRecord.of(question, task).answers
        return QuestionResolved(status="answered", answers=shown or QuestionAnswers(answers=given))

    return resolve
