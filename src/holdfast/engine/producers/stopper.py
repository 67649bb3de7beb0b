"""Service: asks the runtimes to stop recorded work whose cancel was requested, and ends its record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from holdfast.core.clock import Clock
from holdfast.core.run import RunRecord
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.ledger.ledger import Cancelled
from holdfast.engine.producers.contract import Runtime, Unsupported
from holdfast.engine.producers.stopping import ending_stopped, stop
from holdfast.store import Store, Tx

if TYPE_CHECKING:
    from holdfast.core.recorded import RecordedWork

log = logging.getLogger("holdfast")

BATCH = 100
# How long until a runtime that could not stop its work is asked again.
ASK_AGAIN = timedelta(minutes=1)


class Stopper(PollingService):
    """A cancel inside a transaction (of the children of an ended task, of the tasks of a session) cannot ask
    a runtime, and a process may die between its request and the end of the record. This service does the
    rest. It may ask a runtime about work that it has stopped before."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        runtimes: Callable[[], Sequence[Runtime]],
        *,
        patience: timedelta = timedelta(0),
        every_s: float = 30.0,
    ) -> None:
        """`patience` is how long a request is left to other processes, which may know its runtime."""
        super().__init__(store, "cancels", every_s=every_s)
        self._clock = clock
        self._runtimes = runtimes
        self._patience = patience
        # When each runtime was last asked about a run that it could not stop.
        self._asked_at: dict[str, datetime] = {}

    async def run_once(self) -> int:
        """Stop what is to be stopped; returns how many records ended."""
        now = self._clock.now()
        self._asked_at = {run_id: at for run_id, at in self._asked_at.items() if now - at < ASK_AGAIN}
        stopped, after = 0, ""
        # Page by page: work that no runtime can stop must not hide what comes after it.
        while runs := await self._store.read(partial(_page_to_stop, after=after)):
            for work in await self._store.read(partial(_with_tasks, runs=runs)):
                if self._is_due(work, now):
                    stopped += await self._stop_work(work)
            after = runs[-1].task_id
        return stopped

    def _is_due(self, work: RecordedWork, now: datetime) -> bool:
        requested_at = work.task.cancel_requested_at
        is_asked = work.run.id in self._asked_at
        return requested_at is not None and now - requested_at >= self._patience and not is_asked

    async def _stop_work(self, work: RecordedWork) -> bool:
        reason = work.task.cancel_reason or "its cancel was requested"
        answer = await stop(self._runtimes(), work, reason)
        now = self._clock.now()
        if isinstance(answer, Unsupported):
            log.warning("%s goes on although its cancel was requested: %s", work.task.id, answer.reason)
            self._asked_at[work.run.id] = now
            return False
        ended = await self._store.write(ending_stopped(work.task.id, reason=reason, now=now))
        return isinstance(ended, Cancelled)

    def hurry(self) -> None:
        self.stop()


def _page_to_stop(tx: Tx, *, after: str) -> list[RunRecord]:
    return tx.runs.recorded_to_stop(after=after, limit=BATCH)


def _with_tasks(tx: Tx, *, runs: Sequence[RunRecord]) -> list[RecordedWork]:
    from holdfast.core.recorded import RecordedWork

    ids = [run.task_id for run in runs]
    tasks, facts = tx.tasks.get_many(ids), tx.recorded.get_many(ids)
    return [
        RecordedWork(task=tasks[run.task_id], run=run, details=facts.get(run.task_id))
        for run in runs
        if run.task_id in tasks
    ]
