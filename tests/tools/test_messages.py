"""A message goes out once, as far as its channel remembers."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.channels.contract import CannotTell, Channel
from holdfast.core.errors import BadInput
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown, options_of
from holdfast.tools import SentMessage, message_tool, send_message
from tests.tools.keyed_calls import KEY, call, verify


class Console:
    """A channel that remembers what it sent, or does not want to say."""

    def __init__(self, answer: Any = "remembered") -> None:
        self.sent: dict[str, tuple[str, str]] = {}
        self._answer = answer

    async def send(self, to: str, text: str, *, key: str) -> str:
        self.sent[key] = (to, text)
        return f"message-{len(self.sent)}"

    async def find_sent(self, key: str) -> Any:
        if self._answer != "remembered":
            return self._answer
        return f"message-{list(self.sent).index(key) + 1}" if key in self.sent else None


async def test_a_message_is_sent_with_its_key_and_found_by_it() -> None:
    channel = Console()
    before = await verify(send_message, KEY, channel, "ada", "High tide at 4")

    result = await call(send_message, KEY, channel, "ada", "High tide at 4")

    assert isinstance(channel, Channel)
    assert channel.sent == {KEY: ("ada", "High tide at 4")}
    assert result == SentMessage(message_id="message-1")
    assert before == DidNotHappen()
    assert await verify(send_message, KEY, channel, "ada", "High tide at 4") == Happened(result)


async def test_a_tool_for_one_channel_takes_a_receiver_and_a_text() -> None:
    channel = Console()
    tell = message_tool(channel, name="tell")

    result = await call(tell, KEY, "ada", "High tide")

    assert options_of(tell).name == "tell"
    assert await verify(tell, KEY, "ada", "High tide") == Happened(result)
    assert await verify(tell, "other", "ada", "High tide") == DidNotHappen()


async def test_an_odd_id_does_not_undo_a_message_that_went_out_and_its_text_is_sent_as_it_is() -> None:
    class Odd(Console):
        async def send(self, to: str, text: str, *, key: str) -> Any:
            await super().send(to, text, key=key)
            return 7

    channel = Odd()

    result = await call(send_message, KEY, channel, "ada", "password=hunter22")

    assert result == SentMessage(message_id="7")
    assert channel.sent[KEY] == ("ada", "password=hunter22")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (CannotTell(), "does not remember"),
        (CannotTell("the tide is out"), "the tide is out"),
        (NotImplemented, "answered NotImplementedType"),
        (False, "answered bool"),
    ],
)
async def test_a_channel_that_cannot_tell_leaves_the_outcome_unknown(answer: Any, why: str) -> None:
    verdict = await verify(send_message, KEY, Console(answer), "ada", "x")

    assert isinstance(verdict, Unknown)
    assert why in verdict.why


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((None, "ada", "x"), "channel"),
        ((Console(), "", "x"), "to"),
        ((Console(), "ada\nx", "x"), "to"),
        ((Console(), 7, "x"), "to"),
        ((Console(), "ada", ""), "text"),
        ((Console(), "ada", "a\0"), "text"),
        ((Console(), "ada", "x" * 70_000), "text"),
        ((Console(), "ada", None), "text"),
    ],
)
async def test_no_such_message(arguments: tuple[Any, Any, Any], field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        await call(send_message, KEY, *arguments)

    assert refusal.value.field == field


def test_a_tool_needs_a_channel() -> None:
    with pytest.raises(BadInput, match="channel: a channel is needed, not str"):
        message_tool("console")  # type: ignore[arg-type]
