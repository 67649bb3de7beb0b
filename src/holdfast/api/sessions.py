"""Conversations for the API and the CLI: send a message, read a transcript, list sessions and agents."""

from __future__ import annotations

import hashlib
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.api import audit
from holdfast.api.contract import EVERYTHING, WRITE, Caller, GatewayDoor, Reach
from holdfast.api.params import KeyText, NameText, PageSize, PageToken, Params
from holdfast.core.errors import NotFound
from holdfast.core.ids import new_token
from holdfast.core.message import CONSOLE_CHANNEL, MAX_MESSAGE_BYTES, Message, Role
from holdfast.core.session import agent_of, agent_task, session_key
from holdfast.core.snapshot import OwnerSnapshot
from holdfast.core.spawn_packet import MAX_RUN_TIMEOUT_S, MAX_TASK_BYTES, packet_from
from holdfast.core.task import Origin
from holdfast.core.wake_contract import MAX_ACTIONS, WAKE_MODE, ResumeStep
from holdfast.engine.ledger.recent import recent_tasks
from holdfast.store.messages import LAST_POSITION
from holdfast.store.sessions import page_token
from holdfast.upkeep.projection import project_tasks
from holdfast.views.gateway import MAX_REASON_CHARS
from holdfast.views.sessions import (
    AgentPageView,
    AgentView,
    MessageView,
    PostedView,
    SessionDetailView,
    SessionPageView,
    SessionView,
    SpawnedView,
    TranscriptView,
)
from holdfast.views.snapshot import SnapshotView
from holdfast.views.text import maybe_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.config.sections import AgentSettings, Config
    from holdfast.core.task import Task
    from holdfast.engine.conversation.spawning import Spawned
    from holdfast.engine.conversation.transcripts import Commands
    from holdfast.store.contract import Write
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

SHOWN_MESSAGES = 50
MAX_WAIT_MS = 25_000
# Before any session.
MAX_ACTIVE_MINUTES = 10_000_000
_LOOK_EVERY_S = 1.0
# How many of the newest messages are searched for one that a person or an agent wrote.
_LOOKED_AT = 5

# The packet has the words of its contract.
SPAWN_NAMES = {
    "wake_mode": "wakeMode",
    "agent_id": "agentId",
    "session_key": "sessionKey",
    "run_timeout_s": "runTimeoutS",
    "idempotency_key": "idempotencyKey",
}
# `agent:<agent>:<name>`, or the name of an agent for its main session.
SessionText: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class _HasMessages(Protocol):
    @property
    def messages(self) -> list[Any]: ...


H = TypeVar("H", bound=_HasMessages)


class ChatAsked(Params, frozen=True, kw_only=True):
    """A message to a session; idempotent by its key."""

    session_key: SessionText
    message: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MESSAGE_BYTES)]
    idempotency_key: KeyText | None = None


class HistoryAsked(Params, frozen=True, kw_only=True):
    """The last messages of a transcript, or those after a position; can wait for new ones."""

    session_key: SessionText
    after: Annotated[int, msgspec.Meta(ge=0, le=LAST_POSITION)] | None = None
    limit: PageSize = 100
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 0


class SessionsAsked(Params, frozen=True, kw_only=True):
    """Which sessions, most recently used first."""

    agent_id: NameText | None = None
    active_minutes: Annotated[float, msgspec.Meta(ge=0, le=MAX_ACTIVE_MINUTES)] | None = None
    limit: PageSize = 50
    # Also the beginning of the last message of each.
    include_last_message: bool = False
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class SessionAsked(Params, frozen=True, kw_only=True):
    """One session."""

    session_key: SessionText
    limit: PageSize = SHOWN_MESSAGES


class SessionTasksAsked(Params, frozen=True, kw_only=True):
    """The tasks of one session."""

    session_key: SessionText


class SpawnAsked(Params, frozen=True, kw_only=True, rename=SPAWN_NAMES):
    """The packet of the contract for long tasks, and which agent of which session gets the work."""

    task: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TASK_BYTES)]
    task_id: Annotated[str, msgspec.Meta(max_length=100)] = ""
    wake_mode: Annotated[str, msgspec.Meta(max_length=50)] = WAKE_MODE
    resume: ResumeStep = ResumeStep()
    done_criteria: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_ACTIONS)] = ()
    # The agent of the child; by default that of the session that spawns, without a session the only agent.
    agent_id: NameText | None = None
    # The session that spawns, and is told of the end; by default the owner that a token is limited to.
    session_key: SessionText | None = None
    run_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_RUN_TIMEOUT_S)] | None = None
    # Instead of a task_id.
    idempotency_key: KeyText | None = None


