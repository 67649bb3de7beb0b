"""Flow and FlowMode: state above several tasks, guarded by a revision; its cancel is sticky."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import FlowId, TaskId
from holdfast.core.transitions import FlowStatus


class FlowMode(StrEnum):
    MANAGED = "managed"
    TASK_MIRRORED = "task_mirrored"


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    id: FlowId
    owner: str
    mode: FlowMode
    goal: str
    created_at: datetime
    status: FlowStatus = FlowStatus.QUEUED
    revision: int = 1
    current_step: str | None = None
    contents: bytes | None = None
    waits_on: str | None = None
    blocked_by_task_id: TaskId | None = None
    cancel_requested_at: datetime | None = None
    updated_at: datetime
    ended_at: datetime | None = None
