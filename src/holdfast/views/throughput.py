"""ThroughputView: how many items of a phase were done in each span of five minutes."""

from __future__ import annotations

from datetime import datetime

import msgspec


class ThroughputSpanView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One span of time, and how many items were done in it."""

    began_at: datetime
    done: int


class ThroughputView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The spans of one phase, oldest first and without a gap; the last one is not over yet."""

    campaign_id: str
    campaign: str
    phase: str
    at: datetime
    # The length of a span.
    span_s: int
    # All items of the phase that are done, also before the first span.
    done: int
    total: int
    spans: list[ThroughputSpanView] = []
