"""Delivery: one update owed to one origin, sent at most once per idempotency key."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.ids import DeliveryId, TaskId
from holdfast.core.task import Failure, Origin
from holdfast.core.transitions import DeliveryStatus


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    id: DeliveryId
    task_id: TaskId
    idempotency_key: str
    origin: Origin | None = None
    message: bytes
    created_at: datetime
    status: DeliveryStatus = DeliveryStatus.PENDING
    attempts: int = 0
    due_at: datetime
    failure: Failure | None = None
    updated_at: datetime
