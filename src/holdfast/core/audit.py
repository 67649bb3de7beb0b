"""AuditEntry: who did what, through which door, and what came of it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import AuditId, new_audit_id
from holdfast.core.payload import clean_text

MAX_WHO_CHARS = 200
MAX_WHY_CHARS = 500
# The actor of a request whose token or signature is wrong.
STRANGER = "stranger"
# By the code of the error, what such a request is called.
WRONG = {"AUTH_TOKEN_MISMATCH": "token.wrong", "bad_signature": "signature.wrong"}


class Door(StrEnum):
    """How the actor came in."""

    COMMAND = "command"  # a command on this machine that wrote to the ledger itself
    SOCKET = "socket"  # the unix socket in the home
    HTTP = "http"
    WEBSOCKET = "websocket"
    CHANNEL = "channel"  # a message of a person
    GATEWAY = "gateway"  # the gateway itself: a signal, a change of its settings


class AuditOutcome(StrEnum):
    """What came of it. An entry is never changed: an act of several writes is recorded as asked for, before
    it begins, and once more if it is refused or fails."""

    ASKED = "asked"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log. Nothing in it is the actor's own word, but the subject that they named."""

    id: AuditId
    at: datetime
    # The name of a token, a user of this machine, or the peer of a channel.
    who: str
    door: Door
    # Where the request came from, where that is known.
    address: str | None = None
    # The method, or what the gateway did: `ledger.cancel`, `settings.applied`, `token.wrong`.
    action: str
    # The record that it was about.
    subject: str | None = None
    outcome: AuditOutcome
    why: str | None = None
    # How many equal ones this entry stands for.
    times: int = 1


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts, as the door found out."""

    who: str
    door: Door
    address: str | None = None

    def entry(
        self,
        action: str,
        outcome: AuditOutcome,
        *,
        now: datetime,
        subject: str | None = None,
        why: str | None = None,
    ) -> AuditEntry:
        """An entry about what this actor did now. Text is cut, and secrets in it are redacted."""
        return AuditEntry(
            id=new_audit_id(now),
            at=now,
            who=_line(self.who),
            door=self.door,
            address=None if self.address is None else _line(self.address),
            action=_line(action),
            subject=None if subject is None else _line(subject),
            outcome=outcome,
            why=None if why is None else _line(why, MAX_WHY_CHARS),
        )


def subject_line(text: str) -> str:
    """A record as an entry names it."""
    return _line(text)


def _line(text: str, max_chars: int = MAX_WHO_CHARS) -> str:
    return " ".join(clean_text(text, max_chars=max_chars).split())
