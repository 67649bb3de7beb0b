"""Cancels recorded work: the runtime that controls it stops it, and then its record ends.

The request is written first. If this process dies before the record ends, a Stopper asks the runtimes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventKind
from holdfast.core.payload import check_text
from holdfast.core.run import Queue
from holdfast.core.task import Task
from holdfast.engine.ledger.ledger import CancelOutcome, cancelling
from holdfast.engine.producers.contract import NotMine, Runtime, StopAnswer, Unsupported
from holdfast.store import Store, Tx, Write

if TYPE_CHECKING:
    from holdfast.core.recorded import RecordedWork

log = logging.getLogger(__name__)

# How long one runtime may take to stop its work.
STOP_TIMEOUT_S = 10.0


class NotStopped(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime cannot stop the work, so the record goes on. The request is recorded: the producer hears of
    it at its next call."""

    task: Task
    reason: str


RecordedCancelOutcome = CancelOutcome | NotStopped


async def stop(runtimes: Sequence[Runtime], work: RecordedWork, reason: str) -> StopAnswer:
    """Ask each runtime in turn; the first that controls the work answers. A runtime that raises or does not
    answer in time is one that could not stop it."""
    for runtime in runtimes:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                answer = await runtime.cancel(work, reason)
        except TimeoutError:
            log.warning("runtime %s did not cancel %s in time", runtime.name, work.task.id)
            return Unsupported(reason=f"the runtime {runtime.name} did not answer in {STOP_TIMEOUT_S:g} s")
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
    """Request the cancel, stop the work, then end its record. If the work ended meanwhile, that end stays."""
    reason = check_text("reason", reason)
    if not work.task.has_ended:
        requested = await store.write(requesting(work.task.id, reason=reason, now=clock.now()))
        answer = await stop(runtimes, work, reason)
        if isinstance(answer, Unsupported) and not requested.has_ended:
            return NotStopped(task=requested, reason=answer.reason)
    return await store.write(ending_stopped(work.task.id, reason=reason, now=clock.now()))


def requesting(task_id: str, *, reason: str, now: datetime) -> Write[Task]:
    """The write of the request, before any runtime is asked. It wakes no Stopper: the caller itself asks."""

    def request(tx: Tx) -> Task:
        tx.tasks.lock(task_id)
        if tx.tasks.request_cancel(task_id, reason, now=now):
            tx.emit(EventKind.TASK_CANCEL_REQUESTED, task_id, at=now, task_id=task_id, reason=reason)
        return tx.tasks.look(task_id)

    return request


def ending_stopped(task_id: str, *, reason: str, now: datetime) -> Write[CancelOutcome]:
    """The write that ends the record of work that was stopped, or that no runtime controls."""
    return cancelling(task_id, reason=reason, owner=None, now=now, ends_recorded=True)


def find_recorded(tx: Tx, task_id: str) -> RecordedWork | None:
    """The recorded work of a task; None for a missing task and for one that a worker executes."""
    try:
        run = tx.runs.live_of_task(task_id) or tx.runs.last_of_task(task_id)
    except HoldfastError:
        return None
    if run.queue is not Queue.PRODUCER:
        return None
    from holdfast.core.recorded import RecordedWork

    return RecordedWork(task=tx.tasks.look(task_id), run=run, details=tx.recorded.get(task_id))
