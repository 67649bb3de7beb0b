"""Flows: create, read, update, cancel and retry flows, for programs, controllers and doors."""

from __future__ import annotations

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import BadInput
from holdfast.core.flow import Flow, FlowNode
from holdfast.core.ids import check_id
from holdfast.core.payload import check_number, decode_payload
from holdfast.core.task import Failure, Task
from holdfast.core.transitions import FlowStatus
from holdfast.engine.ledger.flows import (
    Document,
    FlowCancelOutcome,
    FlowChange,
    NewFlow,
    cancelling_flow,
    creating_flow,
    linking,
    owned_flow,
    stopping_rest,
    updating_flow,
)
from holdfast.engine.ledger.inputs import check_choice
from holdfast.engine.ledger.ledger import MAX_PAGE, cancelling, stopped_with
from holdfast.engine.recovery.flow_retry import retrying_flow
from holdfast.store import Store
from holdfast.store.tasks import LAST


class Flows:
    """The flows of a ledger. With an `owner`, only those of that owner: for controllers and plug-ins."""

    def __init__(self, store: Store, clock: Clock, *, owner: str | None = None) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner

    async def create(self, new: NewFlow) -> Flow:
        """The flow, durable when this returns, with the tasks of the nodes that need nothing. If the key is
        taken, the first flow with that key."""
        if self._owner is not None:
            new = msgspec.structs.replace(new, owner=self._owner)
        return await self._store.write(creating_flow(new, now=self._clock.now()))

    # --- reading

    async def get(self, flow_id: str) -> Flow:
        """Raises NotFound, NotYours."""
        check_id("flow", flow_id)
        return await self._store.read(lambda tx: owned_flow(tx.flows.get(flow_id), self._owner))

    async def page(
        self, *, statuses: tuple[FlowStatus, ...] = (), before: str = LAST, limit: int = 50
    ) -> list[Flow]:
        """Newest first; the id of the last one is the page token of the next page."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        if before != LAST:
            check_id("before", before)
        if not isinstance(statuses, (tuple, list)):
            raise BadInput("statuses", f"a tuple of them is needed, not {type(statuses).__name__}")
        wanted = tuple(check_choice("status", status, FlowStatus) for status in statuses)
        return await self._store.read(
            lambda tx: tx.flows.page(statuses=wanted, owner=self._owner, before=before, limit=limit)
        )

    async def nodes(self, flow_id: str, *, after: str = "", limit: int = 100) -> list[FlowNode]:
        """In the order of the definition; the place of the last one is the page token of the next page."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        await self.get(flow_id)
        return await self._store.read(lambda tx: tx.flow_nodes.page(flow_id, after=after, limit=limit))

    async def tasks(self, flow_id: str, *, after: str = "", limit: int = 100) -> list[Task]:
        """Oldest first; the id of the last one is the page token of the next page."""
        check_number("limit", limit, low=1, high=MAX_PAGE)
        await self.get(flow_id)
        return await self._store.read(lambda tx: tx.tasks.of_flow(flow_id, after=after, limit=limit))

    # --- a controller's updates: each names the revision that it has read

    async def update(self, flow_id: str, change: FlowChange, *, revision: int) -> Flow:
        """Raises RevisionMismatch if another update came first; then read the flow again and decide anew."""
        return await self._store.write(
            updating_flow(flow_id, change, revision=revision, now=self._clock.now(), owner=self._owner)
        )

    async def wait(
        self,
        flow_id: str,
        wait: object,
        *,
        revision: int,
        state: Document = msgspec.UNSET,
        current_step: str | msgspec.UnsetType | None = msgspec.UNSET,
        blocked_by_task_id: str | None = None,
    ) -> Flow:
        """The flow waits; its wait document says for what."""
        change = FlowChange(
            to=FlowStatus.WAITING,
            wait=wait,
            state=state,
            current_step=current_step,
            blocked_by_task_id=blocked_by_task_id,
        )
        return await self.update(flow_id, change, revision=revision)

    async def resume(
        self,
        flow_id: str,
        *,
        revision: int,
        state: Document = msgspec.UNSET,
        current_step: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Flow:
        """The flow runs (again); its wait document is forgotten."""
        change = FlowChange(to=FlowStatus.RUNNING, state=state, current_step=current_step)
        return await self.update(flow_id, change, revision=revision)

    async def block(
        self, flow_id: str, failure: Failure, *, revision: int, blocked_by_task_id: str | None = None
    ) -> Flow:
        """The flow cannot go on until an operator or its controller does something."""
        change = FlowChange(to=FlowStatus.BLOCKED, failure=failure, blocked_by_task_id=blocked_by_task_id)
        return await self.update(flow_id, change, revision=revision)

    async def finish(self, flow_id: str, *, revision: int, state: Document = msgspec.UNSET) -> Flow:
        """Raises Conflict while one of its tasks is alive."""
        return await self.update(flow_id, FlowChange(to=FlowStatus.SUCCEEDED, state=state), revision=revision)

    async def fail(
        self, flow_id: str, failure: Failure, *, revision: int, state: Document = msgspec.UNSET
    ) -> Flow:
        """Raises Conflict while one of its tasks is alive."""
        change = FlowChange(to=FlowStatus.FAILED, failure=failure, state=state)
        return await self.update(flow_id, change, revision=revision)

    # --- for every flow

    async def link(self, flow_id: str, *task_ids: str) -> Flow:
        """Let a mirrored flow follow existing tasks of its owner."""
        return await self._store.write(linking(flow_id, task_ids, now=self._clock.now(), owner=self._owner))

    async def cancel(self, flow_id: str, *, reason: str, revision: int | None = None) -> FlowCancelOutcome:
        """Request the end of a flow: from now on nothing of it starts, and its tasks are asked to stop. The
        request is permanent; the flow ends when its last task has ended."""
        outcome = await self._store.write(
            cancelling_flow(
                flow_id, reason=reason, now=self._clock.now(), owner=self._owner, revision=revision
            )
        )
        if outcome.flow.cancel_requested_at is not None and not outcome.flow.has_ended:
            await self.stop_rest(outcome.flow)
        return outcome

    async def stop_rest(self, flow: Flow) -> int:
        """Ask the tasks of a cancelled flow to stop that the first write did not ask: those of a large flow
        after the first page, and those that started at the same moment. Returns how many it asked."""
        total = 0
        while asked := await self._store.write(stopping_rest(flow.id, now=self._clock.now())):
            total += asked
        # Tasks that another transaction held just now; alone, each can be waited for without a deadlock.
        held = await self._store.read(lambda tx: tx.tasks.to_stop(flow.id, limit=MAX_PAGE))
        for task_id in held:
            write = cancelling(task_id, reason=stopped_with(flow), owner=None, now=self._clock.now())
            await self._store.write(write)
        return total + len(held)

    async def retry(self, flow_id: str, *, node: str | None = None) -> Flow:
        """Retry what blocks the flow: all nodes that did not succeed, or the one that is named. Each goes on
        as the same task, after its last saved step."""
        now = self._clock.now()
        flow = await self._store.write(retrying_flow(flow_id, node_id=node, now=now, owner=self._owner))
        while node is None and flow.status is FlowStatus.BLOCKED:
            left = flow.unsuccessful
            flow = await self._store.write(retrying_flow(flow_id, now=self._clock.now(), owner=self._owner))
            if flow.unsuccessful >= left:
                break  # what is left cannot be started
        return flow


def state_of(flow: Flow) -> object:
    """The state document of a flow. Raises KeyLost."""
    return None if flow.checked().contents is None else decode_payload(flow.contents or b"null")


def wait_of(flow: Flow) -> object:
    """The wait document of a flow. Raises KeyLost."""
    return None if flow.checked().wait is None else decode_payload(flow.wait or b"null")
