"""OwnerTasks: the tasks of one owner, for plug-ins and tools of agents. Others' tasks are not found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import msgspec

from holdfast.core.cancel import CancelAnswer
from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput, NotFound, NotYours
from holdfast.core.payload import check_name, check_number
from holdfast.core.snapshot import OwnerSnapshot
from holdfast.core.task import Failure, Progress, Task
from holdfast.core.transitions import TaskStatus
from holdfast.engine.client.owner_flows import OwnerFlows
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.ledger.ledger import AlreadyEnded, Cancelled, FinishOutcome, cancelling, owned
from holdfast.engine.ledger.recent import recent_tasks
from holdfast.engine.producers.contract import Runtime
from holdfast.engine.producers.producers import Producers
from holdfast.engine.producers.stopping import NotStopped, RecordedCancelOutcome
from holdfast.engine.producers.writes import NewRecord, NoteOutcome
from holdfast.store import Store, Tx
from holdfast.store.tasks import LAST

if TYPE_CHECKING:
    from holdfast.core.recorded import RecordedWork

MAX_PAGE = 500


@final
class OwnerTasks:
    """An accessor that is bound to one owner for good: it lists, shows, cancels and records only its tasks.

    A task of another owner is not found, as if it did not exist.
    """

    __slots__ = ("_clock", "_flows", "_owner", "_producers", "_store")

    def __init__(self, store: Store, clock: Clock, owner: str, *, runtimes: Sequence[Runtime] = ()) -> None:
        self._owner: Final = check_name("owner", owner)
        self._store: Final = store
        self._clock: Final = clock
        self._producers: Final = Producers(store, clock, runtimes=runtimes)
        self._flows: Final = OwnerFlows(store, clock, owner)

    def __init_subclass__(cls) -> None:
        raise TypeError("OwnerTasks cannot be changed by a subclass; call it instead")

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise AttributeError(
                f"{name} cannot be changed: this accessor is bound to {self._owner!r} for good"
            )
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be removed: this accessor is bound to {self._owner!r} for good")

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def flows(self) -> OwnerFlows:
        """The flows of the same owner."""
        return self._flows

    # --- looking

    async def list(
        self, *, statuses: Sequence[TaskStatus | str] = (), before: str = LAST, limit: int = 50
    ) -> list[Task]:
        """Newest first; the last id of a page is `before` of the next."""
        wanted = [check_choice("status", one, TaskStatus) for one in statuses]
        check_number("limit", limit, low=1, high=MAX_PAGE)
        return await self._store.read(
            lambda tx: tx.tasks.page(owner=self._owner, statuses=wanted, before=before, limit=limit)
        )

    async def get(self, task_id: str) -> Task:
        """By its id or the beginning of it. Raises NotFound, also for a task of another owner."""
        return await self._store.read(lambda tx: self._find(tx, task_id))

    async def snapshot(self) -> OwnerSnapshot:
        """What matters now: active tasks, what has just ended, what failed lately."""
        now = self._clock.now()
        return OwnerSnapshot.of(await self._store.read(lambda tx: recent_tasks(tx, self._owner)), now)

    def _find(self, tx: Tx, task_id: str) -> Task:
        with _not_found(task_id):
            return owned(tx.tasks.look(tx.tasks.resolve(task_id, owner=self._owner)), self._owner)

    # --- cancelling

    async def cancel(self, task_id: str, reason: str) -> CancelAnswer:
        """Cancel a task of this owner; the runtime of recorded work is asked to stop it."""
        try:
            task = await self.get(task_id)
        except NotFound:
            return CancelAnswer(found=False, cancelled=False, reason="no task of yours has this id")
        match await self._cancel(task, reason):
            case Cancelled():
                return CancelAnswer(found=True, cancelled=True)
            case AlreadyEnded(task=ended):
                return CancelAnswer(found=True, cancelled=False, reason=f"it has ended: {ended.status.value}")
            case NotStopped(reason=why):
                return CancelAnswer(found=True, cancelled=False, reason=why)
            case _:
                return CancelAnswer(found=True, cancelled=True, reason="it stops at its next call")

    async def _cancel(self, task: Task, reason: str) -> RecordedCancelOutcome:
        if not task.runtime.is_executed_here:
            return await self._producers.cancel(task.id, reason=reason, owner=self._owner)
        now = self._clock.now()
        return await self._store.write(cancelling(task.id, reason=reason, owner=self._owner, now=now))

    # --- recording work of its own

    async def create(self, new: NewRecord, *, is_running: bool = False) -> RecordedWork:
        """Record work for this owner. Its updates go to the owner, and nowhere else."""
        if not isinstance(new, NewRecord):
            raise BadInput("record", f"a new record is needed, not {type(new).__name__}")
        if new.owner not in (None, self._owner):
            raise BadInput("owner", f"this accessor is bound to {self._owner!r}; leave out the owner")
        if new.origin is not None or new.session_key not in (None, self._owner):
            raise BadInput("origin", "updates go to the owner; leave out the origin and other sessions")
        bound = msgspec.structs.replace(new, owner=self._owner)
        with _not_found(new.run_id or new.parent_task_id or new.flow_id or ""):
            return await self._producers.create(bound, is_running=is_running)

    async def start(self, target: str) -> NoteOutcome:
        with _not_found(target):
            return await self._producers.start(target, owner=self._owner)

    async def beat(self, target: str) -> NoteOutcome:
        """A sign of life; the answer tells whether a cancel was requested."""
        with _not_found(target):
            return await self._producers.beat(target, owner=self._owner)

    async def progress(
        self, target: str, progress: Progress | None = None, *, summary: str | None = None
    ) -> NoteOutcome:
        with _not_found(target):
            return await self._producers.progress(target, progress, summary=summary, owner=self._owner)

    async def finish(
        self, target: str, result: object = None, *, summary: str | None = None
    ) -> FinishOutcome:
        with _not_found(target):
            return await self._producers.finish(target, result, summary=summary, owner=self._owner)

    async def fail(self, target: str, failure: Failure) -> FinishOutcome:
        with _not_found(target):
            return await self._producers.fail(target, failure, owner=self._owner)


@contextmanager
def _not_found(record_id: str) -> Iterator[None]:
    """What belongs to another owner does not exist here."""
    try:
        yield
    except NotYours as error:
        raise NotFound(error.noun, record_id or error.record_id) from None
