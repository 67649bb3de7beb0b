"""Session and its key: one conversation of one agent, with its parent."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.ids import SessionId
from holdfast.core.payload import check_name
from holdfast.core.transitions import SessionStatus


class Session(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    key: str
    agent: str
    parent_key: str | None = None
    created_at: datetime
    status: SessionStatus = SessionStatus.IDLE
    waits_on: str | None = None
    updated_at: datetime


def session_key(agent: str, name: str) -> str:
    """The key under which a session is known: `agent:<agent>:<name>`."""
    agent, name = check_name("agent", agent), check_name("name", name)
    if ":" in agent:
        raise BadInput("agent", "an agent's name has no colon")
    return f"agent:{agent}:{name}"
