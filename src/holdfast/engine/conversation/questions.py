"""Records a person's answer to a task's question, once, and wakes the run that asked."""

from __future__ import annotations

from datetime import datetime

from holdfast.core.errors import BadInput, IllegalMove
from holdfast.core.events import EventKind
from holdfast.core.ids import check_id
from holdfast.core.payload import check_name, encode_payload
from holdfast.core.program_records import Question
from holdfast.core.redaction import redact_text
from holdfast.engine.claims.claims import wake_run
from holdfast.store import Tx, Write


def answering(question_id: str, answer: object, *, by: str, now: datetime) -> Write[Question]:
    """The write that answers a question once, and wakes the run that asked."""
    check_id("question", question_id)
    by = check_name("by", by)
    given = encode_payload("answer", answer)

    def answer_it(tx: Tx) -> Question:
        question = tx.questions.get(question_id)
        encoded = given if question.choices is None else _chosen(question.choices, answer)
        if tx.questions.answer(question_id, encoded, by=by, now=now):
            tx.emit(EventKind.QUESTION_ANSWERED, question_id, at=now, task_id=question.task_id, by=by)
            wake_waiting(tx, question.task_id, f"answer:{question_id}", now)
        elif (question.answer, question.answered_by) != (encoded, by):
            raise IllegalMove("question", question_id, "answered", "answered")
        return tx.questions.get(question_id)

    return answer_it


def choice_in(choices: tuple[str, ...], said: str) -> str | None:
    """The choice that a person typed; case and spaces do not matter. None if it fits none, or several."""
    wanted = " ".join(said.split()).casefold()
    meant = {one for one in choices if " ".join(one.split()).casefold() == wanted}
    return meant.pop() if len(meant) == 1 else None


def _chosen(choices: tuple[str, ...], answer: object) -> bytes:
    """The chosen one. A person who was shown a redacted choice may answer with that text, if it is unique."""
    meant = [one for one in choices if one == answer] or [
        one for one in choices if redact_text(one) == answer
    ]
    if len(set(meant)) != 1:
        raise BadInput("answer", f"choose one of: {', '.join(map(redact_text, choices))}")
    return encode_payload("answer", meant[0])


def wake_waiting(tx: Tx, task_id: str, waits_on: str, now: datetime) -> None:
    """Wake the run of a task if it waits for exactly this. The lock waits for a run that is about to wait."""
    tx.tasks.lock(task_id)
    run = tx.runs.live_of_task(task_id)
    if run is not None and run.waits_on == waits_on:
        wake_run(tx, run.id, now=now)
