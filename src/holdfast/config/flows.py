"""FlowSettings: a flow that an operator writes down, with its nodes and what each needs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.flow import NeededResult
from holdfast.core.flow_definition import FlowDefinition, NodeDefinition, check_definition
from holdfast.core.schedule_spec import COMMAND_TASK
from holdfast.core.session import AGENT_PREFIX
from holdfast.core.task import DEFAULT_PRIORITY, LOWEST_PRIORITY

# `{from: build}` in the arguments is the result of the node `build`, `{literal: …}` is exactly what it holds.
FROM, PATH, LITERAL = "from", "path", "literal"


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node of such a flow: the task to start when all that it needs has succeeded."""

    # The name of a task, or `module:task`.
    task: str
    args: dict[str, Any] = {}
    needs: list[str] = []
    goal: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=LOWEST_PRIORITY)] = DEFAULT_PRIORITY


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One flow of the section `workflows`."""

    goal: str | None = None
    nodes: dict[str, NodeSettings]

    def definition(self, name: str) -> FlowDefinition:
        """The definition of the flow, checked. Raises BadInput, which names the node and the fix."""
        nodes = [_node(node_id, one) for node_id, one in self.nodes.items()]
        return check_definition(FlowDefinition(name=name, nodes=tuple(nodes), goal=self.goal))


def _node(node_id: str, one: NodeSettings) -> NodeDefinition:
    if one.task == COMMAND_TASK:
        raise BadInput(f"task of node {node_id}", f"only schedules make tasks of {COMMAND_TASK}")
    if one.task.startswith(AGENT_PREFIX):
        why = "a task of an agent belongs to a session; name a task that sends the agent its message"
        raise BadInput(f"task of node {node_id}", why)
    results: list[NeededResult] = []
    arguments = _arguments(node_id, one.args, (), results)
    return NodeDefinition(
        id=node_id,
        task=one.task,
        arguments=arguments,
        results=tuple(results),
        needs=tuple(one.needs),
        goal=one.goal,
        priority=one.priority,
    )


def _arguments(node_id: str, value: object, to: tuple[str | int, ...], results: list[NeededResult]) -> object:
    """The arguments without `{from: node}`; each such result is noted with its place."""
    if isinstance(value, dict):
        if to and set(value) == {LITERAL}:
            return value[LITERAL]
        if to and set(value) in ({FROM}, {FROM, PATH}):
            if not isinstance(value[FROM], str):
                place = ".".join(["args", *map(str, to)])
                why = "`from` names a node; if you mean the table itself, write {literal: {from: …}}"
                raise BadInput(f"{place} of node {node_id}", why)
            path = value.get(PATH, [])
            steps = path if isinstance(path, list) else [path]
            results.append(NeededResult(to=to, node=value[FROM], path=tuple(steps)))
            return None
        return {name: _arguments(node_id, one, (*to, name), results) for name, one in value.items()}
    if isinstance(value, list):
        return [_arguments(node_id, one, (*to, place), results) for place, one in enumerate(value)]
    return value
