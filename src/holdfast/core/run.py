"""Run and Outcome: one attempt to execute a task."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import BootId, CheckpointId, RunId, TaskId
from holdfast.core.task import Failure
from holdfast.core.transitions import RunStatus, TaskStatus, is_terminal

# The status of a task while its run has this status.
TASK_STATUS_OF = {
    RunStatus.QUEUED: TaskStatus.QUEUED,
    RunStatus.RUNNING: TaskStatus.RUNNING,
    RunStatus.WAITING: TaskStatus.WAITING,
    RunStatus.PAUSED_FOR_RESTART: TaskStatus.PAUSED,
    RunStatus.RESUMING: TaskStatus.PAUSED,
    RunStatus.FAILED_RESUME: TaskStatus.FAILED,
    RunStatus.SUCCEEDED: TaskStatus.SUCCEEDED,
    RunStatus.FAILED: TaskStatus.FAILED,
    RunStatus.TIMED_OUT: TaskStatus.TIMED_OUT,
    RunStatus.CANCELLED: TaskStatus.CANCELLED,
    RunStatus.LOST: TaskStatus.LOST,
}


class Queue(StrEnum):
    """Where a queued run waits: ready runs are apart, so that claims in order of priority need no scan."""

    READY = "ready"
    LATER = "later"
    # Work that an external producer executes; no worker claims it.
    PRODUCER = "producer"


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: its last status, with a result or a failure."""

    status: RunStatus
    result: bytes | None = None
    failure: Failure | None = None


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt at a task. A run never restarts; a follow-up run continues from a checkpoint."""

    id: RunId
    task_id: TaskId
    task_name: str
    number: int
    resumes_run_id: RunId | None = None
    checkpoint_id: CheckpointId | None = None
    seed: bytes | None = None
    created_at: datetime
    status: RunStatus = RunStatus.QUEUED
    priority: int
    due_at: datetime
    queue: Queue = Queue.READY
    # After two crashes without progress a run is a suspect, and its follow-up run executes alone.
    is_alone: bool = False
    idle_attempts: int = 0
    claimed_by: BootId | None = None
    claim_token: str | None = None
    fence: int = 0
    lease_until: datetime | None = None
    beat_at: datetime | None = None
    waits_on: str | None = None
    failure: Failure | None = None
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # True when the stored bytes do not match their digest: it may be shown and ended, never executed.
    is_damaged: bool = False

    @property
    def has_ended(self) -> bool:
        return is_terminal(self.status)
