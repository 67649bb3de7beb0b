"""Moves a flow as its tasks start, end and are reopened, in the transaction that changes the task.

The rule against deadlocks: a transaction locks tasks first and flows last, flows in the order of their ids.
So the change of a task is only noted here; the flow itself is locked and moved just before the commit.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import (
    Conflict,
    FlowsBlended,
    HoldfastError,
    KeyConflict,
    NotFound,
    NotYours,
    RowDamaged,
)
from holdfast.core.events import EventKind
from holdfast.core.flow import Flow, FlowNode, NodePlan, TaskChange, TaskChangeKind, node_key
from holdfast.core.ids import TaskId
from holdfast.core.payload import decode_payload
from holdfast.core.retention import DEFAULT_RETENTION
from holdfast.core.task import Failure, NotifyPolicy, Task
from holdfast.core.transitions import FlowNodeStatus, FlowStatus, TaskStatus
from holdfast.engine.ledger.new_tasks import NewTask, insert_prepared, prepare
from holdfast.store import Tx
from holdfast.store.tasks import KeyedRequest

# More nodes than this are not written on the thread of an event loop.
MOST_INLINE = 20

# Where a flow counts the end of a task.
COUNTER_OF = {
    TaskStatus.SUCCEEDED: "succeeded",
    TaskStatus.FAILED: "failed",
    TaskStatus.TIMED_OUT: "failed",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.LOST: "lost",
}
_NODE_END = {
    TaskStatus.SUCCEEDED: FlowNodeStatus.SUCCEEDED,
    TaskStatus.CANCELLED: FlowNodeStatus.CANCELLED,
}
# What a flow waits for: its tasks, or what only an operator or its producer can do.
TASKS, OPERATOR, PRODUCER = "tasks", "operator", "producer"
# The failure of a flow of which a node is damaged. Retries do not help: what follows the node is not known.
DAMAGED_NODE = "damaged_node"


# --- what the writes of tasks call


def insert_flow(tx: Tx, flow: Flow, *, now: datetime) -> None:
    """Store a new flow, and tell of it."""
    tx.flows.create(flow)
    tx.emit(
        EventKind.FLOW_CREATED,
        flow.id,
        at=now,
        name=flow.name,
        owner=flow.owner,
        mode=flow.mode.value,
        nodes=flow.nodes,
    )
    tx.hint("flows")


def check_joins(tx: Tx, task: Task) -> None:
    """A new task names a flow: lock it. Raises NotFound, NotYours, FlowsBlended, and Conflict if the flow has
    ended or is to be cancelled."""
    assert task.flow_id is not None
    flow = tx.flows.lock(task.flow_id)
    if flow.owner != task.owner:
        raise NotYours("flow", flow.id, task.owner)
    check_open(flow)


def check_open(flow: Flow) -> None:
    """Raises FlowsBlended or Conflict if no task from outside may join the flow."""
    if flow.has_nodes:
        raise FlowsBlended(
            flow.id,
            "starts the tasks of its own definition, so no other task may join it; start the task without "
            "this flow, or add a node to the definition",
        )
    if flow.has_ended:
        raise Conflict(f"{flow.id} is {flow.status.value}; a task can join only a flow that has not ended")
    if flow.cancel_requested_at is not None:
        raise Conflict(
            f"{flow.id} is to be cancelled ({flow.cancel_reason}), so no task starts in it any more"
        )


# --- before the commit


def settle(tx: Tx, flow_id: str, changes: list[TaskChange]) -> Flow | None:
    """Lock the flow and move it as these tasks changed; None if it did not move.

    A flow that is gone or damaged keeps no task from ending: an audit and `holdfast store verify` tell.
    """
    now = changes[-1].at
    try:
        flow = tx.flows.lock(flow_id)
    except NotFound:
        return None
    except RowDamaged as damage:
        tx.emit(EventKind.UPDATE_IGNORED, flow_id, at=now, asked="flow", status=damage.code)
        return None
    flow = _reopened(tx, flow, changes, now)
    if flow.has_ended:
        _count_late_ends(tx, flow, changes, now)
        return None
    after = _advanced(tx, flow, changes, now) if flow.has_nodes else _followed(flow, changes)
    return save_moved(tx, flow, after, now=now)


def _reopened(tx: Tx, flow: Flow, changes: list[TaskChange], now: datetime) -> Flow:
    """An ended mirrored flow is opened again with its task. Raises Conflict for a managed one: an operator's
    retry met its end."""
    if not flow.has_ended or all(change.kind is not TaskChangeKind.REOPENED for change in changes):
        return flow
    if not flow.is_mirrored:
        raise Conflict(
            f"{flow.id} is {flow.status.value}: its tasks can no longer be retried; start a new flow"
        )
    reopened = tx.flows.reopen(flow, now=now)
    tx.emit(EventKind.FLOW_REOPENED, flow.id, at=now, owner=flow.owner)
    return reopened


def _count_late_ends(tx: Tx, flow: Flow, changes: list[TaskChange], now: datetime) -> None:
    """Nothing moves a flow that has ended. One that was imported may have ended before its tasks: it counts
    their ends, so that it does not show live tasks for ever."""
    after = flow
    for change in changes:
        if change.kind is TaskChangeKind.ENDED and after.live:
            after = _counted(after, change)
            continue
        tx.emit(
            EventKind.UPDATE_IGNORED,
            flow.id,
            at=now,
            task_id=change.task_id,
            asked=change.kind.value,
            status=flow.status.value,
        )
    if after is not flow:
        tx.flows.save(flow, after)


def save_moved(tx: Tx, flow: Flow, after: Flow, *, now: datetime) -> Flow:
    """Write the flow in its new state, and tell of it."""
    if after.has_ended:
        after = msgspec.structs.replace(
            after, ended_at=now, cleanup_after=now + DEFAULT_RETENTION, waits_on=None, wait=None
        )
    after = msgspec.structs.replace(after, updated_at=now)
    before = flow
    if after.has_ended and flow.status is FlowStatus.BLOCKED and after.status is FlowStatus.SUCCEEDED:
        # What blocked it is over, so it went on before it ended.
        flow = msgspec.structs.replace(flow, status=FlowStatus.RUNNING, revision=flow.revision + 1)
        tx.flows.save(before, flow)
        after = msgspec.structs.replace(after, revision=max(after.revision, flow.revision + 1))
    tx.flows.save(flow, after)
    flow = before
    if after.status is not flow.status or after.blocked_by_task_id != flow.blocked_by_task_id:
        _tell(tx, flow, after, now)
    return after


def _tell(tx: Tx, flow: Flow, after: Flow, now: datetime) -> None:
    status, blocker = after.status.value, after.blocked_by_task_id
    if after.has_ended:
        tx.emit(EventKind.FLOW_ENDED, flow.id, at=now, status=status, name=flow.name, owner=flow.owner)
    elif after.status is FlowStatus.BLOCKED:
        why = None if after.failure is None else after.failure.message
        tx.emit(EventKind.FLOW_BLOCKED, flow.id, at=now, task_id=blocker, name=flow.name, why=why)
    else:
        tx.emit(EventKind.FLOW_MOVED, flow.id, at=now, status=status, before=flow.status.value)
    tx.hint("flows")


def _counted(flow: Flow, change: TaskChange) -> Flow:
    """The flow with its tasks counted anew."""
    if change.kind is TaskChangeKind.JOINED:
        return msgspec.structs.replace(flow, live=flow.live + 1)
    if change.status is None:
        return flow
    by = 1 if change.kind is TaskChangeKind.ENDED else -1
    counter = COUNTER_OF[change.status]
    counts = {"live": flow.live - by, counter: getattr(flow, counter) + by}
    return msgspec.structs.replace(flow, **counts)


# --- flows that follow their tasks, or that a controller updates


def _followed(flow: Flow, changes: list[TaskChange]) -> Flow:
    after = flow
    for change in changes:
        after = _counted(after, change)
        if flow.is_mirrored:
            after = _mirrored(after, change)
        elif change.kind is TaskChangeKind.REOPENED and after.blocked_by_task_id == change.task_id:
            after = unblocked(after)
    if after.is_mirrored:
        if after.live == 0:
            after = msgspec.structs.replace(after, status=_end_of(after))
        waits_on = TASKS if after.live else PRODUCER
        return msgspec.structs.replace(after, waits_on=waits_on, revision=flow.revision + 1)
    if after.cancel_requested_at is not None and after.live == 0:
        after = msgspec.structs.replace(after, status=FlowStatus.CANCELLED)
    # The revision is for the controller: that its tasks are counted anew must not refuse its next update.
    changed = after.status is not flow.status
    return msgspec.structs.replace(after, revision=flow.revision + 1 if changed else flow.revision)


def unblocked(flow: Flow) -> Flow:
    """A controller's flow whose blocking task goes on: its controller is to go on, too."""
    return msgspec.structs.replace(
        flow,
        status=FlowStatus.RUNNING,
        blocked_by_task_id=None,
        failure=None,
        waits_on=f"controller:{flow.controller}",
    )


