"""The runtime of subagents: the tasks of a child session, which Holdfast itself may execute."""

from __future__ import annotations

from holdfast.core.recorded import RecordedWork
from holdfast.core.task import RuntimeName, Task
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

# How many recorded tasks of one child session are looked at.
_LIMIT = 1000


class SubagentRuntime:
    """Kills a child session: the cancel of the other recorded work that runs in it is requested, too, and the
    runtimes of that work stop it."""

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
        """The other tasks of its child session that have not ended, of the same owner."""
        key = None if work.details is None else work.details.child_session_key
        if work.task.runtime is not RuntimeName.SUBAGENT or key is None:
            return []

        def read(tx: Tx) -> list[Task]:
            ids = [one.task_id for one in tx.recorded.of_child(key, limit=_LIMIT)]
            return [
                task
                for task in tx.tasks.get_many(ids).values()
                if task.id != work.task.id and task.owner == work.task.owner and not task.has_ended
            ]

        return await self._store.read(read)
