"""TimelineView: the runs of a task over time, with their turns, waits and steps, and the restarts between."""

from __future__ import annotations

from datetime import datetime

import msgspec


class SpanView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn, a step or a wait of a run."""

    # `turns:3`, the name of a step, or what the run waited for.
    name: str
    began_at: datetime
    # Null if it has not ended.
    ended_at: datetime | None
    # For a turn: how many steps it has.
    steps: int = 0
    is_failed: bool = False


class RunLaneView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run of a task over time."""

    run_id: str
    number: int
    status: str
    queued_at: datetime
    # Null if no worker has taken it yet.
    began_at: datetime | None
    ended_at: datetime | None
    turns: list[SpanView] = []
    # Those outside finished turns.
    steps: list[SpanView] = []
    waits: list[SpanView] = []


class BandView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The time in which the gateway was restarting, stopped or dead."""

    restart_id: str
    # restart, stop or crash.
    kind: str
    reason: str
    began_at: datetime
    # Null if no gateway has started since.
    ended_at: datetime | None


class TimelineView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One task over time, from its creation to its end or to now."""

    task_id: str
    name: str
    status: str
    began_at: datetime
    ended_at: datetime | None
    as_of: datetime
    # Oldest first.
    runs: list[RunLaneView] = []
    restarts: list[BandView] = []
    # What is longer than shown: `runs`, `turns`, `steps`, `waits` or `restarts`; the newest are shown.
    more: list[str] = []
