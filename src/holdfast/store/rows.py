"""Row to domain and back, in symmetric pairs.

Rows come in the order of the table's columns, which both databases share (a test compares them).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar, cast

import msgspec

from holdfast.core.checkpoint import Checkpoint, CheckpointKind, ResumeReason
from holdfast.core.claim import Boot
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.delivery import Delivery, channel_of
from holdfast.core.effect import Effect, EffectClass
from holdfast.core.errors import RowDamaged
from holdfast.core.events import Event, EventKind
from holdfast.core.flow import Flow, FlowMode
from holdfast.core.ids import BootId
from holdfast.core.manifest import Manifest, Restart, Trigger
from holdfast.core.manifest import Outcome as RestartOutcome
from holdfast.core.message import Message, Role
from holdfast.core.payload import digest_of
from holdfast.core.plan import Plan
from holdfast.core.run import Queue, Run
from holdfast.core.schedule import Firing, Wake, WakeReason
from holdfast.core.scope import (
    FinishedTurn,
    ListDelta,
    Loop,
    Mail,
    Question,
    StoredValue,
    TurnMarks,
    TurnSummary,
)
from holdfast.core.session import Session
from holdfast.core.step import Artifact, Note, NoteKind, Step
from holdfast.core.task import Failure, NotifyPolicy, Origin, Progress, RuntimeName, Task
from holdfast.core.transitions import (
    CheckpointStatus,
    DeliveryStatus,
    EffectStatus,
    FiringStatus,
    FlowStatus,
    MessageStatus,
    RestartStatus,
    RunStatus,
    SessionStatus,
    TaskStatus,
    WakeStatus,
)
from holdfast.store.contract import Row

Params = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_origin = msgspec.json.Decoder(Origin).decode
_progress = msgspec.json.Decoder(Progress).decode
_failure = msgspec.json.Decoder(Failure).decode
_plan = msgspec.json.Decoder(Plan).decode
_artifact = msgspec.json.Decoder(Artifact).decode
_facts = msgspec.json.Decoder(dict[str, object]).decode
_summaries = msgspec.json.Decoder(tuple[TurnSummary, ...]).decode
_choices = msgspec.json.Decoder(tuple[str, ...]).decode
_turn_marks = msgspec.json.Decoder(TurnMarks).decode


R = TypeVar("R")
# Words to statuses: much quicker than to call the enumeration, and rows are read all the time.
_RUNTIMES = {one.value: one for one in RuntimeName}
_POLICIES = {one.value: one for one in NotifyPolicy}
_TASK_STATUSES = {one.value: one for one in TaskStatus}
_RUN_STATUSES = {one.value: one for one in RunStatus}
_QUEUES = {one.value: one for one in Queue}

# The end of the year 9999, which is the last that a datetime can hold.
_LAST_MICROS = 253_402_300_799_999_999


def _reads(
    noun: str, mend: Callable[[Row], Row] | None = None
) -> Callable[[Callable[[Row], R]], Callable[[Row], R]]:
    """What does not decode is damaged, whatever the digest says: a status may have lost a bit, too.

    Nouns of which many are read at once say how such a row is mended: then it is handed out as damaged,
    because one bad row must not keep the others from being shown, claimed or resumed.
    """

    def wrap(read: Callable[[Row], R]) -> Callable[[Row], R]:
        @functools.wraps(read)
        def guarded(row: Row) -> R:
            try:
                return read(row)
            except (KeyError, ValueError, TypeError, OverflowError) as error:
                if mend is not None:
                    with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
                        return cast(R, msgspec.structs.replace(cast(Any, read(mend(row))), is_damaged=True))
                raise RowDamaged(noun, str(row[0]), str(error)) from error

        return guarded

    return wrap


def _mend(
    choices: dict[int, type[StrEnum]], dropped: tuple[int, ...], times: tuple[int, ...]
) -> Callable[[Row], Row]:
    """Makes a row readable: the first of its kind for a word that is none, nothing for what is optional."""

    def mend(row: Row) -> Row:
        mended = list(row)
        for place, words in choices.items():
            if row[place] not in list(words):
                mended[place] = next(iter(words)).value
        for place in dropped:
            mended[place] = None
        for place in times:
            if isinstance(row[place], int) and not 0 <= row[place] <= _LAST_MICROS:
                mended[place] = 0
        return mended

    return mend


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _json(value: msgspec.Struct | None) -> bytes | None:
    return None if value is None else _encode(value)


def digest_of_late(record_id: str, payload: bytes | None) -> bytes | None:
    """The digest of what is added to a record later, such as an outcome: it has a column of its own."""
    return None if payload is None else digest_of(record_id, payload)


@_reads(
    "task", _mend({2: RuntimeName, 11: NotifyPolicy, 14: TaskStatus}, (6, 17, 20), (12, 21, 23, 24, 25, 26))
)
def task_from_row(row: Row) -> Task:
    """The task; `is_damaged` when what was written once is no longer what stands there."""
    return Task(
        id=row[0],
        owner=row[1],
        runtime=_RUNTIMES[row[2]],
        name=row[3],
        goal=row[4],
        arguments=row[5],
        origin=None if row[6] is None else _origin(row[6]),
        session_key=row[7],
        parent_task_id=row[8],
        flow_id=row[9],
        dedup_key=row[10],
        notify=_POLICIES[row[11]],
        created_at=from_micros(row[12]),
        is_damaged=digest_of(*row[:13]) != row[13]
        or (row[18] is not None and digest_of(row[0], row[18]) != row[19]),
        status=_TASK_STATUSES[row[14]],
        priority=row[15],
        waits_on=row[16],
        progress=None if row[17] is None else _progress(row[17]),
        result=row[18],
        failure=None if row[20] is None else _failure(row[20]),
        cancel_requested_at=_moment(row[21]),
        cancel_reason=row[22],
        updated_at=from_micros(row[23]),
        started_at=_moment(row[24]),
        ended_at=_moment(row[25]),
        cleanup_after=_moment(row[26]),
    )


def row_from_task(task: Task) -> Params:
    row: Params = {
        "id": task.id,
        "owner": task.owner,
        "runtime": task.runtime.value,
        "name": task.name,
        "goal": task.goal,
        "arguments": task.arguments,
        "origin": _json(task.origin),
        "session_key": task.session_key,
        "parent_task_id": task.parent_task_id,
        "flow_id": task.flow_id,
        "dedup_key": task.dedup_key,
        "notify": task.notify.value,
        "created_at": to_micros(task.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": task.status.value,
        "priority": task.priority,
        "waits_on": task.waits_on,
        "progress": _json(task.progress),
        "result": task.result,
        "result_digest": None if task.result is None else digest_of(task.id, task.result),
        "failure": _json(task.failure),
        "cancel_requested_at": _micros(task.cancel_requested_at),
        "cancel_reason": task.cancel_reason,
        "updated_at": to_micros(task.updated_at),
        "started_at": _micros(task.started_at),
        "ended_at": _micros(task.ended_at),
        "cleanup_after": _micros(task.cleanup_after),
    }


@_reads("run", _mend({9: RunStatus, 12: Queue}, (21,), (7, 11, 18, 19, 22, 23, 24)))
def run_from_row(row: Row) -> Run:
    """The run; `is_damaged` instead of an exception, because one bad row must not stop the work of all."""
    return Run(
        id=row[0],
        task_id=row[1],
        task_name=row[2],
        number=row[3],
        resumes_run_id=row[4],
        checkpoint_id=row[5],
        seed=row[6],
        created_at=from_micros(row[7]),
        is_damaged=digest_of(*row[:8]) != row[8],
        status=_RUN_STATUSES[row[9]],
        priority=row[10],
        due_at=from_micros(row[11]),
        queue=_QUEUES[row[12]],
        is_alone=bool(row[13]),
        idle_attempts=row[14],
        claimed_by=row[15],
        claim_token=row[16],
        fence=row[17],
        lease_until=_moment(row[18]),
        beat_at=_moment(row[19]),
        waits_on=row[20],
        failure=None if row[21] is None else _failure(row[21]),
        updated_at=from_micros(row[22]),
        started_at=_moment(row[23]),
        ended_at=_moment(row[24]),
    )


def row_from_run(run: Run) -> Params:
    row: Params = {
        "id": run.id,
        "task_id": run.task_id,
        "task_name": run.task_name,
        "number": run.number,
        "resumes_run_id": run.resumes_run_id,
        "checkpoint_id": run.checkpoint_id,
        "seed": run.seed,
        "created_at": to_micros(run.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": run.status.value,
        "priority": run.priority,
        "due_at": to_micros(run.due_at),
        "queue": run.queue.value,
        "is_alone": int(run.is_alone),
        "idle_attempts": run.idle_attempts,
        "claimed_by": run.claimed_by,
        "claim_token": run.claim_token,
        "fence": run.fence,
        "lease_until": _micros(run.lease_until),
        "beat_at": _micros(run.beat_at),
        "waits_on": run.waits_on,
        "failure": _json(run.failure),
        "updated_at": to_micros(run.updated_at),
        "started_at": _micros(run.started_at),
        "ended_at": _micros(run.ended_at),
    }


@_reads("step")
def step_from_row(row: Row) -> Step:
    """The step; raises RowDamaged, because a wrong result must never be remembered."""
    if digest_of(*row[:10]) != row[10]:
        raise RowDamaged("step", f"{row[0]}/{row[1]}/{row[2]}/{row[3]}")
    return Step(
        task_id=row[0],
        scope=row[1],
        name=row[2],
        occurrence=row[3],
        run_id=row[4],
        seq=row[5],
        input_digest=row[6],
        result=row[7],
        started_at=from_micros(row[8]),
        ended_at=from_micros(row[9]),
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
)


def row_from_step(step: Step, ended_at: int | None = None) -> tuple[Any, ...]:
    """In the order of STEP_COLUMNS. Who has the micros of its end saves working them out."""
    ended_at = to_micros(step.ended_at) if ended_at is None else ended_at
    row = (
        step.task_id,
        step.scope,
        step.name,
        step.occurrence,
        step.run_id,
        step.seq,
        step.input_digest,
        step.result,
        ended_at if step.started_at is step.ended_at else to_micros(step.started_at),
        ended_at,
    )
    return (*row, digest_of(*row))


@_reads("plan")
def plan_from_row(row: Row) -> Plan:
    if digest_of(row[0], row[2]) != row[4]:
        raise RowDamaged("plan", row[0])
    return _plan(row[2])


def row_from_plan(task_id: str, run_id: str, plan: Plan, now: datetime) -> Params:
    items = _encode(plan)
    return {
        "task_id": task_id,
        "run_id": run_id,
        "items": items,
        "now": to_micros(now),
        "digest": digest_of(task_id, items),
    }


@_reads("artifact")
def artifact_from_row(row: Row) -> Artifact:
    if digest_of(row[0], row[1], row[3]) != row[5]:
        raise RowDamaged("artifact", f"{row[0]}/{row[1]}")
    return _artifact(row[3])


def row_from_artifact(task_id: str, run_id: str, artifact: Artifact, now: datetime) -> Params:
    body = _encode(artifact)
    return {
        "task_id": task_id,
        "name": artifact.name,
        "run_id": run_id,
        "body": body,
        "now": to_micros(now),
        "digest": digest_of(task_id, artifact.name, body),
    }


@_reads("note")
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


@_reads("loop")
def loop_from_row(row: Row) -> Loop:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("loop", f"{row[0]}/{row[1]}")
    return Loop(loop=row[1], turns_done=row[2], is_over=bool(row[3]))


def row_from_loop(task_id: str, loop: Loop, now: datetime) -> Params:
    row: Params = {
        "task_id": task_id,
        "loop": loop.loop,
        "turns_done": loop.turns_done,
        "is_over": int(loop.is_over),
        "now": to_micros(now),
    }
    return row | {"digest": digest_of(*row.values())}


_TURN_COLUMNS = (
    *("task_id", "loop", "seq", "turn", "run_id", "steps", "step_count", "last_step"),
    *("began_at", "ended_at", "marks"),
)


@_reads("turn")
def turn_from_row(row: Row) -> FinishedTurn:
    if digest_of(*row[:11]) != row[11]:
        raise RowDamaged("turn", f"{row[0]}/{row[1]}/{row[2]}")
    return FinishedTurn(
        task_id=row[0],
        loop=row[1],
        seq=row[2],
        turn=row[3],
        run_id=row[4],
        steps=_summaries(row[5]),
        began_at=from_micros(row[8]),
        ended_at=from_micros(row[9]),
        marks=None if row[10] is None else _turn_marks(row[10]),
    )


def row_from_turn(turn: FinishedTurn, *, steps_inside: int = 0) -> Params:
    """How many steps there were and the last one's name are columns of their own, for whoever only counts.

    Those of turns inside this one are counted, too, though not summed up: they may be many.
    """
    row: Params = {
        "task_id": turn.task_id,
        "loop": turn.loop,
        "seq": turn.seq,
        "turn": turn.turn,
        "run_id": turn.run_id,
        "steps": _encode(turn.steps),
        "step_count": len(turn.steps) + steps_inside,
        "last_step": turn.steps[-1].name if turn.steps else None,
        "began_at": to_micros(turn.began_at),
        "ended_at": to_micros(turn.ended_at),
        "marks": None if turn.marks is None else _encode(turn.marks),
    }
    return row | {"digest": digest_of(*row.values())}


def turn_row_of(row: Row, task_id: str) -> Params:
    """The row of a turn as another task's: a fork shares the turns of its source."""
    copied = dict(zip(_TURN_COLUMNS, (task_id, *row[1:11]), strict=True))
    return copied | {"digest": digest_of(*copied.values())}


