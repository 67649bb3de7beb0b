"""A tool that sends a message through a channel, and after a crash asks the channel whether it went out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from holdfast.channels.contract import CannotTell, Channel
from holdfast.core.errors import BadInput
from holdfast.core.payload import check_line, check_words
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown, Verdict, tool, verifiable
from holdfast.tools.inputs import current_key

_MAX_ID_CHARS = 1000


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that went out, with the id that its channel gave it."""

    message_id: str


async def _verify_message(channel: Channel, to: str, text: str) -> Verdict:
    del to, text
    return await find_message(current_key(), channel)


@tool(effect=verifiable(_verify_message, did_not_happen=BadInput), name="send_message", raises=(BadInput,))
async def send_message(channel: Channel, to: str, text: str) -> SentMessage:
    """Send a message, once for each effect, if its channel remembers what it sent.

    The channel gets the effect's key. After a crash it is asked for the message with that key; if it cannot
    tell, the outcome is unknown and a person decides.

    Exceptions of the channel pass through; `channels/contract.py` says what each means.
    """
    return await send(current_key(), channel, to, text)


def message_tool(
    channel: Channel, *, name: str = "send_message"
) -> Callable[[str, str], Coroutine[Any, Any, SentMessage]]:
    """`send_message` for one channel, as a tool that an agent may call: with a receiver and a text."""
    checked = _checked_channel(channel)

    async def verify_bound(to: str, text: str) -> Verdict:
        return await _verify_message(checked, to, text)

    async def send_bound(to: str, text: str) -> SentMessage:
        return await send(current_key(), checked, to, text)

    send_bound.__doc__ = send_message.__doc__
    return tool(
        send_bound, effect=verifiable(verify_bound, did_not_happen=BadInput), name=name, raises=(BadInput,)
    )


async def send(key: str, channel: Channel, to: str, text: str) -> SentMessage:
    # Only checked, not redacted: the text may hold a secret that its receiver waits for.
    check_line("to", to)
    check_words("text", text)
    return _sent(await _checked_channel(channel).send(to, text, key=key))


async def find_message(key: str, channel: Channel) -> Verdict:
    """What the channel remembers of a key. If it raises, the outcome is unknown."""
    found = await _checked_channel(channel).find_sent(key)
    match found:
        case str():
            return Happened(_sent(found))
        case None:
            return DidNotHappen()
        case CannotTell(why):
            return Unknown(why)
        case _:
            return Unknown(
                f"the channel answered {type(found).__name__}; a message id, None or CannotTell is needed"
            )


def _sent(message_id: object) -> SentMessage:
    """The message went out, even if the channel returned an odd id."""
    return SentMessage(message_id=str(message_id).encode("utf-8", "replace").decode()[:_MAX_ID_CHARS])


def _checked_channel(channel: object) -> Channel:
    if not isinstance(channel, Channel):
        raise BadInput(
            "channel", f"a channel is needed, not {type(channel).__name__}; it has send and find_sent"
        )
    return channel
