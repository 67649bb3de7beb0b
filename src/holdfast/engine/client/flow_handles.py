"""FlowHandle: one flow, seen by the code that started it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.core.durations import Duration, parse_span
from holdfast.core.errors import BadInput, FlowFailed
from holdfast.core.flow import Flow, FlowNode
from holdfast.core.payload import decode_payload
from holdfast.core.transitions import FlowStatus, TaskStatus
from holdfast.engine.client.flows import Flows
from holdfast.engine.journal.codec import codec_of
from holdfast.engine.ledger.flows import FlowCancelOutcome
from holdfast.engine.ledger.ledger import opened
from holdfast.engine.program.flow_builder import PlannedNode
from holdfast.store import Tx

if TYPE_CHECKING:
    from holdfast.engine.client.handles import Holdfast

T = TypeVar("T")

# How often the flow is read if no notification comes.
_ASK_EVERY_S = 0.25
_PAGE = 1000


class FlowHandle:
    """One flow. Any number of handles, in any process, may refer to it."""

    def __init__(self, holdfast: Holdfast, flow_id: str) -> None:
        self._store = holdfast.store
        self._flows: Flows = holdfast.flows()
        self.id = flow_id

    async def flow(self) -> Flow:
        return await self._flows.get(self.id)

    async def status(self) -> FlowStatus:
        return (await self.flow()).status

    async def nodes(self) -> list[FlowNode]:
        """All nodes, in the order of the definition."""
        found: list[FlowNode] = []
        while page := await self._flows.nodes(self.id, after=found[-1].place if found else "", limit=_PAGE):
            found += page
        return found

    async def wait(self, *, timeout: Duration | None = None) -> Flow:  # noqa: ASYNC109 - reads well
        """Wait until the flow has ended, or is blocked and none of its tasks is alive: it needs a person.

        Raises TimeoutError after `timeout`; the flow itself goes on.
        """
        limit = None if timeout is None else parse_span("timeout", timeout).total_seconds()
        try:
            async with asyncio.timeout(limit):
                while not _has_stopped(flow := await self.flow()):
                    await self._store.wait_for("flows", _ASK_EVERY_S)
                return flow
        except TimeoutError:
            why = f"{self.id} has not ended after {timeout}; it goes on: look at it with handle.flow()"
            raise TimeoutError(why) from None

    async def result(self, node: PlannedNode[T], *, timeout: Duration | None = None) -> T:  # noqa: ASYNC109
        """Wait for the flow, and return the result of one of its nodes. Raises FlowFailed if that node did
        not succeed."""
        if not isinstance(node, PlannedNode):
            raise BadInput("node", f"a node of the flow is needed, not {type(node).__name__}")
        flow = await self.wait(timeout=timeout)
        found = await self._results([await self._node(node.id)])
        if node.id not in found:
            raise FlowFailed(flow.id, flow.status.value, flow.blocked_by_task_id, flow.failure)
        return cast(T, codec_of(node.definition.fn).decode(found[node.id]))

    async def results(self, *, timeout: Duration | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        """Wait for the flow, and return the result of each node. Raises FlowFailed if it did not succeed."""
        flow = await self.wait(timeout=timeout)
        if flow.status is not FlowStatus.SUCCEEDED:
            raise FlowFailed(flow.id, flow.status.value, flow.blocked_by_task_id, flow.failure)
        found = await self._results(await self.nodes())
        return {node_id: decode_payload(result) for node_id, result in found.items()}

    async def cancel(self, reason: str = "cancelled by its owner") -> FlowCancelOutcome:
        """Request the end of the flow: nothing of it starts any more, and its tasks are asked to stop."""
        return await self._flows.cancel(self.id, reason=reason)

    async def retry(self, node: PlannedNode[Any] | str | None = None) -> Flow:
        """Retry what blocks the flow: every node that did not succeed, or this one."""
        node_id = node.id if isinstance(node, PlannedNode) else node
        return await self._flows.retry(self.id, node=node_id)

    async def _node(self, node_id: str) -> FlowNode:
        return await self._store.read(lambda tx: tx.flow_nodes.get(self.id, node_id))

    async def _results(self, nodes: list[FlowNode]) -> dict[str, bytes]:
        """The stored results of those nodes that have succeeded."""

        def read(tx: Tx) -> dict[str, bytes]:
            tasks = tx.tasks.get_many([node.task_id for node in nodes if node.task_id is not None])
            return {
                node.id: opened(tx, tasks[node.task_id]).result or b"null"
                for node in nodes
                if node.task_id in tasks and tasks[node.task_id].status is TaskStatus.SUCCEEDED
            }

        return await self._store.read(read)

    def __repr__(self) -> str:
        return f"<handle of {self.id}>"


def _has_stopped(flow: Flow) -> bool:
    return flow.has_ended or (flow.status is FlowStatus.BLOCKED and flow.live == 0)
