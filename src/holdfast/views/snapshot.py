"""SnapshotView: what the tasks of one session do now, small enough for an agent's context."""

from __future__ import annotations

import msgspec

from holdfast.core.snapshot import OwnerSnapshot
from holdfast.views.board import BoardEntryView
from holdfast.views.text import one_line

SHOWN = 10


class SnapshotView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Active tasks, those that ended in the last five minutes, and what failed in the last hour; without what
    retention is about to remove."""

    session_key: str
    # `2 running · 1 queued · last: “render” failed 3m ago`.
    line: str
    # The first ten.
    tasks: list[BoardEntryView]
    # How many more there are.
    more: int

    @classmethod
    def of(cls, session_key: str, snapshot: OwnerSnapshot) -> SnapshotView:
        found = snapshot.recent
        return cls(
            session_key=one_line(session_key),
            line=snapshot.line,
            tasks=[BoardEntryView.of(task, snapshot.at) for task in found[:SHOWN]],
            more=max(0, len(found) - SHOWN),
        )
