"""FlowDefinition and NodeDefinition: the nodes of a flow and what each needs, checked before it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.core.errors import BadInput
from holdfast.core.flow import NeededResult, NodePlan
from holdfast.core.payload import (
    MAX_GOAL_BYTES,
    check_code_name,
    check_name,
    check_number,
    check_text,
    check_tree,
)
from holdfast.core.redaction import redact_name
from holdfast.core.task import DEFAULT_PRIORITY, LOWEST_PRIORITY, RuntimeName

MAX_NODES = 10_000
# All needs of all nodes.
MAX_NEEDS = 100_000
MAX_NODE_ID_CHARS = 100
_PLACE_DIGITS = 5


class NodeDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One node: the task to start when all its needs have succeeded. `results` fills results of needs into
    the arguments."""

    id: str
    task: str
    arguments: object = {}
    results: tuple[NeededResult, ...] = ()
    needs: tuple[str, ...] = ()
    goal: str | None = None
    priority: int = DEFAULT_PRIORITY
    runtime: RuntimeName = RuntimeName.PYTHON


class FlowDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A name and nodes: a directed graph without cycles."""

    name: str
    nodes: tuple[NodeDefinition, ...]
    goal: str | None = None


def place_of(number: int) -> str:
    return f"{number:0{_PLACE_DIGITS}d}"


def check_definition(definition: FlowDefinition) -> FlowDefinition:
    """The definition as it is stored. Raises BadInput, which names the node and the fix."""
    if not isinstance(definition, FlowDefinition):
        raise BadInput("flow", f"a definition of a flow is needed, not {type(definition).__name__}")
    name = check_name("flow name", definition.name)
    if not definition.nodes:
        raise BadInput(f"flow {name}", "it has no nodes; give it at least one")
    if len(definition.nodes) > MAX_NODES:
        raise BadInput(
            f"flow {name}", f"it has {len(definition.nodes)} nodes; {MAX_NODES} are allowed; split it"
        )
    nodes = tuple(_checked_node(name, node) for node in definition.nodes)
    _check_ids(name, nodes)
    _check_needs(name, nodes)
    cycle = _find_cycle(nodes)
    if cycle:
        way = " → ".join([*cycle, cycle[0]])
        raise BadInput(f"flow {name}", f"nodes need each other in a circle: {way}; remove one of these needs")
    goal = definition.goal
    return FlowDefinition(
        name=name,
        nodes=nodes,
        goal=None if goal is None else check_text("goal", goal, max_bytes=MAX_GOAL_BYTES),
    )


def _checked_node(flow: str, node: NodeDefinition) -> NodeDefinition:
    if not isinstance(node, NodeDefinition):
        raise BadInput(f"flow {flow}", f"a node is needed, not {type(node).__name__}")
    node_id = check_name(f"node of flow {flow}", node.id)
    if len(node_id) > MAX_NODE_ID_CHARS:
        raise BadInput(
            f"node of flow {flow}", f"{node_id[:20]}… is too long; use at most {MAX_NODE_ID_CHARS} characters"
        )
    field = f"node {node_id} of flow {flow}"
    task = check_code_name(f"task of {field}", node.task)
    if redact_name(task) != task:
        raise BadInput(f"task of {field}", "it holds a secret of this process; name the task otherwise")
    if not isinstance(node.arguments, dict):
        raise BadInput(f"arguments of {field}", "an object of names and values is needed")
    check_tree(f"arguments of {field}", node.arguments)
    for use in node.results:
        _check_result(field, use, node.arguments)
    if not RuntimeName(node.runtime).is_executed_here:
        raise BadInput(
            f"runtime of {field}", f"only a producer runs {node.runtime} tasks; a flow cannot start them"
        )
    return NodeDefinition(
        id=node_id,
        task=task,
        arguments=node.arguments,
        results=tuple(node.results),
        needs=tuple(dict.fromkeys((*node.needs, *(use.node for use in node.results)))),
        goal=None
        if node.goal is None
        else check_text(f"goal of {field}", node.goal, max_bytes=MAX_GOAL_BYTES),
        priority=check_number(f"priority of {field}", node.priority, low=0, high=LOWEST_PRIORITY),
        runtime=RuntimeName(node.runtime),
    )


def _check_result(field: str, use: NeededResult, arguments: object) -> None:
    """A result goes to a place that the arguments have, or to a new name in one of their objects."""
    for name, steps in (("to", use.to), ("path", use.path)):
        if not isinstance(steps, (tuple, list)) or not all(map(_is_step, steps)):
            raise BadInput(f"results of {field}", f"{name} is a list of names and whole numbers")
    if not use.to:
        raise BadInput(f"results of {field}", "to is empty; name the argument that takes the result")
    place = arguments
    for number, step in enumerate(use.to):
        is_last = number == len(use.to) - 1
        if isinstance(place, dict) and isinstance(step, str) and (is_last or step in place):
            place = place.get(step)
        elif isinstance(place, (list, tuple)) and isinstance(step, int) and 0 <= step < len(place):
            place = place[step]
        else:
            raise BadInput(
                f"results of {field}",
                f"its arguments have no place for {step!r} of to {list(use.to)!r}; add it",
            )


def _is_step(step: object) -> bool:
    return isinstance(step, (str, int)) and not isinstance(step, bool)


def _check_ids(flow: str, nodes: Sequence[NodeDefinition]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.id in seen:
            raise BadInput(f"flow {flow}", f"two nodes are called {node.id!r}; rename one")
        seen.add(node.id)


def _check_needs(flow: str, nodes: Sequence[NodeDefinition]) -> None:
    known = {node.id for node in nodes}
    total = sum(len(node.needs) for node in nodes)
    if total > MAX_NEEDS:
        raise BadInput(f"flow {flow}", f"its nodes have {total} needs; {MAX_NEEDS} are allowed; split it")
    for node in nodes:
        field = f"node {node.id} of flow {flow}"
        for need in node.needs:
            if need == node.id:
                raise BadInput(field, "it needs itself; remove that need")
            if need not in known:
                raise BadInput(field, f"it needs {need!r}, which is no node of the flow{hint(need, known)}")


def hint(wrong: str, known: Iterable[str]) -> str:
    import difflib  # only for a message

    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "; add that node, or remove the need"


def _find_cycle(nodes: Sequence[NodeDefinition]) -> list[str]:
    """The ids of nodes that need each other in a circle; empty if there is none."""
    unmet = {node.id: len(node.needs) for node in nodes}
    dependents: dict[str, list[str]] = {node.id: [] for node in nodes}
    for node in nodes:
        for need in node.needs:
            dependents[need].append(node.id)
    free = [node_id for node_id, count in unmet.items() if count == 0]
    while free:
        for dependent in dependents[free.pop()]:
            unmet[dependent] -= 1
            if unmet[dependent] == 0:
                free.append(dependent)
    left = {node.id: node.needs for node in nodes if unmet[node.id]}
    if not left:
        return []
    # Each node that is left needs another one that is left: follow the needs until one comes again.
    way = [next(iter(left))]
    while True:
        following = next(need for need in left[way[-1]] if need in left)
        if following in way:
            return way[way.index(following) :]
        way.append(following)


def plans_of(definition: FlowDefinition) -> list[tuple[str, str, NodePlan]]:
    """Place, id and plan of each node of a checked definition."""
    places = {node.id: place_of(number) for number, node in enumerate(definition.nodes)}
    dependents: dict[str, list[str]] = {node.id: [] for node in definition.nodes}
    for node in definition.nodes:
        for need in node.needs:
            dependents[need].append(places[node.id])
    return [
        (
            places[node.id],
            node.id,
            NodePlan(
                task=node.task,
                arguments=node.arguments,
                results=node.results,
                needs=node.needs,
                dependents=tuple(dependents[node.id]),
                sources=tuple(places[use.node] for use in node.results),
                goal=node.goal,
                priority=node.priority,
                runtime=node.runtime,
            ),
        )
        for node in definition.nodes
    ]


class NodeResult:
    """The result of a node that has not run yet, or a part of it, as an argument of another node:
    `check(build.result)`, `check(build.result["path"])`."""

    __slots__ = ("_node", "_path")

    def __init__(self, node: str, path: tuple[str | int, ...] = ()) -> None:
        self._node = node
        self._path = path

    def __getitem__(self, step: str | int) -> NodeResult:
        if isinstance(step, bool) or not isinstance(step, (str, int)):
            raise BadInput(repr(self), f"a name or a number is needed, not {type(step).__name__}")
        return NodeResult(self._node, (*self._path, step))

    def __getattr__(self, name: str) -> NodeResult:
        if name.startswith("_"):
            raise AttributeError(name)
        return NodeResult(self._node, (*self._path, name))

    def __iter__(self) -> Iterator[NodeResult]:
        raise BadInput(repr(self), "it has no value before the flow runs; take a part of it by its index")

    def __bool__(self) -> bool:
        raise BadInput(repr(self), "it has no value before the flow runs; decide inside a task")

    def needed(self, to: tuple[str | int, ...]) -> NeededResult:
        return NeededResult(to=to, node=self._node, path=self._path)

    def __repr__(self) -> str:
        return f"result of {self._node}{''.join(f'[{step!r}]' for step in self._path)}"


def split_results(arguments: object) -> tuple[object, tuple[NeededResult, ...]]:
    """Arguments without results of nodes, and where each result belongs."""
    found: list[NeededResult] = []
    plain = _without_results(arguments, (), found)
    return plain, tuple(found)


def _without_results(value: object, to: tuple[str | int, ...], found: list[NeededResult]) -> object:
    if isinstance(value, NodeResult):
        found.append(value.needed(to))
        return None
    if isinstance(value, dict):
        return {name: _without_results(one, (*to, name), found) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_results(one, (*to, place), found) for place, one in enumerate(value)]
    return value


def holds_result(value: object) -> bool:
    """Whether a result of a node is among these arguments."""
    if isinstance(value, NodeResult):
        return True
    if isinstance(value, dict):
        return any(holds_result(one) for one in value.values())
    return isinstance(value, (list, tuple)) and any(holds_result(one) for one in value)
