"""The feed for those who listen: one reader of the ledger tells every WebSocket which tasks have changed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.core.errors import FeedGap, HoldfastError
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.store import Store, Tx
from holdfast.store.events import START
from holdfast.views.wire import TaskSummary

LOOK_EVERY_S = 1.0
_AT_ONCE = 500
_NAME = "the feed"
# A listener that does not keep up hears of so many tasks at most, each as it is at last.
MAX_WAITING = 1000


class Changed(NamedTuple):
    """A task that changed, with the owner and the name by which a listener reaches it or not."""

    owner: str
    name: str
    summary: TaskSummary


class Listener:
    """What one connection has not been told yet: the last look of each task, however often it changed."""

    def __init__(self, reach: Callable[[], Reach | None] = lambda: EVERYTHING) -> None:
        # Which tasks it hears of now; None when it may hear of nothing any more.
        self._reach = reach
        self._waiting: OrderedDict[str, Changed] = OrderedDict()
        self._some = asyncio.Event()

    def tell(self, changes: Iterable[Changed]) -> None:
        """Those that it reaches. One that reaches nothing any more is woken, so that it finds out."""
        reach = self._reach()
        found = [one for one in changes if reach is not None and reach.covers(one.owner, one.name)]
        for change in found:
            self._waiting[change.summary.id] = change
            self._waiting.move_to_end(change.summary.id)
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
        if found or reach is None:
            self._some.set()

    async def next(self) -> list[Changed]:
        """The connection decides about each once more: it may reach less than when the task changed."""
        await self._some.wait()
        self._some.clear()
        found = list(self._waiting.values())
        self._waiting.clear()
        return found


class Feed:
    """Follows the ledger while anybody listens."""

    def __init__(self, store: Store, troubles: TroubleLog) -> None:
        self._store = store
        self._troubles = troubles
        self._listeners: set[Listener] = set()
        self._position: str | None = None

    def listen(self, reach: Callable[[], Reach | None] = lambda: EVERYTHING) -> Listener:
        listener = Listener(reach)
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
                self._troubles.met(_NAME, error, again_in_s=LOOK_EVERY_S)
                has_more = False
            else:
                self._troubles.worked(_NAME)
            if not has_more:
                await self._store.wait_for("events", LOOK_EVERY_S)

    async def run_once(self) -> bool:
        """One look; whether there may be more at once."""
        if not self._listeners:
            self._position = None
            return False
        position = self._position
        try:
            # Shaped in the reader's thread: to redact many long goals takes its time.
            position, changes, has_more = await self._store.read(lambda tx: _look(tx, position))
        except FeedGap:
            self._position = None
            return True
        self._position = position
        if changes:
            for listener in self._listeners:
                listener.tell(changes)
        return has_more


def _look(tx: Tx, position: str | None) -> tuple[str, list[Changed], bool]:
    """Where the feed ends, which tasks have changed, and whether there may be more."""
    if position is None:
        newest = tx.events.newest(limit=1)
        return (newest[-1].position if newest else START), [], False
    found = tx.events.after(position, limit=_AT_ONCE)
    if not found:
        return position, [], False
    ids = list(dict.fromkeys(event.task_id for event in found if event.task_id is not None))
    tasks = tx.tasks.get_many(ids) if ids else {}
    changes = [Changed(task.owner, task.name, TaskSummary.of(task)) for task in tasks.values()]
    return found[-1].position, changes, len(found) == _AT_ONCE
