"""Whether recorded work is alive: what a runtime can say about it, and how long it may be silent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.core.recorded import RecordedDetails, RecordedWork
from holdfast.core.run import RunRecord
from holdfast.core.task import RuntimeName, Task
from holdfast.engine.producers.contract import LifeAnswer, LifeUnknown, NotMine, ReattachAnswer, Runtime

LOST_AFTER = timedelta(minutes=5)
# A subagent without a session of its own reports only at its end, so it may be silent for longer.
CHILDLESS_AFTER = timedelta(minutes=30)


class Proofs(Protocol):
    """What the runtimes of a process know about recorded work."""

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        """Asked before the work is declared lost; it changes nothing. If it raises, the work is left alone
        until the next sweep."""
        ...

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        """The last chance of the runtime: it may find the work again, or start it again."""
        ...


class NoProofs:
    """For a process without runtimes: it cannot tell of any work."""

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002 - the shape of proofs
        return LifeUnknown()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:  # noqa: ARG002 - the shape of proofs
        return NotMine()


class RuntimeProofs:
    """Asks each runtime in turn, until one of them controls the work."""

    def __init__(self, runtimes: Sequence[Runtime]) -> None:
        self._runtimes = runtimes

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        for runtime in self._runtimes:
            answer = await runtime.is_alive(work)
            if not isinstance(answer, NotMine):
                return answer
        return NotMine()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        for runtime in self._runtimes:
            answer = await runtime.reattach(work)
            if not isinstance(answer, NotMine):
                return answer
        return NotMine()


def last_sign(task: Task, run: RunRecord, details: RecordedDetails | None) -> datetime:
    """The last sign of life of a run: its beat, its last move, or the progress of its task. A request to
    cancel the task is none."""
    signs = [run.updated_at, run.beat_at, None if details is None else details.last_event_at]
    if task.updated_at != task.cancel_requested_at:
        signs.append(task.updated_at)
    return max(sign for sign in signs if sign is not None)


def grace_of(task: Task, details: RecordedDetails | None, lost_after: timedelta) -> timedelta:
    """How long recorded work may be silent before it is lost."""
    child = task.session_key if details is None else details.child_session_key
    is_childless = task.runtime is RuntimeName.SUBAGENT and child is None
    return max(lost_after, CHILDLESS_AFTER) if is_childless else lost_after
