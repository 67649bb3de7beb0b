"""The audit log for every door: a write that records who made it, and a page of what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.api.params import IdText, NameText, PageSize, Params
from holdfast.core.audit import AuditOutcome, subject_line
from holdfast.core.errors import BadInput
from holdfast.store.tasks import LAST
from holdfast.views.audit import AuditEntryView, AuditPageView

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.core.audit import Actor, AuditEntry
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx

T = TypeVar("T")

# Where an answer names the record that it is about.
_RECORDS = ("task", "review", "question", "delivery")
_IDS = ("id", "task_id", "effect_id", "question_id", "delivery_id", "checkpoint_id", "name")


class AuditAsked(Params, frozen=True, kw_only=True):
    """A page of the audit log, newest first: of one actor, one action or one record, or of all."""

    who: NameText | None = None
    action: NameText | None = None
    subject: NameText | None = None
    before: IdText | None = None
    limit: PageSize = 50


def read_page(tx: Tx, asked: AuditAsked) -> AuditPageView:
    """Raises BadInput when it is narrowed by more than one."""
    wanted = {"who": asked.who, "action": asked.action, "subject": asked.subject}
    given = [(column, value) for column, value in wanted.items() if value is not None]
    if len(given) > 1:
        names = " and ".join(column for column, _ in given)
        raise BadInput(given[1][0], f"{names} cannot be combined; choose one")
    column, value = given[0] if given else (None, "")
    found = tx.audit.page(asked.limit + 1, asked.before or LAST, column=column, value=value)
    shown = found[: asked.limit]
    return AuditPageView(
        entries=[AuditEntryView.of(entry) for entry in shown],
        next_page=shown[-1].id if len(found) > len(shown) else None,
    )


def recorded(write: Write[T], actor: Actor, action: str, asked: msgspec.Struct, *, now: datetime) -> Write[T]:
    """The same write, and in its transaction the entry that tells who made it."""
    entry = actor.entry(action, AuditOutcome.DONE, now=now)

    def write_and_record(tx: Tx) -> T:
        answer = write(tx)
        subject = subject_of(asked, answer)
        tx.audit.add(msgspec.structs.replace(entry, subject=subject))
        return answer

    return write_and_record


def asking(actor: Actor, action: str, asked: msgspec.Struct, *, now: datetime) -> AuditEntry:
    """The entry before an act that takes several writes: who asked for it."""
    return actor.entry(action, AuditOutcome.ASKED, now=now, subject=subject_of(asked))


def subject_of(asked: object, answer: object = None) -> str | None:
    """The record that an answer is about; without one, as the caller named it."""
    for record in (*(getattr(answer, name, None) for name in _RECORDS), answer, asked):
        for name in _IDS:
            found: Any = getattr(record, name, None)
            if isinstance(found, str):
                return subject_line(found)
    several = getattr(asked, "task_ids", None)
    return subject_line(" ".join(several)) if isinstance(several, list) else None
