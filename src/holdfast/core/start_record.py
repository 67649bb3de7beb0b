"""StartRecord and StartStep: what a process found and did when it started, step by step."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import BootId
from holdfast.core.redaction import redact_text

# More reasons than this are only counted.
MAX_NOTES = 20
MAX_NOTE_CHARS = 300


class StartStep(StrEnum):
    """The steps of a start, in this order."""

    # The settings and the modules are read.
    CONFIGURATION = "configuration"
    # What the ledger says: agents, item-phases, tasks.
    LOAD = "load"
    # Compared with what is alive: processes that died leave checkpoints of their runs.
    RECONCILE = "reconcile"
    # Each checkpoint gets its follow-up run, or its reason why not.
    RESUME = "resume"
    # The process tells those concerned, and works.
    CONTINUE = "continue"


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: how long it took, what it counted, and why what. Without an end it was cut off, or runs."""

    step: StartStep
    began_at: datetime
    ended_at: datetime | None = None
    counts: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    # Why it failed.
    error: str | None = None


class StartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one process."""

    boot_id: BootId
    # gateway, worker or serve.
    role: str
    host: str
    pid: int
    began_at: datetime
    steps: tuple[StepRecord, ...] = ()
    # When it worked; None if it did not come so far.
    ended_at: datetime | None = None


def notes_of(notes: list[str]) -> tuple[str, ...]:
    """Short, redacted and few; the number of the others is the last one."""
    kept = [redact_text(" ".join(note.split()))[:MAX_NOTE_CHARS] for note in notes[:MAX_NOTES]]
    if len(notes) > MAX_NOTES:
        kept.append(f"and {len(notes) - MAX_NOTES} more")
    return tuple(kept)
