"""What an agent asks reaches the person it answers, and their next message is the answer, once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.audit import Door
from holdfast.core.delivery import DeliveryText
from holdfast.core.errors import IllegalMove
from holdfast.core.events import Event, EventKind
from holdfast.core.message import Message, Role
from holdfast.core.task import Origin
from holdfast.core.transitions import MessageStatus, TaskStatus
from holdfast.engine.program.author_api import Run
from holdfast.gateway.inbox import Inbox
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, RepeatingStore, memory_store
from tests.conftest import Ledger
from tests.engine.stage import Stage
from tests.gateway.chats import ADA, GROUP, KEY, Chat, agent

BOB = Origin(channel="hook", peer="bob", account_id="team")


async def paint(run: Run, heard: AgentInput) -> str:
    if "paint" not in heard.message.text:
        return f"re: {heard.message.text}"
    return f"painted it {await run.ask('which colour?', ['Red', 'blue'])}"


async def rename(run: Run, heard: AgentInput) -> str:
    return f"now it is {await run.ask('what is its name?')}"


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


def letters(store: Store) -> list[tuple[str, Origin | None]]:
    owed = store.read_now(lambda tx: tx.deliveries.owed())
    return [(msgspec.json.decode(one.message, type=DeliveryText).text, one.origin) for one in owed]


async def test_the_question_goes_to_the_person_who_asked_and_their_next_message_answers_it(
    stage: Stage, store: Store
) -> None:
    chat = await Chat(stage, agent(paint)).begin()
    await chat.say("paint it", origin=GROUP)
    await chat.talk()

    assert letters(store) == [("which colour?\n- Red\n- blue", GROUP)]
    answered = await chat.say(" RED ", origin=GROUP)
    await chat.talk()

    assert answered.status is MessageStatus.NOTED
    assert await chat.transcript() == [
        "user: paint it",
        "agent: which colour?\n- Red\n- blue",
        "user:  RED ",
        "agent: painted it Red",
    ]
    assert ("painted it Red", GROUP) in letters(store)
    answers = [one for one in await _events(stage, answered) if one.kind is EventKind.QUESTION_ANSWERED]
    assert [one.facts["by"] for one in answers] == [f"hook:{GROUP.peer}"]
    (entry,) = store.read_now(lambda tx: tx.audit.page())
    assert (entry.who, entry.door, entry.action) == (f"hook:{GROUP.peer}", Door.CHANNEL, "questions.answer")
    assert (entry.subject, entry.address) == (answers[0].subject_id, GROUP.account_id)


async def _events(stage: Stage, message: Message) -> list[Event]:
    return await stage.holdfast.handle(str(message.task_id)).events()


async def test_a_message_that_is_none_of_the_choices_waits_and_the_choices_are_shown_again(
    stage: Stage, store: Store
) -> None:
    chat = await Chat(stage, agent(paint)).begin()
    await chat.say("paint it", origin=GROUP)
    await chat.talk()
    other = await chat.say("green", origin=GROUP)
    await chat.talk()

    assert other.status is MessageStatus.QUEUED
    again = "That is none of the choices. which colour?\n- Red\n- blue"
    assert (again, GROUP) in letters(store)
    said = await chat.inbox.messages(KEY)
    assert (said[-1].text, said[-1].reply_to) == (again, other.id)
    await chat.say("blue", origin=GROUP)
    await chat.talk()

    assert await chat.answers() == ["which colour?\n- Red\n- blue", again, "painted it blue", "re: green"]


async def test_any_text_answers_a_question_without_choices(stage: Stage) -> None:
    chat = await Chat(stage, agent(rename)).begin()
    await chat.say("rename it")
    await chat.talk()
    await chat.say("Ada's boat")
    await chat.talk()

    assert await chat.answers() == ["what is its name?", "now it is Ada's boat"]


async def test_another_person_in_the_session_does_not_answer_and_an_operator_may(stage: Stage) -> None:
    chat = await Chat(stage, agent(rename)).begin()
    await chat.say("rename it", origin=GROUP)
    await chat.talk()
    from_bob = await chat.say("Bob's boat", origin=BOB)
    typed = await chat.say("the ferry", origin=ADA)

    assert (from_bob.status, typed.status) == (MessageStatus.QUEUED, MessageStatus.NOTED)


async def test_the_same_message_again_answers_nothing_more(stage: Stage, store: Store) -> None:
    chat = await Chat(stage, agent(rename)).begin()
    await chat.say("rename it", origin=GROUP)
    await chat.talk()
    first = await chat.say("the ferry", origin=GROUP, channel_message_id="m1")
    again = await chat.say("the ferry", origin=GROUP, channel_message_id="m1")
    await chat.talk()
    late = await chat.say("the ferry", origin=GROUP, channel_message_id="m1")

    assert first.id == again.id == late.id
    assert await chat.answers() == ["what is its name?", "now it is the ferry"]
    assert len([text for text, _ in letters(store) if text == "what is its name?"]) == 1


async def test_an_answer_through_another_door_counts_once(stage: Stage) -> None:
    chat = await Chat(stage, agent(rename)).begin()
    await chat.say("rename it")
    await chat.talk()
    (question,) = await stage.holdfast.questions()
    await stage.holdfast.answer(question.id, "the ferry", by="operator")

    late = await chat.say("too late")
    assert late.status is MessageStatus.QUEUED
    with pytest.raises(IllegalMove):
        await stage.holdfast.answer(question.id, "another", by="operator")
    await chat.talk()

    assert (await chat.answers())[1] == "now it is the ferry"


async def test_a_question_of_a_child_is_asked_in_the_session_too(stage: Stage) -> None:
    @hf.task(name="child")
    async def child(run: hf.Run) -> Any:
        return await run.ask("from the child?")

    async def parent(run: Run, heard: AgentInput) -> str:
        return str(await (await run.spawn(child())))

    chat = Chat(stage, agent(parent))
    await stage.open(*chat.agents, child)
    await chat.say("go", origin=GROUP)
    await chat.talk()
    await chat.say("to the child", origin=GROUP)
    await chat.talk()

    assert await chat.answers() == ["from the child?", "to the child"]


async def test_every_write_may_run_twice(clock: FakeClock, tmp_path: Path) -> None:
    """The answer to each commit is lost, and each write is run again."""
    stage = Stage(RepeatingStore(memory_store()), clock, tmp_path / "boots")
    chat = await Chat(stage, agent(paint)).begin()
    await chat.say("paint it", origin=GROUP, channel_message_id="m1")
    await chat.talk()
    await chat.say("green", origin=GROUP, channel_message_id="m2")
    await chat.say("red", origin=GROUP, channel_message_id="m3")
    await chat.talk()
    stage.kill()

    assert await chat.answers() == [
        "which colour?\n- Red\n- blue",
        "That is none of the choices. which colour?\n- Red\n- blue",
        "painted it Red",
        "re: green",
    ]


async def test_a_session_that_waits_for_a_review_says_so(stage: Stage, store: Store) -> None:
    @hf.opaque
    async def charge() -> str:
        raise ConnectionError("reset by peer")

    async def pays(run: Run, heard: AgentInput) -> str:
        return await run.step(charge)

    chat = await Chat(stage, agent(pays)).begin()
    asked = await chat.say("pay", origin=GROUP)
    await chat.talk()

    task_id = str((await chat.inbox.message(asked.id)).task_id)
    task = await stage.holdfast.handle(task_id).task()
    (effect,) = await stage.holdfast.reviews()
    assert task.status is TaskStatus.NEEDS_REVIEW
    ((text, origin),) = letters(store)
    assert origin == GROUP
    assert text.startswith("[System] This session waits: whether charge happened is not known")
    assert f"`holdfast reviews show {effect.id}`" in text
    await stage.holdfast.resolve(effect.id, "done", result="paid", by="operator")
    await chat.talk()

    assert (await chat.answers()) == ["paid"]


# --- killed anywhere, and two at once


async def a_talk(store: Store, clock: FakeClock, locks: Path) -> None:
    """The same messages with the same ids, as a channel sends them again that heard no acknowledgement."""
    stage = Stage(store, clock, locks)
    chat = Chat(stage, agent(paint))
    try:
        await chat.begin()
        for number, text in enumerate(("paint it", "green", "red"), start=1):
            await chat.say(text, origin=GROUP, channel_message_id=f"m{number}")
            await chat.talk()
    finally:
        stage.kill()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["between", "inside"])
async def test_a_crash_at_any_write_asks_once_and_takes_one_answer(tmp_path: Path, where: str) -> None:
    recorded = FailingStore(memory_store())
    await a_talk(recorded, FakeClock(), tmp_path / "first")
    points = [
        one
        for call in recorded.calls
        for one in call.failpoints()
        if (one.where == "inside") == (where == "inside")
    ]
    assert len(points) > 20
    if where == "inside":  # nothing of a write is there before its end, so a part of them will do
        points = points[::4]

    for number, point in enumerate(points):
        await crash_in_the_talk(point, tmp_path / str(number))


async def crash_in_the_talk(point: Failpoint, locks: Path) -> None:
    store, clock = memory_store(), FakeClock()
    with contextlib.suppress(Crashed, BaseExceptionGroup):
        await a_talk(FailingStore(store, [point]), clock, locks)
    for _ in range(2):
        await a_talk(store, clock, locks)

    messages = store.read_now(lambda tx: tx.messages.after(KEY, limit=99))
    said = [one.text for one in messages if one.role is Role.AGENT]
    assert sorted(said) == sorted(
        [
            "which colour?\n- Red\n- blue",
            "That is none of the choices. which colour?\n- Red\n- blue",
            "painted it Red",
            "re: green",
        ]
    ), point
    assert [one.text for one in messages if one.role is Role.USER] == ["paint it", "green", "red"], point
    assert len(store.read_now(lambda tx: tx.deliveries.owed(limit=99))) == 4, point
    assert store.read_now(lambda tx: tx.sessions.of_key(KEY)).task_id is None, point
    assert store.verify() == []
    store.close()


async def test_of_two_answers_at_once_one_counts_and_the_other_waits_its_turn(
    ledger: Ledger, tmp_path: Path
) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    stage = Stage(first, ledger.clock, tmp_path / "boots")
    chat = await Chat(stage, agent(rename)).begin()
    await chat.say("rename it", origin=GROUP)
    await chat.talk()

    posted = await asyncio.gather(
        *(
            Inbox(store, ledger.clock).post(KEY, f"name {number}", GROUP, channel_message_id=f"n{number}")
            for number, store in enumerate((first, second))
        )
    )
    stage.kill()

    statuses = sorted(one.message.status.value for one in posted)
    assert statuses == ["noted", "queued"]
