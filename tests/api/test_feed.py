"""The feed of changed tasks: one reader for all, the last look of each task, and no memory without end."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.api import feed as feeds
from holdfast.api.contract import Reach
from holdfast.api.feed import Changed, Feed, Listener
from holdfast.api.security import Buckets
from holdfast.core.clock import SystemClock
from holdfast.core.transitions import TaskStatus
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.engine.ledger.ledger import Ledger, NewTask
from holdfast.testing.stores import memory_store
from holdfast.views.wire import TaskSummary
from tests.builders import a_task

pytestmark = pytest.mark.slow


def changed(number: int, status: TaskStatus = TaskStatus.QUEUED, **task: str) -> Changed:
    found = a_task(id=f"task_{number}", status=status, **task)
    return Changed(found.owner, found.name, TaskSummary.of(found))


def test_a_listener_that_is_slow_hears_of_each_task_as_it_is_at_last() -> None:
    async def listen() -> list[TaskSummary]:
        listener = Listener()
        listener.tell([changed(1), changed(2)])
        listener.tell([changed(1, TaskStatus.FAILED)])
        return [one.summary for one in await listener.next()]

    found = asyncio.run(listen())

    assert [(one.id, one.status) for one in found] == [("task_2", "queued"), ("task_1", "failed")]


def test_a_listener_that_takes_nothing_keeps_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MAX_WAITING", 3)

    async def listen() -> list[TaskSummary]:
        listener = Listener()
        listener.tell([changed(number) for number in range(10)])
        return [one.summary for one in await listener.next()]

    assert [one.id for one in asyncio.run(listen())] == ["task_7", "task_8", "task_9"]


def test_a_listener_hears_of_what_its_token_reaches_when_a_task_changes() -> None:
    reaches: list[Reach | None] = [Reach(owner="ada"), Reach(names=frozenset({"buy"})), None]

    async def listen() -> list[str]:
        listener = Listener(lambda: reaches[0])
        found = []
        while reaches:
            listener.tell(
                [changed(1, owner="ada"), changed(2, owner="bob", name="buy"), changed(3, owner="eve")]
            )
            found.append(" ".join(one.summary.id for one in await listener.next()))
            reaches.pop(0)
        return found

    assert asyncio.run(listen()) == ["task_1", "task_2", ""]


def test_what_happened_before_a_client_listened_is_not_told_and_what_happens_then_is() -> None:
    async def follow() -> tuple[list[str], str]:
        clock = SystemClock()
        store = memory_store(clock)
        ledger = Ledger(store, clock)
        await ledger.create(NewTask(name="old", goal="before"))
        feed = Feed(store, TroubleLog())
        assert not await feed.run_once()
        listener = feed.listen()
        await feed.run_once()
        task = await ledger.create(NewTask(name="new", goal="after"))
        await feed.run_once()
        found = [one.summary.id for one in await listener.next()]
        feed.leave(listener)
        store.close()
        return found, task.id

    found, task_id = asyncio.run(follow())

    assert found == [task_id]


def test_of_a_great_many_addresses_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.api import security

    monkeypatch.setattr(security, "MAX_PEERS", 2)
    buckets = Buckets(lambda: 1.0, lambda: 1.0)
    first = buckets.of("a", 0)
    for peer in ("b", "c"):
        buckets.of(peer, 0)

    assert buckets.of("a", 0) is not first
