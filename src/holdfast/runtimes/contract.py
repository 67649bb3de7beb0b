"""The contract of an agent: what it gets, and how it answers; every kind of agent is adapted to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from holdfast.core.message import Envelope
from holdfast.core.spawn_packet import SpawnPacket
from holdfast.engine.program.author_api import Run


class AgentInput(msgspec.Struct, frozen=True, kw_only=True):
    """The message to answer, and the earlier messages of its session, oldest first."""

    message: Envelope
    history: tuple[Envelope, ...] = ()
    # The packet of a session that another one has spawned.
    packet: SpawnPacket | None = None


# Answers a message inside a run; what it does through the run is durable. None means no answer.
Speak: TypeAlias = Callable[[Run, AgentInput], Awaitable[str | None]]


class AgentFailed(Exception):
    """An agent gave no answer; the message tells the operator why."""
