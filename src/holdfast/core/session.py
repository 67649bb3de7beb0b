"""Session and its key: one conversation of one agent, with its parent."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.ids import SessionId, TaskId
from holdfast.core.payload import check_name
from holdfast.core.task import Origin
from holdfast.core.transitions import SessionStatus

# How the names of tasks begin that answer messages; only the inbox makes them.
AGENT_PREFIX = "agent."


class Session(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    key: str
    agent: str
    parent_key: str | None = None
    created_at: datetime
    status: SessionStatus = SessionStatus.IDLE
    waits_on: str | None = None
    # From where it was last spoken to: where a notice to it goes.
    origin: Origin | None = None
    # The task that answers now; None when nobody does.
    task_id: TaskId | None = None
    last_position: int = 0
    # How many messages wait for their turn.
    queued: int = 0
    # Since when the first of them could be answered; None while something is being answered.
    ready_at: datetime | None = None
    updated_at: datetime


def session_key(agent: str, name: str) -> str:
    """The key under which a session is known: `agent:<agent>:<name>`."""
    agent, name = check_name("agent", agent), check_name("name", name)
    if ":" in agent:
        raise BadInput("agent", "an agent's name has no colon")
    return f"agent:{agent}:{name}"


def agent_of(key: object) -> str:
    """The agent whose session it is. Raises BadInput for what is no session key."""
    checked = check_name("session key", key)
    if checked != key:
        raise BadInput("session key", "it seems to hold a secret; name the session otherwise")
    prefix, _, rest = checked.partition(":")
    agent, _, name = rest.partition(":")
    if prefix != "agent" or not agent.strip() or not name.strip():
        raise BadInput("session key", f"{checked!r} is none; a session key is agent:<agent>:<name>")
    return agent


def agent_task(agent: str) -> str:
    """The name of the tasks that answer the messages of an agent."""
    return f"{AGENT_PREFIX}{agent}"
