"""Flows for the API and the CLI: a page of them, one in full, its nodes, its tasks and its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.api.contract import EVERYTHING, Reach
from holdfast.api.pages import bad_token, place_of, read_sound
from holdfast.api.params import IdText, NameText, PageSize, PageToken, Params
from holdfast.core.errors import HoldfastError, NotFound, NotYours, Refused
from holdfast.core.ids import check_id, is_whole_id
from holdfast.core.transitions import FlowNodeStatus, FlowStatus, TaskStatus
from holdfast.store.tasks import LAST
from holdfast.upkeep.projection import project_tasks
from holdfast.views.events import EventView
from holdfast.views.flows import (
    FlowDetailView,
    FlowNodePageView,
    FlowNodeView,
    FlowPageView,
    FlowStateView,
    FlowTaskPageView,
    FlowView,
    flow_wait,
    plan_of,
)
from holdfast.views.payloads import PayloadView
from holdfast.views.tasks import TaskView
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.flow import Flow, FlowNode
    from holdfast.core.task import Task
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

SHOWN_EVENTS = 20
SHOWN_BLOCKERS = 20
# How many unmet needs of a node are named in words.
NAMED_NEEDS = 5


# --- parameters of methods and commands


class FlowsAsked(Params, frozen=True, kw_only=True):
    """A page of flows, newest first: all, or those in these statuses or of this owner."""

    status: tuple[FlowStatus, ...] = ()
    owner: NameText | None = None
    limit: PageSize = 50
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


class FlowAsked(Params, frozen=True, kw_only=True):
    """One flow, by its id or a unique prefix of it."""

    flow_id: IdText


class FlowPartsAsked(Params, frozen=True, kw_only=True):
    """One flow with a page of its nodes or of its tasks."""

    flow_id: IdText
    limit: PageSize = 100
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


# --- what a caller may reach


def owner_of(reach: Reach) -> str | None:
    """The only owner whose flows the caller may reach. Raises Refused for a token that is limited to task
    names: a flow has tasks of any name."""
    if reach.names is not None:
        raise Refused(
            "this token is limited to task names, and a flow may have tasks of other names; use a token "
            "without that limit"
        )
    return reach.owner


def reached_flow(tx: Tx, prefix: str, reach: Reach = EVERYTHING) -> Flow:
    """The one flow with this id or prefix. A flow of another owner is not found, as if it did not exist."""
    from holdfast.engine.ledger.flows import owned_flow

    owner = owner_of(reach)
    check_id("flow", prefix)
    try:
        return owned_flow(tx.flows.get(tx.flows.resolve(prefix, owner=owner)), owner)
    except NotYours:
        raise NotFound("flow", prefix) from None


# --- a page of flows


def read_flows(tx: Tx, asked: FlowsAsked, *, reach: Reach = EVERYTHING) -> FlowPageView:
    """A limited caller sees only its own flows, and no counts of others."""
    bound = owner_of(reach)
    status = ",".join(dict.fromkeys(one.value for one in asked.status)) or None
    if bound is not None and asked.owner not in (None, bound):
        return FlowPageView(status=status)
    owner = asked.owner if bound is None else bound
    before = LAST
    if asked.page_token is not None:
        before = place_of("flow", asked.page_token, lambda token: reached_flow(tx, token, reach).id)
    problems: list[str] = []
    found = read_sound(
        lambda limit, place: tx.flows.page(statuses=asked.status, owner=owner, before=place, limit=limit),
        after=before,
        limit=asked.limit + 1,
        problems=problems,
    )
    shown = found[: asked.limit]
    return FlowPageView(
        count=len(shown),
        status=status,
        flows=[FlowView.of(flow) for flow in shown],
        counts={} if reach.is_bound else tx.events.counts("flow"),
        problems=problems,
        next_page_token=shown[-1].id if len(found) > len(shown) else None,
    )


# --- one flow


def read_flow(
    tx: Tx, asked: FlowPartsAsked, *, reach: Reach = EVERYTHING, projection: Projection | None = None
) -> FlowDetailView:
    """Everything about a flow; a damaged part is reported without hiding the others."""
    flow = reached_flow(tx, asked.flow_id, reach)
    problems: list[str] = []
    blocker = None if flow.blocked_by_task_id is None else _task(tx, flow.blocked_by_task_id)
    view = FlowDetailView(
        flow=FlowView.of(flow),
        waits_for=flow_wait(flow, blocker),
        state=None if flow.contents is None else PayloadView.of(flow.contents),
        wait=None if flow.wait is None else PayloadView.of(flow.wait),
        cleanup_after=flow.cleanup_after,
        problems=problems,
    )

    def read_parts() -> dict[str, object]:
        if not flow.has_nodes:
            page = _tasks(tx, flow, asked, projection)
            return {"tasks": page.tasks, "next_page_token": page.next_page_token}
        nodes, tasks, token = _nodes(tx, flow, asked, projection)
        return {"nodes": nodes, "tasks": [one for _, one in tasks.values()], "next_page_token": token}

    def read_blockers() -> dict[str, object]:
        found = [] if flow.has_ended else tx.flow_nodes.failed(flow.id, limit=SHOWN_BLOCKERS)
        return {"blockers": view_nodes(tx, flow, found)}

    def read_events() -> dict[str, object]:
        found = tx.events.newest_of_flow(flow.id, limit=SHOWN_EVENTS)
        return {"events": [EventView.of(event) for event in found]}

    for part in (read_parts, read_blockers, read_events):
        try:
            view = msgspec.structs.replace(view, **part())
        except HoldfastError as error:
            if part is read_parts and asked.page_token is not None:
                raise
            problems.append(one_line(str(error)))
    return view


def read_nodes(
    tx: Tx, asked: FlowPartsAsked, *, reach: Reach = EVERYTHING, projection: Projection | None = None
) -> FlowNodePageView:
    nodes, _, token = _nodes(tx, reached_flow(tx, asked.flow_id, reach), asked, projection)
    return FlowNodePageView(nodes=nodes, next_page_token=token)


def read_tasks(
    tx: Tx, asked: FlowPartsAsked, *, reach: Reach = EVERYTHING, projection: Projection | None = None
) -> FlowTaskPageView:
    return _tasks(tx, reached_flow(tx, asked.flow_id, reach), asked, projection)


def read_state(tx: Tx, asked: FlowAsked, *, reach: Reach = EVERYTHING) -> FlowStateView:
    """The documents in full, for the flow's controller."""
    return FlowStateView.of(reached_flow(tx, asked.flow_id, reach))


