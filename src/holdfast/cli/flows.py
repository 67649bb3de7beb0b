"""tasks flow: flows of several tasks, as a list and in full; changes have a file of their own."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.api.flows import FlowPartsAsked, FlowsAsked, read_flow, read_flows
from holdfast.cli.groups import LazyListGroup
from holdfast.cli.invocation import Invocation, flow_argument, page_option, shared_options
from holdfast.cli.output import Output, ago, brief, clock_time, counted
from holdfast.cli.task_list import say_counts
from holdfast.core.transitions import FlowStatus
from holdfast.views.flows import (
    FlowDetailView,
    FlowNodeView,
    FlowPageView,
    FlowTaskCountsView,
    FlowView,
    brief_flow_wait,
)
from holdfast.views.text import one_line
from holdfast.views.waits import brief_wait

STATUSES = [status.value for status in FlowStatus]
_KNOWN_FACTS = ("name", "owner", "mode", "nodes")
# A deeper node shows its depth as a number.
MOST_MARKS = 4

FLOW: dict[str, tuple[str, str]] = {
    "list": ("holdfast.cli.flows:list_flows", "Flows, newest first; the command that may be left out."),
    "show": ("holdfast.cli.flows:show_flow", "One flow in full: its nodes, tasks, documents and events."),
    "start": ("holdfast.cli.flow_changes:start_flow", "Start a flow of config/workflows.yaml."),
    "cancel": ("holdfast.cli.flow_changes:cancel_flow", "Cancel a flow and its tasks."),
    "retry": ("holdfast.cli.flow_changes:retry_flow", "Retry what blocks a flow."),
}


@click.group("flow", cls=LazyListGroup, table=FLOW)
@shared_options
def flow() -> None:
    """Flows: state above several tasks."""


# --- list


@click.command("list", short_help="Flows, newest first.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(STATUSES),
    help="Only flows in this status; repeatable.",
)
@click.option("--owner", help="Only flows of this owner.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number to show."
)
@page_option
@shared_options
@click.pass_obj
def list_flows(
    call: Invocation, statuses: tuple[str, ...], owner: str | None, limit: int, page: str | None
) -> None:
    """Flows, newest first, a page at a time.

    TASKS counts what succeeded of all tasks; of a flow with a definition, of all its nodes.
    """
    asked = FlowsAsked(
        status=tuple(FlowStatus(status) for status in statuses), owner=owner, limit=limit, page_token=page
    )
    view = call.look_at_list("flows.list", asked, lambda tx: read_flows(tx, asked), FlowPageView())
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: FlowPageView, now: datetime) -> None:
    if view.flows:
        rows = [
            [
                one.id,
                one.status,
                _share(one),
                brief_flow_wait(one.waits_on),
                one.name or "-",
                one.owner,
                ago(one.updated_at, now),
                one.goal,
            ]
            for one in view.flows
        ]
        headers = ("ID", "STATUS", "TASKS", "WAITS FOR", "NAME", "OWNER", "CHANGED", "GOAL")
        output.table(headers, rows, leave=("OWNER", "CHANGED", "WAITS FOR", "NAME"))
    say_counts(output, "flow", view.counts, shown=view.count)
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _share(one: FlowView) -> str:
    """How many of its tasks have succeeded."""
    return f"{one.tasks.succeeded:,} of {one.nodes or _all_tasks(one.tasks):,}"


def _all_tasks(counts: FlowTaskCountsView) -> int:
    return counts.live + counts.succeeded + counts.failed + counts.cancelled + counts.lost


# --- show


@click.command("show", short_help="One flow in full.")
@flow_argument
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Maximum number of nodes or tasks to show.",
)
@page_option
@shared_options
@click.pass_obj
def show_flow(call: Invocation, flow_id: str, limit: int, page: str | None) -> None:
    """One flow: what it waits for, its documents, its nodes, its tasks and its last events.

    Nodes are in dependency order: each stands below the nodes that it needs, and the marks before its name
    tell how many stand before it.
    """
    asked = FlowPartsAsked(flow_id=flow_id, limit=limit, page_token=page)
    view = call.look(
        "flows.get", asked, lambda tx: read_flow(tx, asked, projection=call.projection()), FlowDetailView
    )
    call.output.show(view, lambda: print_flow(call.output, view, call.clock.now()))


def print_flow(output: Output, view: FlowDetailView, now: datetime) -> None:
    one = view.flow
    waits = view.waits_for
    output.fields(
        [
            ("flow", one.id),
            ("status", one.status),
            ("name", one.name),
            ("goal", one.goal),
            ("owner", one.owner),
            ("kind", _kind(one)),
            ("key", one.key),
            ("revision", str(one.revision)),
            ("step", one.current_step),
            ("tasks", _counts(one)),
            ("waits", None if waits is None else waits.words),
            ("next", None if waits is None else waits.command),
            ("failure", None if one.failure is None else f"{one.failure.kind}: {one.failure.message}"),
            ("cancel", _cancel(one)),
            ("created", clock_time(one.created_at)),
            ("changed", clock_time(one.updated_at)),
            ("ended", clock_time(one.ended_at)),
            ("state", None if view.state is None else brief(view.state)),
            ("wait", None if view.wait is None else brief(view.wait)),
        ]
    )
    if view.nodes:
        output.heading(_some(len(view.nodes), one.nodes, "node"))
        _print_nodes(output, view.nodes)
        shown = {node.id for node in view.nodes}
        elsewhere = [node for node in view.blockers if node.id not in shown]
        if elsewhere:
            output.heading("nodes that did not succeed, on other pages")
            _print_nodes(output, elsewhere)
    elif view.tasks:
        output.heading(_some(len(view.tasks), _all_tasks(one.tasks), "task"))
        rows = [
            (task.id, task.status, brief_wait(task.waits_on), ago(task.updated_at, now), task.name, task.goal)
            for task in view.tasks
        ]
        headers = ("ID", "STATUS", "WAITS FOR", "CHANGED", "NAME", "GOAL")
        output.table(headers, rows, leave=("CHANGED", "WAITS FOR", "NAME"))
    if view.events:
        output.heading(f"the last {counted(len(view.events), 'event')}")
        events = [
            (output.stamp(event.at), event.kind, event.task_id or "-", _facts(event.facts))
            for event in view.events
        ]
        output.table(("AT", "EVENT", "TASK", "FACTS"), events, leave=("TASK",))
    for problem in view.problems:
        output.say(f"damaged: {problem}")
    if view.next_page_token is not None:
        output.say_next(view.next_page_token)


def _print_nodes(output: Output, nodes: list[FlowNodeView]) -> None:
    rows = [
        (
            f"{_marks(node.depth)}{node.id}",
            node.status,
            node.task_id or "-",
            ", ".join(node.needs) or "-",
            node.why or "-",
        )
        for node in nodes
    ]
    headers = ("NODE", "STATUS", "TASK", "NEEDS", "WHY")
    output.table(headers, rows, leave=("NEEDS",), matters="WHY")


def _marks(depth: int) -> str:
    if depth > MOST_MARKS:
        return f"{'·' * MOST_MARKS}{depth} "
    return f"{'·' * depth} " if depth else ""


def _kind(one: FlowView) -> str:
    if one.mode == "task_mirrored":
        return "task_mirrored: it follows its tasks"
    if one.controller is not None:
        return f"managed by the controller {one.controller}"
    return f"managed: {counted(one.nodes, 'node')}, each started when all that it needs has succeeded"


def _counts(one: FlowView) -> str:
    counts = one.tasks
    parts = [
        f"{number:,} {word}"
        for number, word in (
            (counts.live, "live"),
            (counts.succeeded, "succeeded"),
            (counts.failed, "failed"),
            (counts.cancelled, "cancelled"),
            (counts.lost, "lost"),
        )
        if number
    ]
    pending = one.nodes - _all_tasks(counts)
    if pending > 0:
        parts.append(f"{pending:,} not started")
    return ", ".join(parts) or "none"


def _cancel(one: FlowView) -> str | None:
    if one.cancel_requested_at is None:
        return None
    return f"{one.cancel_reason or 'requested'} ({clock_time(one.cancel_requested_at)})"


def _some(shown: int, total: int, noun: str) -> str:
    return counted(shown, noun) if shown >= total else f"{shown:,} of {counted(total, noun)}"


def _facts(facts: dict[str, object]) -> str:
    """Without what stands above already."""
    shown = {name: value for name, value in facts.items() if value is not None and name not in _KNOWN_FACTS}
    return one_line(", ".join(f"{name}={value}" for name, value in shown.items())) or "-"
