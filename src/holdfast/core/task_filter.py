"""TaskFilter: which tasks a list shows."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.recorded import RecordedDetails
from holdfast.core.session import AGENT_PREFIX
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import TaskStatus


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """All that is given must fit; nothing given fits every task."""

    statuses: tuple[TaskStatus, ...] = ()
    owner: str | None = None
    # With one of these names.
    names: frozenset[str] | None = None
    runtime: RuntimeName | None = None
    agent: str | None = None
    # Asked for in this session, or done in it.
    session_key: str | None = None
    key: str | None = None
    created_before: datetime | None = None
    created_after: datetime | None = None
    # In its goal, name, key, session or failure; upper and lower case are the same.
    text: str | None = None

    def fits(self, task: Task, details: RecordedDetails | None = None) -> bool:
        """Whether the task is one of these; its age is not compared, because its id sorts by it."""
        return (
            (not self.statuses or task.status in self.statuses)
            and self.owner in (None, task.owner)
            and (self.names is None or task.name in self.names)
            and self.runtime in (None, task.runtime)
            and self.key in (None, task.dedup_key)
            and (self.agent is None or self.agent in agents_of(task, details))
            and (self.session_key is None or self.session_key in _sessions_of(task, details))
            and (self.text is None or has_text(task, self.text))
        )


def agents_of(task: Task, details: RecordedDetails | None) -> set[str]:
    """The agents that a task belongs to: of its name, of its session, and as its producer says."""
    found = {task.name.removeprefix(AGENT_PREFIX)} if task.name.startswith(AGENT_PREFIX) else set()
    parts = (task.session_key or "").split(":")
    if len(parts) > 2 and parts[0] == "agent":
        found.add(parts[1])
    if details is not None and details.agent_id is not None:
        found.add(details.agent_id)
    return found


def _sessions_of(task: Task, details: RecordedDetails | None) -> tuple[str | None, ...]:
    return task.session_key, None if details is None else details.child_session_key


def has_text(task: Task, text: str) -> bool:
    wanted = text.casefold()
    failure = "" if task.failure is None else f"{task.failure.kind}: {task.failure.message}"
    places = (task.goal, task.name, task.dedup_key or "", task.session_key or "", failure)
    return any(wanted in place.casefold() for place in places)
