"""StatusSummary, HealthSummary, ChannelStatusView and others: the gateway in OpenClaw's format."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.views.gateway import HealthView
from holdfast.views.openclaw_chat import DefaultModelView
from holdfast.views.upkeep import AuditSummaryView, TaskCountsView


class HeartbeatView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The heartbeat of an agent in OpenClaw; Holdfast has none, so it is always off."""

    enabled: bool = False
    every: str = "off"
    every_ms: int | None = None
    prompt: str = ""
    target: str = "none"
    ack_max_chars: int = 0


class SessionAgeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session and when it was last used; in milliseconds."""

    key: str
    agent_id: str
    session_id: str
    updated_at: int
    age: int
    kind: str = "direct"
    # Holdfast does not know them: each agent chooses its model.
    model: None = None
    total_tokens: None = None
    context_tokens: None = None
    flags: list[str] = []


class RecentSessionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    key: str
    updated_at: int
    age: int


class SessionsHealthView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many sessions there are, and the most recently used ones."""

    path: str
    count: int
    recent: list[RecentSessionView]


class AgentHealthView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    agent_id: str
    is_default: bool
    heartbeat: HeartbeatView
    sessions: SessionsHealthView


class HealthSummary(HealthView, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Whether the gateway answers and is ready; for callers that may see all, its agents and channels."""

    duration_ms: int | None = None
    default_agent_id: str | None = None
    agents: list[AgentHealthView] | None = None
    sessions: SessionsHealthView | None = None
    channels: dict[str, dict[str, Any]] | None = None
    channel_order: list[str] | None = None
    channel_labels: dict[str, str] | None = None


class SessionStoreView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    agent_id: str
    path: str
    count: int
    recent: list[SessionAgeView]


class SessionTotalsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    paths: list[str]
    count: int
    recent: list[SessionAgeView]
    by_agent: list[SessionStoreView]
    defaults: DefaultModelView = msgspec.field(default_factory=DefaultModelView)


class AgentBeatView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    agent_id: str
    enabled: bool = False
    every: str = "off"
    every_ms: int | None = None


class HeartbeatsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    agents: list[AgentBeatView]
    default_agent_id: str | None = None


class ProjectedAgentView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    name: str


class ProjectedAgentsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    rows: list[ProjectedAgentView]
    default_id: str | None = None


class CliProjectionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What OpenClaw's CLI shows instead of its own settings."""

    agents: ProjectedAgentsView


class StatusSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One screen of facts about the gateway."""

    runtime_version: str
    heartbeat: HeartbeatsView
    channel_summary: list[str]
    queued_system_events: list[str]
    tasks: TaskCountsView
    task_audit: AuditSummaryView
    sessions: SessionTotalsView
    pid: int
    cli_projection: CliProjectionView | None = None


class PresenceEntryView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    host: str
    version: str
    platform: str
    mode: str
    reason: str
    text: str
    # Milliseconds.
    ts: int


class PresenceView(msgspec.Struct, frozen=True, array_like=True):
    """A list with one entry: the gateway itself. Clients are not listed."""

    gateway: PresenceEntryView


class LogTailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Lines of the gateway's log; `cursor` continues after them."""

    file: str
    cursor: int
    size: int
    lines: list[str]
    # Whether lines before these were left out.
    truncated: bool = False
    # Whether the file was replaced since the cursor.
    reset: bool = False


class ChannelAccountView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    account_id: str
    enabled: bool
    configured: bool
    mode: str
    webhook_path: str | None = None
    # The newest failure among the failed deliveries.
    last_error: str | None = None


class ChannelStatusView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The channels of the settings."""

    ts: int
    channel_order: list[str]
    channel_labels: dict[str, str]
    channels: dict[str, ChannelAccountView]
    channel_accounts: dict[str, list[ChannelAccountView]]
    channel_default_account_id: dict[str, str]


class ConfigSchemaView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON Schema of holdfast.toml."""

    schema: dict[str, Any]
    ui_hints: dict[str, Any]
    version: str
    generated_at: str


class SendResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message to a person: sent, or queued, to be sent when the channel takes it."""

    run_id: str
    message_id: str
    channel: str
    status: str
