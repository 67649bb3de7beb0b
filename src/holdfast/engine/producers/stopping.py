"""Cancels recorded work: the runtime that controls it stops it, and then its record ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.events import EventKind
from holdfast.core.payload import check_text
from holdfast.core.recorded import RecordedWork
from holdfast.core.task import Task
from holdfast.engine.ledger.ledger import CancelOutcome, cancelling
from holdfast.engine.producers.contract import NotMine, Runtime, StopAnswer, Unsupported
from holdfast.store import Store, Tx, Write

log = logging.getLogger(__name__)


class NotStopped(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime cannot stop the work, so the record goes on. The request is recorded: the producer hears of
    it at its next call."""

    task: Task
    reason: str


RecordedCancelOutcome = CancelOutcome | NotStopped


async def stop(runtimes: Sequence[Runtime], work: RecordedWork, reason: str) -> StopAnswer:
    """Ask each runtime in turn; the first that controls the work answers. A runtime that raises is one that
    could not stop it."""
    for runtime in runtimes:
        try:
            answer = await runtime.cancel(work, reason)
        except Exception as error:
            log.warning("runtime %s could not cancel %s", runtime.name, work.task.id, exc_info=True)
            return Unsupported(reason=f"the runtime {runtime.name} failed: {error}")
        if not isinstance(answer, NotMine):
            return answer
    return NotMine()


async def cancel_recorded(
    store: Store,
    clock: Clock,
    runtimes: Sequence[Runtime],
    work: RecordedWork,
    *,
    reason: str,
) -> RecordedCancelOutcome:
    """Stop the work, then end its record. If the work ended meanwhile, that end stays."""
    reason = check_text("reason", reason)
    if not work.task.has_ended:
        answer = await stop(runtimes, work, reason)
        if isinstance(answer, Unsupported):
            return await store.write(
                requesting(work.task.id, reason=reason, why=answer.reason, now=clock.now())
            )
    return await store.write(cancelling(work.task.id, reason=reason, owner=None, now=clock.now()))


def requesting(task_id: str, *, reason: str, why: str, now: datetime) -> Write[NotStopped]:
    """The write that records a request that no runtime could carry out."""

    def request(tx: Tx) -> NotStopped:
        tx.tasks.lock(task_id)
        if tx.tasks.request_cancel(task_id, reason, now=now):
            tx.emit(EventKind.TASK_CANCEL_REQUESTED, task_id, at=now, task_id=task_id, reason=reason)
        return NotStopped(task=tx.tasks.look(task_id), reason=why)

    return request
