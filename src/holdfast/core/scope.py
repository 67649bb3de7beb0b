"""Turn, list and value records, mail and questions: what a program leaves in the ledger beside its steps."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.ids import QuestionId, RunId, TaskId


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a step after the turn it belonged to has committed."""

    name: str
    digest: str
    size_bytes: int
    duration_us: int
    preview: str = ""


class FinishedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One committed round of a loop. It is never replayed."""

    task_id: TaskId
    loop: str
    seq: int
    turn: str
    run_id: RunId
    steps: tuple[TurnSummary, ...]
    began_at: datetime
    ended_at: datetime


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """How far a loop of a task is."""

    loop: str
    turns_done: int = 0
    is_over: bool = False


class ListDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Items that were appended to a durable list at once; `chain` seals all that came before them, too."""

    task_id: TaskId
    name: str
    start: int
    count: int
    items: bytes
    chain: bytes
    run_id: RunId
    written_at: datetime


class StoredValue(msgspec.Struct, frozen=True, kw_only=True):
    """A durable value as it was set last."""

    task_id: TaskId
    name: str
    value: bytes
    written_at: datetime


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was sent to a task, once per key; it is taken once, in the order it was sent."""

    task_id: TaskId
    seq: int
    topic: str
    body: bytes
    sender: str
    key: str
    sent_at: datetime
    taken_at: datetime | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asked a person; the first answer stays."""

    id: QuestionId
    task_id: TaskId
    run_id: RunId
    question: str
    choices: tuple[str, ...] | None = None
    default_answer: bytes | None = None
    asked_at: datetime
    due_at: datetime | None = None
    answered_at: datetime | None = None
    answer: bytes | None = None
    answered_by: str | None = None