@_reads("list delta")
def delta_from_row(row: Row) -> ListDelta:
    """The delta with its items as they are stored: themselves, or a reference to a blob."""
    if digest_of(*row[:8]) != row[8]:
        raise RowDamaged("list delta", f"{row[0]}/{row[1]}/{row[2]}")
    return ListDelta(
        task_id=row[0],
        name=row[1],
        start=row[2],
        count=row[3],
        items=row[4],
        chain=row[5],
        run_id=row[6],
        written_at=from_micros(row[7]),
    )


def row_from_delta(delta: ListDelta) -> Params:
    row: Params = {
        "task_id": delta.task_id,
        "name": delta.name,
        "start": delta.start,
        "count": delta.count,
        "items": delta.items,
        "chain": delta.chain,
        "run_id": delta.run_id,
        "written_at": to_micros(delta.written_at),
    }
    return row | {"digest": digest_of(*row.values())}


@_reads("value")
def value_from_row(row: Row) -> StoredValue:
    if digest_of(*row[:4]) != row[4]:
        raise RowDamaged("value", f"{row[0]}/{row[1]}")
    return StoredValue(task_id=row[0], name=row[1], value=row[2], written_at=from_micros(row[3]))


def row_from_value(value: StoredValue) -> Params:
    row: Params = {
        "task_id": value.task_id,
        "name": value.name,
        "value": value.value,
        "written_at": to_micros(value.written_at),
    }
    return row | {"digest": digest_of(*row.values())}


