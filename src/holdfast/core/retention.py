"""RetentionLimits: how long ended tasks are kept whose kind has a limit of its own."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import TaskStatus

# Lost tasks are a kind of their own, whatever executed them.
LOST_KIND = "lost"
KINDS = (*(runtime.value for runtime in RuntimeName), LOST_KIND)

# How long an ended task or flow is kept, unless its kind has a limit of its own.
DEFAULT_RETENTION = timedelta(days=30)


class RetentionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits by kind: the name of a runtime, or `lost`. All other tasks are kept until their stamp."""

    kinds: dict[str, timedelta] = {}

    def of(self, task: Task) -> timedelta | None:
        return self.kinds.get(kind_of(task))

    def kept_until(self, task: Task) -> datetime | None:
        """Until when the limit of its kind keeps an ended task; None if its kind has no limit."""
        limit = self.of(task)
        return None if limit is None or task.ended_at is None else task.ended_at + limit

    def why(self, task: Task) -> str:
        """Why the task is deleted, or is not: its limit in words."""
        limit = self.of(task)
        days = 0.0 if limit is None else limit / timedelta(days=1)
        return f"{kind_of(task)} tasks are kept for {days:g} day{'' if days == 1 else 's'}"


def kind_of(task: Task) -> str:
    return LOST_KIND if task.status is TaskStatus.LOST else task.runtime.value