# --- methods


async def spawn(gateway: GatewayDoor, asked: SpawnAsked, caller: Caller) -> SpawnedView:
    """Make a child session and its task, durable before the answer. During a drain, too: a gateway starts the
    task later."""
    from holdfast.engine.conversation.spawning import spawn_request, spawning

    if asked.session_key is not None:
        owner = known_key(gateway.config, asked.session_key)
        if caller.owner not in (None, owner):
            raise NotFound("session", owner)
    elif caller.owner is not None:
        owner = caller.owner
    else:
        owner = caller.who
    packet = packet_from(
        {
            "task": asked.task,
            "task_id": asked.task_id,
            "wakeMode": asked.wake_mode,
            "resume": msgspec.to_builtins(asked.resume),
            "done_criteria": asked.done_criteria,
            "runTimeoutS": asked.run_timeout_s,
        }
    )
    now = gateway.clock.now()
    request = spawn_request(
        packet,
        owner=owner,
        agent=asked.agent_id,
        agents=gateway.config.agents,
        key=asked.idempotency_key or (None if asked.task_id else new_token()),
        now=now,
    )
    name = agent_task(request.agent)
    if caller.tasks is not None and name not in caller.tasks:
        raise NotFound("agent", request.agent)
    write = audit.recorded(spawning(request, now=now), caller.actor, "sessions.spawn", asked, now=now)

    def spawn_beside(tx: Tx) -> Spawned:
        tx.sealing.leave_loop()
        return write(tx)

    return SpawnedView.of(await gateway.store.write(spawn_beside))


async def transcript(gateway: GatewayDoor, asked: HistoryAsked, caller: Caller) -> TranscriptView:
    """The transcript; unredacted for callers that may write, because `chat` prints answers from it.

    Empty for a session without messages. Raises NotFound if its agent is unknown.
    """
    key, is_whole = full_key(gateway.config, asked.session_key), WRITE in caller.scopes
    await check_session(gateway, key)
    return await wait_for_messages(
        gateway,
        lambda tx: read_transcript(tx, key, asked.after, asked.limit, is_whole=is_whole),
        asked.wait_ms,
    )


async def check_session(gateway: GatewayDoor, key: str) -> None:
    """Raises NotFound if there is neither such an agent nor such a session: a removed agent leaves its
    sessions."""
    if agent_of(key) not in gateway.config.agents:
        await gateway.store.read(lambda tx: tx.sessions.of_key(key))


async def wait_for_messages(gateway: GatewayDoor, read: Callable[[Tx], H], wait_ms: int) -> H:
    """Read until there are messages or the time is over."""
    give_up_at = time.monotonic() + wait_ms / 1000
    while True:
        view = await gateway.store.read(read)
        left = give_up_at - time.monotonic()
        if view.messages or left <= 0:
            return view
        await gateway.store.wait_for("events", min(left, _LOOK_EVERY_S))


async def page(gateway: GatewayDoor, asked: SessionsAsked, caller: Caller) -> SessionPageView:  # noqa: ARG001 - a method
    now = gateway.clock.now()
    since = None if asked.active_minutes is None else timedelta(minutes=asked.active_minutes)
    return await gateway.store.read(
        lambda tx: read_page(
            tx,
            agent=asked.agent_id,
            active_since=None if since is None else now - since,
            before=asked.page_token,
            limit=asked.limit,
            has_last_message=asked.include_last_message,
        )
    )


async def get(gateway: GatewayDoor, asked: SessionAsked, caller: Caller) -> SessionDetailView:  # noqa: ARG001 - a method
    key = full_key(gateway.config, asked.session_key)
    now, projection = gateway.clock.now(), gateway.projection()
    return await gateway.store.read(
        lambda tx: read_session(tx, key, asked.limit, now=now, projection=projection)
    )


async def tasks(gateway: GatewayDoor, asked: SessionTasksAsked, caller: Caller) -> SnapshotView:
    """A limited caller sees only the tasks that it may reach."""
    key = full_key(gateway.config, asked.session_key)
    now, projection = gateway.clock.now(), gateway.projection()
    return await gateway.store.read(
        lambda tx: read_tasks(tx, key, now=now, reach=caller.reach, projection=projection)
    )


# --- also used by the CLI


