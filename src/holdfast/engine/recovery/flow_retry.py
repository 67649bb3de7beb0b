"""An operator's retry of a blocked flow: exactly the nodes that did not succeed go on."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import BadInput, Conflict, FlowsBlended, IllegalMove, RevisionMismatch
from holdfast.core.flow import Flow, FlowNode
from holdfast.core.ids import RunId, check_id, derived_id, new_token
from holdfast.core.payload import check_name
from holdfast.core.transitions import FlowNodeStatus, FlowStatus
from holdfast.engine.ledger.flow_progress import save_moved, settled, start_nodes
from holdfast.engine.ledger.flows import owned_flow
from holdfast.engine.recovery.operator_retry import retrying_task
from holdfast.store import Tx, Write

# How many nodes one write retries; the caller repeats it while the flow is blocked.
MOST_RETRIED = 100
_NOT_DONE = frozenset({FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED})


def retrying_flow(
    flow_id: str,
    *,
    now: datetime,
    node_id: str | None = None,
    owner: str | None = None,
    revision: int | None = None,
    token: str | None = None,
) -> Write[Flow]:
    """The write that retries what blocks a flow: every node that did not succeed (MOST_RETRIED of them), or
    the one that is named. Each keeps its task and its key; a follow-up run continues after its last saved
    step. A cancelled node is retried, too.

    Of a controller's flow, the blocking task is retried. Raises RevisionMismatch if the flow has changed
    since `revision` was read, IllegalMove for a flow that is not blocked, FlowsBlended for one that only
    mirrors its tasks, and what the retry of a task raises.
    """
    check_id("flow", flow_id)
    wanted = None if node_id is None else check_name("node", node_id)
    token = new_token() if token is None else token

    def retry(tx: Tx) -> Flow:
        flow = owned_flow(tx.flows.get(flow_id), owner)
        if flow.change_token == token:
            return flow  # this write runs again after its own commit
        _check_revision(flow, revision)
        _check(flow)
        nodes = _nodes(tx, flow, wanted) if flow.has_nodes else []
        if not nodes and (flow.has_nodes or flow.blocked_by_task_id is None):
            why = "" if flow.failure is None else f" ({flow.failure.message})"
            remedy = f"retried: nothing of it can be retried{why}; cancel it, or let its controller resume it"
            raise IllegalMove("flow", flow.id, flow.status.value, remedy)
        task_ids = sorted(node.task_id for node in nodes if node.task_id is not None)
        if not flow.has_nodes and flow.blocked_by_task_id is not None:
            task_ids = [flow.blocked_by_task_id]
        for task_id in task_ids:
            # The ids are made of the token, so that this write makes the same ones when it runs again.
            run_id = RunId(derived_id("run", now, token, task_id))
            retrying_task(task_id, now=now, may_be_cancelled=True, run_id=run_id)(tx)
        # Another retry may have come first while this write waited for the lock.
        _check_revision(tx.flows.lock(flow_id), revision)
        tx.act_now(flow_id)
        _start_again(tx, [node.place for node in nodes if node.task_id is None], flow_id, token, now)
        return tx.flows.get(flow_id)

    return retry


def _check_revision(flow: Flow, revision: int | None) -> None:
    if revision is not None and flow.revision != revision:
        raise RevisionMismatch(flow.id, revision, flow.revision)


def _check(flow: Flow) -> None:
    if flow.is_mirrored:
        raise FlowsBlended(
            flow.id,
            "mirrors its tasks, so it cannot be retried itself; let its producer record a new task with it, "
            f"or retry its task with `holdfast tasks retry` (`holdfast tasks flow show {flow.id}` names "
            "it); if it answered a message, send that again with `holdfast sessions send`",
        )
    if flow.status is not FlowStatus.BLOCKED:
        raise IllegalMove("flow", flow.id, flow.status.value, "retried: nothing blocks it")
    if flow.cancel_requested_at is not None:
        raise Conflict(f"{flow.id} is to be cancelled ({flow.cancel_reason}), so nothing of it is retried")


def _nodes(tx: Tx, flow: Flow, wanted: str | None) -> list[FlowNode]:
    if wanted is None:
        return tx.flow_nodes.failed(flow.id, limit=MOST_RETRIED)
    node = tx.flow_nodes.get(flow.id, wanted)
    if node.status not in _NOT_DONE:
        raise BadInput("node", f"{wanted} of {flow.id} is {node.status.value}; only a failed node is retried")
    return [node]


def _start_again(tx: Tx, places: list[str], flow_id: str, token: str, now: datetime) -> None:
    """Start nodes whose task could not be created, and mark the flow as retried by this write."""
    flow = tx.flows.lock(flow_id)
    if flow.has_ended or flow.cancel_requested_at is not None:
        raise Conflict(f"{flow_id} was cancelled or has ended meanwhile; nothing of it was started")
    # Read again under the lock: another retry may have started them.
    found = tx.flow_nodes.at(flow_id, places) if places else []
    nodes = [node for node in found if node.task_id is None and node.status is FlowNodeStatus.FAILED]
    if len(nodes) != len(places):
        raise Conflict(f"another retry of {flow_id} came first; look at it again before you retry")
    counts = msgspec.structs.replace(flow, failed=flow.failed - len(nodes))
    after = settled(tx, start_nodes(tx, counts, nodes, now=now)) if flow.has_nodes else flow
    after = msgspec.structs.replace(after, revision=flow.revision + 1, change_token=token)
    save_moved(tx, flow, after, now=now)
