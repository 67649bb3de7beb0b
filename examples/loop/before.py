"""An agent loop as many people have one: `before.py` forgets everything when it dies, `after.py` goes on.

Run both, kill both, run both again.
`diff examples/loop/before.py examples/loop/after.py` shows how little differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec


class ToolCall(msgspec.Struct):
    id: str
    name: str
    args: dict[str, str]


class Message(msgspec.Struct):
    role: str
    text: str = ""
    tool_calls: list[ToolCall] = []


async def llm(messages: list[Message]) -> Message:
    """What a provider would answer."""
    turn = sum(message.role == "assistant" for message in messages)
    print(f"thinking, turn {turn + 1}", flush=True)
    if turn == 2:
        return Message("assistant", "Ada was told about the tides.")
    call = [ToolCall("call-1", "search", {"query": "tides"}), ToolCall("call-2", "mail", {"to": "Ada"})][turn]
    return Message("assistant", tool_calls=[call])


async def search(query: str) -> Message:
    print(f"searching for {query}", flush=True)
    return Message("tool", f"three pages about {query}")


async def mail(to: str) -> Message:
    print(f"writing to {to}", flush=True)
    return Message("tool", f"sent to {to}")


TOOLS: dict[str, Callable[..., Coroutine[Any, Any, Message]]] = {"search": search, "mail": mail}


async def research(topic: str) -> str:
    messages = [Message("user", topic)]
    for _ in range(200):
        reply = await llm(messages)
        messages.append(reply)
        if not reply.tool_calls:
            return reply.text
        for call in reply.tool_calls:
            tool = TOOLS[call.name]
            messages.append(await tool(**call.args))
    raise RuntimeError("no answer in 200 turns")


async def main() -> None:
    print(await research("tides"))


if __name__ == "__main__":
    asyncio.run(main())
