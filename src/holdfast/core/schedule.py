"""Wake and WakeReason: an alarm that asks for one resume at one time, with a reason and a limit."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import CheckpointId, TaskId, WakeId
from holdfast.core.transitions import WakeStatus


class WakeReason(StrEnum):
    TIMEOUT_RECOVERY = "timeout_recovery"
    DEPENDENCY_READY = "dependency_ready"
    SCHEDULED_PROGRESS = "scheduled_progress"


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    id: WakeId
    task_id: TaskId
    checkpoint_id: CheckpointId | None = None
    reason: WakeReason
    attempt: int = 1
    created_at: datetime
    status: WakeStatus = WakeStatus.PENDING
    due_at: datetime
    updated_at: datetime