def posting(
    asked: ChatAsked, *, by: str, now: datetime, commands: Commands | None = None
) -> Write[PostedView]:
    """The write of a message while no gateway runs; the agent answers when one starts.

    `commands` carries out chat commands at once, as a gateway would.
    """
    from holdfast.engine.conversation.transcripts import new_message, post

    origin = Origin(channel=CONSOLE_CHANNEL, peer=by)
    message_id = message_key(asked.session_key, asked.idempotency_key)
    message = new_message(asked.session_key, asked.message, origin, channel_message_id=message_id, now=now)

    def send_it(tx: Tx) -> PostedView:
        posted = post(tx, message, commands=commands)
        return PostedView.of(posted.message, is_duplicate=posted.is_duplicate)

    return send_it


def read_page(
    tx: Tx,
    *,
    agent: str | None,
    active_since: datetime | None,
    before: str | None,
    limit: int,
    has_last_message: bool = False,
) -> SessionPageView:
    found = tx.sessions.page(agent=agent, active_since=active_since, before=before, limit=limit + 1)
    last = {one.key: last_message(tx, one.key) for one in found[:limit]} if has_last_message else {}
    return SessionPageView(
        sessions=[SessionView.of(session, last=last.get(session.key)) for session in found[:limit]],
        next_page_token=page_token(found[limit - 1]) if len(found) > limit else None,
    )


def last_message(tx: Tx, key: str) -> Message | None:
    """The newest message that a person or an agent wrote, unless it lies far back."""
    newest = reversed(tx.messages.before(key, limit=_LOOKED_AT))
    return next((one for one in newest if one.role is not Role.SYSTEM), None)


def read_session(
    tx: Tx,
    key: str,
    limit: int = SHOWN_MESSAGES,
    *,
    now: datetime,
    projection: Projection | None = None,
) -> SessionDetailView:
    session = tx.sessions.of_key(key)
    found = tx.messages.before(key, limit=limit)
    return SessionDetailView(
        session=SessionView.of(session),
        messages=[MessageView.of(message) for message in found],
        line=OwnerSnapshot.of(_shown_tasks(tx, key, projection), now).line,
    )


def read_tasks(
    tx: Tx,
    key: str,
    *,
    now: datetime,
    reach: Reach = EVERYTHING,
    projection: Projection | None = None,
) -> SnapshotView:
    """The tasks of a session; none for a session that does not exist."""
    found = [task for task in _shown_tasks(tx, key, projection) if reach.covers(task.owner, task.name)]
    return SnapshotView.of(key, OwnerSnapshot.of(found, now))


def _shown_tasks(tx: Tx, key: str, projection: Projection | None) -> list[Task]:
    """The recent tasks of a session; those of a dead worker do not read as running."""
    found = recent_tasks(tx, key)
    shown = project_tasks(tx, found, projection)
    return [
        msgspec.structs.replace(task, status=shown[task.id].status) if task.id in shown else task
        for task in found
    ]


def read_transcript(
    tx: Tx, key: str, after: int | None, limit: int, *, is_whole: bool = False
) -> TranscriptView:
    """The last messages, or those after a position; empty for a session without messages."""
    session = tx.sessions.find(key)
    if after is None:
        found = tx.messages.before(key, limit=limit)
    else:
        found = tx.messages.after(key, after, limit=limit)
    return TranscriptView(
        session_key=key,
        messages=[MessageView.of(message, is_whole=is_whole) for message in found],
        next_after=found[-1].position if found else after or 0,
        status=None if session is None else session.status.value,
    )


def list_agents(config: Config, *, settings_refused: str | None = None) -> AgentPageView:
    shown = [
        AgentView(
            name=name,
            runtime=(kind := _kind_of(agent)),
            target=agent.command[0] if kind == "command" else str(getattr(agent, kind)),
            main_session=session_key(name, agent.session),
        )
        for name, agent in sorted(config.agents.items())
    ]
    return AgentPageView(agents=shown, settings_refused=maybe_line(settings_refused, MAX_REASON_CHARS))


def full_key(config: Config, text: str) -> str:
    """The key of a session; an agent's name alone means its main session. Raises BadInput."""
    if ":" not in text:
        agent = config.agents.get(text)
        return session_key(text, "main" if agent is None else agent.session)
    agent_of(text)
    return text


def known_key(config: Config, text: str) -> str:
    """The same for a message, whose agent must exist. Raises NotFound, BadInput."""
    key = full_key(config, text)
    agent = agent_of(key)
    if agent not in config.agents:
        raise NotFound("agent", agent)
    return key


def message_key(key: str, idempotency_key: str | None) -> str | None:
    """The message id for an idempotency key, which is unique only within its session."""
    if idempotency_key is None:
        return None
    return f"{hashlib.sha256(key.encode()).hexdigest()[:16]}:{idempotency_key}"


def _kind_of(agent: AgentSettings) -> str:
    if agent.command:
        return "command"
    return "callable" if agent.callable is not None else "pydantic_ai"
