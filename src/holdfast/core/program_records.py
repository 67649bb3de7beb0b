"""Turn, list and value records, mail and questions: what a program stores in the ledger beside its steps."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.ids import QuestionId, RunId, TaskId
from holdfast.core.plan import PlanItem


class TurnSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What always stays of a step after the turn it belonged to has committed."""

    name: str
    digest: str
    size_bytes: int
    duration_us: int
    # How its result and its arguments begin, redacted; empty if they are sealed, in what the turn has kept.
    preview: str = ""
    arguments: str = ""
    occurrence: str = "1"
    # The scope of the step inside its turn; empty for the turn itself.
    inside: str = ""
    # Its effect record, which stays, holds the whole result; or the turn has kept it.
    is_effect: bool = False
    is_kept: bool = False


class KeptStep(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What else stays of a step of a finished turn: its result if it is short enough, and what is sealed."""

    result: bytes | None = None
    preview: str = ""
    arguments: str = ""


class KeptSteps(msgspec.Struct, frozen=True, kw_only=True):
    """What else stays of the steps of a finished turn, in their order, packed for the ledger."""

    body: bytes
    is_secret: bool = False


class TurnMarks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """The state of a task after a top-level turn had committed: what a fork from there needs."""

    # The length of each list.
    lists: dict[str, int] = {}
    # For each top-level loop that had begun: how many turns were done, and whether it had ended.
    loops: dict[str, tuple[int, bool]] = {}
    # The number of operations on lists and values, and of saved steps, outside turns.
    ops: int = 0
    steps: int = 0
    # The digest of all values together.
    values: str = ""
    # The shape of the plan, and its items unless an earlier turn has stored them in the same shape.
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
    # None if the turn committed with the end of its run: nothing comes after it.
    marks: TurnMarks | None = None
    # How many of its steps cannot be shown: a turn of an older release was sealed whole, and there is no key.
    sealed_steps: int = 0


class LoopPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position of one loop of a task."""

    loop: str
    turns_done: int = 0
    is_over: bool = False


class ListDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Items appended to a durable list in one write; `chain` is a digest of them and all items before."""

    task_id: TaskId
    name: str
    start: int
    count: int
    items: bytes
    chain: bytes
    run_id: RunId
    written_at: datetime


class StoredValue(msgspec.Struct, frozen=True, kw_only=True):
    """A durable value as last set."""

    task_id: TaskId
    name: str
    value: bytes
    written_at: datetime


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A message sent to a task, once per key; the task receives each once, in the order of sending."""

    task_id: TaskId
    seq: int
    topic: str
    body: bytes
    sender: str
    key: str
    sent_at: datetime
    taken_at: datetime | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a run asked a person; the first answer counts."""

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
