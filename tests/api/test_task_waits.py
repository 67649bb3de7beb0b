"""tasks.wait and ledger.wait: bounded, cheap for many, indifferent to clients that leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.api import task_waits
from holdfast.api.contract import READ, Caller
from holdfast.api.task_waits import MAX_WAIT_MS, WaitAsked, WireWaitAsked
from holdfast.config.sections import Config
from holdfast.core.transitions import RunStatus
from holdfast.engine.ledger.ledger import cancelling
from holdfast.store import Store, Tx
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import memory_store
from tests.api.stand_in import READ_TOKEN, ServedDoors, StandIn, agents
from tests.builders import START, stored_run

READER = Caller(who="ada", scopes=frozenset({READ}))


def end(store: Store, task_id: str) -> None:
    store.write_now(cancelling(task_id, reason="enough", owner=None, now=START))


def test_a_wait_ends_with_the_task_and_tells_how_it_ended(house: ServedDoors) -> None:
    task_id = stored_run(house.gateway.store).task_id
    ender = threading.Timer(0.05, end, (house.gateway.store, task_id))
    ender.start()

    ours = house.post("ledger.wait", {"taskId": task_id, "waitMs": 20_000}, token=READ_TOKEN)
    theirs = house.post("tasks.wait", {"taskId": task_id, "timeoutMs": 20_000})
    ender.join()

    assert (ours.status_code, theirs.status_code) == (200, 200)
    assert (ours.json()["task"]["status"], theirs.json()["task"]["status"]) == ("cancelled", "cancelled")
    assert theirs.json()["ended"] is True
    assert "reason" not in theirs.json()


def test_a_wait_that_times_out_says_so_and_what_the_task_waits_for(house: ServedDoors) -> None:
    task_id = stored_run(
        house.gateway.store, RunStatus.WAITING, task={"waits_on": "sleep"}, waits_on="sleep"
    ).task_id

    ours = house.post("ledger.wait", {"taskId": task_id, "waitMs": 1}).json()
    theirs = house.post("tasks.wait", {"taskId": task_id, "timeoutMs": 1}).json()

    assert "the task is still waiting, and nothing was changed" in ours["reason"]
    assert theirs["ended"] is False
    assert theirs["reason"] == "Not ended within 0.001 s."


@pytest.mark.parametrize(
    ("method", "params", "status"),
    [
        ("ledger.wait", {"taskId": "task_none", "waitMs": 0}, 404),
        ("tasks.wait", {"taskId": "task_none", "timeoutMs": 0}, 404),
        ("ledger.wait", {"taskId": "task_none", "waitMs": MAX_WAIT_MS + 1}, 400),
        ("tasks.wait", {"taskId": "task_none", "timeoutMs": -1}, 400),
        ("tasks.wait", {"taskId": "task_none", "waitMs": 1}, 400),
        ("ledger.wait", {}, 400),
    ],
)
def test_what_cannot_be_waited_for_is_refused(
    house: ServedDoors, method: str, params: dict[str, Any], status: int
) -> None:
    assert house.post(method, params).status_code == status


class CountedReads:
    """A store that counts what is read of it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.reads = 0

    async def read(self, read: Callable[[Tx], Any]) -> Any:
        self.reads += 1
        return await self._store.read(read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_many_that_wait_cost_one_poll_for_all_and_none_stays_after_its_client_left(tmp_path: Any) -> None:
    store: Any = CountedReads(memory_store())
    gateway: Any = StandIn(store, Config(agents=agents()), tmp_path)
    ids = [stored_run(store).task_id for _ in range(200)]
    asked = [WaitAsked(task_id=one, wait_ms=20_000) for one in ids]

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(task_waits.wait(gateway, one, READER)) for one in asked]
            while len(gateway.ends._waiting) < len(ids):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            store.reads = 0
            for one in waits[100:]:
                one.cancel()  # its client has left
            await asyncio.sleep(0)
            assert len(gateway.ends._waiting) == 100
            for task_id in ids[:100]:
                end(store, task_id)
            await asyncio.wait(waits)
            assert all(one.result().has_ended for one in waits[:100])
        # One read of its own for each answer, and few polls for all of them.
        assert store.reads <= 100 + 10
        assert gateway.ends._waiting == {}

    asyncio.run(main())
    store.close()


def test_a_wait_survives_the_deletion_of_its_task_with_an_error(tmp_path: Any) -> None:
    store: Any = memory_store()
    gateway: Any = StandIn(store, Config(agents=agents()), tmp_path)
    asked = WireWaitAsked(task_id="task_gone", timeout_ms=20_000)

    async def main() -> None:
        with pytest.raises(Exception, match="task not found: task_gone"):
            await task_waits.wire_wait(gateway, asked, READER)

    asyncio.run(main())
    store.close()
