"""Waits for tasks to end: one of those who wait looks for all of them, and tells the others."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.task import Task
from holdfast.engine.ledger import opened
from holdfast.store import Store, Tx

# Tasks of other processes are looked for this often.
LOOK_EVERY_S = 0.25
_BATCH = 500


class Endings:
    """The ends of tasks, for any number of handles in one loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._futures: dict[str, asyncio.Future[Task]] = {}
        self._batons: deque[asyncio.Future[None]] = deque()
        self._is_led = False
        self._told: set[str] = set()
        self._news = asyncio.Event()

    def tell(self, task_id: str, ended: Task | None = None) -> None:
        """This process has just let go of the task: as it ended, or else it is looked at."""
        future = self._futures.get(task_id)
        if future is None or future.done():
            return
        if ended is not None:
            future.set_result(ended)
            # Whoever looks for all of them may have waited for this one.
        self._told.add(task_id)
        self._news.set()

    async def wait(self, task_id: str) -> Task:
        """The task, once it has ended."""
        loop = asyncio.get_running_loop()
        future = self._futures.get(task_id)
        if future is None:
            future = self._futures[task_id] = loop.create_future()
            # It may have ended long ago.
            self.tell(task_id)
        while not future.done():
            if not self._is_led:
                await self._lead(future)
            else:
                await self._follow(future, loop.create_future())
        if self._futures.get(task_id) is future:
            del self._futures[task_id]
        return future.result()

    async def _follow(self, future: asyncio.Future[Task], baton: asyncio.Future[None]) -> None:
        self._batons.append(baton)
        try:
            both: list[asyncio.Future[Any]] = [future, baton]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if baton.done():
                self._hand_over()
            raise
        finally:
            if not baton.done():
                baton.cancel()
        if future.done() and not baton.cancelled():
            self._hand_over()  # handed to us, and not needed any more

    async def _lead(self, own: asyncio.Future[Task]) -> None:
        self._is_led = True
        try:
            while not own.done():
                await self._look()
                if not own.done():
                    await self._pause()
        finally:
            self._is_led = False
            self._hand_over()

    def _hand_over(self) -> None:
        while self._batons:
            baton = self._batons.popleft()
            if not baton.done():
                baton.set_result(None)
                return

    async def _look(self) -> None:
        asked, look = (self._told, _look_at) if self._told else (self._futures, _ended_among)
        wanted = [one for one in asked if one in self._futures and not self._futures[one].done()]
        self._told.clear()
        self._news.clear()
        for first in range(0, len(wanted), _BATCH):
            ids = wanted[first : first + _BATCH]
            found = await self._store.read(lambda tx: look(tx, ids))  # noqa: B023 - read at once
            for task_id, answer in found.items():
                future = self._futures.get(task_id)
                if future is None or future.done():
                    continue
                if isinstance(answer, Task):
                    future.set_result(answer)
                else:
                    future.set_exception(answer)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._news.wait()
        except TimeoutError:
            return


def _ended_among(tx: Tx, task_ids: list[str]) -> dict[str, Task | HoldfastError]:
    return _look_at(tx, tx.tasks.ended_among(task_ids))


def _look_at(tx: Tx, task_ids: list[str]) -> dict[str, Task | HoldfastError]:
    """Those that have ended, and those of which nobody will ever know."""
    tasks = tx.tasks.get_many(task_ids)
    found: dict[str, Task | HoldfastError] = {}
    for task_id in task_ids:
        task = tasks.get(task_id)
        try:
            if task is None:
                raise NotFound("task", task_id)
            if task.has_ended or task.is_damaged:
                found[task_id] = opened(tx, task)
        except HoldfastError as error:
            found[task_id] = error
    return found
