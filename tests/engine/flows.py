"""Small flows for tests, and a worker that ends their tasks as the test says."""

from __future__ import annotations

from typing import Any

from holdfast.core.clock import Clock
from holdfast.core.flow import Flow, FlowNode, NeededResult
from holdfast.core.flow_definition import FlowDefinition, NodeDefinition
from holdfast.core.task import Failure, Task
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.ledger.flows import NewFlow, creating_flow
from holdfast.store import Store
from tests.engine.parts import Parts

BROKEN = Failure(kind="test", message="it broke")


def a_node(node_id: str, *needs: str, **changes: Any) -> NodeDefinition:
    return NodeDefinition(**{"id": node_id, "task": node_id, "needs": needs} | changes)


def a_definition(*nodes: NodeDefinition, name: str = "release") -> FlowDefinition:
    return FlowDefinition(name=name, nodes=nodes)


def taking(node: str, *path: str | int, to: str = "text") -> NeededResult:
    return NeededResult(to=(to,), node=node, path=path)


# build → (test, lint) → publish
RELEASE = a_definition(
    a_node("build"),
    a_node("test", "build"),
    a_node("lint", "build"),
    a_node("publish", "test", "lint"),
)


async def start(store: Store, clock: Clock, definition: FlowDefinition = RELEASE, **changes: Any) -> Flow:
    facts: dict[str, Any] = {"definition": definition, "owner": "ada"}
    new = NewFlow(**facts | changes)
    return await store.write(creating_flow(new, now=clock.now()))


async def flow_of(store: Store, flow_id: str) -> Flow:
    return await store.read(lambda tx: tx.flows.get(flow_id))


async def nodes_of(store: Store, flow_id: str) -> dict[str, FlowNode]:
    nodes = await store.read(lambda tx: tx.flow_nodes.page(flow_id, limit=10_000))
    return {node.id: node for node in nodes}


async def statuses(store: Store, flow_id: str) -> dict[str, str]:
    return {node_id: node.status.value for node_id, node in (await nodes_of(store, flow_id)).items()}


async def tasks_of(store: Store, flow_id: str) -> dict[str, Task]:
    tasks = await store.read(lambda tx: tx.tasks.of_flow(flow_id, limit=10_000))
    return {task.name: task for task in tasks}


class FlowWorker:
    """Takes what is ready, and ends it when the test says so."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.held: dict[str, ClaimedRun] = {}

    async def take(self) -> set[str]:
        """The names of the tasks that it holds now."""
        for claimed in await self.parts.claims.take(1000):
            self.held[claimed.task.name] = claimed
        return set(self.held)

    async def finish(self, name: str, result: object = None) -> None:
        await self.take()
        await self.parts.ledger.finish(self.held.pop(name).claim, result)

    async def fail(self, name: str) -> None:
        await self.take()
        await self.parts.ledger.fail(self.held.pop(name).claim, BROKEN)