@_reads("operations")
def ops_from_row(row: Row) -> tuple[str, bytes]:
    """The scope, and what it has had applied."""
    if digest_of(*row[:3]) != row[3]:
        raise RowDamaged("operations", f"{row[0]}/{row[1]}")
    return row[1], row[2]


def row_from_ops(task_id: str, scope: str, ops: bytes) -> Params:
    row: Params = {"task_id": task_id, "scope": scope, "ops": ops}
    return row | {"digest": digest_of(*row.values())}


@_reads("mail")
def mail_from_row(row: Row) -> Mail:
    if digest_of(*row[:7]) != row[7]:
        raise RowDamaged("mail", f"{row[0]}/{row[1]}")
    return Mail(
        task_id=row[0],
        seq=row[1],
        topic=row[2],
        body=row[3],
        sender=row[4],
        key=row[5],
        sent_at=from_micros(row[6]),
        taken_at=_moment(row[8]),
    )


def row_from_mail(mail: Mail) -> Params:
    row: Params = {
        "task_id": mail.task_id,
        "seq": mail.seq,
        "topic": mail.topic,
        "body": mail.body,
        "sender": mail.sender,
        "key": mail.key,
        "sent_at": to_micros(mail.sent_at),
    }
    return row | {"digest": digest_of(*row.values()), "taken_at": _micros(mail.taken_at)}


