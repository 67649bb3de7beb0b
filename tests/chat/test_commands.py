"""Chat commands: the gateway answers each of them once, also while the agent is busy."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import msgspec
import pytest

from holdfast.chat.commands import run_command
from holdfast.core.delivery import DeliveryText
from holdfast.core.message import Message, Role
from holdfast.core.task import Origin, RuntimeName
from holdfast.core.transitions import MessageStatus, TaskStatus
from holdfast.engine.ledger.ledger import NewTask, creating
from holdfast.engine.program.author_api import Run
from holdfast.gateway.inbox import Inbox, Posted
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, FakeClock, RepeatingStore, memory_store
from tests.builders import START
from tests.conftest import Ledger
from tests.engine.stage import Stage
from tests.gateway.chats import ADA, GROUP, KEY, Chat, agent
from tests.gateway.test_inbox import ledger_is_in_memory

BOB = Origin(channel="hook", peer="bob", account_id="team")


async def echo(run: Run, heard: AgentInput) -> str:
    return f"{heard.message.text} after {[one.text for one in heard.history]}"


async def sleepy(run: Run, heard: AgentInput) -> str:
    await run.sleep("1h")
    return "awake"


async def asking(run: Run, heard: AgentInput) -> str:
    return f"painted it {await run.ask('which colour?', ['Red', 'blue'])}"


class CommandedChat(Chat):
    """A chat whose gateway answers commands."""

    def __init__(self, stage: Stage, *agents: Any) -> None:
        super().__init__(stage, *agents)
        self.inbox = Inbox(RepeatingStore(stage.store), stage.clock, commands=run_command)

    async def ask(self, text: str, **options: Any) -> str:
        """The gateway's answer to a command."""
        asked = await self.say(text, **options)
        return answer_to(self.stage.store, asked)


def answer_to(store: Store, asked: Message, key: str = KEY) -> str:
    (said,) = [
        one
        for one in store.read_now(lambda tx: tx.messages.after(key, limit=1000))
        if one.reply_to == asked.id
    ]
    assert said.role is Role.SYSTEM
    assert said.text.startswith("[System] ")
    return said.text.removeprefix("[System] ")


def letters(store: Store) -> list[DeliveryText]:
    return [one.letter for one in store.read_now(lambda tx: tx.deliveries.owed())]


async def test_a_command_is_answered_by_the_gateway_and_not_given_to_the_agent(
    stage: Stage, store: Store
) -> None:
    chat = await CommandedChat(stage, agent(echo)).begin()

    asked = await chat.say("/help", origin=GROUP, channel_message_id="7")
    await chat.talk()

    assert asked.status is MessageStatus.ANSWERED
    assert "/tasks" in answer_to(store, asked)
    assert await chat.answers() == []
    (letter,) = letters(store)
    assert letter.text.startswith("[System] ")
    assert (letter.session_key, letter.reply_to) == (KEY, "7")


@pytest.mark.parametrize("text", ["/unknown", "/tasksx", "tell me about /tasks", "/ tasks", "//tasks", "/"])
async def test_what_is_no_command_goes_to_the_agent_unchanged(stage: Stage, text: str) -> None:
    chat = await CommandedChat(stage, agent(echo)).begin()

    await chat.say(text)
    await chat.talk()

    assert await chat.answers() == [f"{text} after []"]


async def test_a_schedule_that_posts_a_command_asks_the_agent(stage: Stage) -> None:
    chat = await CommandedChat(stage, agent(echo)).begin()

    await chat.inbox.post(KEY, "/stop", Origin(channel="cron"), role=Role.SYSTEM)
    await chat.talk()

    assert len(await chat.answers()) == 1


async def test_the_same_command_again_is_answered_once(stage: Stage, store: Store) -> None:
    chat = await CommandedChat(stage, agent(echo)).begin()

    first = await chat.say("/status", origin=GROUP, channel_message_id="7")
    again = await chat.say("/status", origin=GROUP, channel_message_id="7")

    assert again == first
    assert len(await chat.transcript()) == 2
    assert len(letters(store)) == 1


async def test_tasks_shows_the_work_while_the_agent_is_busy(stage: Stage) -> None:
    chat = await CommandedChat(stage, agent(sleepy)).begin()
    await chat.say("count the beds")
    await chat.talk()
    stage.clock.advance(minutes=3)

    board = await chat.ask("/tasks")

    assert board.splitlines() == [
        "📋 Tasks",
        "Current session: 1 active · 1 total",
        "",
        "1. 🟡 count the beds",
        "   Agent · waiting · elapsed 3m",
        "   waits for its time",
    ]


async def test_a_session_without_tasks_shows_how_many_its_agent_has(stage: Stage) -> None:
    chat = await CommandedChat(stage, agent(sleepy)).begin()
    await chat.say("count the beds", key="agent:scholar:other", origin=GROUP)
    await chat.talk()

    board = await chat.ask("/tasks")

    assert "Current session: no tasks now" in board
    assert "All sessions of this agent: 1 active · 1 total" in board
    assert "beds" not in board


async def test_status_says_what_the_agent_does_and_what_waits(stage: Stage) -> None:
    chat = await CommandedChat(stage, agent(asking)).begin()
    assert await chat.ask("/status") == "scholar is idle."
    await chat.say("paint it")
    await chat.talk()
    await chat.say("hurry")

    told = await chat.ask("/status")

    assert "scholar answers “paint it” (waiting" in told
    assert "1 message waits for the agent." in told
    assert "Waiting for your answer: which colour?" in told


