"""Delivery: one update owed to one origin, sent at most once per idempotency key."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.ids import BootId, DeliveryId, TaskId
from holdfast.core.task import Failure, NotifyPolicy, Origin
from holdfast.core.transitions import DeliveryStatus, TaskStatus, is_terminal

# The kind of failure of a delivery that may have arrived: its outcome is unknown.
IN_DOUBT = "in_doubt"


class DeliveryText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a delivery sends: the text, and which entry of which transcript it is."""

    text: str
    session_key: str | None = None
    message_id: str | None = None
    # The message that it answers, as its sender knows it.
    reply_to: str | None = None


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
    # The boot that is sending it.
    claimed_by: BootId | None = None
    updated_at: datetime

    @property
    def letter(self) -> DeliveryText:
        """The decoded message. Raises msgspec.DecodeError."""
        found = msgspec.json.decode(self.message, type=DeliveryText | str)
        return DeliveryText(text=found) if isinstance(found, str) else found

    @property
    def is_in_doubt(self) -> bool:
        """Whether an attempt may have arrived; it stays so until a receiver or a person tells more."""
        return self.failure is not None and self.failure.kind == IN_DOUBT

    @property
    def target(self) -> str:
        """The recipient as one text: deliveries to one target are sent in order."""
        return target_of(self.origin)

    @property
    def channel(self) -> str:
        """The name of its channel; empty when it has no origin."""
        return channel_of(self.origin)


def channel_of(origin: Origin | None) -> str:
    return "" if origin is None else origin.channel


def target_of(origin: Origin | None) -> str:
    if origin is None:
        return ""
    return msgspec.json.encode((origin.channel, origin.account_id, origin.peer, origin.thread)).decode()


_UPDATE = "task:"
_TOLD_CHANGES = frozenset({TaskStatus.WAITING, TaskStatus.NEEDS_REVIEW})


def is_told(policy: NotifyPolicy, status: TaskStatus) -> bool:
    """Whether a requester with this policy is told that the task has this status now.

    A task that is queued again, or goes on, is not told of: that would be noise between two waits.
    """
    match policy:
        case NotifyPolicy.SILENT:
            return False
        case NotifyPolicy.DONE_ONLY:
            return is_terminal(status)
        case NotifyPolicy.STATE_CHANGES:
            return is_terminal(status) or status in _TOLD_CHANGES


def update_key(task_id: str, run_id: str, status: TaskStatus) -> str:
    """The idempotency key of the update: each end is told once, also the end after a person's retry. Of every
    other status a task is told once, because a run that is resumed may come to the same wait again."""
    if is_terminal(status):
        return f"{_UPDATE}{task_id}:{run_id}:{status.value}"
    return f"{_UPDATE}{task_id}:{status.value}"


def is_update_key(key: str) -> bool:
    return key.startswith(_UPDATE)
