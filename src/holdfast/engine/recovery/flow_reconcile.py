"""Brings a flow in line with its tasks after damage: a task is gone, or its end did not reach the flow."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from holdfast.core.errors import NotFound, RowDamaged
from holdfast.core.events import EventKind
from holdfast.core.flow import Flow, TaskChange, TaskChangeKind
from holdfast.core.ids import TaskId, check_id
from holdfast.core.transitions import FlowNodeStatus, TaskStatus
from holdfast.engine.ledger.flow_progress import COUNTER_OF, settle
from holdfast.engine.ledger.flows import locked_flow
from holdfast.store import Tx, Write

_PAGE = 1000
# Of each counter of a flow, an end that counts there.
_END_OF = {counter: status for status, counter in reversed(COUNTER_OF.items())}


def reconciling_flow(flow_id: str, *, now: datetime, why: str) -> Write[bool]:
    """The write that moves a flow as if each of its tasks that is gone had been lost, and as each of its
    tasks ended whose end it has missed. Returns whether it changed the flow.

    The flow is locked first and its tasks are only read: the end of a task moves its flow in one transaction,
    so under this lock an ended task and a flow that counts it as live disagree for good.
    """
    check_id("flow", flow_id)

    def reconcile(tx: Tx) -> bool:
        try:
            flow = locked_flow(tx, flow_id)
        except (NotFound, RowDamaged):
            return False
        if flow.updated_at == now:
            return True  # this write runs again after its own commit
        if flow.has_ended:
            return False
        changes = _missed_by_nodes(tx, flow, now) if flow.has_nodes else _missed(tx, flow, now)
        if not changes:
            return False
        settle(tx, flow_id, changes)
        tx.emit(EventKind.FLOW_SWEPT, flow_id, at=now, change="reconcile", why=why)
        return True

    return reconcile


def _missed_by_nodes(tx: Tx, flow: Flow, now: datetime) -> list[TaskChange]:
    """The ends of the tasks of running nodes that are gone or have ended."""
    changes: list[TaskChange] = []
    after = ""
    while page := tx.flow_nodes.page(flow.id, after=after, limit=_PAGE):
        running = [node.task_id for node in page if node.status is FlowNodeStatus.RUNNING and node.task_id]
        tasks = tx.tasks.get_many(running)
        for task_id in running:
            task = tasks.get(task_id)
            if task is None:
                changes.append(_end(task_id, TaskStatus.LOST, now))
            elif task.has_ended:
                changes.append(_end(task_id, task.status, now))
        after = page[-1].place
    return changes


def _missed(tx: Tx, flow: Flow, now: datetime) -> list[TaskChange]:
    """The ends that the counts of the flow lack: those of tasks that ended, and of tasks that are gone."""
    counts: Counter[str] = Counter()
    live = 0
    after = ""
    while page := tx.tasks.of_flow(flow.id, after=after, limit=_PAGE):
        live += sum(not task.has_ended for task in page)
        counts.update(COUNTER_OF[task.status] for task in page if task.has_ended)
        after = page[-1].id
    statuses = [
        status
        for counter, status in _END_OF.items()
        for _ in range(max(0, counts[counter] - getattr(flow, counter)))
    ]
    statuses += [TaskStatus.LOST] * (flow.live - live - len(statuses))
    return [_end(TaskId("task_gone"), status, now) for status in statuses[: max(0, flow.live - live)]]


def _end(task_id: TaskId, status: TaskStatus, now: datetime) -> TaskChange:
    return TaskChange(kind=TaskChangeKind.ENDED, task_id=task_id, at=now, status=status)
