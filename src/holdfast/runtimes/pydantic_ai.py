"""Agents of pydantic-ai: model requests and tool calls are steps, and the transcript is the history."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    UserPromptPart,
)
from pydantic_core import to_json

from holdfast.core.errors import SettingsError
from holdfast.core.message import Envelope, Role
from holdfast.engine.program.author_api import Run
from holdfast.runtimes.contract import AgentInput, Speak


def speaks_by_model(key: str, agent: Any) -> Speak:
    """Run the agent with the transcript as its history. Raises SettingsError for one that is not durable."""
    if not isinstance(agent, Agent):
        raise SettingsError(f"{key}: a pydantic-ai agent is needed, not {type(agent).__name__}")
    # Imported by name: the integration is optional, and lies in a layer above.
    durability = importlib.import_module("holdfast.integrations.pydantic_ai")
    capabilities = getattr(agent.root_capability, "capabilities", (agent.root_capability,))
    if not any(isinstance(one, durability.HoldfastDurability) for one in capabilities):
        raise SettingsError(
            f"{key}: its model requests would be made again after a restart; "
            "give it Agent(…, name=…, capabilities=[HoldfastDurability()])"
        )

    async def speak(run: Run, heard: AgentInput) -> str | None:
        async with durability.durable(run):
            result = await agent.run(heard.message.text, message_history=history_of(heard.history))
        output = result.output
        return output if isinstance(output, str) else to_json(output).decode()

    return speak


def history_of(transcript: Sequence[Envelope]) -> list[ModelMessage]:
    """The transcript as messages of pydantic-ai. Only the gateway's own messages have the system role."""
    return [_message_of(one) for one in transcript]


def _message_of(said: Envelope) -> ModelMessage:
    if said.role is Role.AGENT:
        return ModelResponse(parts=[TextPart(said.text)], timestamp=said.created_at)
    if said.role is Role.SYSTEM:
        return ModelRequest(parts=[SystemPromptPart(said.text, timestamp=said.created_at)])
    return ModelRequest(parts=[UserPromptPart(said.text, timestamp=said.created_at)])
