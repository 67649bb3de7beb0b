"""CampaignAgent, which does one item in one phase; PausedAgent of a gateway; and AgentStatus of both."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.core.ids import CampaignId, TaskId
from holdfast.core.transitions import ItemStatus, RunStatus


class AgentStatus(StrEnum):
    """What an agent does now."""

    ACTIVE = "active"
    IDLE = "idle"
    PAUSED = "paused"
    ERROR = "error"


# An agent of a campaign has no status of its own: it is as its item is in its phase.
AGENT_STATUS_OF = {
    ItemStatus.PENDING: AgentStatus.IDLE,
    ItemStatus.RUNNING: AgentStatus.ACTIVE,
    ItemStatus.PAUSED: AgentStatus.PAUSED,
    ItemStatus.DONE: AgentStatus.IDLE,
    ItemStatus.FAILED: AgentStatus.ERROR,
}


class CampaignAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One item in one phase as an agent: `repo-001-analyzer`."""

    # Unique within its campaign.
    id: str
    # The role of the phase, such as analyzer.
    type: str
    campaign_id: CampaignId
    campaign: str
    item_id: str
    item_name: str
    phase: str
    phase_number: int
    place: int
    item_status: ItemStatus
    attempt: int = 0
    task_id: TaskId | None = None
    # The status of the live run of its task; None if it has none.
    run_status: RunStatus | None = None
    # When the ledger last heard of it: its process renewed its claim, or its item changed. None if it has
    # never begun.
    last_heartbeat: datetime | None = None
    error: str | None = None
    note: str | None = None

    @property
    def status(self) -> AgentStatus:
        return AGENT_STATUS_OF[self.item_status]


class PausedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a gateway that an operator has paused: its messages wait."""

    name: str
    reason: str
    paused_by: str
    paused_at: datetime


def item_statuses_of(status: AgentStatus) -> tuple[ItemStatus, ...]:
    """The statuses of items whose agents have this status."""
    return tuple(one for one, agent_status in AGENT_STATUS_OF.items() if agent_status is status)
