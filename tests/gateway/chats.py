"""Conversations told inside one process: agents that answer, and whatever goes on until it has ended."""

from __future__ import annotations

from typing import Any, Self

from holdfast.core.message import Message, Role
from holdfast.core.task import Origin
from holdfast.engine.program.definitions import TaskDefinition
from holdfast.gateway.conversations import Conversations
from holdfast.gateway.inbox import Inbox
from holdfast.runtimes.agents import _definition
from holdfast.runtimes.contract import Speak
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.stage import Stage

KEY = "agent:scholar:main"
ADA = Origin(channel="console", peer="ada")
GROUP = Origin(channel="hook", peer="-100123@g.us", account_id="team", thread="7")


def agent(speak: Speak, name: str = "scholar", **options: Any) -> TaskDefinition[..., Any]:
    """The task of an agent that speaks so; tried once unless told otherwise."""
    return _definition(name, speak, {"timeout": None, "attempts": 1, "backoff": "1s"} | options)


class Chat:
    """A stage with an inbox and conversations; `talk` lets everything go on until nothing does."""

    def __init__(self, stage: Stage, *agents: TaskDefinition[..., Any]) -> None:
        self.stage = stage
        self.agents = agents
        self.clock = stage.clock
        self.inbox = Inbox(stage.store, stage.clock)
        self.conversations = conversations(stage.store, stage.clock, *agents)

    async def begin(self) -> Self:
        await self.stage.open(*self.agents)
        return self

    async def say(self, text: str, key: str = KEY, origin: Origin = ADA, **options: Any) -> Message:
        return (await self.inbox.post(key, text, origin, **options)).message

    async def talk(self) -> None:
        has_moved = True
        while has_moved:
            await self.stage.settle()
            moved = await self.conversations.run_once()
            has_moved = bool(moved.started or moved.settled)

    async def transcript(self, key: str = KEY) -> list[str]:
        return [f"{one.role}: {one.text}" for one in await self.inbox.messages(key, limit=1000)]

    async def answers(self, key: str = KEY) -> list[str]:
        return [one.text for one in await self.inbox.messages(key, limit=1000) if one.role is Role.AGENT]


def conversations(store: Store, clock: FakeClock, *agents: TaskDefinition[..., Any]) -> Conversations:
    return Conversations(store, clock, {one.name.removeprefix("agent.") for one in agents})
