"""QuestionView: a question that a task asks a person."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.program_records import Question
from holdfast.core.task import Task
from holdfast.views.payloads import PayloadView
from holdfast.views.text import bounded, maybe_line, one_line
from holdfast.views.waits import what_next

MAX_QUESTION_CHARS = 4000


class QuestionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One question, with the answers that it allows and its answer.

    If an answer or a default has more than 64 KiB of JSON, only its beginning is shown, as text.
    """

    id: str
    task_id: str
    # Null if its task was pruned.
    task_name: str | None
    task_status: str | None
    question: str
    # Null if any answer is allowed.
    choices: list[str] | None
    has_default: bool
    default: Any
    asked_at: datetime
    # After that time the default is used; without one, the step fails.
    due_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None
    answer: Any
    # The goal of its task; null if that was pruned.
    goal: str | None = None

    @classmethod
    def of(cls, question: Question, task: Task | None) -> QuestionView:
        return cls(
            id=one_line(question.id),
            task_id=one_line(question.task_id),
            task_name=None if task is None else one_line(task.name),
            task_status=None if task is None else task.status.value,
            question=bounded(question.question, MAX_QUESTION_CHARS),
            choices=None if question.choices is None else [one_line(one) for one in question.choices],
            has_default=question.default_answer is not None,
            default=_value_of(question.default_answer),
            asked_at=question.asked_at,
            due_at=question.due_at,
            answered_at=question.answered_at,
            answered_by=maybe_line(question.answered_by),
            answer=_value_of(question.answer),
            goal=None if task is None else one_line(task.goal),
        )


class QuestionPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of questions of tasks that have not ended, oldest first."""

    questions: list[QuestionView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None
    # Damaged records, one sentence each; empty if there are none.
    problems: list[str] = []


class AnsweredView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A question with its answer, and what happens next."""

    question: QuestionView
    next: str

    @classmethod
    def of(cls, question: Question, task: Task | None, *, has_gateway: bool) -> AnsweredView:
        return cls(question=QuestionView.of(question, task), next=what_next(task, has_gateway=has_gateway))


def _value_of(stored: bytes | None) -> Any:
    return None if stored is None else PayloadView.of(stored).shown
