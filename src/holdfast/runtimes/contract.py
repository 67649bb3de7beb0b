"""What an agent hears and how it speaks: the shape that every kind of agent is brought into."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from holdfast.core.message import Envelope
from holdfast.engine.program.author_api import Run


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The message to be answered, and what was said before it in its session, oldest first."""

    message: Envelope
    history: tuple[Envelope, ...] = ()


# Answers what was heard, inside a run: what it does through the run is durable. None says nothing.
Speak: TypeAlias = Callable[[Run, Heard], Awaitable[str | None]]


class AgentFailed(Exception):
    """An agent gave no answer; the message says why, for whoever looks after it."""
