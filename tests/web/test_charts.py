"""The charts of a campaign and the drawing of a flow, as arithmetic."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from holdfast.views.flows import FlowNodeView
from holdfast.views.progress import RateView
from holdfast.views.throughput import ThroughputSpanView, ThroughputView
from holdfast.web.charts import done_over_time, done_per_span
from holdfast.web.flow_graph import COLUMNS, FlowGraph, GraphNode, draw_flow

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def throughput(*done: int, before: int = 0, total: int = 100) -> ThroughputView:
    """Spans until noon."""
    began = [NOON - timedelta(minutes=5 * (len(done) - place)) for place in range(len(done))]
    return ThroughputView(
        campaign_id="camp_1",
        campaign="survey",
        phase="analysis",
        at=NOON,
        span_s=300,
        done=before + sum(done),
        total=total,
        spans=[ThroughputSpanView(began_at=at, done=one) for at, one in zip(began, done, strict=True)],
    )


def rate(*minutes: int | None, left: int = 60) -> RateView:
    """Expected, at best and at worst, so many minutes after noon."""
    eta, low, high = [None if one is None else NOON + timedelta(minutes=one) for one in minutes]
    return RateView(per_hour=60.0, left=left, eta=eta, eta_low=low, eta_high=high)


def node(name: str, *needs: str, depth: int = 0, status: str = "pending") -> FlowNodeView:
    return FlowNodeView(
        id=name,
        status=status,
        task="graft",
        needs=list(needs),
        unmet=len(needs),
        depth=depth,
        task_id=None,
        task_status=None,
        why=None,
        failure=None,
        updated_at=NOON,
    )


def test_what_is_done_adds_up_and_goes_on_as_the_estimate_says() -> None:
    chart = done_over_time(throughput(10, 20, before=10), rate(60, 45, 100))

    assert chart is not None
    known, _, best, worst, expected = [one.values for one in chart.series]
    assert known == [10, 20, 40, None, None, None]
    assert expected == [None, None, 40.0, 85.0, 100.0, 100.0]
    assert (best[-3:], worst[-3:]) == ([100.0, 100.0, 100.0], [67.0, 76.0, 100.0])
    assert chart.times == sorted(set(chart.times))
    assert json.loads(chart.json)["bands"] == [[3, 4]]


def test_a_worst_case_without_an_end_stays_on_the_chart() -> None:
    chart = done_over_time(throughput(10, 20), rate(60, 45, None))

    assert chart is not None
    assert chart.times[-1] == int((NOON + timedelta(minutes=120)).timestamp())
    assert chart.series[3].values[-1] == 30.0


def test_without_an_estimate_only_what_is_known_is_drawn() -> None:
    chart = done_over_time(throughput(0, 0), rate(None, None, None))

    assert chart is not None
    assert [one.label for one in chart.series] == ["Done", "All items"]
    assert done_over_time(throughput(), rate(60, 45, 100)) is None


def test_each_span_is_a_point() -> None:
    chart = done_per_span(throughput(3, 0, 5))

    assert chart is not None
    assert chart.series[0].values == [3, 0, 5]
    assert done_per_span(throughput()) is None


def test_each_node_stands_below_what_it_needs() -> None:
    nodes = [
        node("cut", status="succeeded"),
        node("graft", "cut", depth=1),
        node("leaves", "cut", depth=1, status="failed"),
        node("blossom", "graft", "leaves", depth=2),
    ]

    graph = draw_flow(nodes, [nodes[2]])

    assert graph is not None
    placed = by_name(graph)
    assert placed["cut"].y < placed["graft"].y == placed["leaves"].y < placed["blossom"].y
    assert [one.node.id for one in graph.nodes if one.is_blocker] == ["leaves"]
    assert [line.kind for line in graph.lines] == ["met", "met", "open", "lit"]


def test_a_wide_layer_takes_several_rows_and_nothing_overlaps() -> None:
    nodes = [node("first"), *(node(f"n{number}", "first", depth=1) for number in range(3 * COLUMNS - 1))]

    graph = draw_flow(nodes, [])

    assert graph is not None
    corners = {(one.x, one.y) for one in graph.nodes}
    assert len(corners) == len(nodes)
    assert len({y for _, y in corners}) == 4
    assert all(x >= 0 and x + graph.node_width <= graph.width for x, _ in corners)
    assert all(y + graph.node_height <= graph.height for _, y in corners)


def test_a_long_name_is_cut_and_a_need_of_another_page_has_no_line() -> None:
    graph = draw_flow([node("a" * 40, "elsewhere")], [])

    assert graph is not None
    assert len(graph.nodes[0].title) < 20
    assert graph.lines == []
    assert draw_flow([], []) is None


def by_name(graph: FlowGraph) -> dict[str, GraphNode]:
    return {one.node.id: one for one in graph.nodes}