@_reads("question")
def question_from_row(row: Row) -> Question:
    if digest_of(*row[:8]) != row[8] or digest_of_late(row[0], row[10]) != row[11]:
        raise RowDamaged("question", row[0])
    return Question(
        id=row[0],
        task_id=row[1],
        run_id=row[2],
        question=row[3],
        choices=None if row[4] is None else _choices(row[4]),
        default_answer=row[5],
        asked_at=from_micros(row[6]),
        due_at=_moment(row[7]),
        answered_at=_moment(row[9]),
        answer=row[10],
        answered_by=row[12],
    )


def row_from_question(question: Question) -> Params:
    row: Params = {
        "id": question.id,
        "task_id": question.task_id,
        "run_id": question.run_id,
        "question": question.question,
        "choices": None if question.choices is None else _encode(question.choices),
        "default_answer": question.default_answer,
        "asked_at": to_micros(question.asked_at),
        "due_at": _micros(question.due_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "answered_at": _micros(question.answered_at),
        "answer": question.answer,
        "answer_digest": digest_of_late(question.id, question.answer),
        "answered_by": question.answered_by,
    }


@_reads("checkpoint", _mend({3: CheckpointKind, 4: ResumeReason}, (17,), (8, 14, 18)))
def checkpoint_from_row(row: Row) -> Checkpoint:
    """The checkpoint; `is_damaged` instead of an exception, because it must still become failed_resume."""
    return Checkpoint(
        id=row[0],
        task_id=row[1],
        run_id=row[2],
        kind=CheckpointKind(row[3]),
        reason=ResumeReason(row[4]),
        schema_version=row[5],
        document=row[6],
        retry_of=row[7],
        created_at=from_micros(row[8]),
        is_damaged=digest_of(*row[:9]) != row[9],
        status=None if row[10] is None else CheckpointStatus(row[10]),
        priority=row[11],
        token=row[12],
        claimed_by=row[13],
        lease_until=_moment(row[14]),
        attempts=row[15],
        resumed_run_id=row[16],
        diagnostic=None if row[17] is None else _failure(row[17]),
        updated_at=from_micros(row[18]),
    )


def row_from_checkpoint(checkpoint: Checkpoint) -> Params:
    row: Params = {
        "id": checkpoint.id,
        "task_id": checkpoint.task_id,
        "run_id": checkpoint.run_id,
        "kind": checkpoint.kind.value,
        "reason": checkpoint.reason.value,
        "schema_version": checkpoint.schema_version,
        "document": checkpoint.document,
        "retry_of": checkpoint.retry_of,
        "created_at": to_micros(checkpoint.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": None if checkpoint.status is None else checkpoint.status.value,
        "priority": checkpoint.priority,
        "token": checkpoint.token,
        "claimed_by": checkpoint.claimed_by,
        "lease_until": _micros(checkpoint.lease_until),
        "attempts": checkpoint.attempts,
        "resumed_run_id": checkpoint.resumed_run_id,
        "diagnostic": _json(checkpoint.diagnostic),
        "updated_at": to_micros(checkpoint.updated_at),
    }


@_reads("effect")
def effect_from_row(row: Row) -> Effect:
    if (
        digest_of(*row[:11]) != row[11]
        or digest_of_late(row[0], row[14]) != row[15]
        or digest_of_late(row[0], row[16]) != row[17]
    ):
        raise RowDamaged("effect", row[0])
    return Effect(
        id=row[0],
        task_id=row[1],
        run_id=row[2],
        scope=row[3],
        name=row[4],
        occurrence=row[5],
        effect_class=EffectClass(row[6]),
        idempotency_key=row[7],
        generation=row[8],
        request=row[9],
        created_at=from_micros(row[10]),
        status=EffectStatus(row[12]),
        fence=row[13],
        outcome=row[14],
        review=row[16],
        settle_after=_moment(row[18]),
        updated_at=from_micros(row[19]),
    )


# What is said once an effect is done.
FINISH_COLUMNS = (
    *("outcome", "outcome_digest", "now"),
    *("task_id", "scope", "name", "occurrence", "generation", "run_id", "fence"),
)


@_reads("effect")
def step_from_effect_row(row: Row) -> Step:
    """The step that an effect is once it is done. Raises RowDamaged."""
    return effect_from_row(row).as_step()


# What is said when an effect is begun.
INTENT_COLUMNS = (
    *("id", "task_id", "run_id", "scope", "name", "occurrence", "effect_class", "idempotency_key"),
    *("generation", "request", "created_at", "digest", "fence", "settle_after"),
)


# The statements that every step and every effect is, with the order in which their values are given: each is
# written often enough for that to matter.
IN_ORDER = {
    "save_step": (*STEP_COLUMNS, "fence"),
    "begin_effect": INTENT_COLUMNS,
    "begin_effect_outside": INTENT_COLUMNS,
    "finish_effect": FINISH_COLUMNS,
}


def intent_from_effect(effect: Effect, created_at: int | None = None) -> tuple[Any, ...]:
    """In the order of INTENT_COLUMNS. Who has the micros of its creation saves working them out."""
    row = (
        effect.id,
        effect.task_id,
        effect.run_id,
        effect.scope,
        effect.name,
        effect.occurrence,
        effect.effect_class._value_,  # which costs a tenth of `value`
        effect.idempotency_key,
        effect.generation,
        effect.request,
        to_micros(effect.created_at) if created_at is None else created_at,
    )
    settle_after = effect.settle_after
    return (
        *row,
        digest_of(*row),
        effect.fence,
        None if settle_after is None else to_micros(settle_after),
    )


def row_from_effect(effect: Effect) -> Params:
    return dict(zip(INTENT_COLUMNS, intent_from_effect(effect), strict=True)) | {
        "status": effect.status.value,
        "outcome": effect.outcome,
        "outcome_digest": digest_of_late(effect.id, effect.outcome),
        "review": effect.review,
        "review_digest": digest_of_late(effect.id, effect.review),
        "updated_at": to_micros(effect.updated_at),
    }


@_reads("delivery")
def delivery_from_row(row: Row) -> Delivery:
    if digest_of(*row[:7]) != row[7]:
        raise RowDamaged("delivery", row[0])
    origin = None if row[3] is None else _origin(row[3])
    if channel_of(origin) != row[14]:
        # It would be taken by somebody who does not have its channel.
        raise RowDamaged("delivery", row[0])
    return Delivery(
        id=row[0],
        task_id=row[1],
        idempotency_key=row[2],
        origin=origin,
        message=row[5],
        created_at=from_micros(row[6]),
        status=DeliveryStatus(row[8]),
        attempts=row[9],
        due_at=from_micros(row[10]),
        failure=None if row[11] is None else _failure(row[11]),
        claimed_by=row[12],
        updated_at=from_micros(row[13]),
    )


def row_from_delivery(delivery: Delivery) -> Params:
    row: Params = {
        "id": delivery.id,
        "task_id": delivery.task_id,
        "idempotency_key": delivery.idempotency_key,
        "origin": _json(delivery.origin),
        "target": delivery.target,
        "message": delivery.message,
        "created_at": to_micros(delivery.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "due_at": to_micros(delivery.due_at),
        "failure": _json(delivery.failure),
        "claimed_by": delivery.claimed_by,
        "updated_at": to_micros(delivery.updated_at),
        "channel": delivery.channel,
    }


@_reads("flow")
def flow_from_row(row: Row) -> Flow:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("flow", row[0])
    return Flow(
        id=row[0],
        owner=row[1],
        mode=FlowMode(row[2]),
        goal=row[3],
        created_at=from_micros(row[4]),
        status=FlowStatus(row[6]),
        revision=row[7],
        current_step=row[8],
        contents=row[9],
        waits_on=row[10],
        blocked_by_task_id=row[11],
        cancel_requested_at=_moment(row[12]),
        updated_at=from_micros(row[13]),
        ended_at=_moment(row[14]),
    )


def row_from_flow(flow: Flow) -> Params:
    row: Params = {
        "id": flow.id,
        "owner": flow.owner,
        "mode": flow.mode.value,
        "goal": flow.goal,
        "created_at": to_micros(flow.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": flow.status.value,
        "revision": flow.revision,
        "current_step": flow.current_step,
        "contents": flow.contents,
        "waits_on": flow.waits_on,
        "blocked_by_task_id": flow.blocked_by_task_id,
        "cancel_requested_at": _micros(flow.cancel_requested_at),
        "updated_at": to_micros(flow.updated_at),
        "ended_at": _micros(flow.ended_at),
    }


@_reads("session")
def session_from_row(row: Row) -> Session:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("session", row[0])
    return Session(
        id=row[0],
        key=row[1],
        agent=row[2],
        parent_key=row[3],
        created_at=from_micros(row[4]),
        status=SessionStatus(row[6]),
        waits_on=row[7],
        origin=None if row[8] is None else _origin(row[8]),
        task_id=row[9],
        last_position=row[10],
        queued=row[11],
        ready_at=_moment(row[12]),
        updated_at=from_micros(row[13]),
    )


def row_from_session(session: Session) -> Params:
    row: Params = {
        "id": session.id,
        "key": session.key,
        "agent": session.agent,
        "parent_key": session.parent_key,
        "created_at": to_micros(session.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": session.status.value,
        "waits_on": session.waits_on,
        "origin": _json(session.origin),
        "task_id": session.task_id,
        "last_position": session.last_position,
        "queued": session.queued,
        "ready_at": _micros(session.ready_at),
        "updated_at": to_micros(session.updated_at),
    }


@_reads("message")
def message_from_row(row: Row) -> Message:
    if digest_of(*row[:11]) != row[11]:
        raise RowDamaged("message", row[0])
    return Message(
        id=row[0],
        session_key=row[1],
        position=row[2],
        role=Role(row[3]),
        channel=row[4],
        account_id=row[5],
        channel_message_id=row[6],
        origin=None if row[7] is None else _origin(row[7]),
        body=row[8],
        reply_to=row[9],
        created_at=from_micros(row[10]),
        status=MessageStatus(row[12]),
        task_id=row[13],
        updated_at=from_micros(row[14]),
    )


def row_from_message(message: Message) -> Params:
    row: Params = {
        "id": message.id,
        "session_key": message.session_key,
        "position": message.position,
        "role": message.role.value,
        "channel": message.channel,
        "account_id": message.account_id,
        "channel_message_id": message.channel_message_id,
        "origin": _json(message.origin),
        "body": message.body,
        "reply_to": message.reply_to,
        "created_at": to_micros(message.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": message.status.value,
        "task_id": message.task_id,
        "updated_at": to_micros(message.updated_at),
    }


@_reads("firing")
def firing_from_row(row: Row) -> Firing:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("firing", row[0])
    return Firing(
        id=row[0],
        schedule=row[1],
        occurrence_at=from_micros(row[2]),
        session_key=row[3],
        created_at=from_micros(row[4]),
        status=FiringStatus(row[6]),
        message_id=row[7],
        task_id=row[8],
        is_retry=bool(row[9]),
        updated_at=from_micros(row[10]),
    )


def row_from_firing(firing: Firing) -> Params:
    row: Params = {
        "id": firing.id,
        "schedule": firing.schedule,
        "occurrence_at": to_micros(firing.occurrence_at),
        "session_key": firing.session_key,
        "created_at": to_micros(firing.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": firing.status.value,
        "message_id": firing.message_id,
        "task_id": firing.task_id,
        "is_retry": int(firing.is_retry),
        "updated_at": to_micros(firing.updated_at),
    }


@_reads("wake")
def wake_from_row(row: Row) -> Wake:
    if digest_of(*row[:6]) != row[6]:
        raise RowDamaged("wake", row[0])
    return Wake(
        id=row[0],
        task_id=row[1],
        checkpoint_id=row[2],
        reason=WakeReason(row[3]),
        attempt=row[4],
        created_at=from_micros(row[5]),
        status=WakeStatus(row[7]),
        due_at=from_micros(row[8]),
        updated_at=from_micros(row[9]),
    )


def row_from_wake(wake: Wake) -> Params:
    row: Params = {
        "id": wake.id,
        "task_id": wake.task_id,
        "checkpoint_id": wake.checkpoint_id,
        "reason": wake.reason.value,
        "attempt": wake.attempt,
        "created_at": to_micros(wake.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": wake.status.value,
        "due_at": to_micros(wake.due_at),
        "updated_at": to_micros(wake.updated_at),
    }


@_reads("restart")
def restart_from_row(row: Row) -> Restart:
    if digest_of(*row[:5]) != row[5]:
        raise RowDamaged("restart", row[0])
    return Restart(
        id=row[0],
        boot_id=row[1],
        place=row[2],
        requested_at=from_micros(row[3]),
        manifest=msgspec.json.decode(row[4], type=Manifest),
        status=RestartStatus(row[6]),
        triggers=msgspec.json.decode(row[7], type=tuple[Trigger, ...]),
        outcome=None if row[8] is None else msgspec.json.decode(row[8], type=RestartOutcome),
        recovered_by=row[9],
        updated_at=from_micros(row[10]),
    )


def row_from_restart(restart: Restart) -> Params:
    row: Params = {
        "id": restart.id,
        "boot_id": restart.boot_id,
        "place": restart.place,
        "requested_at": to_micros(restart.requested_at),
        "manifest": _encode(restart.manifest),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": restart.status.value,
        "triggers": _encode(restart.triggers),
        "outcome": None if restart.outcome is None else _encode(restart.outcome),
        "recovered_by": restart.recovered_by,
        "updated_at": to_micros(restart.updated_at),
    }


@_reads("boot")
def boot_from_row(row: Row) -> Boot:
    return Boot(
        id=BootId(row[0]),
        host=row[1],
        pid=row[2],
        role=row[3],
        started_at=from_micros(row[4]),
        ended_at=_moment(row[5]),
    )


def row_from_boot(boot: Boot) -> Params:
    return {
        "id": boot.id,
        "host": boot.host,
        "pid": boot.pid,
        "role": boot.role,
        "started_at": to_micros(boot.started_at),
    }


@_reads("event")
def event_from_row(row: Row) -> Event:
    """Its position is the transaction and the place: on PostgreSQL places alone appear out of order."""
    return Event(
        position=f"{row[0]}.{row[1]}",
        at=from_micros(row[2]),
        kind=EventKind(row[3]),
        task_id=row[4],
        subject_id=row[5],
        facts=_facts(row[6]),
    )
