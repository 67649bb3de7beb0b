"""ChatHistory, SessionSummary, AgentRun and AgentSummary: conversations in OpenClaw's format."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

import msgspec

from holdfast.core.message import CONSOLE_CHANNEL, HASHED_ID, Message, Role
from holdfast.core.session import Session
from holdfast.core.task import Task
from holdfast.core.transitions import TaskStatus
from holdfast.views.sessions import AgentView, MessageView
from holdfast.views.text import clip, maybe_line, one_line
from holdfast.views.wire import millis

MAX_PREVIEW_CHARS = 120
MAX_ERROR_CHARS = 1000
# Before the idempotency key in the stored id of a message: see `sessions.message_key`.
_SESSION_DIGEST = re.compile(r"[0-9a-f]{16}:")


class ChatText(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A part of a message: text, the only kind that agents here exchange."""

    text: str


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One message of a transcript, in the protocol's words and with the facts that Holdfast adds."""

    # user, assistant (an agent) or system.
    role: str
    content: list[ChatText]
    # Milliseconds.
    timestamp: int
    id: str
    position: int
    text: str
    channel: str
    status: str
    created_at: datetime
    task_id: str | None = None
    reply_to: str | None = None
    # As `chat.send` or `agent` got it.
    idempotency_key: str | None = None

    @classmethod
    def of(cls, message: Message, *, is_whole: bool, max_chars: int | None = None) -> ChatMessage:
        shown = MessageView.of(message, is_whole=is_whole)
        text = shown.text if max_chars is None else clip(shown.text, max_chars)
        return cls(
            role="assistant" if message.role is Role.AGENT else message.role.value,
            content=[ChatText(text=text)],
            timestamp=millis(message.created_at) or 0,
            id=shown.id,
            position=shown.position,
            text=text,
            channel=shown.channel,
            status=shown.status,
            created_at=shown.created_at,
            task_id=shown.task_id,
            reply_to=shown.reply_to,
            idempotency_key=_sent_key(message),
        )


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One session in a list of the protocol; unknown fields are left out."""

    key: str
    kind: str
    session_id: str
    agent_id: str
    # Milliseconds.
    updated_at: int
    created_at: int
    has_active_run: bool
    # Only while a task answers.
    status: str | None = None
    channel: str | None = None
    parent_session_key: str | None = None
    derived_title: str | None = None
    last_message_preview: str | None = None

    @classmethod
    def of(cls, session: Session, *, title: str | None = None, last: str | None = None) -> SessionSummary:
        is_busy = session.task_id is not None
        return cls(
            key=one_line(session.key),
            kind="direct",
            session_id=one_line(session.id),
            agent_id=one_line(session.agent),
            updated_at=millis(session.updated_at) or 0,
            created_at=millis(session.created_at) or 0,
            has_active_run=is_busy or session.queued > 0,
            status="running" if is_busy else None,
            channel=None if session.origin is None else one_line(session.origin.channel),
            parent_session_key=maybe_line(session.parent_key),
            derived_title=maybe_line(title, MAX_PREVIEW_CHARS),
            last_message_preview=maybe_line(last, MAX_PREVIEW_CHARS),
        )


class DefaultModelView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The default model: none, because each agent chooses its own."""

    model_provider: None = None
    model: None = None
    context_tokens: None = None


class SessionsListed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Sessions, most recently used first."""

    ts: int
    count: int
    has_more: bool
    sessions: list[SessionSummary]
    # With `offset`: the next page.
    next_offset: int | None = None
    defaults: DefaultModelView = msgspec.field(default_factory=DefaultModelView)


class ChatHistory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The messages of a session, oldest first."""

    session_key: str
    messages: list[ChatMessage]
    # For `after`: the next page. For `offset`: the next older page.
    next_after: int
    has_more: bool
    total_messages: int
    next_offset: int | None = None
    session_id: str | None = None
    # The status of the session.
    status: str | None = None
    session: SessionSummary | None = msgspec.field(default=None, name="sessionInfo")


class ChatAccepted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message that is stored, and will be answered in order; its run has the message's id."""

    run_id: str
    # queued; or its current status, if it was sent before with the same key.
    status: str
    message_id: str
    session_key: str
    position: int
    is_duplicate: bool


class ChatAborted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was aborted."""

    ok: bool
    aborted: bool
    run_ids: list[str]


class SessionAborted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was aborted."""

    ok: bool
    status: Literal["aborted", "no-active-run"]
    aborted_run_id: str | None
    # How many messages were taken out of the queue.
    cleared: int


class AgentAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One text of an agent's answer."""

    text: str


class AgentResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an agent answered."""

    payloads: list[AgentAnswer]


class AgentRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A run of an agent: accepted, already in flight, or how it ended."""

    run_id: str
    status: Literal["accepted", "in_flight", "ok", "error", "timeout"]
    session_key: str
    agent_id: str
    accepted_at: int | None = None
    summary: str | None = None
    result: AgentResult | None = None
    task_id: str | None = None


class RunWaited(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How a run of an agent stands or ended. A `timeout` without `endedAt` is only the end of the wait."""

    run_id: str
    status: Literal["pending", "ok", "error", "timeout"]
    started_at: int | None = None
    ended_at: int | None = None
    error: str | None = None
    stop_reason: str | None = None
    timeout_phase: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in {"ok", "error"} or self.ended_at is not None

    @classmethod
    def of_task(cls, run_id: str, task: Task) -> RunWaited:
        """The end of a run, by the task that answered it."""
        why = None if task.failure is None else one_line(task.failure.message, MAX_ERROR_CHARS)
        status: Literal["ok", "error", "timeout"] = "error"
        stop: str | None = None
        match task.status:
            case TaskStatus.SUCCEEDED:
                status = "ok"
            case TaskStatus.TIMED_OUT:
                status = "timeout"
            case TaskStatus.CANCELLED:
                stop, why = "aborted", why or "the run was cancelled"
        return cls(
            run_id=run_id,
            status=status,
            started_at=millis(task.started_at),
            ended_at=millis(task.ended_at),
            error=why,
            stop_reason=stop,
        )


class AgentSummary(AgentView, frozen=True, kw_only=True, rename="camel"):
    """One configured agent, with the protocol's `id` beside our own fields."""

    id: str


class AgentsListed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The configured agents, by name."""

    agents: list[AgentSummary]
    main_key: str
    scope: str
    # The only agent, or the one named main; left out if there is neither.
    default_id: str | None = None
    # Whether a client has to choose an agent.
    selection_required: bool = False
    settings_refused: str | None = None


class ModelsListed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The models that the gateway offers: none, because each agent chooses its own."""

    models: list[None]


def _sent_key(message: Message) -> str | None:
    stored = message.channel_message_id
    if message.channel != CONSOLE_CHANNEL or stored is None or stored.startswith(HASHED_ID):
        return None
    found = _SESSION_DIGEST.match(stored)
    return None if found is None else maybe_line(stored[found.end() :])
