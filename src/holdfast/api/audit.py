"""The audit log: adds an entry to a write, and reads pages of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.api.pages import bad_token
from holdfast.api.params import NameText, PageSize, PageToken, Params
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

# The fields of an answer that name its record.
_RECORDS = ("task", "flow", "campaign", "review", "question", "delivery", "agent")
_IDS = (
    "id",
    "flow_id",
    "task_id",
    "effect_id",
    "question_id",
    "delivery_id",
    "checkpoint_id",
    "name",
    "rule",
)


class AuditAsked(Params, frozen=True, kw_only=True):
    """A page of the audit log, newest first: all entries, or those of one actor, action or record."""

    who: NameText | None = None
    action: NameText | None = None
    subject: NameText | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


def read_page(tx: Tx, asked: AuditAsked) -> AuditPageView:
    """Raises BadInput if more than one filter is given."""
    wanted = {"who": asked.who, "action": asked.action, "subject": asked.subject}
    given = [(column, value) for column, value in wanted.items() if value is not None]
    if len(given) > 1:
        names = " and ".join(column for column, _ in given)
        raise BadInput(given[1][0], f"{names} cannot be combined; give only one of them")
    if asked.page_token is not None and not asked.page_token.startswith("aud_"):
        raise bad_token(asked.page_token)
    column, value = given[0] if given else (None, "")
    found = tx.audit.page(asked.limit + 1, asked.page_token or LAST, column=column, value=value)
    shown = found[: asked.limit]
    return AuditPageView(
        entries=[AuditEntryView.of(entry) for entry in shown],
        next_page_token=shown[-1].id if len(found) > len(shown) else None,
    )


def recorded(write: Write[T], actor: Actor, action: str, asked: msgspec.Struct, *, now: datetime) -> Write[T]:
    """The same write, with its audit entry in the same transaction."""
    entry = actor.entry(action, AuditOutcome.DONE, now=now)

    def write_and_record(tx: Tx) -> T:
        answer = write(tx)
        subject = subject_of(asked, answer)
        tx.audit.add(msgspec.structs.replace(entry, subject=subject))
        return answer

    return write_and_record


def asking(actor: Actor, action: str, asked: msgspec.Struct, *, now: datetime) -> AuditEntry:
    """The audit entry to write before an action that takes several writes."""
    return actor.entry(action, AuditOutcome.ASKED, now=now, subject=subject_of(asked))


def subject_of(asked: object, answer: object = None) -> str | None:
    """The id of the record in the answer; if there is none, the id that the caller gave."""
    for record in (*(getattr(answer, name, None) for name in _RECORDS), answer, asked):
        for name in _IDS:
            found: Any = getattr(record, name, None)
            if isinstance(found, str):
                return subject_line(found)
    several = getattr(asked, "task_ids", None)
    return subject_line(" ".join(several)) if isinstance(several, list) else None
