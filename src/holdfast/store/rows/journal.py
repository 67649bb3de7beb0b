"""Rows of what a program did: steps, plans, artifacts, notes, turns, lists, mail and questions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import RowDamaged
from holdfast.core.ids import TaskId
from holdfast.core.payload import digest_of
from holdfast.core.plan import Plan, PlanItem
from holdfast.core.program_records import (
    FinishedTurn,
    ListDelta,
    LoopPosition,
    Mail,
    Question,
    StoredValue,
    TurnMarks,
    TurnSummary,
)
from holdfast.core.seal_mode import SEALED
from holdfast.core.step import Artifact, Note, NoteKind, Step, shown_occurrence
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, digest_of_late, encode, micros_of, moment_of, reads
from holdfast.store.sealing import CLOSED, KEYED_BYTES, Sealing, is_keyed

_plan = msgspec.json.Decoder(Plan).decode
_artifact = msgspec.json.Decoder(Artifact).decode
_summaries = msgspec.json.Decoder(tuple[TurnSummary, ...]).decode
_choices = msgspec.json.Decoder(tuple[str, ...]).decode
_turn_marks = msgspec.json.Decoder(TurnMarks).decode

# What a reader without the key shows.
_SEALED_PLAN = Plan(items=(PlanItem(id="[sealed]", title="[sealed]"),))


@reads("step")
def step_from_row(row: Row, sealing: Sealing = CLOSED) -> Step:
    """The step. Raises RowDamaged, because a wrong result must never be replayed."""
    arguments = row[11]
    if (digest_of(*row[:10]) if arguments is None else digest_of(*row[:10], arguments)) != row[10]:
        raise RowDamaged("step", f"{row[0]}/{row[1]}/{row[2]}/{shown_occurrence(str(row[3]))}")
    if arguments is not None:
        arguments = sealing.open(arguments, "steps.arguments", *row[:4])
    return Step(
        task_id=row[0],
        scope=row[1],
        name=row[2],
        occurrence=row[3],
        run_id=row[4],
        seq=row[5],
        input_digest=row[6],
        result=sealing.open(row[7], "steps.result", *row[:4]),
        started_us=row[8],
        ended_us=row[9],
        arguments="" if arguments is None else _text_of(arguments),
    )


STEP_COLUMNS = (
    "task_id",
    "scope",
    "name",
    "occurrence",
    "run_id",
    "seq",
    "input_digest",
    "result",
    "started_at",
    "ended_at",
    "digest",
    "arguments",
)


def row_from_step(step: Step, sealing: Sealing) -> tuple[Any, ...]:
    """In the order of STEP_COLUMNS."""
    key = (step.task_id, step.scope, step.name, step.occurrence)
    has_secret = is_keyed(step.input_digest)
    row = (
        step.task_id,
        step.scope,
        step.name,
        step.occurrence,
        step.run_id,
        step.seq,
        step.input_digest,
        sealing.seal(step.result, "steps.result", *key, of_secret=has_secret),
        step.started_us,
        step.ended_us,
    )
    if not step.arguments:
        return (*row, digest_of(*row), None)
    arguments = sealing.seal_known(step.arguments.encode(), "steps.arguments", *key, is_secret=has_secret)
    return (*row, digest_of(*row, arguments), arguments)


def _text_of(arguments: bytes) -> str:
    return "[sealed]" if arguments is SEALED else arguments.decode("utf-8", "replace")


@reads("plan")
def plan_from_row(row: Row, sealing: Sealing = CLOSED) -> Plan:
    if digest_of(row[0], row[2]) != row[4]:
        raise RowDamaged("plan", row[0])
    items = sealing.open(row[2], "plans.items", row[0])
    return _SEALED_PLAN if items is SEALED else _plan(items)


def row_from_plan(task_id: str, run_id: str, plan: Plan, now: datetime, sealing: Sealing) -> Params:
    items = sealing.seal(encode(plan), "plans.items", task_id)
    return {
        "task_id": task_id,
        "run_id": run_id,
        "items": items,
        "now": to_micros(now),
        "digest": digest_of(task_id, items),
    }


@reads("artifact")
def artifact_from_row(row: Row) -> Artifact:
    if digest_of(row[0], row[1], row[3]) != row[5]:
        raise RowDamaged("artifact", f"{row[0]}/{row[1]}")
    return _artifact(row[3])


def row_from_artifact(task_id: str, run_id: str, artifact: Artifact, now: datetime) -> Params:
    body = encode(artifact)
    return {
        "task_id": task_id,
        "name": artifact.name,
        "run_id": run_id,
        "body": body,
        "now": to_micros(now),
        "digest": digest_of(task_id, artifact.name, body),
    }


@reads("note")
def note_from_row(row: Row) -> Note:
    if digest_of(row[0], row[1], row[3], row[4]) != row[6]:
        raise RowDamaged("note", f"{row[0]}/{row[1]}")
    return Note(kind=NoteKind(row[3]), text=row[4], written_at=from_micros(row[5]))


def row_from_note(task_id: str, run_id: str, seq: int, note: Note) -> Params:
    return {
        "task_id": task_id,
        "seq": seq,
        "run_id": run_id,
        "kind": note.kind.value,
        "text": note.text,
        "now": to_micros(note.written_at),
        "digest": digest_of(task_id, seq, note.kind.value, note.text),
    }


@reads("loop")
def loop_from_row(row: Row) -> LoopPosition:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("loop", f"{row[0]}/{row[1]}")
    return LoopPosition(loop=row[1], turns_done=row[2], is_over=bool(row[3]))


def row_from_loop(task_id: str, loop: LoopPosition, now: datetime) -> Params:
    row: Params = {
        "task_id": task_id,
        "loop": loop.loop,
        "turns_done": loop.turns_done,
        "is_over": int(loop.is_over),
        "now": to_micros(now),
    }
    return row | {"digest": digest_of(*row.values())}


@reads("turn")
def turn_from_row(row: Row, sealing: Sealing = CLOSED) -> FinishedTurn:
    if digest_of(*row[:11]) != row[11]:
        raise RowDamaged("turn", f"{row[0]}/{row[1]}/{row[2]}")
    place = (row[0], row[1], str(row[2]))
    steps = sealing.open(row[5], "turns.steps", *place)
    marks = sealing.maybe_open(row[10], "turns.marks", *place)
    return FinishedTurn(
        task_id=row[0],
        loop=row[1],
        seq=row[2],
        turn=row[3],
        run_id=row[4],
        steps=() if steps is SEALED else _summaries(steps),
        sealed_steps=row[6] if steps is SEALED else 0,
        began_at=from_micros(row[8]),
        ended_at=from_micros(row[9]),
        marks=None if marks is None or marks is SEALED else _turn_marks(marks),
    )


def row_from_turn(turn: FinishedTurn, sealing: Sealing, *, steps_inside: int = 0) -> Params:
    """The number of steps and the name of the last one have their own columns, for queries that only count.

    Older releases deleted turns inside this one, and counted their steps here.
    """
    place = (turn.task_id, turn.loop, str(turn.seq))
    marks = None if turn.marks is None else encode(turn.marks)
    row: Params = {
        "task_id": turn.task_id,
        "loop": turn.loop,
        "seq": turn.seq,
        "turn": turn.turn,
        "run_id": turn.run_id,
        "steps": _stored_summaries(turn, place, sealing),
        "step_count": len(turn.steps) + steps_inside,
        "last_step": turn.steps[-1].name if turn.steps else None,
        "began_at": to_micros(turn.began_at),
        "ended_at": to_micros(turn.ended_at),
        # Sealed, because it holds digests of values.
        "marks": None if marks is None else sealing.seal_beside(marks, "turns.marks", *place),
    }
    return row | {"digest": digest_of(*row.values())}


def _stored_summaries(turn: FinishedTurn, place: tuple[str, ...], sealing: Sealing) -> bytes:
    """Without arguments and results, what is left needs no seal: people see it even if the key is lost."""
    steps = encode(turn.steps)
    if not any(step.preview or step.arguments for step in turn.steps):
        return steps
    has_secret = any(
        len(step.digest) == 2 * KEYED_BYTES and (step.preview or step.arguments) for step in turn.steps
    )
    return sealing.seal(steps, "turns.steps", *place, of_secret=has_secret)


def turn_row_of(row: Row, task_id: str, sealing: Sealing) -> Params:
    """The row of a turn, copied to another task: a fork shares the turns of its source."""
    turn = turn_from_row(row, sealing)
    # The records of effects stay with the source.
    steps = tuple(
        msgspec.structs.replace(step, is_effect=False) if step.is_effect else step for step in turn.steps
    )
    turn = msgspec.structs.replace(turn, task_id=TaskId(task_id), steps=steps)
    return row_from_turn(turn, sealing, steps_inside=row[6] - len(turn.steps))


@reads("list delta")
def delta_from_row(row: Row, sealing: Sealing = CLOSED) -> ListDelta:
    """The delta with its items as stored: inline, or a reference to a blob."""
    if digest_of(*row[:8]) != row[8]:
        raise RowDamaged("list delta", f"{row[0]}/{row[1]}/{row[2]}")
    return ListDelta(
        task_id=row[0],
        name=row[1],
        start=row[2],
        count=row[3],
        items=sealing.open(row[4], "list_deltas.items", row[0], row[1], str(row[2])),
        chain=row[5],
        run_id=row[6],
        written_at=from_micros(row[7]),
    )


def row_from_delta(delta: ListDelta, sealing: Sealing) -> Params:
    """Its chain shows whether a repeated write has the same items."""
    items = sealing.seal(delta.items, "list_deltas.items", delta.task_id, delta.name, str(delta.start))
    row: Params = {
        "task_id": delta.task_id,
        "name": delta.name,
        "start": delta.start,
        "count": delta.count,
        "items": items,
        "chain": sealing.conceal(delta.chain),
        "run_id": delta.run_id,
        "written_at": to_micros(delta.written_at),
    }
    return row | {"digest": digest_of(*row.values())}


@reads("value")
def value_from_row(row: Row, sealing: Sealing = CLOSED) -> StoredValue:
    if digest_of(*row[:4]) != row[4]:
        raise RowDamaged("value", f"{row[0]}/{row[1]}")
    value = sealing.open(row[2], "durable_values.value", row[0], row[1])
    return StoredValue(task_id=row[0], name=row[1], value=value, written_at=from_micros(row[3]))


def row_from_value(value: StoredValue, sealing: Sealing) -> Params:
    row: Params = {
        "task_id": value.task_id,
        "name": value.name,
        "value": sealing.seal(value.value, "durable_values.value", value.task_id, value.name),
        "written_at": to_micros(value.written_at),
    }
    return row | {"digest": digest_of(*row.values())}


@reads("operations")
def ops_from_row(row: Row, sealing: Sealing = CLOSED) -> tuple[str, bytes]:
    """The scope, and the operations that it applied."""
    if digest_of(*row[:3]) != row[3]:
        raise RowDamaged("operations", f"{row[0]}/{row[1]}")
    return row[1], sealing.open(row[2], "scope_ops.ops", row[0], row[1])


def row_from_ops(task_id: str, scope: str, ops: bytes, sealing: Sealing) -> Params:
    sealed = sealing.seal(ops, "scope_ops.ops", task_id, scope)
    row: Params = {"task_id": task_id, "scope": scope, "ops": sealed}
    return row | {"digest": digest_of(*row.values())}


@reads("mail")
def mail_from_row(row: Row, sealing: Sealing = CLOSED) -> Mail:
    if digest_of(*row[:7]) != row[7]:
        raise RowDamaged("mail", f"{row[0]}/{row[1]}")
    return Mail(
        task_id=row[0],
        seq=row[1],
        topic=row[2],
        body=sealing.open(row[3], "mail.body", row[0], str(row[1])),
        sender=row[4],
        key=row[5],
        sent_at=from_micros(row[6]),
        taken_at=moment_of(row[8]),
    )


def row_from_mail(mail: Mail, sealing: Sealing) -> Params:
    row: Params = {
        "task_id": mail.task_id,
        "seq": mail.seq,
        "topic": mail.topic,
        "body": sealing.seal(mail.body, "mail.body", mail.task_id, str(mail.seq)),
        "sender": mail.sender,
        "key": mail.key,
        "sent_at": to_micros(mail.sent_at),
    }
    return row | {"digest": digest_of(*row.values()), "taken_at": micros_of(mail.taken_at)}


@reads("question")
def question_from_row(row: Row, sealing: Sealing = CLOSED) -> Question:
    if digest_of(*row[:8]) != row[8] or digest_of_late(row[0], row[10]) != row[11]:
        raise RowDamaged("question", row[0])
    choices = sealing.maybe_open(row[4], "questions.choices", row[0])
    return Question(
        id=row[0],
        task_id=row[1],
        run_id=row[2],
        question=row[3],
        choices=None if choices is None or choices is SEALED else _choices(choices),
        default_answer=sealing.maybe_open(row[5], "questions.default_answer", row[0]),
        asked_at=from_micros(row[6]),
        due_at=moment_of(row[7]),
        answered_at=moment_of(row[9]),
        answer=sealing.maybe_open(row[10], "questions.answer", row[0]),
        answered_by=row[12],
    )


def row_from_question(question: Question, sealing: Sealing) -> Params:
    choices = None if question.choices is None else encode(question.choices)
    answer = sealing.maybe(question.answer, "questions.answer", question.id)
    row: Params = {
        "id": question.id,
        "task_id": question.task_id,
        "run_id": question.run_id,
        "question": question.question,
        "choices": sealing.maybe(choices, "questions.choices", question.id),
        "default_answer": sealing.maybe(question.default_answer, "questions.default_answer", question.id),
        "asked_at": to_micros(question.asked_at),
        "due_at": micros_of(question.due_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "answered_at": micros_of(question.answered_at),
        "answer": answer,
        "answer_digest": digest_of_late(question.id, answer),
        "answered_by": question.answered_by,
    }
