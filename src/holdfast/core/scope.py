"""Turn, list and value records, mail and questions: what a program leaves in the ledger beside its steps."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.ids import QuestionId, RunId, TaskId
from holdfast.core.plan import PlanItem


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a step after the turn it belonged to has committed."""

    name: str
    digest: str
    size_bytes: int
    duration_us: int
    preview: str = ""


class TurnMarks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """Where a task stood when a turn outside all others had committed: what a fork from there must know."""

    # How long each list was.
    lists: dict[str, int] = {}
    # Of the loops outside turns that had begun: how many turns were done, and whether it was over.
    loops: dict[str, tuple[int, bool]] = {}
    # Outside turns: operations on lists and values, and steps that had been saved.
    ops: int = 0
    steps: int = 0
    # Of all values together.
    values: str = ""
    # The shape of the plan, and its items where no turn before has told them in that shape.
    plan: str = ""
    items: tuple[PlanItem, ...] = ()


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
    # None for one that committed with the end of its run: nothing comes after it.
    marks: TurnMarks | None = None


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
