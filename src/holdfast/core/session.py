"""Session and its key: one conversation of one agent, with its parent."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.ids import SessionId, TaskId
from holdfast.core.payload import check_name
from holdfast.core.task import Origin, Task
from holdfast.core.transitions import SessionStatus

# The prefix of the names of tasks that answer messages; only the inbox creates them.
AGENT_PREFIX = "agent."


class Session(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    key: str
    agent: str
    parent_key: str | None = None
    created_at: datetime
    status: SessionStatus = SessionStatus.IDLE
    waits_on: str | None = None
    # Where the last message came from: notices of this session go there.
    origin: Origin | None = None
    # The task that answers now; None when there is none.
    task_id: TaskId | None = None
    last_position: int = 0
    # How many messages wait to be answered.
    queued: int = 0
    # Since when the first of them could be answered; None while a task is answering.
    ready_at: datetime | None = None
    updated_at: datetime


def session_key(agent: str, name: str) -> str:
    """The key of a session: `agent:<agent>:<name>`."""
    agent, name = check_name("agent", agent), check_name("name", name)
    if ":" in agent:
        raise BadInput("agent", "an agent's name cannot contain a colon")
    return f"agent:{agent}:{name}"


def agent_of(key: object) -> str:
    """The agent of a session key. Raises BadInput if it is not a session key."""
    checked = check_name("session key", key)
    if checked != key:
        raise BadInput("session key", "it seems to hold a secret; choose another name for the session")
    prefix, _, rest = checked.partition(":")
    agent, _, name = rest.partition(":")
    if prefix != "agent" or not agent.strip() or not name.strip():
        raise BadInput("session key", f"{checked!r} is not one; a session key is agent:<agent>:<name>")
    return agent


def acting_session(task: Task) -> str:
    """The session, or another owner, for which the tools of a run act. The task of a spawned session belongs
    to the session that spawned it, and its agent must not act for that one."""
    if task.session_key is not None and task.name.startswith(AGENT_PREFIX):
        return task.session_key
    return task.owner


def is_session_key(text: str) -> bool:
    """Whether an owner is a session: then its updates go to the session."""
    agent, _, name = text.removeprefix("agent:").partition(":")
    return text.startswith("agent:") and bool(agent.strip()) and bool(name.strip())


def may_be_told(task: Task) -> bool:
    """Whether an update of the task could reach a requester at all; a cheap check before `tell_requester`."""
    return task.origin is not None or is_session_key(task.owner)


def agent_task(agent: str) -> str:
    """The name of the tasks that answer the messages of an agent."""
    return f"{AGENT_PREFIX}{agent}"
