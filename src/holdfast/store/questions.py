"""Reads and writes of questions that runs asked people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.core.clock import to_micros
from holdfast.core.errors import NotFound
from holdfast.core.ids import QuestionId
from holdfast.core.program_records import Question
from holdfast.store.rows.journal import question_from_row, row_from_question
from holdfast.store.rows.reading import digest_of_late
from holdfast.store.tasks import resolve

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx


class QuestionTable:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._sql = tx.statements
        self._sealing = tx.sealing

    def create(self, question: Question) -> Question:
        """Store it; if a question with its id exists, return that one as it is."""
        if self._sql.one("insert_question", row_from_question(question, self._sealing)) is not None:
            return question
        return self.get(question.id)

    def get(self, question_id: str) -> Question:
        row = self._sql.one("get_question", {"id": question_id})
        if row is None:
            raise NotFound("question", question_id)
        return question_from_row(row, self._sealing)

    def answer(self, question_id: str, answer: bytes, *, by: str, now: datetime) -> bool:
        """Record the answer; False when it was answered before: the first answer counts."""
        sealed = self._sealing.seal(answer, "questions.answer", question_id)
        params = {
            "id": question_id,
            "answer": sealed,
            "answer_digest": digest_of_late(question_id, sealed),
            "by": by,
            "now": to_micros(now),
        }
        if self._sql.one("answer_question", params) is not None:
            return True
        self.get(question_id)  # raises NotFound
        return False

    def open_page(self, limit: int = 50, after: str = "") -> list[Question]:
        """Unanswered questions, oldest first; the last id of a page is the page token of the next."""
        found = self._sql.all("open_questions", {"after": after, "limit": limit})
        return [question_from_row(row, self._sealing) for row in found]

    def open_of_task(self, task_id: str, *, limit: int = 50) -> list[Question]:
        """The unanswered questions of this task, oldest first."""
        found = self._sql.all("open_questions_of_task", {"task_id": task_id, "limit": limit})
        return [question_from_row(row, self._sealing) for row in found]

    def resolve(self, prefix: str) -> QuestionId:
        """The one id with this prefix."""
        return QuestionId(resolve(self._tx, "question", "find_questions", prefix))