def view_nodes(tx: Tx, flow: Flow, nodes: Sequence[FlowNode]) -> list[FlowNodeView]:
    tasks = _tasks_of(tx, nodes, None)
    return [_node_view(node, tasks, {}, flow) for node in nodes]


def _task(tx: Tx, task_id: str) -> Task | None:
    return tx.tasks.get_many([task_id]).get(task_id)


def _tasks(tx: Tx, flow: Flow, asked: FlowPartsAsked, projection: Projection | None) -> FlowTaskPageView:
    after = asked.page_token or ""
    if after and not is_whole_id("task", after):
        raise bad_token(after)
    found = tx.tasks.of_flow(flow.id, after=after, limit=asked.limit + 1)
    shown = found[: asked.limit]
    token = shown[-1].id if len(found) > len(shown) else None
    views = _shown_tasks(tx, shown, projection)
    return FlowTaskPageView(tasks=[one for _, one in views.values()], next_page_token=token)


def _shown_tasks(
    tx: Tx, tasks: Sequence[Task], projection: Projection | None
) -> dict[str, tuple[Task, TaskView]]:
    """Each task and its view, in which a task whose worker is gone does not read as running."""
    shown = project_tasks(tx, list(tasks), projection)
    return {str(task.id): (task, TaskView.of(task).shown_as(shown.get(task.id))) for task in tasks}


def _tasks_of(
    tx: Tx, nodes: Sequence[FlowNode], projection: Projection | None
) -> dict[str, tuple[Task, TaskView]]:
    found = tx.tasks.get_many([node.task_id for node in nodes if node.task_id is not None])
    return _shown_tasks(tx, list(found.values()), projection)


def _nodes(
    tx: Tx, flow: Flow, asked: FlowPartsAsked, projection: Projection | None
) -> tuple[list[FlowNodeView], dict[str, tuple[Task, TaskView]], str | None]:
    """A page in the order of the definition; inside it, each node stands after the nodes that it needs."""
    after = asked.page_token or ""
    if after and not (after.isascii() and after.isdecimal()):
        raise bad_token(after)
    found = tx.flow_nodes.page(flow.id, after=after, limit=asked.limit + 1)
    page = found[: asked.limit]
    tasks = _tasks_of(tx, page, projection)
    known = {node.id: node for node in page}
    depths = _depths(page)
    ordered = sorted(page, key=lambda node: (depths[node.id], node.place))
    views = [_node_view(node, tasks, known, flow, depth=depths[node.id]) for node in ordered]
    return views, tasks, page[-1].place if len(found) > len(page) else None


