"""SessionView, MessageView and AgentView: conversations, and who holds them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.message import Message
from holdfast.core.session import Session
from holdfast.views.tasks import OriginView
from holdfast.views.text import bounded, clip, maybe_line, one_line, safe

MAX_MESSAGE_CHARS = 64 * 1024


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation of one agent, as a line of a list."""

    id: str
    key: str
    agent: str
    status: str
    parent_key: str | None
    # The task that answers now.
    task_id: str | None
    # How many messages wait for their turn.
    queued: int
    messages: int
    origin: OriginView | None
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, session: Session) -> SessionView:
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
        )


class SessionPageView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions, last spoken in first."""

    sessions: list[SessionView] = []
    # For `--before`: what follows this page; null at the end.
    next_page_token: str | None = None


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a transcript."""

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
        """Redacted; whole for those who take part in the conversation."""
        try:
            text = message.text
            text = clip(safe(text), MAX_MESSAGE_CHARS) if is_whole else bounded(text, MAX_MESSAGE_CHARS)
        except HoldfastError:  # `store verify` tells more
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


class TranscriptView(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a session, oldest first."""

    session_key: str
    messages: list[MessageView]
    # For `after`: where the next page begins.
    next_after: int
    # Of the session now; null for one that nobody has spoken in yet.
    status: str | None


class SessionDetailView(msgspec.Struct, frozen=True, kw_only=True):
    """One session with the end of its transcript."""

    session: SessionView
    messages: list[MessageView]


class PostedView(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is durable now, and is answered in its turn."""

    # queued; or what became of it, when it was posted before with the same key.
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


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """One agent of the settings."""

    name: str
    # callable, command or pydantic_ai.
    runtime: str
    # What is called; of a command only the program, because its arguments may be private.
    target: str
    main_session: str


class AgentPageView(msgspec.Struct, frozen=True, kw_only=True):
    """The agents of the settings, by name."""

    agents: list[AgentView] = []
    # Why the settings as they are written do not hold in the gateway that runs; these agents are those that
    # it has then. Null when they do, and when no gateway runs.
    settings_refused: str | None = None
