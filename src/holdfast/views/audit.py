"""AuditEntryView and a page of the audit log."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.audit import AuditEntry, AuditOutcome, Door
from holdfast.views.text import maybe_line, one_line

MAX_WHY_CHARS = 500


class AuditEntryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One audited action: the actor, the time, the entry point and the outcome."""

    id: str
    at: datetime
    who: str
    door: Door
    address: str | None
    action: str
    subject: str | None
    outcome: AuditOutcome
    why: str | None
    times: int

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditEntryView:
        return cls(
            id=one_line(entry.id),
            at=entry.at,
            who=one_line(entry.who),
            door=entry.door,
            address=maybe_line(entry.address),
            action=one_line(entry.action),
            subject=maybe_line(entry.subject),
            outcome=entry.outcome,
            why=None if entry.why is None else one_line(entry.why, MAX_WHY_CHARS),
            times=entry.times,
        )


class AuditPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of the audit log, newest first."""

    entries: list[AuditEntryView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None
