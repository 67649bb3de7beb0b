"""Builds the definition of a flow from typed calls: `hf.flow("release").node("build", build())`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

from holdfast.core.errors import BadInput
from holdfast.core.flow_definition import (
    FlowDefinition,
    NodeDefinition,
    NodeResult,
    check_definition,
    split_results,
)
from holdfast.core.task import DEFAULT_PRIORITY
from holdfast.engine.program.definitions import Call, TaskDefinition, checked_call

T = TypeVar("T")


class PlannedNode(Generic[T]):
    """A node of a flow that is being built. Pass its `result` to calls of other nodes."""

    __slots__ = ("_result", "definition", "id")

    def __init__(self, node_id: str, definition: TaskDefinition[..., T]) -> None:
        self.id = node_id
        self.definition = definition
        self._result = NodeResult(node_id)

    @property
    def result(self) -> T:
        """The result that the node will have: typed as what its task returns, and filled in when the task
        that takes it is created."""
        return cast(T, self._result)

    def __repr__(self) -> str:
        return f"<node {self.id}>"


class FlowBuilder:
    """A flow that is being built: nodes, each with the nodes that it needs."""

    def __init__(self, name: str, *, goal: str | None = None) -> None:
        self.name = name
        self._goal = goal
        self._nodes: list[NodeDefinition] = []

    def node(
        self,
        node_id: str,
        call: Call[T],
        *,
        after: Sequence[PlannedNode[Any] | str] = (),
        goal: str | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> PlannedNode[T]:
        """Add a node: this call becomes a task when the nodes in `after`, and those whose results it takes,
        have succeeded."""
        checked = checked_call(call)
        if isinstance(after, str) or not isinstance(after, Sequence):
            raise BadInput("after", f"a list of nodes is needed, not {type(after).__name__}")
        arguments, results = split_results(checked.arguments)
        self._nodes.append(
            NodeDefinition(
                id=node_id,
                task=checked.name,
                arguments=arguments,
                results=results,
                needs=tuple(_id_of(one) for one in after),
                goal=checked.goal if goal is None and not results else goal,
                priority=priority,
            )
        )
        return PlannedNode(node_id, checked.definition)

    def definition(self) -> FlowDefinition:
        """The definition, checked. Raises BadInput for cycles, unknown nodes and the like."""
        return check_definition(FlowDefinition(name=self.name, nodes=tuple(self._nodes), goal=self._goal))

    def __repr__(self) -> str:
        return f"<flow {self.name} with {len(self._nodes)} nodes>"


def flow(name: str, *, goal: str | None = None) -> FlowBuilder:
    """Begin the definition of a flow. Start it with `holdfast.start_flow(…)`."""
    return FlowBuilder(name, goal=goal)


def _id_of(node: PlannedNode[Any] | str) -> str:
    if isinstance(node, PlannedNode):
        return node.id
    if not isinstance(node, str):
        raise BadInput("after", f"a node or its id is needed, not {type(node).__name__}")
    return node
