"""The research agent with pydantic-ai: its model requests and tool calls are steps of a durable run.

Run it with `python examples/research_pydantic_ai.py`, after `pip install '.[pydantic-ai]'` in a checkout.
Kill it at any moment and start it again: the model is not asked again what it has answered.
The model is a script, so that no network is needed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, ModelMessage, ModelResponse, ModelResponsePart, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast as hf
from holdfast.integrations.pydantic_ai import HoldfastDurability, durable

PUBLISHED = Path("published.txt")


# --- the tools


@hf.read  # changes nothing: it may simply be done again
async def search(query: str) -> str:
    """Look something up."""
    print(f"searching for {query}", flush=True)
    return f"three pages about {query}"


def was_published(text: str) -> hf.Happened | hf.DidNotHappen:  # noqa: ARG001 - the key tells enough
    """After a crash inside `publish`: the world itself knows whether it happened."""
    lines = PUBLISHED.read_text().splitlines() if PUBLISHED.exists() else []
    if any(line.startswith(hf.idempotency_key()) for line in lines):
        return hf.Happened("published")
    return hf.DidNotHappen()


@hf.verifiable(was_published)  # to do it twice would be wrong; whether it happened can be found out
async def publish(text: str) -> str:
    """Tell the world."""
    print(f"publishing: {text}", flush=True)
    with PUBLISHED.open("a") as file:
        file.write(f"{hf.idempotency_key()} {text}\n")
    return "published"


# --- the model


async def llm(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """What a provider would answer."""
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    print(f"thinking, turn {turn + 1}", flush=True)
    script: list[list[ModelResponsePart]] = [
        [
            ToolCallPart("search", {"query": "tides"}, tool_call_id="call-1"),
            ToolCallPart("search", {"query": "tides and the moon"}, tool_call_id="call-2"),
        ],
        [ToolCallPart("publish", {"text": "What moves the tides"}, tool_call_id="call-3")],
        [TextPart("The moon moves the tides.")],
    ]
    return ModelResponse(parts=script[turn])


# --- the agent


agent = Agent(
    FunctionModel(llm), name="research", tools=[search, publish], capabilities=[HoldfastDurability()]
)


@hf.task(timeout="6h", attempts=5)
async def research(run: hf.Run, topic: str) -> str:
    async with durable(run):
        answer = await agent.run(topic)
    return answer.output


async def main(url: str = "sqlite:///research_pydantic_ai.db") -> None:
    async with hf.open(url, tasks=[research]) as holdfast:
        handle = await holdfast.start(research("tides"), key="tides")  # the same key: the same task
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
