"""AuditEntry: which actor did what, through which door, and with which outcome."""

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
# The action that is recorded for a request refused with this error code.
WRONG = {"AUTH_TOKEN_MISMATCH": "token.wrong", "bad_signature": "signature.wrong"}


class Door(StrEnum):
    """How the request reached Holdfast."""

    COMMAND = "command"  # a command on this machine that wrote to the ledger directly
    SOCKET = "socket"  # the unix socket in the home
    HTTP = "http"
    WEBSOCKET = "websocket"
    CHANNEL = "channel"  # a person's message
    GATEWAY = "gateway"  # the gateway itself: a signal, a change of its settings


class AuditOutcome(StrEnum):
    """What happened. Entries never change: an action of several writes is recorded as asked for before it
    begins, and once more if it is refused or fails."""

    ASKED = "asked"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log. Of its fields, only `subject` may be the actor's own text."""

    id: AuditId
    at: datetime
    # The name of a token, a user of this machine, or the peer of a channel.
    who: str
    door: Door
    # The address that the request came from, if known.
    address: str | None = None
    # The method, or what the gateway did: `ledger.cancel`, `settings.applied`, `token.wrong`.
    action: str
    # The record that the action was about.
    subject: str | None = None
    outcome: AuditOutcome
    why: str | None = None
    # How many equal actions this entry stands for.
    times: int = 1


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The actor of a request, as the door identified it."""

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
    """The name of a record, as an entry shows it."""
    return _line(text)


def _line(text: str, max_chars: int = MAX_WHO_CHARS) -> str:
    return " ".join(clean_text(text, max_chars=max_chars).split())