def _mirrored(flow: Flow, change: TaskChange) -> Flow:
    """A mirrored flow is queued until its first task begins. A worker's task does not tell when it begins, so
    its flow runs from the first moment."""
    status, blocked_by = flow.status, flow.blocked_by_task_id
    has_joined = change.kind in (TaskChangeKind.JOINED, TaskChangeKind.REOPENED)
    if change.kind is TaskChangeKind.BEGAN or (has_joined and change.is_executed_here):
        status = FlowStatus.RUNNING
    elif has_joined:
        status = FlowStatus.QUEUED if flow.live == 1 else status
    elif change.kind is TaskChangeKind.ENDED:
        # A later success shows that nothing blocks what follows any more.
        blocked_by = change.task_id if change.is_blocked else None
    return msgspec.structs.replace(flow, status=status, blocked_by_task_id=blocked_by)


def _end_of(flow: Flow) -> FlowStatus:
    """How a mirrored flow without live tasks has ended: the worst end of its tasks counts."""
    for count, status in (
        (flow.lost, FlowStatus.LOST),
        (flow.failed, FlowStatus.FAILED),
        (flow.cancelled, FlowStatus.CANCELLED),
    ):
        if count:
            return status
    return FlowStatus.BLOCKED if flow.blocked_by_task_id is not None else FlowStatus.SUCCEEDED


