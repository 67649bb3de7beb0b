"""Finds the outcome of recorded cron work in the history of its schedule."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError
from holdfast.core.recorded import RecordedWork
from holdfast.core.run import RunOutcome
from holdfast.core.schedule import Firing
from holdfast.core.task import Failure, RuntimeName
from holdfast.core.transitions import FiringStatus, RunStatus, TaskStatus
from holdfast.engine.producers.contract import (
    Alive,
    Dead,
    Ended,
    LifeAnswer,
    LifeUnknown,
    NotMine,
    ReattachAnswer,
    StopAnswer,
)
from holdfast.store import Store, Tx

_BEGINNING = "fire_"


class FiringHistory:
    """Answers for cron work whose `source_id` or `reference` is the id of a firing: how that firing went.

    A record that names only its schedule is not answered for: another occurrence may have another outcome.
    """

    name = "cron history"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:  # noqa: ARG002 - history stops nothing
        return NotMine()

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        firing_id = _firing_of(work)
        if firing_id is None:
            return NotMine()
        return await self._store.read(lambda tx: _answer(tx, firing_id))

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:  # noqa: ARG002 - history starts nothing
        return NotMine()


def _firing_of(work: RecordedWork) -> str | None:
    if work.task.runtime is not RuntimeName.CRON or work.details is None:
        return None
    named = (work.details.reference, work.details.source_id)
    return next((one for one in named if one is not None and one.startswith(_BEGINNING)), None)


def _answer(tx: Tx, firing_id: str) -> LifeAnswer:
    try:
        firing = tx.firings.get(firing_id)
    except HoldfastError:  # pruned, or damaged: the history cannot tell any more
        return LifeUnknown()
    told = f"the history of the schedule {firing.schedule} has it as {firing.status.value}"
    match firing.status:
        case FiringStatus.DONE:
            return Ended(outcome=_outcome(tx, firing), why=told)
        case FiringStatus.FAILED:
            failure = Failure(kind="firing_failed", message=told, facts={"firing_id": firing.id})
            return Ended(outcome=RunOutcome(status=RunStatus.FAILED, failure=failure), why=told)
        case FiringStatus.MISSED:
            return Dead(why=told)
    return Alive()  # it is due, runs, or was queued again: the gateway follows it


def _outcome(tx: Tx, firing: Firing) -> RunOutcome:
    """Success, with the result of the task that the firing started, if that is still there."""
    found = tx.tasks.get_many([] if firing.task_id is None else [firing.task_id])
    task = None if firing.task_id is None else found.get(firing.task_id)
    result = b"null"
    if task is not None and task.status is TaskStatus.SUCCEEDED and task.result is not None:
        result = tx.blobs.open(task.result)
    return RunOutcome(status=RunStatus.SUCCEEDED, result=result)
