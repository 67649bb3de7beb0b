"""SessionView, MessageView and AgentView: conversations and agents."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.message import Message
from holdfast.core.session import Session
from holdfast.views.tasks import OriginView
from holdfast.views.text import bounded, clip, maybe_line, one_line, safe

if TYPE_CHECKING:
    from holdfast.engine.conversation.spawning import Spawned

MAX_MESSAGE_CHARS = 64 * 1024
MAX_PREVIEW_CHARS = 120


class SessionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One conversation with an agent, in a list."""

    id: str
    key: str
    agent: str
    status: str
    parent_key: str | None
    # The task that is answering now.
    task_id: str | None
    # How many messages are queued.
    queued: int
    messages: int
    origin: OriginView | None
    created_at: datetime
    updated_at: datetime
    # The beginning of the last message of a person or an agent; null unless it was asked for.
    last_message: str | None = None

    @classmethod
    def of(cls, session: Session, *, last: Message | None = None) -> SessionView:
        return cls(
            id=one_line(session.id),
            key=one_line(session.key),
            agent=one_line(session.agent),
            status=session.status.value,
            parent_key=maybe_line(session.parent_key),
            task_id=maybe_line(session.task_id),
            queued=session.queued,
            messages=session.last_position,
            origin=OriginView.maybe(session.origin),
            created_at=session.created_at,
            updated_at=session.updated_at,
            last_message=None if last is None else one_line(MessageView.of(last).text, MAX_PREVIEW_CHARS),
        )


class SessionPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of sessions, most recently used first."""

    sessions: list[SessionView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class MessageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One message of a transcript."""

    id: str
    position: int
    # user, agent or system.
    role: str
    text: str
    channel: str
    status: str
    task_id: str | None
    reply_to: str | None
    created_at: datetime

    @classmethod
    def of(cls, message: Message, *, is_whole: bool = False) -> MessageView:
        """Redacted; with `is_whole` unredacted, for participants of the conversation."""
        try:
            text = message.text
            text = clip(safe(text), MAX_MESSAGE_CHARS) if is_whole else bounded(text, MAX_MESSAGE_CHARS)
        except HoldfastError:  # damaged: `store verify` reports it
            text = "(this message cannot be read)"
        return cls(
            id=one_line(message.id),
            position=message.position,
            role=message.role.value,
            text=text,
            channel=one_line(message.channel),
            status=message.status.value,
            task_id=maybe_line(message.task_id),
            reply_to=maybe_line(message.reply_to),
            created_at=message.created_at,
        )


class TranscriptView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Messages of a session, oldest first."""

    session_key: str
    messages: list[MessageView]
    # For `after`: the next page.
    next_after: int
    # The status of the session; null if it has no messages.
    status: str | None


class SessionDetailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One session with its last messages."""

    session: SessionView
    messages: list[MessageView]
    # What its tasks do now, in one line.
    line: str


class PostedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message that is stored, and will be answered in order."""

    # queued; or its current status, if it was posted before with the same key.
    status: str
    message_id: str
    session_key: str
    position: int
    is_duplicate: bool

    @classmethod
    def of(cls, message: Message, *, is_duplicate: bool) -> PostedView:
        return cls(
            status=message.status.value,
            message_id=one_line(message.id),
            session_key=one_line(message.session_key),
            position=message.position,
            is_duplicate=is_duplicate,
        )


class SpawnedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The task of a spawned session, and that session."""

    task_id: str
    # `smartwake_<slug>_<timestamp>`: every command that takes a task accepts it.
    task_key: str
    session_key: str
    # queued; or the current status, if it was spawned before.
    status: str
    is_duplicate: bool

    @classmethod
    def of(cls, spawned: Spawned) -> SpawnedView:
        return cls(
            task_id=one_line(spawned.task.id),
            task_key=one_line(spawned.task.dedup_key or ""),
            session_key=one_line(spawned.session_key),
            status=spawned.task.status.value,
            is_duplicate=spawned.is_duplicate,
        )


class AgentView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One configured agent."""

    name: str
    # callable, command or pydantic_ai.
    runtime: str
    # The module, or only the program of a command: its arguments may be secret.
    target: str
    main_session: str


class AgentPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The configured agents, by name."""

    agents: list[AgentView] = []
    # Why the running gateway refused the settings in the files; then these are the agents that it uses.
    # Null if it uses them, or if no gateway runs.
    settings_refused: str | None = None
