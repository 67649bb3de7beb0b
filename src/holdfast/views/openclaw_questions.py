"""QuestionRecord: a question that a task asks a person, in the format of OpenClaw's protocol."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.payload import decode_payload
from holdfast.core.program_records import Question
from holdfast.core.task import Task
from holdfast.views.questions import MAX_QUESTION_CHARS
from holdfast.views.text import bounded, one_line
from holdfast.views.wire import agent_of, millis

# The protocol's limits.
MAX_OPTIONS = 4
# The one question of a record: the protocol allows several, our tasks ask one at a time.
QUESTION_ID = "answer"
HEADER = "Question"
# The protocol needs a time of expiry; a question without one does not expire (JavaScript's greatest integer).
NEVER_MS = 2**53 - 1


class QuestionOptionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    label: str


class WireQuestion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The text of a question and the answers that it offers."""

    question_id: str
    header: str
    question: str
    options: list[QuestionOptionView]
    # Whether any other text is an answer, too.
    is_other: bool


class QuestionAnswers(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    answers: dict[str, list[str]]


class QuestionRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One question of one task."""

    id: str
    questions: list[WireQuestion]
    created_at_ms: int
    expires_at_ms: int
    status: Literal["pending", "answered", "cancelled"]
    agent_id: str | None = None
    session_key: str | None = None
    run_id: str | None = None
    answers: QuestionAnswers | None = None
    resolved_by: str | None = None

    @classmethod
    def of(cls, question: Question, task: Task | None) -> QuestionRecord:
        choices = question.choices or ()
        is_open = question.answered_at is None
        has_ended = task is None or task.has_ended
        answered = None if question.answer is None else _as_text(question.answer)
        status: Literal["pending", "answered", "cancelled"] = "pending"
        if not is_open:
            status = "answered"
        elif has_ended:
            status = "cancelled"
        return cls(
            id=one_line(question.id),
            questions=[
                WireQuestion(
                    question_id=QUESTION_ID,
                    header=HEADER,
                    question=_with_choices(bounded(question.question, MAX_QUESTION_CHARS), choices),
                    options=[QuestionOptionView(label=one_line(one)) for one in choices[:MAX_OPTIONS]],
                    is_other=question.choices is None or len(choices) > MAX_OPTIONS,
                )
            ],
            created_at_ms=millis(question.asked_at) or 0,
            expires_at_ms=NEVER_MS if question.due_at is None else millis(question.due_at) or 0,
            status=status,
            agent_id=None if task is None else agent_of(task),
            session_key=None if task is None or task.session_key is None else one_line(task.session_key),
            run_id=one_line(question.run_id),
            answers=None if answered is None else QuestionAnswers(answers={QUESTION_ID: [answered]}),
            resolved_by=None if question.answered_by is None else one_line(question.answered_by),
        )


class QuestionFound(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    question: QuestionRecord


class QuestionRecords(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Open questions, oldest first."""

    questions: list[QuestionRecord]


class QuestionResolved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer that counts: the first one."""

    status: Literal["answered"]
    answers: QuestionAnswers


def _with_choices(text: str, choices: tuple[str, ...]) -> str:
    """The question; with its choices, if there are more than the protocol can list."""
    if len(choices) <= MAX_OPTIONS:
        return text
    return f"{text}\nChoices: {', '.join(one_line(one) for one in choices)}"


def _as_text(answer: bytes) -> str:
    value = decode_payload(answer)
    return bounded(
        value if isinstance(value, str) else msgspec.json.encode(value).decode(), MAX_QUESTION_CHARS
    )
