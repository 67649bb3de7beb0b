"""EventView and a page of the feed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.events import Event
from holdfast.views.text import clean_json, maybe_line, one_line


class EventView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One event of one record, with its position in the feed."""

    position: str
    at: datetime
    kind: str
    task_id: str | None
    subject_id: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, event: Event) -> EventView:
        facts = clean_json(event.facts)
        return cls(
            position=one_line(event.position),
            at=event.at,
            kind=event.kind.value,
            task_id=maybe_line(event.task_id),
            subject_id=one_line(event.subject_id),
            facts=facts if isinstance(facts, dict) else {},
        )


class EventPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Events in order."""

    events: list[EventView] = []
    # For `--after`: the next page.
    next_position: str
