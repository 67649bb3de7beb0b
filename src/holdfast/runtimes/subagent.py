"""The runtime of subagents: the tasks of a child session, which Holdfast itself may execute."""

from __future__ import annotations

from holdfast.core.recorded import RecordedWork
from holdfast.core.task import RuntimeName, Task
from holdfast.core.transitions import TaskStatus, is_terminal
from holdfast.engine.ledger.ledger import Ledger
from holdfast.engine.producers.contract import (
    Alive,
    LifeAnswer,
    LifeUnknown,
    NotMine,
    ReattachAnswer,
    Reattached,
    StopAnswer,
    WorkStopped,
)
from holdfast.store import Store, Tx

# How many tasks of one child session are looked at.
_LIMIT = 1000
_ALIVE = tuple(status for status in TaskStatus if not is_terminal(status))


class SubagentRuntime:
    """Kills a child session: its own tasks are cancelled, and so is the other recorded work that runs in it.

    The session's own tasks only if its parent is the session that owns the work: every producer may name any
    session as its child.
    """

    name = "subagent"

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger

    async def cancel(self, work: RecordedWork, reason: str) -> StopAnswer:
        others = await self._others(work)
        if not others:
            return NotMine()
        for task in others:
            await self._ledger.cancel(task.id, reason=reason)
        return WorkStopped()

    async def is_alive(self, work: RecordedWork) -> LifeAnswer:
        if work.task.runtime is not RuntimeName.SUBAGENT:
            return NotMine()
        return Alive() if await self._others(work) else LifeUnknown()

    async def reattach(self, work: RecordedWork) -> ReattachAnswer:
        return Reattached() if await self._others(work) else NotMine()

    async def _others(self, work: RecordedWork) -> list[Task]:
        """The other tasks of its child session that have not ended, as far as they are the owner's."""
        key = None if work.details is None else work.details.child_session_key
        if work.task.runtime is not RuntimeName.SUBAGENT or key is None:
            return []

        def read(tx: Tx) -> list[Task]:
            ids = [one.task_id for one in tx.recorded.of_child(key, limit=_LIMIT)]
            found = [task for task in tx.tasks.get_many(ids).values() if task.owner == work.task.owner]
            session = tx.sessions.find(key)
            if session is not None and session.parent_key == work.task.owner:
                found += tx.tasks.page(owner=key, statuses=_ALIVE, limit=_LIMIT)
            return [task for task in found if task.id != work.task.id and not task.has_ended]

        return await self._store.read(read)