# --- flows with nodes


def _advanced(tx: Tx, flow: Flow, changes: list[TaskChange], now: datetime) -> Flow:
    after = flow
    ready: list[FlowNode] = []
    for change in changes:
        node = tx.flow_nodes.of_task(change.task_id)
        if node is None:
            after = _without_node(after, change)
        elif change.kind is TaskChangeKind.REOPENED:
            if tx.flow_nodes.move(node, FlowNodeStatus.RUNNING, now=now) is not None:
                after = _counted(after, change)
        elif change.kind is TaskChangeKind.ENDED and change.status is not None:
            to = _NODE_END.get(change.status, FlowNodeStatus.FAILED)
            if tx.flow_nodes.move(node, to, now=now) is None:
                continue  # it was counted before
            after = _counted(after, change)
            if to is FlowNodeStatus.SUCCEEDED and flow.cancel_requested_at is None:
                after = _with_ready(tx, after, node, ready, now)
    after = start_nodes(tx, after, ready, now=now)
    return settled(tx, msgspec.structs.replace(after, revision=flow.revision + 1))


def _without_node(flow: Flow, change: TaskChange) -> Flow:
    """No node has this task: the row of its node is damaged or gone."""
    why = f"no node of {flow.id} has {change.task_id}: run `holdfast store verify`"
    failure = Failure(kind=DAMAGED_NODE, message=why)
    return msgspec.structs.replace(_counted(flow, change), failure=failure)


def _with_ready(tx: Tx, flow: Flow, node: FlowNode, ready: list[FlowNode], now: datetime) -> Flow:
    """Add the nodes that wait for nothing more. If the node is damaged, what follows it is not known: the
    flow is blocked, and an operator decides."""
    try:
        plan = node.read_plan()
    except RowDamaged as damage:
        failure = Failure(kind=DAMAGED_NODE, message=str(damage))
        return msgspec.structs.replace(flow, failure=failure, blocked_by_task_id=node.task_id)
    ready.extend(tx.flow_nodes.meet_needs(flow.id, plan.dependents, now=now))
    return flow


def settled(tx: Tx, flow: Flow) -> Flow:
    """A flow with nodes in the status that its counts give it."""
    if flow.succeeded == flow.nodes:
        return msgspec.structs.replace(
            flow, status=FlowStatus.SUCCEEDED, blocked_by_task_id=None, failure=None
        )
    if flow.cancel_requested_at is not None and flow.live == 0:
        return msgspec.structs.replace(flow, status=FlowStatus.CANCELLED)
    if flow.unsuccessful:
        return _blocked(tx, flow)
    if _is_damaged(flow) or flow.live == 0:
        return _stuck(flow)
    return msgspec.structs.replace(
        flow, status=FlowStatus.RUNNING, blocked_by_task_id=None, failure=None, waits_on=TASKS
    )


def _blocked(tx: Tx, flow: Flow) -> Flow:
    """Blocked by the first node of the definition that did not succeed, unless it is blocked already."""
    if flow.status is FlowStatus.BLOCKED and flow.blocked_by_task_id is not None:
        node = tx.flow_nodes.of_task(flow.blocked_by_task_id)
        if node is not None and node.status in (FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED):
            return flow
    found = tx.flow_nodes.failed(flow.id, limit=1)
    if not found:
        return _stuck(flow)
    node = found[0]
    return msgspec.structs.replace(
        flow,
        status=FlowStatus.BLOCKED,
        blocked_by_task_id=node.task_id,
        current_step=node.id,
        failure=flow.failure if _is_damaged(flow) else node.failure,
        waits_on=f"node:{node.id}" if node.task_id is None else f"task:{node.task_id}",
    )


