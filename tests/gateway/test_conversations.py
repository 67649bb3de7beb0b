"""Conversations: one run per session, in order; a crash between any two writes loses and doubles nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.events import EventKind
from holdfast.core.message import Role
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES, redact_text
from holdfast.core.task import Origin
from holdfast.core.transitions import MessageStatus, SessionStatus, TaskStatus
from holdfast.engine.conversation.transcripts import answer
from holdfast.engine.ledger.ledger import NewTask, cancelling, creating, prepare
from holdfast.engine.program.author_api import Run
from holdfast.gateway.conversations import Conversations, Moved, settle, start, task_for
from holdfast.gateway.inbox import Inbox
from holdfast.runtimes.contract import AgentInput
from holdfast.store import Store, Tx
from holdfast.testing import Crashed, FailingStore, Failpoint, FakeClock, RepeatingStore, memory_store
from tests.builders import START, a_session, a_task, due_by, later
from tests.conftest import Ledger
from tests.engine.stage import Stage
from tests.engine.tables import execute, literal
from tests.engine.workers import carrying, until
from tests.gateway.chats import ADA, GROUP, KEY, Chat, agent, conversations


async def echo(run: Run, heard: AgentInput) -> str:
    return f"re: {heard.message.text}"


async def broken(run: Run, heard: AgentInput) -> str:
    if "break" in heard.message.text:
        raise ValueError("it broke, with a secret inside")
    return await echo(run, heard)


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


@pytest.fixture
def chat(stage: Stage) -> Chat:
    return Chat(stage, agent(broken))


async def test_a_message_is_answered_in_its_session(chat: Chat) -> None:
    await chat.begin()
    asked = await chat.say("tides?")

    await chat.talk()

    assert await chat.transcript() == ["user: tides?", "agent: re: tides?"]
    asked, said = await chat.inbox.messages(KEY)
    assert (asked.status, said.status) == (MessageStatus.ANSWERED, MessageStatus.NOTED)
    assert (said.reply_to, said.task_id, said.origin) == (asked.id, asked.task_id, ADA)
    session = await chat.inbox.session(KEY)
    assert (session.status, session.task_id, session.queued) == (SessionStatus.IDLE, None, 0)


async def test_the_task_of_a_message_says_what_was_asked_by_whom_and_where(chat: Chat) -> None:
    await chat.begin()
    asked = await chat.say("tides?", origin=GROUP)

    await chat.talk()

    task_id = (await chat.inbox.message(asked.id)).task_id
    task = await chat.stage.holdfast.handle(str(task_id)).task()
    assert (task.name, task.goal, task.session_key) == ("agent.scholar", "tides?", KEY)
    assert (task.origin, task.status, task.owner) == (GROUP, TaskStatus.SUCCEEDED, KEY)


async def test_messages_of_a_session_are_answered_in_order_one_at_a_time(stage: Stage) -> None:
    at_once, most = 0, 0

    async def slow(run: Run, heard: AgentInput) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return heard.message.text

    chat = await Chat(stage, agent(slow)).begin()
    texts = [str(number) for number in range(6)]
    for text in texts:
        await chat.say(text)

    await chat.talk()

    assert await chat.answers() == texts
    assert most == 1


async def test_sessions_do_not_wait_for_each_other(stage: Stage) -> None:
    both = asyncio.Barrier(2)

    async def meet(run: Run, heard: AgentInput) -> str:
        await asyncio.wait_for(both.wait(), 20)
        return "met"

    chat = await Chat(stage, agent(meet)).begin()
    await chat.say("here", key="agent:scholar:a")
    await chat.say("here", key="agent:scholar:b")

    await chat.talk()

    assert await chat.answers("agent:scholar:a") == ["met"]
    assert await chat.answers("agent:scholar:b") == ["met"]


async def test_an_answer_is_owed_to_the_group_that_asked(chat: Chat, store: Store) -> None:
    await chat.begin()
    await chat.say("tides?", origin=GROUP)

    await chat.talk()

    (owed,) = due_by(store, later(days=1))
    said = (await chat.inbox.messages(KEY))[1]
    assert owed.origin == GROUP
    assert owed.idempotency_key == f"reply:{said.task_id}"
    assert b"re: tides?" in owed.message


async def test_a_failed_agent_gives_its_session_a_sentence_and_the_next_message_goes_on(
    chat: Chat, store: Store
) -> None:
    await chat.begin()
    asked = await chat.say("break", origin=GROUP)
    await chat.say("go on", origin=GROUP)

    await chat.talk()

    messages = await chat.inbox.messages(KEY)
    assert [one.role for one in messages] == [Role.USER, Role.USER, Role.SYSTEM, Role.AGENT]
    assert "could not be answered" in messages[2].text
    assert "secret" not in messages[2].text
    assert (messages[0].status, messages[2].reply_to) == (MessageStatus.FAILED, asked.id)
    assert messages[3].text == "re: go on"
    keys = [one.idempotency_key for one in store.read_now(lambda tx: all_deliveries(tx))]
    assert keys == [f"failure:{messages[0].task_id}", f"reply:{messages[1].task_id}"]
    events = store.read_now(lambda tx: tx.events.newest(limit=99))
    assert [one.subject_id for one in events if one.kind is EventKind.MESSAGE_FAILED] == [asked.id]


def all_deliveries(tx: Tx) -> list[Any]:
    tasks = [one.task_id for one in tx.messages.after(KEY, limit=99) if one.role is Role.USER]
    return [owed for task_id in tasks for owed in tx.deliveries.of_task(str(task_id))]


async def test_a_cancelled_task_frees_its_session(stage: Stage) -> None:
    async def wait(run: Run, heard: AgentInput) -> str:
        if heard.message.text == "wait":
            await run.receive("never")
        return "done"

    chat = await Chat(stage, agent(wait)).begin()
    asked = await chat.say("wait")
    await chat.say("next")
    await chat.talk()
    task_id = (await chat.inbox.message(asked.id)).task_id

    await stage.holdfast.cancel(str(task_id))
    await chat.talk()

    cancelled, done = (await chat.transcript())[2:]
    assert cancelled.startswith("system: [System] Your last message was cancelled before it was answered")
    assert str(task_id) in cancelled
    assert done == "agent: done"


async def test_a_task_that_waits_keeps_its_session(stage: Stage) -> None:
    async def ask(run: Run, heard: AgentInput) -> str:
        return str(await run.receive("word", timeout="1h", default="nothing"))

    chat = await Chat(stage, agent(ask)).begin()
    await chat.say("one")
    await chat.say("two")
    await chat.talk()
    session = await chat.inbox.session(KEY)

    assert (session.status, session.queued) == (SessionStatus.PROCESSING, 1)
    await stage.holdfast.send(str(session.task_id), "word", "heard")
    await stage.settle()
    await chat.talk()
    assert await chat.answers() == ["heard"]


async def test_an_agent_that_says_nothing_has_answered(stage: Stage, store: Store) -> None:
    async def mute(run: Run, heard: AgentInput) -> None:
        return None

    chat = await Chat(stage, agent(mute)).begin()
    asked = await chat.say("hello")

    await chat.talk()

    assert (await chat.inbox.message(asked.id)).status is MessageStatus.ANSWERED
    assert len(await chat.inbox.messages(KEY)) == 1
    assert due_by(store, later(days=1)) == []


async def test_what_is_held_starts_nothing_and_settles_what_ended(chat: Chat) -> None:
    await chat.begin()
    await chat.say("one")
    await chat.conversations.run_once()
    await chat.stage.settle()
    chat.conversations.hold()
    await chat.say("two")

    moved = await chat.conversations.run_once()

    assert moved == Moved(settled=1, started=0)
    assert (await chat.inbox.session(KEY)).queued == 1
    chat.conversations.go_on()
    await chat.talk()
    assert await chat.answers() == ["re: one", "re: two"]


async def test_a_message_for_an_agent_that_is_not_declared_waits_for_it(
    chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.begin()
    await chat.say("hello", key="agent:stranger:main")
    await chat.say("hello")

    await chat.talk()
    await chat.talk()

    assert (await chat.inbox.session("agent:stranger:main")).queued == 1
    assert await chat.answers() == ["re: hello"]
    assert sum("stranger" in one.message for one in caplog.records) == 1


async def test_what_the_gateway_asks_is_answered_to_the_person_who_spoke_last(
    chat: Chat, store: Store
) -> None:
    await chat.begin()
    await chat.say("hello", origin=GROUP)
    await chat.talk()

    await chat.inbox.ask(KEY, "[System] Gateway restarted.", key="restart:1")
    await chat.talk()

    said = (await chat.inbox.messages(KEY))[-1]
    assert (said.text, said.origin) == ("re: [System] Gateway restarted.", GROUP)
    assert len(store.read_now(lambda tx: tx.deliveries.of_task(str(said.task_id)))) == 1


async def test_a_task_that_is_gone_does_not_keep_its_session(store: Store, clock: FakeClock) -> None:
    session = a_session(status=SessionStatus.PROCESSING, task_id="task_gone")
    store.write_now(lambda tx: tx.sessions.create(session))

    moved = await conversations(store, clock).run_once()

    assert moved.settled == 1
    assert store.read_now(lambda tx: tx.sessions.get(session.id)).status is SessionStatus.IDLE


async def test_a_damaged_message_stops_its_own_session_only(chat: Chat, store: Store) -> None:
    await chat.begin()
    damaged = await chat.say("x", key="agent:scholar:a")
    await chat.say("y", key="agent:scholar:b")
    execute(store, f"UPDATE messages SET body = {literal(store, b'1')} WHERE id = '{damaged.id}'")

    await chat.talk()

    assert await chat.answers("agent:scholar:b") == ["re: y"]


async def test_a_message_that_cannot_become_a_task_harms_no_other_session(
    chat: Chat, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await chat.begin()
    asked = await chat.say("x", key="agent:scholar:a")
    await chat.say("y", key="agent:scholar:b")
    # Another caller has taken the key of its task.
    new = NewTask(name="other", goal="z", owner="agent:scholar:a", key=f"message:{asked.id}")
    store.write_now(creating([new], now=START))

    await chat.conversations.run_once()
    await chat.stage.settle()

    assert await chat.answers("agent:scholar:b") == ["re: y"]
    assert (await chat.inbox.session("agent:scholar:a")).queued == 1
    assert "is stuck" in caplog.text


async def test_a_message_that_a_person_let_try_again_is_answered_after_all(chat: Chat, store: Store) -> None:
    await chat.begin()
    asked = await chat.say("break")
    await chat.talk()
    failed = await chat.inbox.message(asked.id)
    store.write_now(
        lambda tx: answer(
            tx, session_key=KEY, message_id=asked.id, task_id=str(failed.task_id), text="late", now=START
        )
    )

    assert (await chat.inbox.message(asked.id)).status is MessageStatus.ANSWERED
    assert (await chat.answers()) == ["late"]


# --- writes that run twice


async def test_starting_and_settling_give_the_same_answer_when_they_run_again(
    store: Store, clock: FakeClock
) -> None:
    await Inbox(store, clock).post(KEY, "hello", ADA)
    session = store.read_now(lambda tx: tx.sessions.of_key(KEY))
    message = store.read_now(lambda tx: tx.messages.after(KEY, limit=1))[0]
    task, run = prepare(task_for(session, message), START)

    assert RepeatingStore(store).write_now(lambda tx: start(tx, session, message, task, run, now=START))
    assert not store.write_now(lambda tx: settle(tx, KEY, task.id, now=START))
    store.write_now(lambda tx: end(tx, task.id))
    assert store.write_now(lambda tx: settle(tx, KEY, task.id, now=START))
    assert not store.write_now(lambda tx: settle(tx, KEY, task.id, now=START))


def end(tx: Tx, task_id: str) -> None:
    cancelling(task_id, reason="enough", owner=None, now=START)(tx)


# --- crashes

WORDS = ["one", "break", "three"]


async def the_day(store: Store, clock: FakeClock, locks: Path) -> None:
    """One life: it takes over, hears everything (again), and answers; whatever kills it."""
    stage = Stage(store, clock, locks)
    chat = Chat(stage, agent(broken))
    try:
        # The messages come again, as from a client that was not told.
        for number, word in enumerate(WORDS):
            await chat.say(word, origin=GROUP, channel_message_id=str(number))
        await chat.begin()
        await chat.talk()
    finally:
        stage.kill()


@pytest.mark.slow
async def test_a_crash_between_any_two_writes_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    recorded = FailingStore(memory_store())
    await the_day(recorded, FakeClock(), tmp_path / "first")
    points = [one for call in recorded.calls for one in call.failpoints() if one.where != "inside"]
    assert len(points) > 30

    for number, point in enumerate(points):
        await crash_in_the_day(point, tmp_path / str(number))


@pytest.mark.slow
async def test_a_crash_inside_any_write_leaves_nothing_of_it(tmp_path: Path) -> None:
    """The answer, that it was answered and what is owed are one write; so are all the others."""
    recorded = FailingStore(memory_store())
    await the_day(recorded, FakeClock(), tmp_path / "first")
    points = [one for call in recorded.calls for one in call.failpoints() if one.where == "inside"]
    assert len(points) > 100

    # Nothing of a write is there before its end, so a part of them will do.
    for number, point in enumerate(points[::4]):
        await crash_in_the_day(point, tmp_path / str(number))


async def crash_in_the_day(point: Failpoint, locks: Path) -> None:
    store, clock = memory_store(), FakeClock()
    with contextlib.suppress(Crashed, BaseExceptionGroup):
        await the_day(FailingStore(store, [point]), clock, locks)
    # The gateway that comes after; and once more, for what needs a second look.
    for _ in range(2):
        await the_day(store, clock, locks)

    messages = store.read_now(lambda tx: tx.messages.after(KEY, limit=99))
    heard = [one.text for one in messages if one.role is Role.USER]
    assert heard == WORDS, point
    said = [(one.role, one.reply_to) for one in messages if one.role is not Role.USER]
    asked = [one.id for one in messages if one.role is Role.USER]
    assert said == [(Role.AGENT, asked[0]), (Role.SYSTEM, asked[1]), (Role.AGENT, asked[2])], point
    assert len(store.read_now(all_deliveries)) == 3, point
    assert len(store.read_now(lambda tx: tx.tasks.page(limit=99))) == 3, point
    session = store.read_now(lambda tx: tx.sessions.of_key(KEY))
    assert (session.status, session.queued, session.task_id) == (SessionStatus.IDLE, 0, None), point
    assert store.verify() == []
    store.close()


# --- two at once


async def test_two_gateways_on_one_ledger_start_each_message_once(ledger: Ledger) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    scholar = agent(echo)
    inbox = Inbox(first, ledger.clock)
    for number in range(60):
        await inbox.post(f"agent:scholar:{number % 20}", str(number), ADA)
    both = [conversations(store, ledger.clock, scholar) for store in (first, second)]

    async def work(one: Conversations) -> int:
        started = 0
        for _ in range(10):
            started += (await one.run_once()).started
        return started

    counts = await asyncio.gather(*map(work, both))

    assert sum(counts) == 20
    tasks = first.read_now(lambda tx: tx.tasks.page(limit=999))
    assert len(tasks) == 20
    assert {task.goal for task in tasks} == {str(number) for number in range(20)}


async def test_two_gateways_settle_an_ended_task_once(ledger: Ledger) -> None:
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    scholar = agent(echo)
    inbox = Inbox(first, ledger.clock)
    for number in range(20):
        await inbox.post(f"agent:scholar:{number}", "break", ADA)
    both = [conversations(store, ledger.clock, scholar) for store in (first, second)]
    await both[0].run_once()
    for task in first.read_now(lambda tx: tx.tasks.page(limit=99)):
        first.write_now(lambda tx, task=task: end(tx, task.id))  # type: ignore[misc]

    await asyncio.gather(*(one.run_once() for one in both))

    for number in range(20):
        said = await inbox.messages(f"agent:scholar:{number}")
        assert [one.role for one in said] == [Role.USER, Role.SYSTEM]


async def test_two_gateways_answer_everything_once_and_in_order(ledger: Ledger) -> None:
    """The real thing: two workers, two services each woken by hints, one ledger."""
    first = ledger.open()
    second = first if getattr(ledger, "_directory", "") is None else ledger.open()
    scholar = agent(echo)
    inbox = Inbox(first, ledger.clock)
    keys = [f"agent:scholar:{number}" for number in range(5)]
    async with (
        carrying(first, ledger.clock, scholar),
        carrying(second, ledger.clock, scholar),
        asyncio.TaskGroup() as group,
    ):
        both = [Conversations(store, ledger.clock, {"scholar"}, every_s=0.05) for store in (first, second)]
        for one in both:
            group.create_task(one.run())
        for number in range(20):
            await inbox.post(keys[number % 5], str(number), ADA)

        def is_over() -> bool:
            return all(
                session.queued == 0 and session.task_id is None
                for session in first.read_now(lambda tx: tx.sessions.page(limit=99))
            )

        await until(is_over)
        for one in both:
            one.stop()

    for place, key in enumerate(keys):
        messages = await inbox.messages(key)
        said = [one.text for one in messages if one.role is Role.AGENT]
        assert said == [f"re: {number}" for number in range(place, 20, 5)]


async def test_a_service_that_was_stopped_before_it_ran_ends_at_once(store: Store, clock: FakeClock) -> None:
    one = conversations(store, clock)
    one.stop()

    async with asyncio.timeout(10):
        await one.run()


async def test_a_reopened_task_is_not_settled(store: Store, clock: FakeClock) -> None:
    task = a_task(status=TaskStatus.RUNNING)
    session = a_session(status=SessionStatus.PROCESSING, task_id=task.id)
    store.write_now(lambda tx: [tx.tasks.create(task), tx.sessions.create(session)])

    assert not store.write_now(lambda tx: settle(tx, session.key, task.id, now=START))


async def test_the_origin_of_a_session_is_that_of_who_spoke_last(chat: Chat) -> None:
    await chat.begin()
    await chat.say("one", origin=GROUP)
    await chat.say("two", origin=Origin(channel="console", peer="ben"))

    assert (await chat.inbox.session(KEY)).origin == Origin(channel="console", peer="ben")


async def test_a_long_message_becomes_a_goal_beside_the_loop(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []

    def noting(text: str) -> str:
        if len(text) > REDACT_OFF_LOOP_BYTES:
            where.append(threading.current_thread())
        return redact_text(text)

    monkeypatch.setattr("holdfast.core.payload.redact_text", noting)
    await chat.say("a tide " * 20_000)
    await chat.talk()

    assert where
    assert threading.main_thread() not in where
