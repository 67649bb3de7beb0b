"""The contract of a channel: it sends a message, and can say whether one was sent.

The exception that `send` or `deliver` raises decides what happens next. NotDone: the message did not go out,
and is sent again later. RetryAfter: the same, after the time that the receiver asks for. Undeliverable: it
will never go out. After any other exception it may have gone out, and the caller asks `find_sent`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from holdfast.core.delivery import DeliveryText
from holdfast.core.task import Origin


class CannotTell(msgspec.Struct, frozen=True):
    """A channel's answer when it does not remember, or cannot ask, what was sent."""

    why: str = "the channel does not remember what it sent"


class Undeliverable(Exception):
    """The receiver refused the message for good: a retry is of no use."""


@runtime_checkable
class Channel(Protocol):
    """A place where people and agents exchange messages."""

    async def send(self, to: str, text: str, *, key: str) -> str:
        """Send a message, once for each key as far as the channel can; returns the channel's id for it."""
        ...

    async def find_sent(self, key: str) -> str | CannotTell | None:
        """The id of the message that went out with this key; None when none did, and none is being sent."""
        ...


@runtime_checkable
class ChannelSender(Protocol):
    """The sending side of a channel: it gets the whole origin, not only the peer."""

    @property
    def is_keyed(self) -> bool:
        """Whether the receiver treats two messages with one key as one."""
        ...

    async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:
        """Send a message to an origin, a person or a group; returns the channel's id for it."""
        ...

    async def find_sent(self, key: str) -> str | CannotTell | None:
        """As for a channel."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A channel that holds resources, such as threads, until it is closed."""

    def close(self) -> None:
        """Send nothing from now on. Safe to call twice."""
        ...


class PlainSender:
    """Makes a `ChannelSender` of a plain channel, which knows only the peer."""

    is_keyed = False

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def deliver(self, origin: Origin, letter: DeliveryText, *, key: str) -> str:
        if origin.peer is None:
            raise Undeliverable(f"the origin names no peer to send it to on channel {origin.channel}")
        return await self._channel.send(origin.peer, letter.text, key=key)

    async def find_sent(self, key: str) -> str | CannotTell | None:
        return await self._channel.find_sent(key)