def _depths(nodes: Sequence[FlowNode]) -> dict[str, int]:
    """How many nodes of this page stand before each on the longest way. A definition has no cycles; if damage
    made one, its nodes come last."""
    needs = {node.id: plan_of(node)[1] for node in nodes}
    unmet = {node_id: {need for need in needs[node_id] if need in needs} for node_id in needs}
    dependents: dict[str, list[str]] = {node_id: [] for node_id in needs}
    for node_id, wanted in unmet.items():
        for need in wanted:
            dependents[need].append(node_id)
    depths = dict.fromkeys(needs, 0)
    waiting = {node_id: len(wanted) for node_id, wanted in unmet.items()}
    free = [node_id for node_id, count in waiting.items() if count == 0]
    while free:
        node_id = free.pop()
        for dependent in dependents[node_id]:
            depths[dependent] = max(depths[dependent], depths[node_id] + 1)
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                free.append(dependent)
    last = max(depths.values(), default=0) + 1
    return {node_id: last if waiting[node_id] else depth for node_id, depth in depths.items()}


def _node_view(
    node: FlowNode,
    tasks: dict[str, tuple[Task, TaskView]],
    known: dict[str, FlowNode],
    flow: Flow,
    *,
    depth: int = 0,
) -> FlowNodeView:
    task, shown = tasks.get(node.task_id or "", (None, None))
    why = _why(node, task, known, flow)
    if shown is not None and shown.projection is not None:
        why = f"its worker is gone: {shown.projection.why}"
    return FlowNodeView.of(
        node, task, why=why, depth=depth, task_status=None if shown is None else shown.status
    )


def _why(node: FlowNode, task: Task | None, known: dict[str, FlowNode], flow: Flow) -> str | None:
    """What a node waits for, or why it did not succeed."""
    if node.is_damaged or node.is_sealed:
        return "damaged: run `holdfast store verify`" if node.is_damaged else "no key opens its plan"
    match node.status:
        case FlowNodeStatus.PENDING if flow.has_ended or flow.cancel_requested_at is not None:
            return f"not started: the flow {'was' if flow.has_ended else 'is being'} cancelled"
        case FlowNodeStatus.PENDING:
            return _needs_in_words(node, known)
        case FlowNodeStatus.RUNNING if task is None:
            return "its task is missing"
        case FlowNodeStatus.RUNNING if task is not None and task.status is TaskStatus.QUEUED:
            return f"queued for a worker that knows {one_line(task.name)!r}"
        case FlowNodeStatus.RUNNING if task is not None and task.waits_on is not None:
            return f"waits for {task.waits_on}"
        case FlowNodeStatus.CANCELLED if flow.cancel_requested_at is not None:
            return "cancelled with the flow"
        case FlowNodeStatus.FAILED | FlowNodeStatus.CANCELLED:
            failure = node.failure or (None if task is None else task.failure)
            if failure is not None:
                return f"{failure.kind}: {failure.message}"
            return "its task is gone" if task is None else task.cancel_reason
    return None


def _needs_in_words(node: FlowNode, known: dict[str, FlowNode]) -> str:
    _, needs = plan_of(node)
    here = [need for need in needs if need in known and _is_unmet(known[need])]
    ends = (FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED)
    blockers = [need for need in here if known[need].status in ends]
    if blockers:
        return f"blocked by {_listed(blockers)}"
    # The node counts the needs that it still waits for, also those on other pages.
    elsewhere = [need for need in needs if need not in known]
    count = node.unmet - len(here)
    if not 0 < count < len(elsewhere):
        return f"needs {_listed([*elsewhere, *here] if count > 0 else here)}"
    some = f"{count} of {_listed(elsewhere)}"
    return f"needs {_listed(here)}, and {some}" if here else f"needs {some}"


def _listed(needs: list[str]) -> str:
    more = f" and {len(needs) - NAMED_NEEDS} more" if len(needs) > NAMED_NEEDS else ""
    return f"{', '.join(needs[:NAMED_NEEDS])}{more}"


def _is_unmet(node: FlowNode) -> bool:
    return node.status is not FlowNodeStatus.SUCCEEDED
