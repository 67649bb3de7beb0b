"""OwnerFlows: the flows of one owner, for plug-ins and controllers. Others' flows are not found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput, NotFound, NotYours
from holdfast.core.flow import Flow, FlowNode
from holdfast.core.payload import check_name
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import FlowStatus
from holdfast.engine.client.flows import Flows, state_of, wait_of
from holdfast.engine.ledger.flows import Document, FlowCancelOutcome, FlowChange, NewFlow, owned_flow
from holdfast.store import Store, Tx
from holdfast.store.tasks import LAST


@final
class OwnerFlows:
    """An accessor that is bound to one owner for good: it lists, shows, creates and changes only its flows.

    A flow of another owner is not found, as if it did not exist. An update names the revision that it has
    read: if another update came first, it raises RevisionMismatch and changes nothing.
    """

    __slots__ = ("_flows", "_owner", "_store")

    def __init__(self, store: Store, clock: Clock, owner: str) -> None:
        self._owner: Final = check_name("owner", owner)
        self._store: Final = store
        self._flows: Final = Flows(store, clock, owner=self._owner)

    def __init_subclass__(cls) -> None:
        raise TypeError("OwnerFlows cannot be changed by a subclass; call it instead")

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

    # --- looking

    async def list(
        self, *, statuses: Sequence[FlowStatus | str] = (), before: str = LAST, limit: int = 50
    ) -> list[Flow]:
        """Newest first; the last id of a page is `before` of the next."""
        return await self._flows.page(statuses=tuple(statuses), before=before, limit=limit)  # type: ignore[arg-type]

    async def get(self, flow_id: str) -> Flow:
        """By its id or the beginning of it. Raises NotFound, also for a flow of another owner."""
        return await self._store.read(lambda tx: self._find(tx, flow_id))

    async def state(self, flow_id: str) -> object:
        """The state document, as the controller stored it. Raises KeyLost."""
        return state_of(await self.get(flow_id))

    async def wait_document(self, flow_id: str) -> object:
        """What a waiting flow waits for, as the controller stored it. Raises KeyLost."""
        return wait_of(await self.get(flow_id))

    async def nodes(self, flow_id: str, *, after: str = "", limit: int = 100) -> Sequence[FlowNode]:
        """In the order of the definition; the place of the last one is `after` of the next page."""
        return await self._flows.nodes(await self._id(flow_id), after=after, limit=limit)

    async def tasks(self, flow_id: str, *, after: str = "", limit: int = 100) -> Sequence[Task]:
        """Oldest first; the id of the last one is `after` of the next page."""
        return await self._flows.tasks(await self._id(flow_id), after=after, limit=limit)

    def _find(self, tx: Tx, flow_id: str) -> Flow:
        with _not_found(flow_id):
            return owned_flow(tx.flows.get(tx.flows.resolve(flow_id, owner=self._owner)), self._owner)

    async def _id(self, flow_id: str) -> str:
        return (await self.get(flow_id)).id

    # --- creating, and the updates of a controller

    async def create(self, new: NewFlow) -> Flow:
        """Create a flow of this owner; if the key is taken, the first flow with that key."""
        if not isinstance(new, NewFlow):
            raise BadInput("flow", f"a new flow is needed, not {type(new).__name__}")
        if new.owner not in (NewFlow().owner, self._owner):
            raise BadInput("owner", f"this accessor is bound to {self._owner!r}; leave out the owner")
        with _not_found(""):
            return await self._flows.create(new)

    async def update(self, flow_id: str, change: FlowChange, *, revision: int) -> Flow:
        return await self._flows.update(await self._id(flow_id), change, revision=revision)

    async def wait(
        self,
        flow_id: str,
        wait: object,
        *,
        revision: int,
        state: Document = msgspec.UNSET,
        blocked_by_task_id: str | None = None,
    ) -> Flow:
        """The flow waits; its wait document says for what."""
        return await self._flows.wait(
            await self._id(flow_id),
            wait,
            revision=revision,
            state=state,
            blocked_by_task_id=blocked_by_task_id,
        )

    async def resume(self, flow_id: str, *, revision: int, state: Document = msgspec.UNSET) -> Flow:
        return await self._flows.resume(await self._id(flow_id), revision=revision, state=state)

    async def block(
        self, flow_id: str, failure: Failure, *, revision: int, blocked_by_task_id: str | None = None
    ) -> Flow:
        return await self._flows.block(
            await self._id(flow_id), failure, revision=revision, blocked_by_task_id=blocked_by_task_id
        )

    async def finish(self, flow_id: str, *, revision: int, state: Document = msgspec.UNSET) -> Flow:
        return await self._flows.finish(await self._id(flow_id), revision=revision, state=state)

    async def fail(self, flow_id: str, failure: Failure, *, revision: int) -> Flow:
        return await self._flows.fail(await self._id(flow_id), failure, revision=revision)

    # --- for every flow

    async def link(self, flow_id: str, *task_ids: str) -> Flow:
        """Let a mirrored flow follow existing tasks of this owner."""
        found = await self._id(flow_id)
        with _not_found(""):
            return await self._flows.link(found, *task_ids)

    async def cancel(self, flow_id: str, reason: str, *, revision: int | None = None) -> FlowCancelOutcome:
        """Nothing of the flow starts any more, and it ends when its last task has ended."""
        return await self._flows.cancel(await self._id(flow_id), reason=reason, revision=revision)

    async def retry(self, flow_id: str, *, node: str | None = None) -> Flow:
        """Retry what blocks the flow: every node that did not succeed, or the one that is named."""
        return await self._flows.retry(await self._id(flow_id), node=node)


@contextmanager
def _not_found(record_id: str) -> Iterator[None]:
    """What belongs to another owner does not exist here."""
    try:
        yield
    except NotYours as error:
        raise NotFound(error.noun, record_id or error.record_id) from None
