"""Step, Artifact and Note: what a run writes to the journal."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.clock import from_micros
from holdfast.core.ids import RunId, TaskId
from holdfast.core.task import Failure

# No JSON begins with it: a stored result that does is the failure of a step.
_FAILED = b"!"


def failed_payload(failure: Failure) -> bytes:
    """What a step that failed stores instead of a result."""
    return _FAILED + msgspec.json.encode(failure)


def is_failure(payload: bytes) -> bool:
    return payload.startswith(_FAILED)


def failure_in_payload(payload: bytes) -> Failure | None:
    """The failure that is stored instead of a result; None for a result. Raises DecodeError if damaged."""
    if not payload.startswith(_FAILED):
        return None
    return msgspec.json.decode(payload[len(_FAILED) :], type=Failure)


def occurrence_of(count: int) -> str:
    """The number of this call among the calls of one name, as text that sorts as numbers do: `9`, `:10`.

    So each step is next to the one before it in the database, too, which writes fewer pages.
    """
    text = str(count)
    return text if count < 10 else ":" * (len(text) - 1) + text


def shown_occurrence(occurrence: str) -> str:
    """The occurrence as a plain number, for people."""
    return occurrence.lstrip(":")


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The smallest part of a run whose result is saved. It runs once; a replay returns the saved result."""

    task_id: TaskId
    scope: str = ""
    name: str
    occurrence: str = "1"
    run_id: RunId
    seq: int
    input_digest: bytes | None = None
    result: bytes
    # Times as stored. Every step has two and they are rarely read, so they are converted on demand.
    started_us: int
    ended_us: int
    # How its arguments begin, redacted, for people.
    arguments: str = ""
    # Whether an effect record holds its result, too; that record stays when the step is deleted.
    is_effect: bool = False

    @property
    def started_at(self) -> datetime:
        return from_micros(self.started_us)

    @property
    def ended_at(self) -> datetime:
        return from_micros(self.ended_us)


class ArtifactKind(StrEnum):
    FILE = "file"
    DIFF = "diff"
    OUTPUT = "output"


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something a step left outside the ledger (a file, a diff) or a computed output, with its checksum."""

    name: str
    kind: ArtifactKind
    sha256: str
    size_bytes: int
    path: str | None = None
    content: str | None = None
    recorded_at: datetime


class ArtifactState(StrEnum):
    SAME = "same"
    CHANGED = "changed"
    MISSING = "missing"


class NoteKind(StrEnum):
    DECISION = "decision"
    TOOL_CONTEXT = "tool_context"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that follow-up runs should know, or a reference to what a tool knows (never a secret)."""

    kind: NoteKind
    text: str
    written_at: datetime
