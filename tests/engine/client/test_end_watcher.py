"""One looks for the ends of all tasks that callers wait for: none is forgotten, nor told a false one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from holdfast.core.errors import NotFound, StoreUnavailable
from holdfast.core.run import RunOutcome
from holdfast.core.transitions import RunStatus, TaskStatus
from holdfast.engine.client import end_watcher
from holdfast.engine.client.end_watcher import EndWatcher
from holdfast.store import Store, Tx
from holdfast.testing import WrappingStore
from tests.builders import later, stored_run
from tests.engine.workers import soon, until

T = TypeVar("T")


class Flaky(WrappingStore):
    """A store whose reads fail as often as it is told to."""

    failures = 0
    reads = 0

    async def read(self, read: Callable[[Tx], T]) -> T:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("it is away, says the test")
        return await self.inner.read(read)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_watcher, "LOOK_EVERY_S", 0.01)


def running(store: Store) -> str:
    return stored_run(store, RunStatus.RUNNING).task_id


def end(store: Store, task_id: str) -> None:
    def end_task(tx: Tx) -> bool:
        outcome = RunOutcome(status=RunStatus.SUCCEEDED, result=b'"done"')
        return tx.tasks.end_running(
            task_id, TaskStatus.SUCCEEDED, outcome, now=later(seconds=1), cleanup_after=later(days=1)
        )

    assert store.write_now(end_task)


async def test_an_end_that_another_process_wrote_is_seen_by_everybody(store: Store) -> None:
    looking, task_id = EndWatcher(store), running(store)
    waiting = [asyncio.ensure_future(looking.wait(task_id)) for _ in range(3)]
    await asyncio.sleep(0)
    end(store, task_id)

    assert [task.result for task in await soon(asyncio.gather(*waiting))] == [b'"done"'] * 3
    assert looking._waiting == {}


async def test_it_is_seen_although_there_is_always_news_of_others(store: Store) -> None:
    looking, task_id = EndWatcher(store), running(store)
    others = [running(store) for _ in range(5)]
    waiting = asyncio.ensure_future(looking.wait(task_id))
    noise = [asyncio.ensure_future(looking.wait(other)) for other in others]
    await asyncio.sleep(0)
    end(store, task_id)

    async with asyncio.timeout(20):
        while not waiting.done():
            for other in others:
                looking.tell(other)
            await asyncio.sleep(0)

    assert waiting.result().result == b'"done"'
    for one in noise:
        one.cancel()
    await asyncio.gather(*noise, return_exceptions=True)


async def test_a_read_that_fails_once_is_no_concern_of_a_caller(store: Store) -> None:
    flaky = Flaky(store)
    flaky.failures = 2
    looking, task_id = EndWatcher(flaky), running(store)
    waiting = [asyncio.ensure_future(looking.wait(task_id)) for _ in range(5)]
    missing = asyncio.ensure_future(looking.wait("task_missing"))
    await until(lambda: flaky.reads >= 2)
    end(store, task_id)

    assert len(await soon(asyncio.gather(*waiting))) == 5
    with pytest.raises(NotFound):
        await soon(missing)


async def test_a_ledger_that_stays_away_is_told_to_each(store: Store) -> None:
    flaky = Flaky(store)
    flaky.failures = 1_000_000
    looking, task_id = EndWatcher(flaky), running(store)

    answers = await soon(asyncio.gather(*(looking.wait(task_id) for _ in range(5)), return_exceptions=True))

    assert [type(one) for one in answers] == [StoreUnavailable] * 5


async def test_a_caller_that_waits_is_told_when_the_watcher_looks_no_more(store: Store) -> None:
    looking = EndWatcher(store)
    waiting = asyncio.ensure_future(looking.wait(running(store)))
    await asyncio.sleep(0)
    assert looking._child is not None
    looking._child.cancel()

    with pytest.raises(StoreUnavailable, match="wait again"):
        await soon(waiting)


async def test_the_watcher_does_not_look_when_no_caller_waits(store: Store) -> None:
    looking = EndWatcher(store)
    waiting = [asyncio.ensure_future(looking.wait(running(store))) for _ in range(3)]
    await until(lambda: len(looking._waiting) == 3)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    child = looking._child
    assert child is not None
    await soon(child)
    assert looking._waiting == {}
