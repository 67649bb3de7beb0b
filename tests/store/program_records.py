"""What programs leave in the ledger, for tests: turns, lists, values, mail, questions; and how it breaks."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.ids import new_question_id
from holdfast.core.program_records import (
    FinishedTurn,
    KeptStep,
    KeptSteps,
    ListDelta,
    Question,
    StoredValue,
    TurnSummary,
)
from holdfast.core.run import RunRecord
from holdfast.store import Store, Tx
from holdfast.store.kept_steps import pack_kept
from tests.builders import START, later, unique
from tests.engine.tables import execute, literal, query


def a_summary(name: str = "think", **changes: Any) -> TurnSummary:
    summary: dict[str, Any] = {
        "name": name,
        "digest": "0" * 64,
        "size_bytes": 3,
        "duration_us": 1_500,
        "preview": '"ok"',
    }
    return TurnSummary(**summary | changes)


def a_turn(run: RunRecord, seq: int = 1, **changes: Any) -> FinishedTurn:
    turn: dict[str, Any] = {
        "task_id": run.task_id,
        "loop": "main",
        "seq": seq,
        "turn": str(seq),
        "run_id": run.id,
        "steps": (a_summary(), a_summary("act 🌊")),
        "began_at": later(seconds=seq - 1),
        "ended_at": later(seconds=seq),
    }
    return FinishedTurn(**turn | changes)


def kept_of(*results: bytes | None, is_secret: bool = False) -> KeptSteps:
    """What a turn keeps of its steps: these results."""
    body = pack_kept([KeptStep(result) for result in results])
    return KeptSteps(body=body, is_secret=is_secret)


def a_delta(run: RunRecord, start: int = 0, **changes: Any) -> ListDelta:
    delta: dict[str, Any] = {
        "task_id": run.task_id,
        "name": "messages",
        "start": start,
        "count": 2,
        "items": b'["a","b"]',
        "chain": b"\x00" * 16,
        "run_id": run.id,
        "written_at": START,
    }
    return ListDelta(**delta | changes)


def a_value(run: RunRecord, **changes: Any) -> StoredValue:
    value: dict[str, Any] = {"task_id": run.task_id, "name": "budget", "value": b"7", "written_at": START}
    return StoredValue(**value | changes)


def a_question(run: RunRecord, **changes: Any) -> Question:
    question: dict[str, Any] = {
        "id": new_question_id(START),
        "task_id": run.task_id,
        "run_id": run.id,
        "question": "Shall I send it?",
        "choices": ("yes", "no"),
        "default_answer": b'"no"',
        "asked_at": START,
        "due_at": later(hours=1),
    }
    return Question(**question | changes)


def send(tx: Tx, task_id: str, topic: str = "hints", body: bytes = b'"hello"', **changes: Any) -> bool:
    mail: dict[str, Any] = {"sender": "ada", "key": unique(), "now": START}
    return tx.mail.send(task_id, topic=topic, body=body, **mail | changes)


def leave_everything(tx: Tx, run: RunRecord) -> None:
    """One record of each kind that belongs to the task of a run."""
    tx.turns.commit(a_turn(run), "main:1", is_over=False, kept=kept_of(b'"tide"', None))
    tx.lists.append(a_delta(run))
    tx.lists.set_value(a_value(run))
    tx.lists.set_ops(run.task_id, "", b"[2]")
    send(tx, run.task_id)
    question = tx.questions.create(a_question(run))
    tx.questions.answer(question.id, b'"yes"', by="ada", now=START)


def flip(store: Store, table: str, column: str) -> None:
    """Change one value of the only row, as a failing disk does."""
    ((value,),) = query(store, f"SELECT {column} FROM {table}")
    if isinstance(value, int):
        flipped = str(value ^ 1)
    elif isinstance(value, str):
        flipped = f"'{chr(ord(value[0]) ^ 1)}{value[1:]}'"
    else:
        flipped = literal(store, bytes([value[0] ^ 1]) + value[1:])
    execute(store, f"UPDATE {table} SET {column} = {flipped}")


def large(text: str = "ebb and flow 🌊 ") -> bytes:
    """A payload that does not fit into a row."""
    return msgspec.json.encode([text * 5_000])
