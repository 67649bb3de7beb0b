"""A paused agent of a gateway answers no message: they wait in order, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.agent import PausedAgent
from holdfast.engine.program.author_api import Run
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.stage import Stage
from tests.gateway.chats import KEY, Chat, agent, conversations


async def echo(run: Run, heard: AgentInput) -> str:
    return f"re: {heard.message.text}"


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


async def pause(chat: Chat, name: str = "scholar") -> None:
    paused = PausedAgent(name=name, reason="too loud", paused_by="ada", paused_at=chat.clock.now())
    await chat.stage.store.write(lambda tx: tx.paused_agents.pause(paused))


async def resume(chat: Chat, name: str = "scholar") -> bool:
    return await chat.stage.store.write(lambda tx: tx.paused_agents.resume(name))


async def test_messages_of_a_paused_agent_wait_in_order_also_across_a_restart(stage: Stage) -> None:
    chat = await Chat(stage, agent(echo)).begin()
    await pause(chat)
    await chat.say("one")
    await chat.talk()
    await chat.begin()  # another process, while the agent is paused
    await chat.say("two")
    await chat.talk()
    waiting = await chat.transcript()

    was_paused = await resume(chat)
    await chat.talk()

    assert waiting == ["user: one", "user: two"]
    assert was_paused
    assert await chat.answers() == ["re: one", "re: two"]
    assert not await resume(chat)


async def test_the_other_agents_go_on(stage: Stage) -> None:
    chat = await Chat(stage, agent(echo), agent(echo, "clerk")).begin()
    await pause(chat)

    await chat.say("one")
    await chat.say("two", "agent:clerk:main")
    await chat.talk()

    assert await chat.answers() == []
    assert await chat.answers("agent:clerk:main") == ["re: two"]


async def test_an_answer_in_progress_is_given_and_the_next_message_waits(stage: Stage) -> None:
    chat = await Chat(stage, agent(echo)).begin()
    await chat.say("one")
    await chat.conversations.run_once()  # its task exists
    await pause(chat)
    await chat.say("two")
    await chat.talk()

    assert await chat.answers() == ["re: one"]


async def test_a_pause_between_the_look_and_the_write_keeps_the_message_waiting(stage: Stage) -> None:
    chat = await Chat(stage, agent(echo)).begin()
    await chat.say("one")
    late = conversations(stage.store, stage.clock, *chat.agents)
    write = stage.store.write

    async def paused_first(act: Any) -> Any:
        stage.store.write = write  # type: ignore[method-assign]
        await pause(chat)
        return await write(act)

    stage.store.write = paused_first  # type: ignore[assignment,method-assign]
    moved = await late.run_once()

    assert moved.started == 0
    assert await chat.answers(KEY) == []