async def test_stop_cancels_the_work_of_the_session_and_the_next_message_goes_on(
    stage: Stage, store: Store
) -> None:
    chat = await CommandedChat(stage, agent(sleepy)).begin()
    first = await chat.say("count the beds")
    other = await chat.say("count the beds", key="agent:scholar:other")
    await chat.talk()

    told = await chat.ask("/stop")
    await chat.talk()

    task_id = store.read_now(lambda tx: tx.messages.get(first.id)).task_id
    assert told == f"Stopped: “count the beds” ({task_id}) cancelled."
    statuses = store.read_now(lambda tx: [one.status for one in tx.tasks.page(limit=9)])
    assert sorted(statuses) == [TaskStatus.CANCELLED, TaskStatus.WAITING]
    assert store.read_now(lambda tx: tx.messages.get(other.id)).status is MessageStatus.TAKEN
    assert (await chat.ask("/stop")).startswith("Nothing to stop")


async def test_answer_answers_an_open_question_and_lists_them_otherwise(stage: Stage) -> None:
    chat = await CommandedChat(stage, agent(asking)).begin()
    assert await chat.ask("/answer red") == "No task of this session has an open question."
    await chat.say("paint it")
    await chat.talk()

    assert "which colour? (Red, blue)" in await chat.ask("/answer")
    assert (await chat.ask("/answer green")).startswith("That is none of the choices.")
    assert (await chat.ask("/answer ques_zzz red")).startswith("No open question has this id")
    assert await chat.ask("/answer ques_ red") == "Answered: which colour?"
    await chat.talk()

    assert "painted it Red" in await chat.answers()


async def test_after_new_the_agent_hears_nothing_from_before_and_never_a_command(stage: Stage) -> None:
    chat = await CommandedChat(stage, agent(echo)).begin()
    await chat.say("one")
    await chat.talk()
    await chat.say("/help")
    await chat.say("two")
    await chat.talk()
    await chat.say("/new")
    await chat.say("three")
    await chat.talk()

    heard = await chat.answers()

    assert heard[1] == "two after ['one', 'one after []']"
    assert heard[2] == "three after []"
    assert len(await chat.transcript()) == 10


async def test_a_message_from_before_new_is_answered_with_what_was_said_before_it(stage: Stage) -> None:
    chat = await CommandedChat(stage, agent(echo)).begin()
    await chat.say("one")
    await chat.talk()
    await chat.say("two")
    await chat.say("/new")

    await chat.talk()

    assert (await chat.answers())[1] == "two after ['one', 'one after []']"


async def test_a_stranger_is_refused_and_stays_one_and_an_operator_is_not(stage: Stage, store: Store) -> None:
    chat = await CommandedChat(stage, agent(sleepy)).begin()
    await chat.say("count the beds", origin=GROUP)
    await chat.talk()

    for _ in range(2):
        assert "was not carried out" in await chat.ask("/stop", origin=BOB)
        assert "count the beds" not in await chat.ask("/tasks", origin=BOB)

    assert store.read_now(lambda tx: tx.sessions.of_key(KEY)).origin == GROUP
    assert "count the beds" in await chat.ask("/tasks", origin=ADA)
    assert "count the beds" in await chat.ask("/tasks", origin=GROUP)
    assert (await chat.ask("/stop", origin=GROUP)).startswith("Stopped: ")


async def test_a_crash_anywhere_in_a_command_leaves_it_undone_or_done_and_answered_once() -> None:
    recorded = FailingStore(memory_store())
    task_id = a_task(recorded)
    await stop(recorded)
    points = [one for one in recorded.failpoints() if one.call == 2]
    assert len(points) > 8

    for point in points:
        with closing(memory_store()) as store:
            task_id = a_task(store)
            with pytest.raises(Crashed):
                await stop(FailingStore(store, [msgspec.structs.replace(point, call=1)]))
            is_stopped = has_ended(store, task_id)

            # The sender was not told, and sends again with the same id.
            posted = await stop(store)

            assert is_stopped is posted.is_duplicate is (point.where == "after"), point
            assert "“count the beds”" in answer_to(store, posted.message)
            assert len(letters(store)) == 1
            assert has_ended(store, task_id)


def a_task(store: Store) -> str:
    new = NewTask(name="beds", goal="count the beds", owner=KEY, runtime=RuntimeName.SUBAGENT)
    (task,) = store.write_now(creating([new], now=START))
    return task.id


def has_ended(store: Store, task_id: str) -> bool:
    return store.read_now(lambda tx: tx.tasks.get(task_id)).has_ended


async def stop(store: Store) -> Posted:
    return await Inbox(store, FakeClock(), commands=run_command).post(
        KEY, "/stop", GROUP, channel_message_id="1"
    )


async def test_two_gateways_answer_the_same_command_once(ledger: Ledger) -> None:
    first = ledger.open()
    stores = [first, first if ledger_is_in_memory(ledger) else ledger.open()]

    posted = await asyncio.gather(
        *(
            Inbox(store, ledger.clock, commands=run_command).post(
                KEY, "/tasks", GROUP, channel_message_id="1"
            )
            for store in stores
        )
    )

    assert sorted(one.is_duplicate for one in posted) == [False, True]
    assert len(letters(stores[0])) == 1
