"""Recorded work for the tests of upkeep, and runtimes that say what a test wants."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.core.recorded import RecordedDetails, RecordedWork, ScopeKind
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.producers.contract import LifeAnswer, NotMine, ReattachAnswer
from holdfast.store import Store
from tests.builders import START, stored_run, write


class FixedAnswer:
    """A runtime that gives one answer, and remembers about which tasks it was asked."""

    def __init__(self, proof: LifeAnswer, recovery: ReattachAnswer | None = None) -> None:
        self._proof = proof
        self._recovery = recovery or NotMine()
        self.asked: list[str] = []
        self.recovered: list[str] = []

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        self.asked.append(work.task.id)
        return self._proof

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        self.recovered.append(work.task.id)
        return self._recovery


class BrokenRuntime:
    """A runtime that cannot be asked."""

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002 - the shape of proofs
        raise OSError("the socket of the runtime is gone")

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        raise AssertionError(f"{work.task.id} is not to be lost")


def recorded_run(
    store: Store,
    status: RunStatus = RunStatus.RUNNING,
    *,
    runtime: RuntimeName = RuntimeName.ACP,
    task: dict[str, Any] | None = None,
    details: dict[str, Any] | None = None,
    **changes: Any,
) -> RunRecord:
    """Work that another program executes, as it was recorded at the start of the test; with the facts of its
    producer, if any are given."""
    given = {"runtime": runtime, "session_key": "agent:main:main"} if details is not None else {}
    given |= {"runtime": runtime} | (task or {})
    run = stored_run(store, status, task=given, queue=Queue.PRODUCER, **changes)
    if details is not None:
        facts: dict[str, Any] = {
            "scope": ScopeKind.SYSTEM,
            "created_at": START,
            "last_event_at": START,
        } | details
        write(store, lambda tx: tx.recorded.create(RecordedDetails(task_id=run.task_id, **facts)))
    return run


def task_of(store: Store, run: RunRecord) -> Task:
    return store.read_now(lambda tx: tx.tasks.look(run.task_id))


def status_of(store: Store, run: RunRecord) -> TaskStatus:
    return task_of(store, run).status


def beats(store: Store, run: RunRecord) -> datetime | None:
    return store.read_now(lambda tx: tx.runs.look(run.id)).beat_at
