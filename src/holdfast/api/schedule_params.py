"""The parameters of `cron.*` as OpenClaw's clients send them, with Holdfast's own beside them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from holdfast.api.params import NameText, PageToken, Params, ShortText

# The limits of the protocol.
MAX_WIRE_PAGE = 200
MAX_OFFSET = 100_000
_MAX_MILLIS = 8_640_000_000_000_000
_LongText: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=256 * 1024)]
_Millis: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MAX_MILLIS)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Page: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_WIRE_PAGE)]
_Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]


class AtAsked(Params, frozen=True, kw_only=True, tag_field="kind", tag="at"):
    """Once: a moment with its UTC offset, or in the time zone `tz`."""

    at: ShortText


class EveryAsked(Params, frozen=True, kw_only=True, tag_field="kind", tag="every"):
    """At an interval, counted from `anchorMs`, or from the beginning of the schedule."""

    every_ms: int
    anchor_ms: _Millis | None = None


class CronAsked(Params, frozen=True, kw_only=True, tag_field="kind", tag="cron"):
    """By a cron expression; `staggerMs` is the largest jitter."""

    expr: ShortText
    tz: ShortText | None = None
    stagger_ms: _Millis | None = None


TimesAsked: TypeAlias = AtAsked | EveryAsked | CronAsked


class AgentTurnAsked(Params, frozen=True, kw_only=True, tag_field="kind", tag="agentTurn"):
    """A prompt for an agent. What chooses a model or its tools is refused: the agent's settings do that."""

    message: _LongText | None = None
    model: Any = None
    fallbacks: Any = None
    thinking: Any = None
    tools_allow: Any = None
    timeout_seconds: _Seconds | None = None
    light_context: Any = None
    allow_unsafe_external_content: Any = None


class SystemEventAsked(Params, frozen=True, kw_only=True, tag_field="kind", tag="systemEvent"):
    """A text for the agent's main session."""

    text: _LongText | None = None
    tools_allow: Any = None
    tools_allow_is_default: Any = None


class CommandAsked(Params, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """A command, as a list of words; it needs the scope `operator.admin`."""

    argv: Annotated[list[ShortText], msgspec.Meta(max_length=1000)] | None = None
    cwd: ShortText | None = None
    timeout_seconds: _Seconds | None = None


class TaskTargetAsked(Params, frozen=True, kw_only=True, tag_field="kind", tag="task"):
    """A task that a gateway or worker knows, as `module:task` or by its name, with its arguments."""

    task: NameText | None = None
    # In an update, those that are not named stay as they are, unless the task is another one.
    arguments: dict[str, Any] | None = None
    # In an update: the names of arguments that are left out from now on.
    drop_arguments: Annotated[list[NameText], msgspec.Meta(max_length=1000)] | None = None


TargetAsked: TypeAlias = AgentTurnAsked | SystemEventAsked | CommandAsked | TaskTargetAsked


class PolicyAsked(Params, frozen=True, kw_only=True):
    """What both adding and editing may set."""

    description: ShortText | None = None
    enabled: bool | None = None
    agent_id: NameText | None = None
    session_key: NameText | None = None
    session_target: NameText | None = None
    wake_mode: Literal["now", "next-heartbeat"] | None = None
    delete_after_run: bool | None = None
    delivery: dict[str, Any] | None = None
    failure_alert: Any = None
    pacing: Any = None
    trigger: Any = None
    # Holdfast's own.
    tz: ShortText | None = None
    missed: Literal["skip", "latest", "all"] | None = None
    max_missed: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    overlap: Literal["skip", "queue", "replace"] | None = None
    jitter_ms: _Millis | None = None
    retry: bool | None = None


class ScheduleAddAsked(PolicyAsked, frozen=True, kw_only=True):
    """A new schedule."""

    name: NameText
    display_name: NameText | None = None
    schedule: TimesAsked
    payload: TargetAsked


class SchedulePatchAsked(PolicyAsked, frozen=True, kw_only=True):
    """What to change; the rest stays."""

    name: NameText | None = None
    display_name: NameText | None = None
    schedule: TimesAsked | None = None
    payload: TargetAsked | None = None


class ScheduleAsked(Params, frozen=True, kw_only=True):
    """One schedule, by its id; `jobId` is the older name of the same parameter."""

    id: NameText | None = None
    older_id: NameText | None = msgspec.field(name="jobId", default=None)


class ScheduleEditAsked(ScheduleAsked, frozen=True, kw_only=True):
    """Change a schedule; refused if it is not at the expected revision any more."""

    patch: SchedulePatchAsked
    expected_config_revision: NameText | None = None


class ScheduleRemoveAsked(ScheduleAsked, frozen=True, kw_only=True):
    """Remove a schedule; with `force` also one of the settings of a gateway that is gone."""

    force: bool = False


_HAS_NOT = {
    "expected_process_instance_id": "expectedProcessInstanceId: Holdfast does not check it; leave it out",
    "session_agent_id": "sessionAgentId: Holdfast has no such filter; use agentId or sessionKey",
    "delivery_status": "deliveryStatus: Holdfast has no such filter; leave it out",
    "delivery_statuses": "deliveryStatuses: Holdfast has no such filter; leave it out",
}


class _WithoutUnknown(Params, frozen=True, kw_only=True):
    """Refuses what the protocol has and Holdfast has not, where an answer that ignores it would be wrong."""

    def __post_init__(self) -> None:
        for field, reason in _HAS_NOT.items():
            if getattr(self, field, None) not in (None, []):
                raise ValueError(reason)


class ScheduleRunAsked(ScheduleAsked, _WithoutUnknown, frozen=True, kw_only=True):
    """Fire a schedule now. The same `requestId` again fires it once."""

    mode: Literal["due", "force", "if-enabled"] = "force"
    expected_process_instance_id: NameText | None = None
    request_id: NameText | None = None


class SchedulesAsked(_WithoutUnknown, frozen=True, kw_only=True):
    """A page of schedules."""

    include_disabled: bool = False
    enabled: Literal["all", "enabled", "disabled"] | None = None
    limit: _Page = 50
    offset: _Offset = 0
    query: ShortText | None = None
    agent_id: NameText | None = None
    session_key: NameText | None = None
    session_agent_id: NameText | None = None
    schedule_kind: Literal["all", "at", "every", "cron", "on-exit", "stream"] | None = None
    last_run_status: Literal["all", "ok", "error", "skipped", "unknown"] | None = None
    trigger: Literal["all", "conditional", "unconditional"] | None = None
    sort_by: Literal["nextRunAtMs", "updatedAtMs", "name"] = "nextRunAtMs"
    sort_dir: Literal["asc", "desc"] = "asc"
    compact: bool = False
    include_delivery_previews: bool = False
    # The `nextPageToken` of the previous page, or an empty text for the first: the order is then by name.
    page_token: PageToken | None = None


class FiringsAsked(ScheduleAsked, _WithoutUnknown, frozen=True, kw_only=True):
    """A page of firings, of one schedule or of all, latest first."""

    scope: Literal["job", "all"] | None = None
    agent_id: NameText | None = None
    run_id: NameText | None = None
    limit: _Page = 50
    offset: _Offset = 0
    status: Literal["all", "ok", "error", "skipped"] | None = None
    statuses: list[Literal["ok", "error", "skipped"]] | None = None
    delivery_status: NameText | None = None
    delivery_statuses: list[NameText] | None = None
    query: ShortText | None = None
    sort_dir: Literal["asc", "desc"] = "desc"
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None
