"""The feed for those who listen: one reader of the ledger tells every WebSocket which tasks have changed."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from holdfast.core.errors import FeedGap, HoldfastError
from holdfast.core.task import Task
from holdfast.store import Store, Tx
from holdfast.store.events import START
from holdfast.views.wire import TaskSummary

log = logging.getLogger("holdfast")

LOOK_EVERY_S = 1.0
_AT_ONCE = 500
# A listener that does not keep up hears of so many tasks at most, each as it is at last.
MAX_WAITING = 1000


class Listener:
    """What one connection has not been told yet: the last look of each task, however often it changed."""

    def __init__(self, owner: str | None = None) -> None:
        # Whose tasks it hears of; None for those of everybody.
        self.owner = owner
        self._waiting: OrderedDict[str, TaskSummary] = OrderedDict()
        self._some = asyncio.Event()

    def tell(self, summaries: list[TaskSummary]) -> None:
        for summary in summaries:
            self._waiting[summary.id] = summary
            self._waiting.move_to_end(summary.id)
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
        self._some.set()

    async def next(self) -> list[TaskSummary]:
        await self._some.wait()
        self._some.clear()
        found = list(self._waiting.values())
        self._waiting.clear()
        return found


class Feed:
    """Follows the ledger while anybody listens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: set[Listener] = set()
        self._position: str | None = None

    def listen(self, owner: str | None = None) -> Listener:
        listener = Listener(owner)
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    async def run(self) -> None:
        """Until it is cancelled. An error of the store is logged, and tried again."""
        while True:
            try:
                has_more = await self.run_once()
            except HoldfastError as error:
                log.warning("the feed: %s (%s)", error, error.code)
                has_more = False
            if not has_more:
                await self._store.wait_for("events", LOOK_EVERY_S)

    async def run_once(self) -> bool:
        """One look; whether there may be more at once."""
        if not self._listeners:
            self._position = None
            return False
        position = self._position
        try:
            position, tasks, has_more = await self._store.read(lambda tx: _look(tx, position))
        except FeedGap:
            self._position = None
            return True
        self._position = position
        if tasks:
            summaries = [(task.owner, TaskSummary.of(task)) for task in tasks]
            for listener in self._listeners:
                theirs = [one for owner, one in summaries if listener.owner in (None, owner)]
                if theirs:
                    listener.tell(theirs)
        return has_more


def _look(tx: Tx, position: str | None) -> tuple[str, list[Task], bool]:
    if position is None:
        newest = tx.events.newest(limit=1)
        return (newest[-1].position if newest else START), [], False
    found = tx.events.after(position, limit=_AT_ONCE)
    if not found:
        return position, [], False
    ids = list(dict.fromkeys(event.task_id for event in found if event.task_id is not None))
    tasks = tx.tasks.get_many(ids) if ids else {}
    return found[-1].position, list(tasks.values()), len(found) == _AT_ONCE
