"""chat.send, chat.history, sessions.* and agents.list: conversations in the format of OpenClaw's protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from holdfast.api.contract import WRITE, Caller, GatewayDoor
from holdfast.api.params import KeyText, NameText, Nothing, Params, ShortText
from holdfast.api.sessions import (
    MAX_ACTIVE_MINUTES,
    MAX_WAIT_MS,
    SessionText,
    check_session,
    full_key,
    known_key,
    last_message,
    list_agents,
    message_key,
    wait_for_messages,
)
from holdfast.core.errors import BadInput
from holdfast.core.message import CONSOLE_CHANNEL, MAX_MESSAGE_BYTES, Message
from holdfast.core.session import agent_of, session_key
from holdfast.core.task import Origin
from holdfast.store.messages import LAST_POSITION
from holdfast.views.openclaw_chat import (
    AgentsListed,
    AgentSummary,
    ChatAccepted,
    ChatHistory,
    ChatMessage,
    ModelsListed,
    SessionsListed,
    SessionSummary,
)
from holdfast.views.text import one_line
from holdfast.views.wire import millis

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.core.session import Session
    from holdfast.gateway.inbox import Posted
    from holdfast.store.transaction import Tx

# The protocol's words for the session that an agent has without a name.
MAIN_KEY = "main"
MAX_ROWS = 1000
MAX_OFFSET = 10_000

MessageText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MESSAGE_BYTES)]
Rows = Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class MessageAsked(Params, frozen=True, kw_only=True):
    """What a client may say with a message. `thinking` and the time limits have no effect: each agent chooses
    its model, and its own `timeout_s` limits a run."""

    message: MessageText
    agent_id: NameText | None = None
    # Refused with another session's id.
    session_id: ShortText | None = None
    # Answers are not sent elsewhere: true is refused.
    deliver: bool = False
    thinking: ShortText | None = None


class ChatSendAsked(MessageAsked, frozen=True, kw_only=True):
    """A message to a session; idempotent by its key."""

    session_key: SessionText
    idempotency_key: KeyText | None = None
    timeout_ms: Milliseconds | None = None
    # A message always waits until the messages before it are answered.
    queue_mode: Literal["followup"] | None = None


class SessionSendAsked(MessageAsked, frozen=True, kw_only=True):
    """The same, with the session as `key` or as `sessionKey`."""

    key: SessionText | None = None
    session_key: SessionText | None = None
    idempotency_key: KeyText | None = None
    timeout_ms: Milliseconds | None = None


class ChatHistoryAsked(Params, frozen=True, kw_only=True):
    """The last messages, those before the newest `offset`, or those after a position; can wait for more."""

    session_key: SessionText
    agent_id: NameText | None = None
    session_id: ShortText | None = None
    limit: Rows = 200
    offset: Offset = 0
    max_chars: Annotated[int, msgspec.Meta(ge=1, le=500_000)] | None = None
    after: Annotated[int, msgspec.Meta(ge=0, le=LAST_POSITION)] | None = None
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0


class SessionsListAsked(Params, frozen=True, kw_only=True):
    """Which sessions, most recently used first. There are neither global nor unknown ones to include."""

    agent_id: NameText | None = None
    active_minutes: Annotated[float, msgspec.Meta(ge=0, le=MAX_ACTIVE_MINUTES)] | None = None
    limit: Rows = 100
    offset: Offset = 0
    include_global: bool = False
    include_unknown: bool = False
    include_derived_titles: bool = False
    include_last_message: bool = False
    configured_agents_only: bool = False
    sort_by: Literal["updatedAt"] | None = None


class ModelsAsked(Params, frozen=True, kw_only=True):
    """Which models; any answer is empty."""

    agent_id: NameText | None = None
    session_key: SessionText | None = None
    provider: NameText | None = None
    view: Literal["default", "configured", "provider-config", "all"] = "default"
    include_details: bool = False
    prepared_only: bool = False
    refresh: bool = False


# --- methods


async def send(gateway: GatewayDoor, asked: ChatSendAsked, caller: Caller) -> ChatAccepted:
    """Store the message before the answer. During a drain it is stored, too, and the agent answers later."""
    key = wire_key(gateway.config, asked.session_key, asked.agent_id, is_known=True)
    posted = await post(gateway, key, asked, asked.idempotency_key, caller)
    return _accepted(posted)


async def send_to_session(gateway: GatewayDoor, asked: SessionSendAsked, caller: Caller) -> ChatAccepted:
    named = [one for one in (asked.key, asked.session_key) if one is not None]
    if len(named) != 1:
        raise BadInput("key", "name the session once, as key or as sessionKey")
    key = wire_key(gateway.config, named[0], asked.agent_id, is_known=True)
    posted = await post(gateway, key, asked, asked.idempotency_key, caller)
    return _accepted(posted)


async def history(gateway: GatewayDoor, asked: ChatHistoryAsked, caller: Caller) -> ChatHistory:
    """The transcript; unredacted for callers that may write. Raises NotFound if the agent is unknown."""
    key, is_whole = wire_key(gateway.config, asked.session_key, asked.agent_id), WRITE in caller.scopes
    if asked.after is not None and asked.offset:
        raise BadInput("offset", "after and offset exclude each other; give only one of them")
    await check_session(gateway, key)
    return await wait_for_messages(
        gateway, lambda tx: read_history(tx, key, asked, is_whole=is_whole), asked.wait_ms
    )


async def rows(gateway: GatewayDoor, asked: SessionsListAsked, caller: Caller) -> SessionsListed:  # noqa: ARG001 - a method
    now = gateway.clock.now()
    configured = frozenset(gateway.config.agents) if asked.configured_agents_only else None

    def read(tx: Tx) -> SessionsListed:
        wanted = asked.offset + asked.limit + 1
        since = None if asked.active_minutes is None else now - timedelta(minutes=asked.active_minutes)
        found = tx.sessions.page(agent=asked.agent_id, active_since=since, limit=wanted)
        shown = found[asked.offset : asked.offset + asked.limit]
        return SessionsListed(
            ts=millis(now) or 0,
            count=len(kept := [one for one in shown if configured is None or one.agent in configured]),
            has_more=len(found) == wanted,
            next_offset=asked.offset + asked.limit if len(found) == wanted else None,
            sessions=[_row(tx, one, asked) for one in kept],
        )

    return await gateway.store.read(read)


async def agents(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> AgentsListed:  # noqa: ARG001 - a method
    view = list_agents(gateway.config, settings_refused=gateway.status().settings_refused)
    default = default_agent(gateway.config)
    return AgentsListed(
        agents=[AgentSummary(id=one.name, **msgspec.structs.asdict(one)) for one in view.agents],
        main_key=MAIN_KEY,
        scope="per-sender",
        default_id=None if default is None else one_line(default),
        selection_required=default is None and bool(view.agents),
        settings_refused=view.settings_refused,
    )


async def models(gateway: GatewayDoor, asked: ModelsAsked, caller: Caller) -> ModelsListed:  # noqa: ARG001 - a method
    """Raises NotFound for an unknown agent."""
    if asked.session_key is not None or asked.agent_id is not None:
        wire_key(gateway.config, asked.session_key or MAIN_KEY, asked.agent_id, is_known=True)
    return ModelsListed(models=[])


# --- also used by the runs


def default_agent(config: Config) -> str | None:
    """The agent that a client means without naming one: the one named main, or the only one."""
    if MAIN_KEY in config.agents:
        return MAIN_KEY
    return next(iter(config.agents)) if len(config.agents) == 1 else None


def wire_key(config: Config, text: str, agent_id: str | None, *, is_known: bool = False) -> str:
    """The key of a session as clients name it: a key, the name of an agent's session, an agent, or `main`.

    Raises BadInput if the key belongs to another agent, NotFound with `is_known` if there is no such agent.
    """
    full = known_key if is_known else full_key
    if ":" in text:
        if agent_id is not None and agent_of(text) != agent_id:
            raise BadInput("agentId", f"the session {one_line(text)} belongs to {one_line(agent_of(text))}")
        return full(config, text)
    if agent_id is not None:
        return full(config, agent_id if text in (MAIN_KEY, agent_id) else session_key(agent_id, text))
    default = default_agent(config)
    if text == MAIN_KEY and text not in config.agents and default is not None:
        return full(config, default)
    return full(config, text)


async def post(
    gateway: GatewayDoor, key: str, asked: MessageAsked, idempotency_key: str | None, caller: Caller
) -> Posted:
    """Store a message of a client. Raises BadInput for what no agent here can do."""
    if asked.deliver:
        raise BadInput(
            "deliver",
            "the answer stays in the session; leave this out, read it with chat.history or agent.wait, and "
            "send it with `send`",
        )
    if asked.session_id is not None:
        await gateway.store.read(lambda tx: _check_id_of(tx, key, asked.session_id))
    return await gateway.inbox.post(
        key,
        asked.message,
        Origin(channel=CONSOLE_CHANNEL, peer=caller.who),
        channel_message_id=message_key(key, idempotency_key),
    )


def read_history(tx: Tx, key: str, asked: ChatHistoryAsked, *, is_whole: bool) -> ChatHistory:
    session = tx.sessions.find(key)
    if session is not None and asked.session_id is not None:
        _check_id_of(tx, key, asked.session_id)
    last = 0 if session is None else session.last_position
    if asked.after is None:
        found = tx.messages.before(key, max(0, last - asked.offset + 1), limit=asked.limit + 1)
        has_more = len(found) > asked.limit
        found = found[-asked.limit :]
    else:
        found = tx.messages.after(key, asked.after, limit=asked.limit + 1)
        has_more = len(found) > asked.limit
        found = found[: asked.limit]
    return ChatHistory(
        session_key=key,
        messages=[ChatMessage.of(one, is_whole=is_whole, max_chars=asked.max_chars) for one in found],
        next_after=found[-1].position if found else asked.after or 0,
        has_more=has_more,
        total_messages=last,
        next_offset=asked.offset + asked.limit if has_more and asked.after is None else None,
        session_id=None if session is None else one_line(session.id),
        status=None if session is None else session.status.value,
        session=None if session is None else SessionSummary.of(session),
    )


def _check_id_of(tx: Tx, key: str, session_id: str | None) -> None:
    session = tx.sessions.find(key)
    if session is not None and session.id != session_id:
        raise BadInput("sessionId", f"the session {one_line(key)} has another id now; read it again")


def _row(tx: Tx, session: Session, asked: SessionsListAsked) -> SessionSummary:
    title = last = None
    if asked.include_derived_titles:
        title = next((_text(one) for one in tx.messages.after(session.key, limit=1)), None)
    if asked.include_last_message:
        newest = last_message(tx, session.key)
        last = None if newest is None else _text(newest)
    return SessionSummary.of(session, title=title, last=last)


def _text(message: Message) -> str:
    return ChatMessage.of(message, is_whole=False).text


def _accepted(posted: Posted) -> ChatAccepted:
    message = posted.message
    return ChatAccepted(
        run_id=one_line(message.id),
        status=message.status.value,
        message_id=one_line(message.id),
        session_key=one_line(message.session_key),
        position=message.position,
        is_duplicate=posted.is_duplicate,
    )
