"""A transcript is read and answered by tasks that the inbox has made for its session, and by no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.api.contract import Reach
from holdfast.api.ledger import CreateAsked, creating_task
from holdfast.config.sections import AgentSettings, Config
from holdfast.core.errors import BadInput, Refused
from holdfast.core.message import Role
from holdfast.core.task import Origin
from holdfast.core.transitions import MessageStatus
from holdfast.engine.ledger.ledger import Ledger, NewTask
from holdfast.runtimes.agents import definitions
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.stage import Stage
from tests.gateway.chats import Chat
from tests.runtimes import sample_agents

VICTIM = "agent:scholar:victim"
CANARY = "the garden gate opens with 4711"


async def chat_with_victim(store: Store, clock: FakeClock, tmp_path: Path) -> tuple[Chat, str]:
    sample_agents.calls.clear()
    config = Config(agents={"scholar": AgentSettings(callable="tests.runtimes.sample_agents:shout")})
    chat = await Chat(Stage(store, clock, tmp_path / "boots"), *definitions(config, home=tmp_path)).begin()
    message = await chat.say(CANARY, key=VICTIM, origin=Origin(channel="hook", peer="ada"))
    return chat, message.id


def forged(message_id: str, **changes: Any) -> NewTask:
    task: dict[str, Any] = {
        "name": "agent.scholar",
        "goal": "x",
        "owner": "plugin",
        "arguments": {"session_key": VICTIM, "message_id": message_id, "until": 10**6},
    }
    return NewTask(**task | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"owner": VICTIM},
        {"session_key": VICTIM},
        {"owner": "agent:scholar:mine", "session_key": "agent:scholar:mine"},
    ],
    ids=["stranger", "owner", "session", "another session"],
)
async def test_a_task_that_the_inbox_did_not_make_hears_and_says_nothing(
    store: Store, clock: FakeClock, tmp_path: Path, changes: dict[str, str]
) -> None:
    chat, message_id = await chat_with_victim(store, clock, tmp_path)

    await Ledger(store, clock).create(forged(message_id, **changes))
    for _ in range(4):
        await chat.stage.settle()
        clock.advance(minutes=1)

    assert sample_agents.calls == []
    (only,) = await chat.inbox.messages(VICTIM)
    assert (only.role, only.status) == (Role.USER, MessageStatus.QUEUED)
    (task,) = store.read_now(lambda tx: tx.tasks.page(limit=5))
    assert task.failure is not None
    assert "only the inbox" in task.failure.message
    chat.stage.kill()


async def test_a_task_of_one_session_cannot_name_a_message_of_another(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    chat, message_id = await chat_with_victim(store, clock, tmp_path)
    mine = "agent:scholar:mine"
    arguments = {"session_key": mine, "message_id": message_id, "until": 10**6}

    await Ledger(store, clock).create(forged(message_id, owner=mine, session_key=mine, arguments=arguments))
    for _ in range(4):
        await chat.stage.settle()
        clock.advance(minutes=1)

    assert sample_agents.calls == []
    chat.stage.kill()


async def test_the_inbox_s_own_task_hears_and_answers(store: Store, clock: FakeClock, tmp_path: Path) -> None:
    chat, _ = await chat_with_victim(store, clock, tmp_path)

    await chat.talk()

    assert await chat.answers(VICTIM) == [CANARY.upper()]
    chat.stage.kill()


def test_no_door_records_a_task_of_an_agent(clock: FakeClock) -> None:
    for name in ("agent.scholar", "agent.", "agent.nobody"):
        with pytest.raises(BadInput, match=r"sessions send.*chat\.send"):
            creating_task(CreateAsked(name=name, goal="x"), now=clock.now())


def test_a_token_with_names_of_tasks_starts_no_other(clock: FakeClock) -> None:
    reach = Reach(names=frozenset({"buy"}))

    with pytest.raises(Refused, match="'sell'"):
        creating_task(CreateAsked(name="sell", goal="x"), now=clock.now(), reach=reach)
    creating_task(CreateAsked(name="buy", goal="x"), now=clock.now(), reach=reach)
