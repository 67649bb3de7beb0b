"""StartView and RecoveryView: what a process found and did when it started, step by step."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.start_record import StartRecord, StepRecord
from holdfast.views.text import one_line

MAX_NOTE_CHARS = 400


class StartStepView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One step: configuration, load, reconcile, resume or continue."""

    step: str
    # done, failed, or cut_off: it was begun, and the process did not come to its end, or not yet.
    outcome: str
    began_at: datetime
    seconds: float | None
    # What it counted, such as agentsKnown, itemsDone, runsRescued, resumed, startedAnew, heldBack, failed.
    counts: dict[str, int] = {}
    # Why what: runs that start anew or are not resumed, processes that died.
    notes: list[str] = []
    error: str | None = None

    @classmethod
    def of(cls, record: StepRecord) -> StartStepView:
        took = None if record.ended_at is None else (record.ended_at - record.began_at).total_seconds()
        done = "failed" if record.error is not None else "done"
        return cls(
            step=record.step.value,
            outcome="cut_off" if took is None else done,
            began_at=record.began_at,
            seconds=None if took is None else round(max(took, 0.0), 3),
            counts=record.counts,
            notes=[one_line(note, MAX_NOTE_CHARS) for note in record.notes],
            error=None if record.error is None else one_line(record.error, MAX_NOTE_CHARS),
        )


class StartView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One start of a gateway, of a worker, or of a process of `holdfast.serve`."""

    boot_id: str
    # gateway, worker or serve.
    role: str
    host: str
    pid: int
    began_at: datetime
    # From the first step until it worked; null if it did not come so far.
    seconds: float | None
    steps: list[StartStepView] = []

    @classmethod
    def of(cls, record: StartRecord) -> StartView:
        took = None if record.ended_at is None else (record.ended_at - record.began_at).total_seconds()
        return cls(
            boot_id=record.boot_id,
            role=one_line(record.role),
            host=one_line(record.host),
            pid=record.pid,
            began_at=record.began_at,
            seconds=None if took is None else round(max(took, 0.0), 3),
            steps=[StartStepView.of(step) for step in record.steps],
        )


class RecoveryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One start in full, and those before it, without their steps."""

    # Null if no gateway and no worker has started on this ledger yet.
    start: StartView | None
    earlier: list[StartView] = []
