"""The Channel protocol: send a message, and say whether one was sent.

What a `send` raises decides what happens next. TimeoutError, ConnectionError and EOFError say that the
message may have gone out: then `find_sent` is asked. RetryAfter asks for patience. Anything else says that it
did not go out.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec


class CannotTell(msgspec.Struct, frozen=True):
    """A channel's answer when it does not remember, or cannot ask, what was sent."""

    why: str = "the channel does not remember what it sent"


@runtime_checkable
class Channel(Protocol):
    """A place where people and agents exchange messages."""

    async def send(self, to: str, text: str, *, key: str) -> str:
        """Send a message, once for each key as far as the channel can; the id that the channel gave it."""
        ...

    async def find_sent(self, key: str) -> str | CannotTell | None:
        """The id of the message that went out with this key; None when there is none, nor one on its way."""
        ...
