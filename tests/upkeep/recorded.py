"""Recorded work for the tests of upkeep, and runtimes that say what a test wants."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.core.recorded import RecordedWork
from holdfast.core.run import Queue, RunRecord
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.producers.contract import LifeAnswer
from holdfast.store import Store
from tests.builders import stored_run


class FixedAnswer:
    """A runtime that gives one answer, and remembers about which tasks it was asked."""

    def __init__(self, proof: LifeAnswer) -> None:
        self._proof = proof
        self.asked: list[str] = []

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        self.asked.append(work.task.id)
        return self._proof


class BrokenRuntime:
    """A runtime that cannot be asked."""

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:  # noqa: ARG002 - the shape of proofs
        raise OSError("the socket of the runtime is gone")


def recorded_run(
    store: Store,
    status: RunStatus = RunStatus.RUNNING,
    *,
    runtime: RuntimeName = RuntimeName.ACP,
    task: dict[str, Any] | None = None,
    **changes: Any,
) -> RunRecord:
    """Work that another program executes, as it was recorded at the start of the test."""
    return stored_run(
        store, status, task={"runtime": runtime} | (task or {}), queue=Queue.PRODUCER, **changes
    )


def task_of(store: Store, run: RunRecord) -> Task:
    return store.read_now(lambda tx: tx.tasks.look(run.task_id))


def status_of(store: Store, run: RunRecord) -> TaskStatus:
    return task_of(store, run).status


def beats(store: Store, run: RunRecord) -> datetime | None:
    return store.read_now(lambda tx: tx.runs.look(run.id)).beat_at