def _stuck(flow: Flow) -> Flow:
    """Damage keeps its nodes from starting: only an operator can help, by cancelling it."""
    why = "none of its nodes can start, because one of them is damaged: run `holdfast store verify`"
    failure = flow.failure if _is_damaged(flow) else Failure(kind=DAMAGED_NODE, message=why)
    return msgspec.structs.replace(flow, status=FlowStatus.BLOCKED, failure=failure, waits_on=OPERATOR)


def _is_damaged(flow: Flow) -> bool:
    return flow.failure is not None and flow.failure.kind == DAMAGED_NODE


def start_nodes(tx: Tx, flow: Flow, nodes: list[FlowNode], *, now: datetime) -> Flow:
    """Create the tasks of these nodes, whose needs have succeeded. The caller holds the flow.

    A node whose task cannot be created has failed: the task that ended must not fail for that.
    """
    if len(nodes) > MOST_INLINE:
        tx.sealing.leave_loop()
    for node in nodes:
        try:
            task_id = _create_task(tx, flow, node, now)
        except (KeyConflict, RowDamaged, _NotStarted) as error:
            failure = Failure(kind=getattr(error, "code", "not_started"), message=str(error))
            tx.flow_nodes.move(node, FlowNodeStatus.FAILED, now=now, failure=failure)
            flow = msgspec.structs.replace(flow, failed=flow.failed + 1)
            continue
        moved = tx.flow_nodes.move(node, FlowNodeStatus.RUNNING, now=now, task_id=task_id)
        assert moved is not None, "the flow is locked, and the node was read under that lock"
        tx.emit(EventKind.FLOW_NODE_STARTED, flow.id, at=now, task_id=task_id, node=node.id)
        flow = msgspec.structs.replace(flow, live=flow.live + 1, current_step=node.id)
    return flow


class _NotStarted(Exception):
    """Why the task of a node cannot be created."""


def _create_task(tx: Tx, flow: Flow, node: FlowNode, now: datetime) -> TaskId:
    plan = node.read_plan()
    key = node_key(flow.id, node.id)
    try:
        task, run = prepare(
            NewTask(
                name=plan.task,
                goal=plan.goal or f"{node.id} of {flow.goal}"[:500],
                owner=flow.owner,
                arguments=_arguments(tx, flow, node, plan),
                runtime=plan.runtime,
                flow_id=flow.id,
                key=key,
                notify=NotifyPolicy.SILENT,
                priority=plan.priority,
                has_own_goal=False,
            ),
            now,
        )
    except RowDamaged:
        raise
    except HoldfastError as error:  # the results of its needs make arguments that cannot be stored
        raise _NotStarted(f"the arguments of {node.id} cannot be stored: {error}") from error
    # Without its own words the key has one form only, because no secret is in a flow's id: no second lookup.
    kept, _ = insert_prepared(tx, task, run, now, KeyedRequest())
    if kept.flow_id != flow.id or kept.has_ended:
        raise _NotStarted(f"the key {key!r} belongs to {kept.id}, which is no task of this flow")
    return kept.id


def _arguments(tx: Tx, flow: Flow, node: FlowNode, plan: NodePlan) -> object:
    """The arguments with the results of the nodes that it needs."""
    if not plan.results:
        return plan.arguments
    needed = {one.place: one for one in tx.flow_nodes.at(flow.id, plan.sources)}
    tasks = tx.tasks.get_many([one.task_id for one in needed.values() if one.task_id is not None])
    arguments = plan.arguments
    for use, place in zip(plan.results, plan.sources, strict=True):
        source = needed.get(place)
        task = None if source is None or source.task_id is None else tasks.get(source.task_id)
        if task is None:
            raise _NotStarted(f"{node.id} takes the result of {use.node}, whose task is gone: it was pruned")
        stored = b"null" if task.checked().result is None else task.result
        assert stored is not None
        found = decode_payload(tx.blobs.open(stored))
        arguments = _filled(arguments, use.to, _part(found, use.path, node.id, use.node))
    return arguments


def _part(value: object, path: tuple[str | int, ...], node_id: str, source: str) -> object:
    for step in path:
        try:
            value = value[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            raise _NotStarted(f"{node_id} takes {step!r} of the result of {source}, which has none") from None
    return value


def _filled(value: object, to: tuple[str | int, ...], part: object) -> object:
    """A copy of the arguments with one value replaced."""
    if not to:
        return part
    step, rest = to[0], to[1:]
    if isinstance(value, dict):
        return {**value, step: _filled(value.get(step), rest, part)}
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        return [*value[:step], _filled(value[step], rest, part), *value[step + 1 :]]
    raise _NotStarted("its plan has no place for a result that it takes")
