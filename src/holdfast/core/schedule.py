"""Wake and Firing: an alarm that asks for one resume, and one occurrence of a schedule."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.ids import CheckpointId, FiringId, MessageId, TaskId, WakeId
from holdfast.core.transitions import FiringStatus, WakeStatus

if TYPE_CHECKING:
    from holdfast.core.schedule_spec import Schedule


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
    # A reason of the user's own, in a word or two.
    own_reason: str | None = None
    is_damaged: bool = False

    @property
    def why(self) -> str:
        """Its reason for people: the user's own, if there is one."""
        return self.own_reason or self.reason.value


class FiringReason(StrEnum):
    """What asked for a firing: the plan of its schedule, or a person or program that said "run it now"."""

    PLANNED = "planned"
    REQUESTED = "requested"


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """One occurrence of a schedule: it fires once, even if several gateways notice that it is due."""

    id: FiringId
    schedule: str
    occurrence_at: datetime
    session_key: str
    # The message that it posted into its session; None if the occurrence was missed.
    message_id: MessageId | None = None
    created_at: datetime
    status: FiringStatus = FiringStatus.DUE
    task_id: TaskId | None = None
    # Whether it was interrupted and queued again.
    is_retry: bool = False
    updated_at: datetime
    # Why it did not run, or how it failed.
    why: str | None = None
    cause: FiringReason = FiringReason.PLANNED
    # When its schedule was made: one that is made later under the same name is another schedule. None for
    # firings of releases that had schedules only in the settings.
    schedule_made_at: datetime | None = None

    def is_of(self, schedule: Schedule | None) -> bool:
        """Whether it belongs to this very schedule."""
        if schedule is None or schedule.name != self.schedule:
            return False
        return self.schedule_made_at in (None, schedule.created_at)

    def is_in_the_way(self, schedule: Schedule) -> bool:
        """Whether another firing waits until this one has ended: it has begun, or it may begin. A planned one
        that waits begins only while its schedule is on."""
        has_begun = self.task_id is not None or self.message_id is not None
        return has_begun or schedule.is_on or self.cause is FiringReason.REQUESTED


def occurrence_id(schedule: str, occurrence_at: datetime) -> str:
    """The unique name of an occurrence: `<schedule>@<moment>`, in UTC."""
    return f"{schedule}@{occurrence_at.isoformat()}"
