"""What a restart would interrupt, and whether that is more than somebody allows."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Who would be interrupted by a restart now. The threshold counts what the list shows."""

    is_safe: bool
    threshold: int
    interruptions: tuple[Interruption, ...] = ()

    @property
    def summary(self) -> str:
        if not self.interruptions:
            return "nothing is in flight"
        counts = []
        for kind, (one, many) in _WORDS.items():
            number = sum(found.kind is kind for found in self.interruptions)
            if number:
                counts.append(f"{number} {one if number == 1 else many}")
        return f"{', '.join(counts)} in flight"


def interruptions(tx: Tx, task_ids: Sequence[str]) -> tuple[Interruption, ...]:
    """One for each task in flight, in the order of their ids, which is that of their creation."""
    tasks = tx.tasks.get_many(task_ids)
    return tuple(interruption_of(tasks[task_id]) for task_id in sorted(tasks))


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
