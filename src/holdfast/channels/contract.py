"""What a channel is: it sends a message, and says whether one was sent.

What a `send` or a `deliver` raises decides what happens next. NotDone says that the message did not go out
this time: it is sent again later. RetryAfter asks for patience. Undeliverable says that it never will go out.
Anything else leaves open whether it went out: then `find_sent` is asked.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from holdfast.core.delivery import Letter
from holdfast.core.task import Origin


class CannotTell(msgspec.Struct, frozen=True):
    """A channel's answer when it does not remember, or cannot ask, what was sent."""

    why: str = "the channel does not remember what it sent"


class Undeliverable(Exception):
    """The other end refused the message for good: to try again is of no use."""


@runtime_checkable
class Channel(Protocol):
    """A place where people and agents exchange messages."""

    async def send(self, to: str, text: str, *, key: str) -> str:
        """Send a message, once for each key as far as the channel can; the id that the channel gave it."""
        ...

    async def find_sent(self, key: str) -> str | CannotTell | None:
        """The id of the message that went out with this key; None when there is none, nor one on its way."""
        ...


@runtime_checkable
class Mouth(Protocol):
    """The end of a channel through which answers leave, with all that is known of where they go."""

    @property
    def is_keyed(self) -> bool:
        """Whether the other end takes what comes twice with one key for one message."""
        ...

    async def deliver(self, origin: Origin, letter: Letter, *, key: str) -> str:
        """Send it to that origin, a person or a group; the id that the channel gave it."""
        ...

    async def find_sent(self, key: str) -> str | CannotTell | None:
        """As for a channel."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A channel that keeps something, such as threads, until it is closed."""

    def close(self) -> None:
        """Nothing is sent any more. Safe twice."""
        ...


class MouthOf:
    """A plain channel, as something that answers leave through: it knows only the peer."""

    is_keyed = False

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def deliver(self, origin: Origin, letter: Letter, *, key: str) -> str:
        if origin.peer is None:
            raise Undeliverable(f"nobody is named to send it to on channel {origin.channel}")
        return await self._channel.send(origin.peer, letter.text, key=key)

    async def find_sent(self, key: str) -> str | CannotTell | None:
        return await self._channel.find_sent(key)
