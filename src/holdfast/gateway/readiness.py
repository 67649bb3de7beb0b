"""What a restart would interrupt now, and whether that is more than the readiness gate allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.core.manifest import Interruption, InterruptionKind
from holdfast.core.message import CRON_CHANNEL
from holdfast.core.task import Task
from holdfast.store import Tx

_TITLE = 120
_WORDS = {
    InterruptionKind.SESSION: ("session", "sessions"),
    InterruptionKind.CRON: ("cron firing", "cron firings"),
    InterruptionKind.CHILD: ("child", "children"),
    InterruptionKind.RUN: ("run", "runs"),
}


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """What a restart would interrupt now. The threshold counts the entries of the list."""

    is_safe: bool
    threshold: int
    interruptions: tuple[Interruption, ...] = ()
    # For each interruption, in the same order: its session key, or its task id.
    names: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        return f"{self.counts} in flight" if self.interruptions else "nothing is in flight"

    @property
    def counts(self) -> str:
        """What is in flight by kind: `2 sessions, 1 run`."""
        counts = []
        for kind, (one, many) in _WORDS.items():
            number = sum(found.kind is kind for found in self.interruptions)
            if number:
                counts.append(f"{number} {one if number == 1 else many}")
        return ", ".join(counts)


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that asks for a restart; its own work does not count as interrupted."""

    task_id: str | None = None
    session_key: str | None = None

    def is_asking(self, one: Interruption) -> bool:
        is_session = one.kind is InterruptionKind.SESSION and one.session_key == self.session_key
        return one.task_id == self.task_id or is_session


NO_ASKER = Asker()


def interruptions(tx: Tx, task_ids: Sequence[str], asker: Asker = NO_ASKER) -> list[tuple[Interruption, str]]:
    """An interruption and its name for each task in flight, oldest first; without the agent that asks."""
    tasks = tx.tasks.get_many(task_ids)
    names = names_of(tasks.values(), with_ancestors(tx, tasks.values()))
    found = [(interruption_of(tasks[task_id]), names[task_id]) for task_id in sorted(tasks)]
    return [(one, name) for one, name in found if not asker.is_asking(one)]


def with_ancestors(tx: Tx, tasks: Iterable[Task]) -> dict[str, Task]:
    """These tasks and all their ancestors: one query for each level."""
    known: dict[str, Task] = {task.id: task for task in tasks}
    level = list(known.values())
    while parents := sorted({one.parent_task_id for one in level if one.parent_task_id} - known.keys()):
        found = tx.tasks.get_many(parents)
        known |= found
        level = list(found.values())
    return known


def names_of(tasks: Iterable[Task], known: Mapping[str, Task]) -> dict[str, str]:
    """The session key of each task; the task's id where it has no session, or shares its parent's."""
    names: dict[str, str] = {}
    for task in tasks:
        parent = None if task.parent_task_id is None else known.get(task.parent_task_id)
        is_own = parent is None or parent.session_key != task.session_key
        names[task.id] = task.session_key if task.session_key is not None and is_own else task.id
    return names


def interruption_of(task: Task) -> Interruption:
    return Interruption(
        kind=_kind_of(task),
        task_id=task.id,
        title=(task.goal or task.name)[:_TITLE],
        status=task.status.value,
        session_key=task.session_key,
        parent_task_id=task.parent_task_id,
    )


def _kind_of(task: Task) -> InterruptionKind:
    if task.parent_task_id is not None:
        return InterruptionKind.CHILD
    if task.origin is not None and task.origin.channel == CRON_CHANNEL:
        return InterruptionKind.CRON
    return InterruptionKind.RUN if task.session_key is None else InterruptionKind.SESSION
