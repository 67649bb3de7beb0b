"""Rows of flows and of their nodes."""

from __future__ import annotations

from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import KeyLost, RowDamaged
from holdfast.core.flow import Flow, FlowMode, FlowNode
from holdfast.core.payload import digest_of
from holdfast.core.seal_mode import SEALED
from holdfast.core.transitions import FlowNodeStatus, FlowStatus
from holdfast.store.contract import Row
from holdfast.store.rows.reading import Params, json_of, mend_with, micros_of, moment_of, read_failure, reads
from holdfast.store.sealing import CLOSED, Sealing

# The columns after the first five, in the order of the table.
_LATER_COLUMNS = (
    "digest",
    "status",
    "revision",
    "current_step",
    "contents",
    "waits_on",
    "blocked_by_task_id",
    "cancel_requested_at",
    "updated_at",
    "ended_at",
    "name",
    "controller",
    "dedup_key",
    "wait",
    "documents_digest",
    "failure",
    "cancel_reason",
    "change_token",
    "nodes",
    "live",
    "succeeded",
    "failed",
    "cancelled",
    "lost",
    "cleanup_after",
)


@reads("flow")
def flow_from_row(row: Row, sealing: Sealing = CLOSED) -> Flow:
    """The flow; `is_sealed` when no key opens its documents: it may be shown and cancelled."""
    # Flows of an earlier schema have no name, and a digest of the first columns only.
    fixed = row[:5] if row[15] is None else (*row[:5], *row[15:18], row[23])
    if digest_of(*fixed) != row[5]:
        raise RowDamaged("flow", row[0])
    if row[19] is not None and digest_of(row[0], row[9], row[18]) != row[19]:
        raise RowDamaged("flow", row[0], "its documents were changed")
    is_sealed = False
    try:
        contents = sealing.maybe_open(row[9], "flows.contents", row[0])
        wait = sealing.maybe_open(row[18], "flows.wait", row[0])
    except KeyLost:
        contents, wait, is_sealed = _hidden(row[9]), _hidden(row[18]), True
    return Flow(
        id=row[0],
        owner=row[1],
        mode=FlowMode(row[2]),
        goal=row[3],
        created_at=from_micros(row[4]),
        status=FlowStatus(row[6]),
        revision=row[7],
        current_step=row[8],
        contents=contents,
        waits_on=row[10],
        blocked_by_task_id=row[11],
        cancel_requested_at=moment_of(row[12]),
        updated_at=from_micros(row[13]),
        ended_at=moment_of(row[14]),
        name=row[15],
        controller=row[16],
        dedup_key=row[17],
        wait=wait,
        failure=None if row[20] is None else read_failure(row[20]),
        cancel_reason=row[21],
        change_token=row[22],
        nodes=row[23],
        live=row[24],
        succeeded=row[25],
        failed=row[26],
        cancelled=row[27],
        lost=row[28],
        cleanup_after=moment_of(row[29]),
        is_sealed=is_sealed,
    )


def _hidden(stored: bytes | None) -> bytes | None:
    return None if stored is None else SEALED


def row_from_flow(flow: Flow, sealing: Sealing) -> Params:
    row: Params = {
        "id": flow.id,
        "owner": flow.owner,
        "mode": flow.mode.value,
        "goal": flow.goal,
        "created_at": to_micros(flow.created_at),
    }
    if flow.name is None:
        digest = digest_of(*row.values())
    else:
        digest = digest_of(*row.values(), flow.name, flow.controller, flow.dedup_key, flow.nodes)
    changing = changing_columns(flow, sealing)
    fixed = {
        "digest": digest,
        "name": flow.name,
        "controller": flow.controller,
        "dedup_key": flow.dedup_key,
        "nodes": flow.nodes,
    }
    return row | {column: fixed.get(column, changing.get(column)) for column in _LATER_COLUMNS}


def changing_columns(flow: Flow, sealing: Sealing) -> Params:
    """The columns that an update writes."""
    contents = sealing.maybe(flow.contents, "flows.contents", flow.id)
    wait = sealing.maybe(flow.wait, "flows.wait", flow.id)
    has_documents = contents is not None or wait is not None
    return {
        "status": flow.status.value,
        "revision": flow.revision,
        "current_step": flow.current_step,
        "contents": contents,
        "waits_on": flow.waits_on,
        "blocked_by_task_id": flow.blocked_by_task_id,
        "cancel_requested_at": micros_of(flow.cancel_requested_at),
        "updated_at": to_micros(flow.updated_at),
        "ended_at": micros_of(flow.ended_at),
        "wait": wait,
        "documents_digest": digest_of(flow.id, contents, wait) if has_documents else None,
        "failure": json_of(flow.failure),
        "cancel_reason": flow.cancel_reason,
        "change_token": flow.change_token,
        "live": flow.live,
        "succeeded": flow.succeeded,
        "failed": flow.failed,
        "cancelled": flow.cancelled,
        "lost": flow.lost,
        "cleanup_after": micros_of(flow.cleanup_after),
    }


@reads("flow node", mend_with({6: FlowNodeStatus}, (9,), (4, 10)))
def flow_node_from_row(row: Row, sealing: Sealing = CLOSED) -> FlowNode:
    """The node; `is_damaged` instead of an exception, because one bad node must not hide the others."""
    plan, is_sealed = row[3], False
    try:
        plan = sealing.open(plan, "flow_nodes.plan", row[0], row[1])
    except KeyLost:
        plan, is_sealed = SEALED, True
    return FlowNode(
        flow_id=row[0],
        place=row[1],
        id=row[2],
        plan=plan,
        created_at=from_micros(row[4]),
        is_damaged=digest_of(*row[:5]) != row[5],
        status=FlowNodeStatus(row[6]),
        unmet=row[7],
        task_id=row[8],
        failure=None if row[9] is None else read_failure(row[9]),
        updated_at=from_micros(row[10]),
        is_sealed=is_sealed,
    )


def row_from_flow_node(node: FlowNode, sealing: Sealing) -> Params:
    row: Params = {
        "flow_id": node.flow_id,
        "place": node.place,
        "node_id": node.id,
        "plan": sealing.seal(node.plan, "flow_nodes.plan", node.flow_id, node.place),
        "created_at": to_micros(node.created_at),
    }
    digest = digest_of(*row.values())
    return row | {
        "digest": digest,
        "status": node.status.value,
        "unmet": node.unmet,
        "task_id": node.task_id,
        "failure": json_of(node.failure),
        "updated_at": to_micros(node.updated_at),
    }
