"""Live changes for WebSockets: one reader of the ledger notifies every listener of changed tasks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.wire_details import summaries
from holdfast.core.errors import FeedGap, HoldfastError
from holdfast.engine.aio.trouble_log import TroubleLog
from holdfast.store import Store, Tx
from holdfast.store.events import START
from holdfast.views.wire import TaskSummary

LOOK_EVERY_S = 1.0
_AT_ONCE = 500
_NAME = "the feed"
# Slow listeners get only the latest state of each task, and of at most this many tasks.
MAX_WAITING = 1000


class Changed(NamedTuple):
    """A changed task, with its owner and name, which decide whether a listener may see it."""

    owner: str
    name: str
    summary: TaskSummary


class Listener:
    """Changes not yet sent to one connection: only the latest state of each task."""

    def __init__(self, reach: Callable[[], Reach | None] = lambda: EVERYTHING) -> None:
        # The tasks that it may see now; None if its token is no longer valid.
        self._reach = reach
        self._waiting: OrderedDict[str, Changed] = OrderedDict()
        self._some = asyncio.Event()

    def tell(self, changes: Iterable[Changed]) -> None:
        """Keep the changes that it may see. If its token is no longer valid, wake it, so that it closes."""
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
        """Wait for changes. The caller must check its reach again: it may have shrunk since."""
        await self._some.wait()
        self._some.clear()
        found = list(self._waiting.values())
        self._waiting.clear()
        return found


class Feed:
    """Follows the ledger while there is a listener."""

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
        """Run until cancelled; log an error of the store, and retry."""
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
        """One poll; returns whether there may be more events at once."""
        if not self._listeners:
            self._position = None
            return False
        position = self._position
        try:
            # Build the views in the reader's thread: redacting many long goals is slow.
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
    """The end of the feed, the changed tasks, and whether there may be more."""
    if position is None:
        newest = tx.events.newest(limit=1)
        return (newest[-1].position if newest else START), [], False
    found = tx.events.after(position, limit=_AT_ONCE)
    if not found:
        return position, [], False
    ids = list(dict.fromkeys(event.task_id for event in found if event.task_id is not None))
    tasks = list(tx.tasks.get_many(ids).values()) if ids else []
    shown = zip(tasks, summaries(tx, tasks), strict=True)
    changes = [Changed(task.owner, task.name, one) for task, one in shown]
    return found[-1].position, changes, len(found) == _AT_ONCE
