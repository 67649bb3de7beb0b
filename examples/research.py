"""A research agent: a model, two tools, and a loop that survives being killed.

Run it with `python examples/research.py`.
Kill it at any moment and start it again: it goes on where it was, and nothing that was done is done twice.
The model is a script, so that no network is needed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

import holdfast as hf

PUBLISHED = Path("published.txt")


class ToolCall(msgspec.Struct):
    id: str
    name: str
    args: dict[str, str]


class Message(msgspec.Struct):
    role: str
    text: str = ""
    tool_calls: list[ToolCall] = []


# --- the tools


@hf.read  # changes nothing: it may simply be done again
async def search(query: str) -> Message:
    print(f"searching for {query}", flush=True)
    return Message("tool", f"three pages about {query}")


def was_published(text: str) -> hf.Happened | hf.DidNotHappen:  # noqa: ARG001 - the key tells enough
    """After a crash inside `publish`: the world itself knows whether it happened."""
    lines = PUBLISHED.read_text().splitlines() if PUBLISHED.exists() else []
    if any(line.startswith(hf.idempotency_key()) for line in lines):
        return hf.Happened(Message("tool", "published"))
    return hf.DidNotHappen()


@hf.verifiable(was_published)  # to do it twice would be wrong; whether it happened can be found out
async def publish(text: str) -> Message:
    print(f"publishing: {text}", flush=True)
    with PUBLISHED.open("a") as file:
        file.write(f"{hf.idempotency_key()} {text}\n")
    return Message("tool", "published")


TOOLS: dict[str, Callable[..., Coroutine[Any, Any, Message]]] = {"search": search, "publish": publish}


# --- the model


async def llm(messages: list[Message]) -> Message:
    """What a provider would answer."""
    topic, turn = messages[0].text, sum(message.role == "assistant" for message in messages)
    print(f"thinking, turn {turn + 1}", flush=True)
    script = [
        Message(
            "assistant",
            tool_calls=[
                ToolCall("call-1", "search", {"query": topic}),
                ToolCall("call-2", "search", {"query": f"{topic} and the moon"}),
            ],
        ),
        Message("assistant", tool_calls=[ToolCall("call-3", "publish", {"text": f"What moves the {topic}"})]),
        Message("assistant", f"The moon moves the {topic}."),
    ]
    return script[turn]


# --- the agent


@hf.task(timeout="6h", attempts=5)
async def research(run: hf.Run, topic: str) -> str:
    messages = run.list("messages", [Message("user", topic)], of=Message)  # durable, append-only
    async for turn in run.turns(max=200):  # instead of `while True:`
        reply = await turn.step(llm, messages)  # once saved, never run again
        messages.append(reply)
        if not reply.tool_calls:
            return reply.text
        for call in reply.tool_calls:
            messages.append(await turn.tool(TOOLS[call.name], call.args, id=call.id))
    raise RuntimeError("no answer in 200 turns")


async def main(url: str = "sqlite:///research.db") -> None:
    async with hf.open(url, tasks=[research]) as holdfast:
        handle = await holdfast.start(research("tides"), key="tides")  # the same key: the same task
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
