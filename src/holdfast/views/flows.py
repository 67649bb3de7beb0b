"""FlowView, FlowNodeView, a page of flows, and one flow in full: sanitized, with stable fields."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.errors import RowDamaged
from holdfast.core.flow import Flow, FlowNode
from holdfast.core.task import Task
from holdfast.core.transitions import FlowNodeStatus, FlowStatus
from holdfast.views.events import EventView
from holdfast.views.payloads import FailureView, PayloadView
from holdfast.views.tasks import MAX_GOAL_CHARS, TaskView
from holdfast.views.text import bounded, maybe_line, one_line
from holdfast.views.waits import WaitView, kind_of

# How many needs of one node are shown.
MAX_NEEDS = 100
_NOT_DONE = (FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED)


class FlowTaskCountsView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many tasks of a flow are alive, and how the others ended."""

    live: int
    succeeded: int
    # Includes tasks that timed out, and nodes that could not start.
    failed: int
    cancelled: int
    lost: int


class FlowView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One flow, in a list."""

    id: str
    status: str
    # `managed` or `task_mirrored`.
    mode: str
    name: str | None
    goal: str
    owner: str
    # The program that updates it; null for a flow with nodes and for one that mirrors its tasks.
    controller: str | None
    revision: int
    current_step: str | None
    # How many nodes its definition has; 0 for a flow without one.
    nodes: int
    tasks: FlowTaskCountsView
    waits_on: str | None
    blocked_by_task_id: str | None
    failure: FailureView | None
    cancel_requested_at: datetime | None
    cancel_reason: str | None
    key: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, flow: Flow) -> FlowView:
        return cls(
            id=one_line(flow.id),
            status=flow.status.value,
            mode=flow.mode.value,
            name=maybe_line(flow.name),
            goal=bounded(flow.goal, MAX_GOAL_CHARS),
            owner=one_line(flow.owner),
            controller=maybe_line(flow.controller),
            revision=flow.revision,
            current_step=maybe_line(flow.current_step),
            nodes=flow.nodes,
            tasks=FlowTaskCountsView(
                live=flow.live,
                succeeded=flow.succeeded,
                failed=flow.failed,
                cancelled=flow.cancelled,
                lost=flow.lost,
            ),
            waits_on=maybe_line(flow.waits_on),
            blocked_by_task_id=maybe_line(flow.blocked_by_task_id),
            failure=FailureView.maybe(flow.failure),
            cancel_requested_at=flow.cancel_requested_at,
            cancel_reason=maybe_line(flow.cancel_reason),
            key=maybe_line(flow.dedup_key),
            created_at=flow.created_at,
            updated_at=flow.updated_at,
            ended_at=flow.ended_at,
        )


class FlowPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of flows, newest first, with the number in each status."""

    # How many flows this page has.
    count: int = 0
    # The statuses that were asked for, with commas; null for all.
    status: str | None = None
    flows: list[FlowView] = []
    counts: dict[str, int] = {}
    # Damaged flows, one sentence each; empty if there are none.
    problems: list[str] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class FlowNodeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node of a flow: its task, what it needs, and why it has not succeeded."""

    id: str
    status: str
    # The name of its task; null if the node is damaged, or no key opens it.
    task: str | None
    needs: list[str]
    # How many of its needs have not succeeded yet.
    unmet: int
    # How many nodes stand before it on the longest way through this page; 0 for one that needs nothing.
    depth: int
    # Null until it has started.
    task_id: str | None
    task_status: str | None
    # What it waits for, or why it failed, in words; null if there is nothing to say.
    why: str | None
    failure: FailureView | None
    updated_at: datetime

    @classmethod
    def of(
        cls,
        node: FlowNode,
        task: Task | None,
        *,
        why: str | None,
        depth: int = 0,
        task_status: str | None = None,
    ) -> FlowNodeView:
        """`task_status` is that of its task as it is shown elsewhere, too."""
        name, needs = plan_of(node)
        failure = node.failure if node.failure is not None or task is None else task.failure
        is_over = node.status in _NOT_DONE
        return cls(
            id=one_line(node.id),
            status=node.status.value,
            task=maybe_line(name),
            needs=[one_line(need) for need in needs[:MAX_NEEDS]],
            unmet=node.unmet,
            depth=depth,
            task_id=maybe_line(node.task_id),
            task_status=task_status,
            why=maybe_line(why),
            failure=FailureView.maybe(failure) if is_over else None,
            updated_at=node.updated_at,
        )


class FlowNodePageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes of a flow: by pages in the order of the definition, and in a page each after what it needs."""

    nodes: list[FlowNodeView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class FlowTaskPageView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tasks of a flow, oldest first."""

    tasks: list[TaskView] = []
    # For `--page`: the next page; null at the end.
    next_page_token: str | None = None


class FlowDetailView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One flow in full: its documents, a page of its nodes or tasks, and its last events."""

    flow: FlowView
    # What it waits for, with the next command; null if it has ended.
    waits_for: WaitView | None
    state: PayloadView | None = None
    wait: PayloadView | None = None
    # When retention may delete it; null until it has ended.
    cleanup_after: datetime | None = None
    # What keeps the flow from going on: the first nodes that did not succeed.
    blockers: list[FlowNodeView] = []
    nodes: list[FlowNodeView] = []
    # Tasks of these nodes; of a flow without nodes, a page of its tasks.
    tasks: list[TaskView] = []
    # For `--page`: the next page of nodes, or of tasks; null at the end.
    next_page_token: str | None = None
    # The last ones, oldest first.
    events: list[EventView] = []
    # Damaged parts, one sentence each; empty if there are none.
    problems: list[str] = []


class FlowStateView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The documents of a flow in full, with the revision that an update must name."""

    flow_id: str
    status: str
    revision: int
    current_step: str | None
    state: Any
    wait: Any
    # An update cannot revive a flow whose cancel was requested.
    cancel_requested_at: datetime | None

    @classmethod
    def of(cls, flow: Flow) -> FlowStateView:
        """Raises KeyLost if no key opens the documents."""
        flow.checked()
        return cls(
            flow_id=one_line(flow.id),
            status=flow.status.value,
            revision=flow.revision,
            current_step=maybe_line(flow.current_step),
            # Pass the stored JSON on without decoding it.
            state=None if flow.contents is None else msgspec.Raw(flow.contents),
            wait=None if flow.wait is None else msgspec.Raw(flow.wait),
            cancel_requested_at=flow.cancel_requested_at,
        )


class FlowCreatedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A new flow, or the one with the same key."""

    flow: FlowView
    is_new: bool


class FlowChangedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A flow after an update; the next one names this revision."""

    flow: FlowView


class FlowCancelView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a cancel, also for a flow that cannot be cancelled."""

    # False if there is no such flow.
    found: bool
    # True if it is cancelled, or will be when its last task has ended.
    cancelled: bool
    # Why it is not cancelled, or not yet; null if it is.
    reason: str | None
    # `cancelled`, `cancel_requested`, `already_ended` or `not_found`.
    outcome: str
    flow: FlowView | None = None


class FlowRetriedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A retried flow, and the nodes that go on; of a flow without nodes, its blocking task."""

    flow: FlowView
    # At most 100 of them.
    nodes: list[FlowNodeView]
    task_ids: list[str]


def plan_of(node: FlowNode) -> tuple[str | None, tuple[str, ...]]:
    """The name of its task and its needs; neither is known of a damaged or sealed node."""
    try:
        plan = node.read_plan()
    except RowDamaged:
        return None, ()
    return plan.task, plan.needs


def flow_wait(flow: Flow, blocker: Task | None = None) -> WaitView | None:
    """What a flow waits for, in words, with the command that helps. `blocker` is its blocking task."""
    if flow.has_ended or flow.waits_on is None:
        return None
    kind, subject = kind_of(flow.waits_on)
    words, command = _words(flow, kind, subject, blocker)
    return WaitView(
        kind=one_line(kind, 40),
        subject_id=one_line(subject) or None,
        words=bounded(words),
        until=None,
        command=None if command is None else one_line(command),
    )


def brief_flow_wait(waits_on: str | None) -> str:
    """The wait of a flow for a table cell; a dash if there is none."""
    if waits_on is None:
        return "-"
    kind, subject = kind_of(waits_on)
    return one_line(
        {
            "tasks": "its tasks",
            "task": "a task",
            "node": f"its node {subject}",
            "controller": subject,
            "producer": "its producer",
            "operator": "an operator",
        }.get(kind, waits_on),
        40,
    )


def _words(flow: Flow, kind: str, subject: str, blocker: Task | None) -> tuple[str, str | None]:
    if flow.cancel_requested_at is not None:
        return f"it is being cancelled, and ends with {_lives(flow)}", None
    retry = f"holdfast tasks flow retry {flow.id}"
    if flow.is_mirrored and flow.status is FlowStatus.BLOCKED:
        by = flow.blocked_by_task_id
        says = f"the producer of {by or 'its last task'} says that something blocks what follows it"
        words = f"{says}; the flow goes on when a producer records its next task"
        return words, None if by is None else f"holdfast tasks show {by}"
    match kind:
        case "task" if flow.status is FlowStatus.BLOCKED:
            step = "" if flow.current_step is None or not flow.has_nodes else f" (node {flow.current_step})"
            ended = "" if blocker is None else f", which is {blocker.status.value}"
            why = "" if blocker is None or blocker.failure is None else f": {blocker.failure.message}"
            return f"blocked by {subject}{step}{ended}{why}", retry
        case "task":
            return f"the end of {subject}", f"holdfast tasks show {subject}"
        case "node":
            why = "" if flow.failure is None else f": {flow.failure.message}"
            return f"blocked by its node {subject}, which could not start{why}", retry
        case "controller":
            if flow.status is FlowStatus.BLOCKED and flow.failure is not None:
                return f"its controller {subject!r} says: {flow.failure.message}", None
            return f"its controller {subject!r} updates it", None
        case "producer":
            return "the program that records its tasks has not recorded one yet", None
        case "operator":
            why = "it is damaged" if flow.failure is None else flow.failure.message
            return why, f"holdfast tasks flow cancel {flow.id}"
        case _:
            return f"the end of {_lives(flow)}", None


def _lives(flow: Flow) -> str:
    return "its live task" if flow.live == 1 else f"its {flow.live:,} live tasks"
