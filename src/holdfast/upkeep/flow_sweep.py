"""The part of a sweep that is about flows: it reconciles them with their tasks, stamps and prunes them.

Like the rest of a sweep it is a plan that is read first; each write checks its change again.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.core.clock import Clock
from holdfast.core.errors import HoldfastError
from holdfast.core.events import EventKind
from holdfast.core.flow import Flow
from holdfast.core.retention import DEFAULT_RETENTION
from holdfast.engine.client.flows import Flows
from holdfast.engine.ledger.retention import pruning_flows
from holdfast.engine.recovery.flow_reconcile import reconciling_flow
from holdfast.store import Store, Tx, Write
from holdfast.upkeep.flow_audit import LivePages

# How many changes of each kind one plan has; the next pass continues.
MOST_PLANNED = 500


class FlowChangeKind(StrEnum):
    """What a sweep does to a flow."""

    # Its tasks are gone, or their ends have not reached it.
    RECONCILE = "reconcile"
    # Its cancel was requested, and not all of its tasks were asked to stop.
    STOP = "stop"
    # An ended flow gets the time to clean it up.
    STAMP = "stamp"
    # A flow whose retention is over is deleted.
    PRUNE = "prune"


class PlannedFlowChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a flow that a sweep would make, and why."""

    kind: FlowChangeKind
    flow_id: str
    reason: str
    cleanup_after: datetime | None = None


class SweptFlows(msgspec.Struct, frozen=True, kw_only=True):
    """How many flows a pass changed; a flow that changed after the plan was read is not counted."""

    reconciled: int = 0
    stamped: int = 0
    pruned: int = 0

    @classmethod
    def of(cls, kinds: Counter[FlowChangeKind]) -> SweptFlows:
        return cls(
            reconciled=kinds[FlowChangeKind.RECONCILE] + kinds[FlowChangeKind.STOP],
            stamped=kinds[FlowChangeKind.STAMP],
            pruned=kinds[FlowChangeKind.PRUNE],
        )


def plan_flows(
    tx: Tx, *, prune_at: datetime | None, retention: timedelta = DEFAULT_RETENTION
) -> list[PlannedFlowChange]:
    """What one pass would change. Without `prune_at` nothing is to be deleted."""
    pruned = [] if prune_at is None else tx.flows.past_retention(now=prune_at, limit=MOST_PLANNED)
    return [
        *_to_reconcile(tx),
        *[
            PlannedFlowChange(
                kind=FlowChangeKind.STAMP,
                flow_id=flow_id,
                reason="it has ended without a time to clean it up",
                cleanup_after=ended_at + retention,
            )
            for flow_id, ended_at in tx.flows.unstamped(limit=MOST_PLANNED)
        ],
        *[
            PlannedFlowChange(kind=FlowChangeKind.PRUNE, flow_id=flow_id, reason="its retention is over")
            for flow_id in pruned
        ],
    ]


def _to_reconcile(tx: Tx) -> list[PlannedFlowChange]:
    """Flows that count more live tasks than there are, and cancelled ones with tasks that were not asked."""
    found: list[PlannedFlowChange] = []
    for page in LivePages(tx):
        live = tx.flows.live_tasks([flow.id for flow in page])
        for flow in page:
            found += _planned(tx, flow, live.get(flow.id, 0))
        if len(found) >= MOST_PLANNED:
            break
    return found[:MOST_PLANNED]


def _planned(tx: Tx, flow: Flow, live: int) -> list[PlannedFlowChange]:
    if live < flow.live:
        why = f"it counts {flow.live:,} live tasks, and {live:,} exist"
        return [PlannedFlowChange(kind=FlowChangeKind.RECONCILE, flow_id=flow.id, reason=why)]
    if flow.cancel_requested_at is not None and tx.tasks.to_stop(flow.id, limit=1):
        why = "its cancel was requested, and not all of its tasks were asked to stop"
        return [PlannedFlowChange(kind=FlowChangeKind.STOP, flow_id=flow.id, reason=why)]
    return []


async def apply_to_flows(
    store: Store,
    clock: Clock,
    changes: list[PlannedFlowChange],
    *,
    now: datetime,
    prune_at: datetime | None,
) -> SweptFlows:
    """Make these changes. A flow that has changed is left alone, so a plan may be applied late, twice, or by
    two processes."""
    kinds: Counter[FlowChangeKind] = Counter()
    for change in changes:
        match change.kind:
            case FlowChangeKind.RECONCILE:
                write = reconciling_flow(change.flow_id, now=now, why=change.reason)
                kinds[change.kind] += await store.write(write)
            case FlowChangeKind.STOP:
                kinds[change.kind] += await _stop(store, clock, change)
            case FlowChangeKind.STAMP:
                kinds[change.kind] += await store.write(_stamping(change, now=now))
    pruned = frozenset(change.flow_id for change in changes if change.kind is FlowChangeKind.PRUNE)
    if pruned:
        at = now if prune_at is None else prune_at
        kinds[FlowChangeKind.PRUNE] = await _prune(store, pruned, at)
    return SweptFlows.of(kinds)


async def _stop(store: Store, clock: Clock, change: PlannedFlowChange) -> bool:
    flows = Flows(store, clock)
    try:
        return await flows.stop_rest(await flows.get(change.flow_id)) > 0
    except HoldfastError:  # it is gone, or damaged: an audit tells
        return False


async def _prune(store: Store, flow_ids: frozenset[str], now: datetime) -> int:
    """Delete these flows; one write deletes as many as it may, so that no other waits for long."""
    total = 0
    while gone := await store.write(pruning_flows(now=now, limit=MOST_PLANNED, only=flow_ids)):
        total += len(gone)
    return total


def _stamping(change: PlannedFlowChange, *, now: datetime) -> Write[bool]:
    cleanup_after = change.cleanup_after
    assert cleanup_after is not None

    def stamp(tx: Tx) -> bool:
        if tx.flows.stamp(change.flow_id, cleanup_after=cleanup_after):
            why = change.reason
            tx.emit(EventKind.FLOW_SWEPT, change.flow_id, at=now, change=change.kind.value, why=why)
            return True
        found = tx.flows.find(change.flow_id)
        return found is not None and found.cleanup_after == cleanup_after

    return stamp
