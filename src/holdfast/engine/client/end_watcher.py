"""Waits for tasks to end: one child polls the ledger for all waiters."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from holdfast.core.errors import HoldfastError, NotFound, StoreUnavailable
from holdfast.core.task import Task
from holdfast.engine.client.waiting_notes import WaitingNotes
from holdfast.engine.ledger.ledger import opened
from holdfast.store import Store, Tx

# How often the ledger is polled for tasks that other processes run.
LOOK_EVERY_S = 0.25
_BATCH = 500
# After so many failed polls in a row the waiters get the error.
_MOST_FAILURES = 4


_Look: TypeAlias = "Callable[[Tx, Sequence[str]], dict[str, Task | HoldfastError]]"


class EndWatcher:
    """Waits for the ends of tasks, for any number of handles in one event loop."""

    def __init__(self, store: Store, remarks: WaitingNotes | None = None) -> None:
        self._store = store
        self._remarks = WaitingNotes(()) if remarks is None else remarks
        self._waiting: dict[str, list[asyncio.Future[Task]]] = {}
        # Tasks that this process has just let go of, or that a caller has just asked for: polled first.
        self._told: set[str] = set()
        self._news = asyncio.Event()
        self._looked_at = -math.inf
        self._child: asyncio.Task[None] | None = None

    def tell(self, task_id: str, ended: Task | None = None) -> None:
        """This process has just let go of the task. If it ended here, `ended` is the task; else poll it."""
        if task_id not in self._waiting:
            return
        if ended is None:
            self._told.add(task_id)
            self._news.set()
        else:
            self._answer(task_id, ended)

    async def wait(self, task_id: str) -> Task:
        """Wait for the end of the task and return it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Task] = loop.create_future()
        waiting = self._waiting.setdefault(task_id, [])
        waiting.append(future)
        self._remarks.begin(task_id, loop.time())
        self.tell(task_id)  # it may have ended long ago
        if self._child is None or self._child.done():
            self._child = loop.create_task(self._look_until_all_have_ended(), name="holdfast endings")
            self._child.add_done_callback(self._looked)
        try:
            return await future
        finally:
            waiting.remove(future)
            if not waiting and self._waiting.get(task_id) is waiting:
                del self._waiting[task_id]
                self._remarks.end(task_id)
            if not self._waiting:
                self._news.set()  # the last waiter has gone: let the child end

    async def _look_until_all_have_ended(self) -> None:
        failures = 0
        while self._waiting:
            try:
                await self._look()
                await self._remark()
                failures = 0
            except StoreUnavailable as away:
                # The outage may pass unnoticed. If not, each waiter gets its own exception object.
                failures += 1
                if failures >= _MOST_FAILURES:
                    self._tell_all(functools.partial(StoreUnavailable, str(away)))
            await self._pause()

    def _looked(self, child: asyncio.Task[None]) -> None:
        """The child has ended: if it failed or was cancelled, fail the waiters so that none of them hangs."""
        error = None if child.cancelled() else child.exception()
        if child is self._child:
            gone = "the wait for the end of the task was interrupted; wait again"
            self._tell_all(lambda: StoreUnavailable(gone) if error is None else error)

    def _tell_all(self, error: Callable[[], BaseException]) -> None:
        for task_id in list(self._waiting):
            self._answer(task_id, error())

    async def _look(self) -> None:
        """Poll the tasks with news; poll all of them if the last full poll was long ago."""
        now = asyncio.get_running_loop().time()
        is_time = now - self._looked_at >= LOOK_EVERY_S
        if is_time:
            self._looked_at = now
        told, self._told = self._told, set()
        asks = [(_look_at, told)] if told else []
        if is_time or not asks:
            asks.append((_ended_among, set(self._waiting) - told))
        self._news.clear()
        try:
            for look, asked in asks:
                await self._ask(look, [one for one in asked if one in self._waiting])
        except StoreUnavailable:
            self._told |= told
            raise

    async def _remark(self) -> None:
        """Log what tasks wait for that need a person, or a process that knows them."""
        now = asyncio.get_running_loop().time()
        due = self._remarks.due(now)
        for first in range(0, len(due), _BATCH):
            ids = due[first : first + _BATCH]
            self._remarks.say(await self._store.read(lambda tx: self._remarks.read(tx, ids, now)), now)  # noqa: B023 - read at once

    async def _ask(self, look: _Look, wanted: Sequence[str]) -> None:
        for first in range(0, len(wanted), _BATCH):
            ids = wanted[first : first + _BATCH]
            found = await self._store.read(lambda tx: look(tx, ids))  # noqa: B023 - read at once
            for task_id, answer in found.items():
                self._answer(task_id, answer)

    def _answer(self, task_id: str, answer: Task | BaseException) -> None:
        for future in self._waiting.get(task_id, ()):
            if future.done():
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


def _ended_among(tx: Tx, task_ids: Sequence[str]) -> dict[str, Task | HoldfastError]:
    return _look_at(tx, tx.tasks.ended_among(task_ids))


def _look_at(tx: Tx, task_ids: Sequence[str]) -> dict[str, Task | HoldfastError]:
    """Those that have ended, and an error for each that is missing or damaged."""
    tasks = tx.tasks.get_many(task_ids)
    found: dict[str, Task | HoldfastError] = {}
    for task_id in task_ids:
        task = tasks.get(task_id)
        try:
            if task is None:
                raise NotFound("task", task_id)
            if task.has_ended or task.is_damaged or task.is_sealed:
                found[task_id] = opened(tx, task)
        except HoldfastError as error:
            found[task_id] = error
    return found
