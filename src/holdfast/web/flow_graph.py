"""FlowGraph: where the nodes of a flow and the lines between them stand on a drawing; pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.views.flows import FlowNodeView

# Of one node, and between two; a layer of more nodes than columns takes several rows.
WIDTH, HEIGHT = 150, 52
GAP_X, GAP_Y, ROW_GAP = 18, 44, 14
COLUMNS = 6
MARGIN = 6
NAME_CHARS = 18


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node and its upper left corner."""

    node: FlowNodeView
    x: int
    y: int
    # Whether it keeps the flow from going on.
    is_blocker: bool

    @property
    def title(self) -> str:
        """As much of its name as fits."""
        name = self.node.id
        return name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line from a node to one that needs it, as the path of an SVG."""

    path: str
    # `met` if the first node has succeeded, `lit` if it blocks the second one, else `open`.
    kind: str


class FlowGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The drawing of one flow."""

    width: int
    height: int
    nodes: list[GraphNode]
    lines: list[GraphLine]
    node_width: int = WIDTH
    node_height: int = HEIGHT


def draw_flow(nodes: Sequence[FlowNodeView], blockers: Sequence[FlowNodeView]) -> FlowGraph | None:
    """From above to below: each node stands in a layer under all that it needs."""
    if not nodes:
        return None
    blocking = {one.id for one in blockers}
    layers: dict[int, list[FlowNodeView]] = {}
    for node in nodes:
        layers.setdefault(node.depth, []).append(node)
    columns = min(COLUMNS, max(len(layer) for layer in layers.values()))
    width = columns * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    placed: dict[str, GraphNode] = {}
    top = MARGIN
    for depth in sorted(layers):
        layer = _in_order(layers[depth], placed)
        rows = [layer[start : start + COLUMNS] for start in range(0, len(layer), COLUMNS)]
        for row in rows:
            left = (width - (len(row) * (WIDTH + GAP_X) - GAP_X)) // 2
            for place, node in enumerate(row):
                x = left + place * (WIDTH + GAP_X)
                placed[node.id] = GraphNode(node=node, x=x, y=top, is_blocker=node.id in blocking)
            top += HEIGHT + ROW_GAP
        top += GAP_Y - ROW_GAP
    lines = [
        _line(placed[need], one)
        for one in placed.values()
        for need in one.node.needs
        # What it needs may stand on another page.
        if need in placed
    ]
    # A lit line is drawn over the others.
    lines.sort(key=lambda line: line.kind == "lit")
    return FlowGraph(width=width, height=top - GAP_Y + MARGIN, nodes=list(placed.values()), lines=lines)


def _in_order(layer: Sequence[FlowNodeView], placed: dict[str, GraphNode]) -> list[FlowNodeView]:
    """Each node as near as possible to what it needs, so that few lines cross."""

    def middle(node: FlowNodeView) -> float:
        above = [placed[need].x for need in node.needs if need in placed]
        return sum(above) / len(above) if above else 0.0

    return sorted(layer, key=middle)


def _line(above: GraphNode, below: GraphNode) -> GraphLine:
    x1, y1 = above.x + WIDTH // 2, above.y + HEIGHT
    x2, y2 = below.x + WIDTH // 2, below.y
    bend = max(14, (y2 - y1) // 2)
    kind = "lit" if above.is_blocker else "met" if above.node.status == "succeeded" else "open"
    return GraphLine(path=f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}", kind=kind)
